"""Objects of a tenant affect pods of other tenants only as far as the API server admitted it; time is virtual."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from scheduler.tools.simulator.access.rbac import User
from tests.integration.groups import gangs as native
from tests.integration.groups import test_coscheduling as coscheduling
from tests.integration.groups.test_coscheduling import CRDS, EXAMPLE, KINDS, VOLCANO
from tests.integration.plugins import test_quotas as quotas
from tests.integration.simulator.simulator_client import serving
from tests.support import fair_queues as queues
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.manifests import MANIFESTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.integration.simulator.simulator_client import Client
    from tests.support.daemon_harness import Cluster

PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
TENANT, OTHER = "tenant", "other"


def group(kind: str, min_member: int, namespace: str = TENANT, **spec: Any) -> dict[str, Any]:
    made = coscheduling.pod_group(kind, "g", min_member, **spec)
    made["metadata"]["namespace"] = namespace
    return made


def members(kind: str, count: int, **fields: Any) -> list[dict[str, Any]]:
    return coscheduling.members(kind, "g", count, namespace=TENANT, **fields)


def placed(it: Cluster, namespace: str) -> set[str]:
    return queues.placed(it, namespace)


@asynccontextmanager
async def two_tenants(folder: Path) -> AsyncIterator[Cluster]:
    """A cluster of one node with 4 cpus that keeps every field of both kinds of PodGroups, as operators' own CRDs may."""
    async with cluster(folder, kubelet=True) as it:
        for kind in KINDS:
            definition = deepcopy(yaml.safe_load((MANIFESTS / "crds" / f"{kind}.yaml").read_text()))
            schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            schema["properties"]["spec"]["x-kubernetes-preserve-unknown-fields"] = True
            it.server.store.create(CRDS, definition)
        for namespace in (TENANT, OTHER):
            it.server.store.create("namespaces", {"metadata": {"name": namespace}})
        it.add_nodes(node_object("n0", cpu="4"))
        await asyncio.sleep(0.1)
        async with it.daemon((EXAMPLE / "scheduler.yaml").read_text()):
            yield it


def priority_class(it: Cluster, name: str, value: int) -> None:
    it.server.store.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})


@pytest.mark.parametrize("kind", KINDS)
async def test_a_class_that_a_pod_group_names_preempts_nobody(tmp_path: Path, kind: str) -> None:
    async with two_tenants(tmp_path) as it:
        priority_class(it, "high", 1_000_000)
        it.add_pods(*queues.several(OTHER, 4, priority=100_000))
        await it.until(lambda: len(placed(it, OTHER)) == 4)
        it.server.store.create(kind, group(kind, 2, priorityClassName="high"))
        it.add_pods(*members(kind, 2))
        await asyncio.sleep(60)
        assert len(placed(it, OTHER)) == 4
        assert not placed(it, TENANT)


