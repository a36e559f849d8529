"""PodGroups of scheduler-plugins and of Volcano in a running daemon, from the first pod to the last; time is virtual."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from plugins.pod_groups.coscheduling_objects import _ENDED
from scheduler.framework import PreBindPlugin
from scheduler.objects.decode import decode_pod
from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.manifests import MANIFESTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.daemon_harness import Cluster

EXAMPLE = MANIFESTS / "examples" / "gangs"
AS_QUEUE_SORT = (EXAMPLE / "scheduler.yaml").read_text()
CRDS = "customresourcedefinitions.apiextensions.k8s.io"
COSCHEDULING, VOLCANO = "podgroups.scheduling.x-k8s.io", "podgroups.scheduling.volcano.sh"
KINDS = [COSCHEDULING, VOLCANO]
_VERSIONS = {COSCHEDULING: "scheduling.x-k8s.io/v1alpha1", VOLCANO: "scheduling.volcano.sh/v1beta1"}


def pod_group(kind: str, name: str, min_member: int, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": _VERSIONS[kind],
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": min_member, **spec},
    }


def member(
    kind: str, group: str, name: str, task: str = "", seconds: float = 0, **fields: Any
) -> dict[str, Any]:
    pod = pod_object(name, **{"cpu": "1", **fields})
    annotations = pod["metadata"].setdefault("annotations", {})
    if seconds:
        annotations["simulator/run-seconds"] = str(seconds)
        pod["spec"]["restartPolicy"] = "Never"
    if kind == COSCHEDULING:
        pod["metadata"].setdefault("labels", {})["scheduling.x-k8s.io/pod-group"] = group
    else:
        annotations["scheduling.k8s.io/group-name"] = group
        if task:
            annotations["volcano.sh/task-spec"] = task
    return pod


def members(kind: str, group: str, count: int, **fields: Any) -> list[dict[str, Any]]:
    return [member(kind, group, f"{group}-{number}", **fields) for number in range(count)]


@asynccontextmanager
async def kinds_served(folder: Path, **options: Any) -> AsyncIterator[Cluster]:
    async with cluster(folder, kubelet=True, **options) as it:
        for kind in KINDS:
            await it.define(yaml.safe_load((MANIFESTS / "crds" / f"{kind}.yaml").read_text()))
        yield it


def of_kind(document: dict[str, Any]) -> str:
    """The kind of a document, as the store calls it."""
    plural, group = (
        document["kind"].lower() + "s",
        document["apiVersion"].rpartition("/")[0].partition("/")[0],
    )
    return f"{plural}.{group}" if group else plural


@asynccontextmanager
async def groups(folder: Path) -> AsyncIterator[Cluster]:
    """A cluster that serves both kinds, and a daemon that heeds them."""
    async with kinds_served(folder) as it, it.daemon((EXAMPLE / "scheduler.yaml").read_text()):
        yield it


def placed(it: Cluster) -> set[str]:
    return {pod["metadata"]["name"] for pod in it.pods() if pod["spec"].get("nodeName")}


def status(it: Cluster, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = it.server.store.get(kind, name, "default").get("status", {})
    return found


def phase_of(it: Cluster, kind: str, name: str) -> str:
    return str(status(it, kind, name).get("phase", ""))


def condition(it: Cluster, name: str) -> tuple[str, str, str]:
    """Type, reason and message of the one condition of a Volcano group."""
    [found] = status(it, VOLCANO, name).get("conditions") or [{}]
    return found.get("type", ""), found.get("reason", ""), found.get("message", "")


def writes(it: Cluster) -> int:
    """How often groups or pods were told something."""
    return len([each for each in it.server.requests if each.method == "PATCH" and "/status" in each.path])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_group_runs_from_its_first_pod_to_its_end(tmp_path: Path, kind: str) -> None:
    async with groups(tmp_path) as it:
        it.add_nodes(node_object("n", cpu="4"))
        it.server.store.create(kind, pod_group(kind, "g", 3))
        it.add_pods(*members(kind, "g", 2, seconds=20))
        await it.until(lambda: phase_of(it, kind, "g") == ("Pending" if kind == COSCHEDULING else "Inqueue"))
        await asyncio.sleep(10)
        assert not placed(it)

        it.add_pods(member(kind, "g", "g-2", seconds=20))
        await it.until(lambda: phase_of(it, kind, "g") == "Running")
        assert placed(it) == {"g-0", "g-1", "g-2"}
        await it.until(lambda: status(it, kind, "g")["running"] == 3)

        end = "Finished" if kind == COSCHEDULING else "Completed"
        await it.until(lambda: phase_of(it, kind, "g") == end)
        assert status(it, kind, "g")["succeeded"] == 3
        assert status(it, kind, "g")["running"] == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_group_that_does_not_fit_is_not_placed_at_all_and_little_is_written(
    tmp_path: Path, kind: str
) -> None:
    async with kinds_served(tmp_path) as it, it.daemon(AS_QUEUE_SORT) as daemon:
        it.add_nodes(node_object("n", cpu="2"))
        it.server.store.create(kind, pod_group(kind, "g", 3))
        it.add_pods(*members(kind, "g", 3))
        await asyncio.sleep(10)
        before, attempts = writes(it), daemon.cycles.attempts.noted
        for number in range(10):  # what is no part of its spec helps nobody
            it.server.store.patch(
                kind, "g", {"metadata": {"labels": {"n": str(number)}}}, namespace="default"
            )
            await asyncio.sleep(20)
        assert writes(it) == before
        assert daemon.cycles.attempts.noted == attempts
        assert not placed(it)

        it.add_nodes(node_object("m", cpu="2"))
        await it.until(lambda: len(placed(it)) == 3)


@pytest.mark.parametrize("phase", ["Finished", "Failed", "Completed"])
async def test_the_status_of_a_group_that_has_finished_stays(tmp_path: Path, phase: str) -> None:
    kind = VOLCANO if phase == "Completed" else COSCHEDULING
    async with groups(tmp_path) as it:
        it.server.store.create(kind, pod_group(kind, "g", 3))
        await it.until(lambda: phase_of(it, kind, "g") != "")
        it.server.store.patch(
            kind, "g", {"status": {"phase": phase}}, namespace="default", subresource="status"
        )
        it.add_pods(*members(kind, "g", 2))
        await asyncio.sleep(10)
        assert phase_of(it, kind, "g") == phase


async def test_conditions_of_others_stay_in_the_status_of_a_volcano_group(tmp_path: Path) -> None:
    theirs = {"type": "Audited", "status": "True", "reason": "ByHand", "message": ""}
    async with groups(tmp_path) as it:
        it.add_nodes(node_object("n", cpu="4"))
        it.server.store.create(VOLCANO, pod_group(VOLCANO, "g", 3))
        it.add_pods(*members(VOLCANO, "g", 2))
        await it.until(lambda: condition(it, "g")[0] == "Unschedulable")
        conditions = [theirs, *status(it, VOLCANO, "g")["conditions"]]
        it.server.store.patch(
            VOLCANO, "g", {"status": {"conditions": conditions}}, namespace="default", subresource="status"
        )
        it.add_pods(member(VOLCANO, "g", "g-2"))
        await it.until(lambda: phase_of(it, VOLCANO, "g") == "Running")

        found = status(it, VOLCANO, "g")["conditions"]
        assert theirs in found
        assert [each["type"] for each in found] == ["Audited", "Scheduled"]


@pytest.mark.parametrize("kind", KINDS)
async def test_pods_wait_for_the_object_of_their_group(tmp_path: Path, kind: str) -> None:
    async with kinds_served(tmp_path) as it, it.daemon(AS_QUEUE_SORT) as daemon:
        it.add_nodes(node_object("n", cpu="4"))
        it.add_pods(*members(kind, "g", 2))
        await asyncio.sleep(10)
        assert not placed(it)
        assert not it.condition("g-0")
        framework = daemon.parts.profiles.frameworks["custom-scheduler"]
        one = decode_pod(msgspec.json.encode(it.pod("g-0")))
        assert framework.run_pre_enqueue(one).message == "PodGroup not found"

        it.server.store.create(kind, pod_group(kind, "g", 3))
        await asyncio.sleep(10)
        assert not it.condition("g-0")
        assert framework.run_pre_enqueue(one).message == (
            "pre-filter pod g-0 cannot find enough sibling pods, current pods number: 2, minMember of group: 3"
        )
        it.add_pods(member(kind, "g", "g-2"))
        await it.until(lambda: len(placed(it)) == 3, seconds=10)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_smaller_min_member_requeues_the_waiting_members(tmp_path: Path, kind: str) -> None:
    async with groups(tmp_path) as it:
        it.add_nodes(node_object("n", cpu="4"))
        it.server.store.create(kind, pod_group(kind, "g", 3))
        it.add_pods(*members(kind, "g", 2))
        await asyncio.sleep(10)
        assert not placed(it)
        it.server.store.patch(kind, "g", {"spec": {"minMember": 2}}, namespace="default")
        await it.until(lambda: len(placed(it)) == 2, seconds=10)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_resource_gap_is_reported_and_closed_by_a_new_node(tmp_path: Path, kind: str) -> None:
    async with groups(tmp_path) as it:
        it.add_nodes(node_object("n", cpu="3"))
        it.server.store.create(kind, pod_group(kind, "g", 2, minResources={"cpu": "4500m", "memory": "1Gi"}))
        it.add_pods(*members(kind, "g", 2))
        await it.until(lambda: it.condition("g-0"))
        assert it.condition("g-0")["message"].startswith("0/1 nodes are available: resource gap: cpu: 1500m.")
        await asyncio.sleep(30)
        assert not placed(it)

        it.add_nodes(node_object("m", cpu="3"))
        await it.until(lambda: len(placed(it)) == 2)


async def test_a_volcano_group_may_begin_once_its_min_resources_are_free(tmp_path: Path) -> None:
    """Operators make the pods only then."""
    async with groups(tmp_path) as it:
        it.add_nodes(node_object("n", cpu="2"))
        it.server.store.create(VOLCANO, pod_group(VOLCANO, "g", 0, minResources={"cpu": 3}))
        await it.until(lambda: phase_of(it, VOLCANO, "g") == "Pending")
        assert condition(it, "g") == (
            "Unschedulable",
            "NotEnoughResources",
            "0/0 tasks in gang unschedulable: resource gap: cpu: 1",
        )
        it.add_nodes(node_object("m", cpu="2"))
        await it.until(lambda: phase_of(it, VOLCANO, "g") == "Inqueue")


async def test_each_task_of_a_volcano_group_needs_its_own_minimum(tmp_path: Path) -> None:
    async with groups(tmp_path) as it:
        it.add_nodes(node_object("n", cpu="8"))
        group = pod_group(VOLCANO, "g", 3, minTaskMember={"master": 1, "worker": 2})
        it.server.store.create(VOLCANO, group)
        it.add_pods(*(member(VOLCANO, "g", f"w-{number}", "worker") for number in range(3)))
        await it.until(lambda: condition(it, "g")[1] == "NotEnoughPodsOfTask")
        await asyncio.sleep(30)
        assert not placed(it)
        it.add_pods(member(VOLCANO, "g", "m-0", "master"))
        await it.until(lambda: len(placed(it)) == 4)
        await it.until(
            lambda: condition(it, "g") == ("Scheduled", "tasks in gang are ready to be scheduled", "")
        )


async def test_a_failed_pod_fails_its_group(tmp_path: Path) -> None:
    async with groups(tmp_path) as it:
        it.add_nodes(node_object("n", cpu="4"))
        it.server.store.create(COSCHEDULING, pod_group(COSCHEDULING, "g", 2))
        good, bad = members(COSCHEDULING, "g", 2, seconds=20)
        bad["metadata"]["annotations"]["simulator/exit-code"] = "1"
        it.add_pods(good, bad)
        await it.until(lambda: phase_of(it, COSCHEDULING, "g") == "Failed")
        assert status(it, COSCHEDULING, "g")["failed"] == 1


async def test_counts_are_written_at_most_once_a_second_and_by_a_new_daemon_too(tmp_path: Path) -> None:
    async with kinds_served(tmp_path) as it:
        configuration = (EXAMPLE / "scheduler.yaml").read_text()
        it.add_nodes(node_object("n", cpu="40"))
        it.server.store.create(COSCHEDULING, pod_group(COSCHEDULING, "g", 20))
        async with it.daemon(configuration):
            it.add_pods(*members(COSCHEDULING, "g", 20, seconds=5))
            await it.until(lambda: phase_of(it, COSCHEDULING, "g") == "Running")
            reported = [
                each for each in it.server.requests if "podgroups" in each.path and each.method == "PATCH"
            ]
            assert len(reported) <= 4
        await asyncio.sleep(30)
        async with it.daemon(configuration):
            await it.until(lambda: phase_of(it, COSCHEDULING, "g") == "Finished")
            assert status(it, COSCHEDULING, "g")["succeeded"] == 20


async def test_pods_that_ended_are_listed_in_pages(tmp_path: Path) -> None:
    async with kinds_served(tmp_path) as it:
        it.server.store.create(COSCHEDULING, pod_group(COSCHEDULING, "g", 600))
        it.add_nodes(node_object("n"))
        for pod in members(COSCHEDULING, "g", 600):
            pod["spec"]["nodeName"] = "n"
            it.server.store.create("pods", pod)
            ended = {"status": {"phase": "Succeeded"}}
            it.server.store.patch(
                "pods", pod["metadata"]["name"], ended, namespace="default", subresource="status"
            )
        async with it.daemon((EXAMPLE / "scheduler.yaml").read_text()):
            await it.until(lambda: status(it, COSCHEDULING, "g").get("succeeded") == 600)
        asked = [each for each in it.server.requests if each.query.get("fieldSelector") == _ENDED]
        assert ["continue" in each.query for each in asked] == [False, True, True]
        assert [each.query["limit"] for each in asked] == ["64", "500", "500"]


class Prepares(PreBindPlugin):
    """Takes long for one pod."""

    name = "Prepares"
    api_version = 1

    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> None:
        if pod.name == "g-1":
            await asyncio.sleep(300)


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        pytest.param({"scheduleTimeoutSeconds": 20}, 20, id="from the group"),
        pytest.param({"scheduleTimeoutSeconds": 0}, 60, id="zero is the argument's"),
        pytest.param({}, 60, id="from the argument"),
    ],
)
async def test_a_ready_member_waits_for_its_group_for_a_bounded_time(
    tmp_path: Path, spec: dict[str, Any], seconds: float
) -> None:
    configuration = (EXAMPLE / "scheduler.yaml").read_text()
    slow = configuration.replace("  plugins:\n", "  plugins:\n    preBind: {enabled: [{name: Prepares}]}\n")
    async with kinds_served(tmp_path) as it, it.daemon(slow, plugins={"Prepares": Prepares}):
        it.add_nodes(node_object("n", cpu="4"))
        it.server.store.create(COSCHEDULING, pod_group(COSCHEDULING, "g", 3, **spec))
        it.add_pods(*members(COSCHEDULING, "g", 3))
        await asyncio.sleep(seconds - 1)
        assert not it.condition("g-0")
        await asyncio.sleep(2)
        assert it.condition("g-0")["message"] == (
            "pod group g is not bound, because too few members were ready in time"
        )
        assert not placed(it)


WITHOUT_PRIORITY_SORT = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins:
    multiPoint:
      enabled: [{name: Coscheduling}]
      disabled: [{name: PrioritySort}]
"""


