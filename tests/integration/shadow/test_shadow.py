"""Beside another scheduler: here our own daemon under the name default-scheduler, and others that decide oddly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.cli.explain_live import disagreement
from scheduler.configuration.load import parse
from scheduler.daemon.app.rights import Right, rights_of_shadow
from scheduler.daemon.app.shadow.comparison import (
    BEST,
    EQUIVALENT_VICTIMS,
    LEFT_PENDING,
    NOT_LOOKED_AT,
    NOT_PREEMPTED,
    OTHER_VICTIMS,
    PLACED,
    PREEMPTED,
    PREEMPTS,
    PREEMPTS_ELSEWHERE,
    REFUSED,
    WAITS,
    WORSE,
)
from scheduler.daemon.app.shadow.findings import BY_ORDER
from scheduler.daemon.app.shadow.pages import shadow_application, shadow_explanation
from scheduler.daemon.app.shadow.service import ShadowService
from scheduler.http_server.messages import ServerRequest as Asked
from scheduler.kube.client.connection import ApiConnection
from scheduler.kube.http.request import Request
from scheduler.tools.simulator.faults import binds
from tests.shadow import workload
from tests.support import virtual_time
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from scheduler.daemon.server.http_server import Application
    from tests.support.daemon_harness import Cluster

    Story = Callable[[Cluster], Awaitable[None]]

THEIRS = "default-scheduler"
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
THEIR_PROFILE = HEAD + (
    f"leaderElection: {{leaderElect: false}}\npercentageOfNodesToScore: 100\nprofiles: [{{schedulerName: {THEIRS}}}]\n"
)
PACKING = (
    HEAD
    + """\