@pytest.mark.parametrize(
    ("priorities", "spec", "leave"),
    [
        pytest.param((1000, 1000), {}, 2, id="the priority that its pods were admitted with"),
        pytest.param((1000, 100), {}, 0, id="the lowest of its pods"),
        pytest.param((1000, 100), {"priorityClassName": "high"}, 0, id="no rights by a higher class"),
        pytest.param((1000, 1000), {"priorityClassName": "low"}, 0, id="less for a lower class"),
        pytest.param((1000, 1000), {"priorityClassName": "missing"}, 2, id="its pods' for a class that is not there"),
    ],
)  # fmt: skip
async def test_a_volcano_group_preempts_with_the_lowest_priority_that_was_admitted(
    tmp_path: Path, priorities: tuple[int, int], spec: dict[str, Any], leave: int
) -> None:
    async with two_tenants(tmp_path) as it:
        priority_class(it, "high", 5000)
        priority_class(it, "low", 5)
        it.add_pods(*queues.several(OTHER, 4, priority=500))
        await it.until(lambda: len(placed(it, OTHER)) == 4)
        it.server.store.create(VOLCANO, group(VOLCANO, 2, **spec))
        for number, priority in enumerate(priorities):
            it.add_pods(coscheduling.member(VOLCANO, "g", f"m-{number}", namespace=TENANT, priority=priority))
        await asyncio.sleep(60)
        assert (len(placed(it, OTHER)), len(placed(it, TENANT))) == (4 - leave, leave)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_label_or_annotation_keeps_no_pod_from_being_preempted(tmp_path: Path, kind: str) -> None:
    """Of pods alike the younger leaves for a group, whatever it says that it belongs to."""
    async with two_tenants(tmp_path) as it:
        it.add_pods(*queues.several(OTHER, 1, cpu="2"))
        await it.until(lambda: len(placed(it, OTHER)) == 1)
        await asyncio.sleep(5)
        it.server.store.create(kind, group(kind, 1))
        it.add_pods(*members(kind, 1, cpu="2"))
        await it.until(lambda: len(placed(it, TENANT)) == 1)
        await asyncio.sleep(5)

        priority_class(it, "urgent", 1000)
        urgent = native.pod_group("urgent", 1, priorityClassName="urgent")
        it.server.store.create(native.POD_GROUPS, urgent)
        it.add_pods(*native.members("urgent", 1, cpu="2", priority=1000))
        await it.until(lambda: it.node_of("urgent-0"))
        assert (len(placed(it, OTHER)), len(placed(it, TENANT))) == (1, 0)


@pytest.mark.parametrize("kind", [*KINDS, native.POD_GROUPS])
async def test_a_pod_is_no_member_of_a_group_in_another_namespace(tmp_path: Path, kind: str) -> None:
    def some(namespace: str, name: str) -> dict[str, Any]:
        if kind == native.POD_GROUPS:
            return native.member("g", name, namespace=namespace)
        return coscheduling.member(kind, "g", name, namespace=namespace)

    async with two_tenants(tmp_path) as it:
        made = native.pod_group("g", 2) if kind == native.POD_GROUPS else group(kind, 2)
        made["metadata"]["namespace"] = OTHER
        it.server.store.create(kind, made)
        it.add_pods(some(OTHER, "one"), some(TENANT, "stranger"), some(TENANT, "another"))
        await asyncio.sleep(30)
        assert not placed(it, OTHER) | placed(it, TENANT)

        it.add_pods(some(OTHER, "two"))
        await it.until(lambda: placed(it, OTHER) == {"one", "two"})
        await asyncio.sleep(30)
        assert not placed(it, TENANT)


QUEUE_NAME = "custom-scheduler.io/queue-name"


async def test_a_label_takes_no_pod_to_a_queue_of_other_namespaces(tmp_path: Path) -> None:
    selecting = queues.queue("b", podSelector={"matchLabels": {"team": "b"}}, weight=5)
    async with queues.teams(tmp_path, queues.queue("a", max={"cpu": 2}), selecting) as it:
        labels = {QUEUE_NAME: "b", "team": "b"}
        it.add_pods(*queues.several("a", 4, labels=labels))
        await it.until(lambda: len(placed(it, "a")) == 2)
        await asyncio.sleep(90)
        assert len(placed(it, "a")) == 2
        used = it.server.store.get(queues.QUEUES, "b").get("status", {}).get("used", {})
        assert not used.get("cpu")

        for name in sorted(placed(it, "a")):  # nor does a label that comes later
            it.server.store.patch("pods", name, {"metadata": {"labels": {QUEUE_NAME: "none"}}}, namespace="a")
        await asyncio.sleep(90)
        assert len(placed(it, "a")) == 2


def in_native_group(it: Cluster, min_count: int, pods: list[dict[str, Any]]) -> None:
    """Make pods of namespace `a` members of a new group; with a `min_count` of 0 each may run without the others."""
    made = native.pod_group("g", min_count)
    made["metadata"]["namespace"] = "a"
    it.server.store.create(native.POD_GROUPS, made)
    for each in pods:
        each["spec"]["schedulingGroup"] = {"podGroupName": "g"}