@pytest.mark.parametrize(
    "configuration",
    [AS_QUEUE_SORT, WITHOUT_PRIORITY_SORT],
    ids=["in place of all queue sorts", "in place of PrioritySort"],
)
async def test_the_older_group_goes_first(tmp_path: Path, configuration: str) -> None:
    async with kinds_served(tmp_path) as it:
        it.add_nodes(node_object("n", cpu="2"))
        for name in ("old", "new"):
            it.server.store.create(COSCHEDULING, pod_group(COSCHEDULING, name, 2))
            await asyncio.sleep(5)
        it.add_pods(*members(COSCHEDULING, "new", 2), *members(COSCHEDULING, "old", 2))
        async with it.daemon(configuration):
            await it.until(lambda: len(placed(it)) == 2)
            assert placed(it) == {"old-0", "old-1"}


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        pytest.param(COSCHEDULING, {"minMember": 0}, "spec.minMember", id="a minimum of zero"),
        pytest.param(COSCHEDULING, {"minResources": {"cpu": "many"}}, "spec.minResources.cpu", id="no quantity"),
        pytest.param(COSCHEDULING, {"scheduleTimeoutSeconds": -1}, "spec.scheduleTimeoutSeconds", id="no time"),
        pytest.param(VOLCANO, {"minMember": "three"}, "spec.minMember", id="no number"),
        pytest.param(VOLCANO, {"minTaskMember": {"worker": "two"}}, "spec.minTaskMember.worker", id="no count"),
        pytest.param(VOLCANO, {"minResources": {"cpu": True}}, "spec.minResources.cpu", id="neither"),
    ],
)  # fmt: skip
async def test_an_invalid_group_is_refused_at_its_field(
    tmp_path: Path, kind: str, spec: Any, field: str
) -> None:
    async with kinds_served(tmp_path) as it:
        with pytest.raises(StatusError, match=field):
            it.server.store.create(kind, pod_group(kind, "g", min_member=1) | {"spec": spec})