profiles:
- schedulerName: another
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
"""
)


@asynccontextmanager
async def shadow(at: Cluster, **options: Any) -> AsyncIterator[ShadowService]:
    """Run a shadow beside whatever places pods in the block; at its end all is judged, and only reading was needed."""
    account = at.account()
    async with ApiConnection(at.endpoint, authorization=account) as connection:
        service = ShadowService(connection, THEIRS, clock=LoopClock(), random=Random(1), **options)
        account.grant(rights_of_shadow(service.frameworks.values()))
        stop = asyncio.Event()
        running = asyncio.create_task(service.run(stop))
        await at.until(lambda: service.has_synced)
        try:
            yield service
        finally:
            stop.set()
            await running
            account.settle()


class Other:
    """A scheduler that does what the test says."""

    def __init__(self, at: Cluster) -> None:
        self._at = at
        self._store = at.server.store
        self._account = at.account()
        self._account.grant({Right("create", "", "pods/binding"): "a test"})

    async def bind(self, name: str, node: str) -> None:
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        path = f"/api/v1/namespaces/default/pods/{name}/binding"
        async with ApiConnection(self._at.endpoint, authorization=self._account) as connection:
            await connection.send(Request("POST", path, json.dumps(body).encode()))

    def says(self, name: str, *, nominated: str = "") -> None:
        """Say that no node can run a pod, and perhaps where room is made."""
        waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}
        status = {"conditions": [waits], **({"nominatedNodeName": nominated} if nominated else {})}
        self._store.patch("pods", name, {"status": status}, subresource="status")

    def preempt(self, name: str) -> None:
        details = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        self._store.patch("pods", name, {"status": {"conditions": [details]}}, subresource="status")
        self._store.delete("pods", name, grace_period_seconds=0)


def causes(service: ShadowService, profile: str = "default") -> dict[str, int]:
    """Return cause -> how often."""
    details = service.summary()["profiles"].get(profile, {"causes": {}})["causes"]
    return {cause: sum(numbers.values()) for cause, numbers in details.items()}


def moved(service: ShadowService) -> int:
    """Return how many decisions took another order than the one seen."""
    return sum(number for (_, _, how), number in service.findings.counts.items() if how == BY_ORDER)


def pod(name: str, **fields: Any) -> dict[str, Any]:
    return pod_object(name, **{"cpu": "500m", "memory": "256Mi", "scheduler_name": THEIRS, **fields})


def node(name: str, **fields: Any) -> dict[str, Any]:
    return node_object(name, **{"cpu": "2", "memory": "8Gi", **fields})


async def seen(at: Cluster, service: ShadowService) -> None:
    """Wait until everything that happened is judged for good."""
    await asyncio.sleep(0.2)
    await at.until(lambda: service.summary()["underWay"] == 0)


def judged(
    folder: Path, nodes: Sequence[Any], story: Story, *, pods: Sequence[Any] = (), **options: Any
) -> ShadowService:
    """Run a story with a shadow that saw how it began, until all of it is judged."""

    async def scenario() -> ShadowService:
        async with cluster(folder) as at:
            at.add_nodes(*nodes)
            at.add_pods(*pods)
            async with shadow(at, **options) as service:
                await story(at)
                await seen(at, service)
        return service

    return virtual_time.run(scenario())


def placed_on(node_name: str) -> Story:
    """Tell of a pod that comes and is bound."""

    async def story(at: Cluster) -> None:
        at.add_pods(pod("new"))
        await Other(at).bind("new", node_name)

    return story


# The other scheduler is our own daemon, so whatever differs is a mistake of the comparison.


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_the_shadow_agrees_with_the_same_daemon_in_any_order_of_events(
    tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    async with cluster(tmp_path) as at:
        at.add_nodes(*(workload.node(number) for number in range(60)))
        for path, obj in workload.others():
            at.server.store.create(RESOURCES[path.rpartition("/")[2]], {**obj})
        at.server.faults.delay((0.0, 0.1), binds)
        async with shadow(at, sampling=100) as service, at.daemon(THEIR_PROFILE, seed=seed):
            for number in range(240):
                at.server.store.create("pods", workload.pod(number, THEIRS, random))
                if number % 3 == 0:
                    await asyncio.sleep(random.random() / 5)
                if number % 10 == 9:
                    await disturb(at, random)
            await asyncio.sleep(10)
        details = service.summary()["profiles"]["default"]
        assert details["decisions"] > 240
        assert details["agree"] + details["unknown"] == details["decisions"], json.dumps(
            service.findings.latest(20)
        )
        assert moved(service) > 0


RESOURCES = {
    "services": "services",
    "replicasets": "replicasets.apps",
    "priorityclasses": "priorityclasses.scheduling.k8s.io",
}


async def disturb(at: Cluster, random: Random) -> None:
    store, number = at.server.store, random.randrange(60)
    match random.randrange(3):
        case 0:
            placed = [each["metadata"]["name"] for each in at.pods() if each["spec"].get("nodeName")]
            if placed:
                store.delete("pods", random.choice(placed), grace_period_seconds=0)
        case 1:
            labels = {"pool": f"p{random.randrange(10)}"}
            store.patch("nodes", f"node-{number:04d}", {"metadata": {"labels": labels}})
        case _:
            cordoned = {"spec": {"unschedulable": random.random() < 0.5}}
            store.patch("nodes", f"node-{number:04d}", cordoned)


# Others that decide oddly, one cause each.


CASES = {
    "its node was the best": ([node("a"), node("b")], [pod("there", node="b")], "a", {BEST: 1}),
    "its node was one of several": ([node("a"), node("b"), node("c")], [], "c", {BEST: 1}),
    "its node was worse": ([node("a"), node("b")], [pod("there", node="b")], "b", {WORSE: 1}),
    "its node was refused": ([node("a"), node("b", cpu="250m")], [], "b", {REFUSED: 1}),
    "its node was unknown": ([node("a")], [], "nowhere", {REFUSED: 1}),
    "no node could run it": ([node("a", cpu="250m")], [], "a", {LEFT_PENDING: 1}),
}


@pytest.mark.parametrize(("nodes", "pods", "chosen", "expected"), CASES.values(), ids=CASES)
def test_the_verdict_on_a_placed_pod(
    tmp_path: Path, nodes: Any, pods: Any, chosen: str, expected: Any
) -> None:
    service = judged(tmp_path, nodes, placed_on(chosen), pods=pods)

    assert causes(service) == expected


def tainted(number: int, better: int) -> list[dict[str, Any]]:
    """Return nodes alike, but that all after the first few had better not be taken."""
    rather_not = ("a=b:PreferNoSchedule",)
    return [node(f"n{place:03d}", taints=rather_not if place >= better else ()) for place in range(number)]


@pytest.mark.parametrize(
    ("sampling", "better", "chosen", "cause"),
    [
        pytest.param(100, 50, "n149", WORSE, id="looked at all"),
        pytest.param(50, 50, "n149", NOT_LOOKED_AT, id="may have looked at worse ones only"),
        pytest.param(50, 51, "n149", WORSE, id="must have looked at a better one"),
        pytest.param(0, 50, "n149", NOT_LOOKED_AT, id="by its own measure"),
        pytest.param(50, 50, "n000", BEST, id="best of all"),
    ],
)
def test_a_node_that_may_not_have_been_sampled_gets_no_verdict(
    tmp_path: Path, sampling: int, better: int, chosen: str, cause: str
) -> None:
    service = judged(tmp_path, tainted(150, better), placed_on(chosen), sampling=sampling)

    assert causes(service) == {cause: 1}


@pytest.mark.parametrize(("chosen", "cause"), [("a", BEST), ("b", WORSE)])
def test_a_nomination_before_pre_bind_is_no_preemption(tmp_path: Path, chosen: str, cause: str) -> None:
    """The nomination announces the Binding, which is evaluated as if it had not been announced."""

    async def story(at: Cluster) -> None:
        at.add_pods(pod("new"))
        at.server.store.patch("pods", "new", {"status": {"nominatedNodeName": chosen}}, subresource="status")
        await Other(at).bind("new", chosen)

    service = judged(tmp_path, [node("a"), node("b")], story, pods=[pod("there", node="b")])

    assert causes(service) == {cause: 1}


WAITING = {
    "so would we": ([node("a", cpu="250m")], [], {WAITS: 1}),
    "we would place it": ([node("a")], [], {PLACED: 1}),
    "we would preempt": ([node("a", cpu="500m")], [pod("there", node="a")], {NOT_PREEMPTED: 1}),
}


@pytest.mark.parametrize(("nodes", "pods", "expected"), WAITING.values(), ids=WAITING)
def test_the_verdict_on_a_pending_pod(tmp_path: Path, nodes: Any, pods: Any, expected: Any) -> None:
    async def story(at: Cluster) -> None:
        at.add_pods(pod("new", priority=10))
        Other(at).says("new")

    service = judged(tmp_path, nodes, story, pods=pods)

    assert causes(service) == expected


def running(name: str, at: str, since: str, priority: int = 0, cpu: str = "500m") -> dict[str, Any]:
    status = {"startTime": f"2026-01-01T00:0{since}:00Z"}
    return pod(name, node=at, priority=priority, cpu=cpu, status=status)


FULL = [
    running("a-old", "a", "1"),
    running("a-young", "a", "2"),
    running("b-old", "b", "1", priority=5),
    running("b-young", "b", "2", priority=5),
]
TWINS = [running("a-1", "a", "1"), running("a-2", "a", "1")]
PREEMPTIONS = {
    "the same": (FULL, "a", ["a-young"], {PREEMPTS: 1}),
    "other victims": (FULL, "a", ["a-old"], {OTHER_VICTIMS: 1}),
    "more victims": (FULL, "a", ["a-old", "a-young"], {OTHER_VICTIMS: 1}),
    "elsewhere": (FULL, "b", ["b-young"], {PREEMPTS_ELSEWHERE: 1}),
    "one of two that are alike": (TWINS, "a", ["a-1"], {PREEMPTS: 1}),
    "the other one of two that are alike": (TWINS, "a", ["a-2"], {EQUIVALENT_VICTIMS: 1}),
    "on one of two nodes that are alike": (
        [running("a-1", "a", "1", cpu="1"), running("b-1", "b", "1", cpu="1")],
        "b",
        ["b-1"],
        {PREEMPTS: 1},
    ),
    "though nobody is less important": ([running("a-1", "a", "1", 20, "1")], "a", [], {PREEMPTED: 1}),
    "though there is room": ([], "a", [], {PLACED: 1}),
}


@pytest.mark.parametrize(("pods", "nominated", "victims", "expected"), PREEMPTIONS.values(), ids=PREEMPTIONS)
@pytest.mark.parametrize("victims_first", [False, True], ids=["nominated first", "victims first"])
async def test_the_verdict_on_a_preemption(
    tmp_path: Path, pods: Any, nominated: str, victims: list[str], expected: Any, victims_first: bool
) -> None:
    async with cluster(tmp_path) as at:
        names = {each["spec"]["nodeName"] for each in pods} or {"a"}
        at.add_nodes(*(node(name, cpu="1") for name in sorted(names)))
        for each in pods:
            at.add_pods(each)
            started = {"startTime": each["status"]["startTime"]}
            at.server.store.patch("pods", each["metadata"]["name"], {"status": started}, subresource="status")
        async with shadow(at) as service:
            other = Other(at)
            at.add_pods(pod("urgent", priority=10))
            steps = [lambda: other.says("urgent", nominated=nominated)]
            leaving = [partial(other.preempt, name) for name in victims]
            for step in [*leaving, *steps] if victims_first else [*steps, *leaving]:
                step()
            await seen(at, service)
        found = causes(service)
        if (expected == {PREEMPTS: 1} and "a-1" in victims) or expected == {EQUIVALENT_VICTIMS: 1}:
            # Which of two alike we take is ours to choose.
            assert found.keys() <= {PREEMPTS, EQUIVALENT_VICTIMS}
        else:
            assert found == expected


async def test_capacity_nominated_for_others_is_kept(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at:
        at.add_nodes(node("a", cpu="500m"))
        other = Other(at)
        at.add_pods(pod("urgent", priority=10))
        other.says("urgent", nominated="a")
        async with shadow(at) as service:
            at.add_pods(pod("new"))
            other.says("new")
            await seen(at, service)
        assert causes(service) == {WAITS: 1}


# Order.


def test_bindings_observed_in_another_order_than_decided_count_as_agreement(
    tmp_path: Path,
) -> None:
    async def story(at: Cluster) -> None:
        other = Other(at)
        at.add_pods(pod("first"), pod("second"))
        await other.bind("second", "b")  # which is the emptier one once the first is on a
        await other.bind("first", "a")

    service = judged(tmp_path, [node("a"), node("b", cpu="1900m")], story)

    assert (causes(service), moved(service)) == ({BEST: 2}, 1)


def test_a_node_that_changed_between_decision_and_binding_counts_as_it_was(tmp_path: Path) -> None:
    async def story(at: Cluster) -> None:
        other = Other(at)
        at.add_pods(pod("new"))
        await asyncio.sleep(0.1)
        at.server.store.delete("nodes", "a")
        await other.bind("new", "a")

    service = judged(tmp_path, [node("a"), node("b", cpu="1")], story)

    assert (causes(service), moved(service)) == ({BEST: 1}, 1)


def test_a_change_after_a_binding_explains_nothing(tmp_path: Path) -> None:
    async def story(at: Cluster) -> None:
        await placed_on("b")(at)
        at.server.store.delete("nodes", "a")  # without it, b would be best

    service = judged(tmp_path, [node("a"), node("b", cpu="1")], story)

    assert causes(service) == {WORSE: 1}


def test_a_change_long_before_a_binding_explains_nothing(tmp_path: Path) -> None:
    async def story(at: Cluster) -> None:
        at.add_pods(pod("new"))
        await asyncio.sleep(0.1)
        sizes = {"status": {"allocatable": {"cpu": "4"}}}
        at.server.store.patch("nodes", "a", sizes, subresource="status")
        await asyncio.sleep(10)
        await Other(at).bind("new", "b")  # the best one before that

    service = judged(tmp_path, [node("a", cpu="1"), node("b")], story)

    assert causes(service) == {WORSE: 1}


def test_a_pod_counts_on_the_node_that_the_other_scheduler_chose(tmp_path: Path) -> None:
    async def story(at: Cluster) -> None:
        other = Other(at)
        at.add_pods(pod("new"), pod("newer"))
        await other.bind("new", "b")
        await asyncio.sleep(5)
        await other.bind("newer", "a")

    service = judged(tmp_path, [node("a"), node("b")], story, pods=[pod("there", node="b")])

    names = [each.name for each in service.parts.cache.pods() if each.node_name == "b"]
    assert sorted(names) == ["new", "there"]
    assert causes(service) == {WORSE: 1, BEST: 1}


# Another profile, and what is shown.


async def test_another_profile_is_evaluated_beside_the_default_one(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at:
        at.add_nodes(node("a"), node("b"))
        at.add_pods(pod("there", node="b"))
        async with shadow(at, candidate=parse(PACKING)) as service:
            await placed_on("a")(at)
            await seen(at, service)
            details = shadow_explanation(service, "default/new", LoopClock())
        assert (causes(service), causes(service, "config")) == ({BEST: 1}, {WORSE: 1})
        assert details is not None
        (found,) = details["shadow"]
        assert (found["profile"], found["cause"]) == ("config", WORSE)
        assert (found["theirs"]["node"], found["ours"]["node"]) == ("a", "b")
        theirs, ours = found["theirs"]["scores"], found["ours"]["scores"]
        assert theirs["NodeResourcesFit"] < ours["NodeResourcesFit"]
        assert found["theirs"]["total"] == sum(theirs.values())
        assert details["attempt"]["chosen"] == "b"
        assert "NodeResourcesFit" in disagreement(found)


async def test_the_page_shows_counts_and_disagreements_and_the_metrics_show_causes(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at:
        at.add_nodes(node("a"), node("b", cpu="250m"))
        async with shadow(at) as service:
            await placed_on("b")(at)
            await seen(at, service)
            application = shadow_application(service, stop=asyncio.Event(), clock=LoopClock())
            page = json.loads(await body_of(application, "/debug/shadow"))
            text = (await body_of(application, "/debug/shadow", output=["text"])).decode()
            metrics = (await body_of(application, "/metrics")).decode()
        assert page["profiles"]["default"]["causes"] == {REFUSED: {"as_seen": 1}}
        assert [each["theirs"]["reasons"] for each in page["disagreements"]] == [["Insufficient cpu"]]
        assert "1 decisions, 0 agree (0.00 %)" in text
        series = 'shadow_decisions_total{cause="refused",order="as_seen",profile="default"} 1.0'
        assert series in metrics


@pytest.mark.parametrize(("version", "level"), [("1.36", "ALPHA"), ("1.37", "BETA")])
async def test_the_metrics_are_those_of_the_emulated_version(
    tmp_path: Path, version: str, level: str
) -> None:
    configuration = parse(THEIR_PROFILE + f"emulatedVersion: '{version}'\n")
    async with cluster(tmp_path) as at:
        at.add_nodes(node("a"))
        async with shadow(at, candidate=configuration) as service:
            await placed_on("a")(at)
            await seen(at, service)
            application = shadow_application(service, stop=asyncio.Event(), clock=LoopClock())
            metrics = (await body_of(application, "/metrics")).decode()
    assert f'git_version="v{version}.0+' in metrics
    assert f"# HELP scheduler_scheduling_algorithm_duration_seconds [{level}] " in metrics


async def body_of(application: Application, path: str, **query: list[str]) -> bytes:
    async def nothing() -> bytes:
        return b""

    answer = await application.answer(Asked("GET", path, query, {}, "", False, nothing))
    assert answer.status == 200
    assert not isinstance(answer.body, AsyncGenerator)
    return answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