@pytest.mark.parametrize(
    ("annotations", "min_count", "held"),
    [
        pytest.param({}, None, 1, id="pods by themselves"),
        pytest.param({"scheduling.k8s.io/group-name": "g"}, None, 1, id="an unused annotation"),
        pytest.param({}, 0, 1, id="a group of which each may run alone"),
        pytest.param({}, 2, 2, id="a gang"),
    ],
)
async def test_a_queue_holds_no_more_nodes_than_pods_that_compete_with_each_other(
    tmp_path: Path, annotations: dict[str, str], min_count: int | None, held: int
) -> None:
    """Three pods of `a` fit on none of three nodes; pods of `b` go to the nodes that are not held for `a`."""
    a, b = queues.queue("a"), queues.queue("b", weight=2)
    async with queues.teams(tmp_path, a, b, longest_wait_seconds=10) as it:
        it.add_pods(*(pod_object(f"b{n}", namespace="b", cpu="2", node=f"n{n}") for n in range(3)))
        await asyncio.sleep(1)
        large = queues.several("a", 3, cpu="3", annotations=annotations)
        if min_count is not None:
            in_native_group(it, min_count, large)
        it.add_pods(*large)
        await asyncio.sleep(30)
        taint = {"key": "closed", "effect": "NoSchedule"}
        # They are tried again, and are overdue by now.
        it.add_nodes(node_object("closed", cpu="8", taints=[taint]))
        await asyncio.sleep(15)

        it.add_pods(*queues.several("b", 3, first=10, cpu="2"))
        await it.until(lambda: len(placed(it, "b")) == 6 - held)
        await asyncio.sleep(30)
        assert len(placed(it, "b")) == 6 - held
        assert not placed(it, "a")


@pytest.mark.parametrize(
    ("min_count", "most"),
    [pytest.param(0, 6, id="each may run alone"), pytest.param(9, 9, id="nine of twelve need each other")],
)
async def test_overdue_pods_exceed_the_share_of_their_queue_by_one_gang_at_most(
    tmp_path: Path, min_count: int, most: int
) -> None:
    """Both queues want all of 12 cpus, which come at once when all pods are overdue; each has a share of 6."""
    async with queues.teams(
        tmp_path, queues.queue("a"), queues.queue("b"), nodes=0, longest_wait_seconds=10
    ) as it:
        many = queues.several("a", 12)
        in_native_group(it, min_count, many)
        it.add_pods(*many)
        await asyncio.sleep(1)
        it.add_pods(*queues.several("b", 12))
        await asyncio.sleep(30)
        it.add_nodes(node_object("n", cpu="12"))
        seen = 0
        for _ in range(600):
            seen = max(seen, len(placed(it, "a")))
            await asyncio.sleep(0.1)
        assert seen == most


async def test_a_quota_of_a_tenant_takes_only_borrowed_capacity(tmp_path: Path) -> None:
    async with quotas.teams(tmp_path, a=(0, 12), b=(4, 12)) as it:
        it.add_pods(*quotas.several("b", 4))
        await it.until(lambda: len(placed(it, "b")) == 4)
        it.server.store.patch(
            quotas.QUOTAS, "a", {"spec": {"min": {"cpu": 10**6}, "max": None}}, namespace="a"
        )
        it.add_pods(*quotas.several("a", 12, priority=1000))
        await it.until(lambda: len(placed(it, "a")) == 8)
        await asyncio.sleep(60)
        assert len(placed(it, "b")) == 4


async def test_a_second_quota_in_a_namespace_gives_it_nothing(tmp_path: Path) -> None:
    async with quotas.teams(tmp_path, a=(1, 2), b=(9, 9)) as it:
        await asyncio.sleep(2)
        second = quotas.quota("a", 10, 10)
        second["metadata"]["name"] = "another"
        it.server.store.create(quotas.QUOTAS, second)
        it.add_pods(*quotas.several("a", 4))
        await asyncio.sleep(60)
        assert len(placed(it, "a")) == 2