async def test_other_fields_of_volcano_are_kept(tmp_path: Path) -> None:
    async with kinds_served(tmp_path) as it:
        it.server.store.create(
            VOLCANO, pod_group(VOLCANO, "g", 1, queue="research", networkTopology={"mode": "soft"})
        )
        spec = it.server.store.get(VOLCANO, "g", "default")["spec"]
        assert (spec["queue"], spec["networkTopology"]) == ("research", {"mode": "soft"})


@pytest.mark.parametrize(
    ("example", "kind", "group", "end"),
    [
        ("ray", COSCHEDULING, "ray", "Finished"),
        ("kubeflow", COSCHEDULING, "pytorch", "Finished"),
        ("spark", VOLCANO, "spark-pi", "Completed"),
    ],
)
async def test_groups_of_operators_run_to_their_end(
    tmp_path: Path, example: str, kind: str, group: str, end: str
) -> None:
    async with groups(tmp_path) as it:
        it.add_nodes(*(node_object(f"n{number}", cpu="2") for number in range(2)))
        first, *pods = yaml.safe_load_all((EXAMPLE / f"{example}.yaml").read_text())
        it.server.store.create(of_kind(first), first)
        if kind == VOLCANO:
            await it.until(lambda: phase_of(it, kind, group) == "Inqueue")
        it.add_pods(*pods)
        await it.until(lambda: phase_of(it, kind, group) == "Running")
        assert len(placed(it)) == 3
        await it.until(lambda: phase_of(it, kind, group) == end)
        assert status(it, kind, group)["succeeded"] == 3