NATIVE = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default"
EDITOR = "editor"


def _named(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **more}


@asynccontextmanager
async def with_an_editor(folder: Path) -> AsyncIterator[Client]:
    """A server that has all our CRDs and the default roles; who shows EDITOR has the role `edit` in `default`."""
    users = {EDITOR: User("ann")}
    async with serving(folder, rbac=True, token="root", users=users) as (server, client):
        for path in sorted((MANIFESTS / "crds").glob("*.yaml")):
            server.store.create(CRDS, yaml.safe_load(path.read_text()))
        binding = {
            **_named("tenant"),
            "roleRef": {"kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "User", "name": "ann"}],
        }
        server.store.create("rolebindings.rbac.authorization.k8s.io", binding, namespace="default")
        server.store.create("pods", pod_object("running", cpu="1", node="n"))
        server.store.create(native.POD_GROUPS, native.pod_group("made"))
        server.store.create("poddisruptionbudgets.policy", _named("made", spec={}))
        server.store.create("resourceclaims.resource.k8s.io", _named("made", spec={}))
        await asyncio.sleep(0.1)
        yield client


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        pytest.param("POST", f"{NATIVE}/podgroups", 201, id="native PodGroups"),
        pytest.param("PATCH", f"{NATIVE}/podgroups/made/status", 403, id="their status"),
        pytest.param("PATCH", "/api/v1/namespaces/default/pods/running", 200, id="labels of pods"),
        pytest.param("PATCH", "/api/v1/namespaces/default/pods/running/status", 403, id="their status"),
        pytest.param("POST", "/api/v1/namespaces/default/pods/running/binding", 403, id="their binding"),
        pytest.param("PATCH", "/api/v1/namespaces/default", 403, id="labels of the namespace"),
        pytest.param("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", 201, id="budgets"),
        pytest.param(
            "PATCH", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/made/status", 403, id="their status"
        ),
        pytest.param(
            "PATCH", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/made/status", 403, id="claims' status"
        ),
        pytest.param("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", 403, id="PriorityClasses"),
        pytest.param("POST", "/api/v1/namespaces/default/resourcequotas", 403, id="ResourceQuotas"),
        pytest.param(
            "POST", "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/elasticquotas", 403, id="ElasticQuotas"
        ),
        pytest.param(
            "POST", "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups", 403, id="Coscheduling's"
        ),
        pytest.param(
            "POST", "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups", 403, id="Volcano's"
        ),
        pytest.param("POST", "/apis/custom-scheduler.io/v1alpha1/queues", 403, id="Queues"),
        pytest.param("POST", "/apis/custom-scheduler.io/v1alpha1/schedulerprofiles", 403, id="SchedulerProfiles"),
    ],
)  # fmt: skip
async def test_the_role_edit_writes_only_its_own_kinds(
    tmp_path: Path, method: str, path: str, status: int
) -> None:
    spec = native.pod_group("new")["spec"] if path == f"{NATIVE}/podgroups" else {}
    body = _named("new", spec=spec) if method == "POST" else {"metadata": {"labels": {"a": "b"}}}
    more = {} if method == "POST" else {"Content-Type": "application/merge-patch+json"}
    async with with_an_editor(tmp_path) as client:
        found, _ = await client.ask(method, path, body, Authorization=f"Bearer {EDITOR}", **more)
        by_root, _ = await client.ask(method, path, body, Authorization="Bearer root", **more)

    assert found == status
    assert by_root not in {403, 404, 405}, "the path leads nowhere"


def test_no_manifest_adds_to_the_roles_of_tenants() -> None:
    texts = {path: path.read_text() for path in MANIFESTS.rglob("*.yaml")}

    assert len(texts) > 30
    assert not [path for path, text in texts.items() if "aggregate-to-" in text]