async def test_a_training_job_of_a_built_in_kind_runs_to_its_end(tmp_path: Path) -> None:
    async with kinds_served(tmp_path, controllers=True) as it, it.daemon(AS_QUEUE_SORT):
        it.add_nodes(node_object("n0", cpu="3"))
        for each in yaml.safe_load_all((EXAMPLE / "training.yaml").read_text()):
            it.server.store.create(of_kind(each), each)
        await it.until(lambda: len(it.pods()) == 4)
        await asyncio.sleep(10)
        assert not placed(it)
        it.add_nodes(node_object("n1", cpu="3"))
        await it.until(lambda: len(placed(it)) == 4)
        job = "jobs.batch"
        await it.until(lambda: it.server.store.get(job, "train", "default")["status"].get("succeeded") == 4)


async def test_a_pod_whose_label_changes_to_name_a_group_completes_it(tmp_path: Path) -> None:
    async with kinds_served(tmp_path) as it, it.daemon():
        it.add_nodes(node_object("n", cpu="4"))
        it.server.store.create(COSCHEDULING, pod_group(COSCHEDULING, "g", 2))
        it.add_pods(member(COSCHEDULING, "g", "here"), member(COSCHEDULING, "h", "elsewhere"))
        await asyncio.sleep(5)
        moved = it.pod("elsewhere")
        moved["metadata"]["labels"] = member(COSCHEDULING, "g", "elsewhere")["metadata"]["labels"]
        it.server.store.update("pods", moved)
        await it.until(lambda: it.node_of("here") and it.node_of("elsewhere"))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_pod_that_leaves_its_group_no_longer_waits_for_it(tmp_path: Path, kind: str) -> None:
    async with kinds_served(tmp_path) as it, it.daemon(AS_QUEUE_SORT):
        it.add_nodes(node_object("n", cpu="4"))
        it.add_pods(member(kind, "missing", "free"))
        await asyncio.sleep(5)
        assert not it.node_of("free")
        named = member(kind, "missing", "free")["metadata"]
        left = {field: dict.fromkeys(named[field]) for field in ("labels", "annotations") if named.get(field)}
        it.server.store.patch("pods", "free", {"metadata": left}, "default")
        await it.until(lambda: it.node_of("free"), seconds=10)


async def test_a_daemon_that_binds_nothing_continues_where_there_are_groups(tmp_path: Path) -> None:
    configuration = (EXAMPLE / "scheduler.yaml").read_text()
    async with kinds_served(tmp_path) as it, it.daemon(configuration, no_bind=True) as daemon:
        it.add_nodes(node_object("n", cpu="4"))
        it.server.store.create(COSCHEDULING, pod_group(COSCHEDULING, "g", 1))
        it.add_pods(*members(COSCHEDULING, "g", 1))
        await it.until(lambda: not daemon.parts.queue.pods())
        await asyncio.sleep(10)

        assert not it.node_of("g-0")
        assert not status(it, COSCHEDULING, "g")
