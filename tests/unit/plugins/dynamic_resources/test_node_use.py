"""Devices that take CPU of their node: from Filter to the pod's status, and back."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.errors import ApiError
from scheduler.framework import ActionType, Code, EventResource, QueueingHint
from scheduler.objects.pod import trim_bound_pod
from scheduler.objects.resources import PodRules
from scheduler.objects.v1 import NodeAllocatableResourceClaimStatus
from scheduler.testing.devices import allocation, device_class, resource_claim, resource_slice
from scheduler.testing.fakes import FakeFeatures
from tests.support.builders import node, pod
from tests.unit.plugins.dynamic_resources.claims_api import Write
from tests.unit.plugins.dynamic_resources.kit import Kit, placed

ON = {"DRANodeAllocatableResources": True}
OF_136, OF_137 = FakeFeatures("1.36", **ON), FakeFeatures("1.37", **ON)
STATUS = "/api/v1/namespaces/default/pods/web/status"
MAPPED = {"name": "d", "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}}
SPLIT = {"name": "d", "nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "2"}}}}


def using(
    *claims: str, name: str = "web", cpu: str = "1", more: dict[str, Any] | None = None, **spec: Any
) -> Any:
    """Return a pod whose only container uses all claims."""
    names = [f"c{number}" for number in range(len(claims))]
    container = {
        "name": "main",
        "image": "i",
        "resources": {"requests": {"cpu": cpu, **(more or {})}, "claims": [{"name": each} for each in names]},
    }
    references = [
        {"name": each, "resourceClaimName": claim} for each, claim in zip(names, claims, strict=True)
    ]
    return pod(name, **{"containers": [container], "resourceClaims": references, **spec})


def kit(device: dict[str, Any], *objects: Any, features: FakeFeatures) -> Kit:
    slices = resource_slice("", [device], pool="p", allNodes=True)
    claims = objects or (resource_claim("one"),)
    return Kit(node("a", cpu="4"), node("b", cpu="2"), device_class(), slices, *claims, features=features)


def count(it: Kit, there: Any) -> None:
    it.table.add_pod(it.table.row_of(there.node_name), there)


WEB = using("one")


@pytest.mark.parametrize(
    ("features", "device", "reasons"),
    [
        pytest.param(OF_136, MAPPED, {"b": "Insufficient cpu"}, id="1.36"),
        pytest.param(OF_137, SPLIT, {"b": "Insufficient cpu"}, id="1.37"),
        pytest.param(OF_136, SPLIT, {}, id="the field of 1.37 in 1.36"),
        pytest.param(OF_137, MAPPED, {}, id="the field of 1.36 in 1.37"),
        pytest.param(FakeFeatures("1.36"), MAPPED, {}, id="off in 1.36"),
        pytest.param(FakeFeatures("1.37"), SPLIT, {}, id="off in 1.37"),
    ],
)
def test_a_node_must_have_what_the_devices_take_besides_the_containers(
    features: FakeFeatures, device: dict[str, Any], reasons: dict[str, str]
):
    assert kit(device, features=features).begin(WEB).reasons() == reasons


def test_only_a_node_that_is_too_small_even_without_pods_is_hopeless():
    it = kit(MAPPED, features=OF_136)
    count(it, pod("there", node="a", cpu="2"))

    outcomes = it.begin(WEB).filter()

    assert (outcomes["a"].code, outcomes["b"].code) == (
        Code.UNSCHEDULABLE,
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
    )


def test_all_resources_that_are_missing_are_named():
    device = {"name": "d", "nodeAllocatableResourceMappings": {
        "memory": {"allocationMultiplier": "64Gi"}, "hugepages-2Mi": {"allocationMultiplier": "2Mi"},
        "cpu": {"allocationMultiplier": "9"}}}  # fmt: skip
    it = kit(device, features=OF_136)

    assert it.begin(WEB).filter()["a"].reasons == (
        "Insufficient cpu",
        "Insufficient memory",
        "Insufficient hugepages-2Mi",
    )


def test_devices_that_differ_in_what_they_take_are_no_equals():
    small = {"name": "s", "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}}}
    it = Kit(
        node("a"),
        node("b"),
        device_class(),
        resource_slice("a", [MAPPED]),
        resource_slice("b", [small]),
        resource_claim("one"),
        features=OF_136,
    )

    for name, taken in (("a", "2"), ("b", "1")):
        placed(it, WEB, name).unreserve(name)
        assert status_of(it.fakes.assumed_pods.replaced[-1])[0].resources == {"cpu": taken}


def status_of(pod_info: Any) -> tuple[NodeAllocatableResourceClaimStatus, ...]:
    statuses: tuple[NodeAllocatableResourceClaimStatus, ...] = (
        pod_info.pod.status.node_allocatable_resource_claim_statuses
    )
    return statuses


def test_the_pod_counts_with_its_devices_from_reserve_on():
    it = kit(MAPPED, features=OF_136)

    placed(it, WEB, "a")

    (assumed,) = it.fakes.assumed_pods.replaced
    assert (assumed.uid, assumed.resources.taken["cpu"]) == (WEB.uid, 3000)
    assert assumed.resources.requests["cpu"] == 1000


def test_nothing_is_replaced_without_such_devices():
    it = kit({"name": "d"}, features=OF_136)

    placed(it, WEB, "a")

    assert it.fakes.assumed_pods.replaced == []


def test_reserve_replaces_what_an_earlier_attempt_has_written():
    it = kit({"name": "d"}, features=OF_136)
    stale = WEB.with_claims(
        (NodeAllocatableResourceClaimStatus("one", ("main",), {"cpu": "3"}),), PodRules(claims=True)
    )

    placed(it, stale, "a")

    assert status_of(it.fakes.assumed_pods.replaced[0]) == ()


OF_MAPPING = {"resourceClaimName": "one", "containers": ["main"]}


@pytest.mark.parametrize(
    ("features", "device", "written"),
    [
        pytest.param(OF_136, MAPPED, {**OF_MAPPING, "resources": {"cpu": "2"}}, id="1.36"),
        pytest.param(OF_137, SPLIT, {**OF_MAPPING, "mapping": [{"name": "cpu", "quantity": "2"}]}, id="1.37"),
        pytest.param(
            OF_137,
            {
                "name": "d",
                "nodeAllocatableResources": {"cpu": {"overhead": {"perPod": "1", "perContainer": "500m"}}},
            },
            {**OF_MAPPING, "overhead": [{"name": "cpu", "perPod": "1", "perContainer": "500m"}]},
            id="overhead",
        ),
    ],
)
async def test_the_status_of_the_pod_says_what_it_takes(
    features: FakeFeatures, device: dict[str, Any], written: dict[str, Any]
):
    it = kit(device, features=features)
    attempt = placed(it, WEB, "a")

    assert await attempt.pre_bind("a") is None

    assert it.api.writes[-1] == Write(
        "PATCH", STATUS, {"status": {"nodeAllocatableResourceClaimStatuses": [written]}}
    )


async def test_unreserve_removes_what_was_written():
    it = kit(MAPPED, features=OF_136)
    attempt = placed(it, WEB, "a")
    await attempt.pre_bind("a")

    attempt.unreserve("a")
    await it.fakes.background.carry_out()

    of_pod = [write for write in it.api.writes if write.path == STATUS]
    assert of_pod[-1].body == {"status": {"nodeAllocatableResourceClaimStatuses": None}}


async def test_unreserve_removes_nothing_that_was_not_written():
    it = kit(MAPPED, features=OF_136)
    attempt = placed(it, WEB, "a")

    attempt.unreserve("a")
    await it.fakes.background.carry_out()

    assert it.api.writes == []


async def test_a_status_that_cannot_be_written_fails_the_binding():
    it = kit(MAPPED, features=OF_136)
    attempt = placed(it, WEB, "a")
    it.api.refusals = [None, None, ApiError(403, "Forbidden", "no")]

    status = await attempt.pre_bind("a")

    assert status is not None
    assert status.message == "updating pod default/web NodeAllocatableResourceClaimStatuses: no"


def in_use(*users: Any) -> dict[str, Any]:
    return resource_claim("one", allocated=allocation("d", pool="p"), reserved_for=users)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        (["x"], "node allocatable resource claim one is already used by another pod"),
        (["x", "y"], "node allocatable resource claim one shared by multiple pods"),
    ],
)
def test_in_1_36_no_other_pod_on_the_node_may_use_the_claim(others: list[str], words: str):
    users = [using("one", name=name, node="a", cpu="0") for name in others]
    it = kit(MAPPED, in_use(*users), features=OF_136)
    for each in users:
        taken = (NodeAllocatableResourceClaimStatus("one", ("main",), {"cpu": "0"}),)
        count(it, trim_bound_pod(each.with_claims(taken, PodRules(claims=True))))

    assert it.begin(WEB).reasons() == {"a": words}


def test_in_1_36_a_pod_may_use_a_claim_that_takes_nothing_for_another_pod():
    other = using("one", name="x", node="a", cpu="0")
    it = kit(MAPPED, in_use(other), features=OF_136)
    count(it, other)

    assert "a" not in it.begin(WEB).reasons()


@pytest.mark.parametrize(
    ("device", "is_refused"),
    [
        pytest.param(SPLIT, True, id="a device that is CPUs"),
        pytest.param(
            {"name": "d", "nodeAllocatableResources": {"cpu": {"overhead": {"perPod": "1"}}}},
            False,
            id="a device with an overhead only",
        ),
    ],
)
def test_in_1_37_pods_share_only_devices_with_an_overhead(device: dict[str, Any], is_refused: bool):
    it = kit(device, in_use(using("one", name="another")), features=OF_137)

    assert ("a" in it.begin(WEB).reasons()) is is_refused


def test_in_1_37_claims_with_devices_count_too():
    it = kit(SPLIT, in_use(WEB), features=OF_137)

    assert it.begin(WEB).reasons() == {"b": "Insufficient cpu"}


def test_in_1_36_claims_with_devices_do_not_count():
    it = kit(MAPPED, in_use(WEB), features=OF_136)

    assert it.begin(WEB).reasons() == {}


WHOLE = "pod level request for cpu is insufficient to cover the aggregated container and node-allocatable DRA requests"
HUGE = "hugepages-2Mi"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        pytest.param({"resources": {"requests": {"cpu": "2"}}}, WHOLE, id="less CPU than it takes"),
        pytest.param({"resources": {"requests": {"cpu": "3"}}}, None, id="enough CPU"),
        pytest.param(
            {"resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}}, None, id="enough, with a limit"
        ),
        pytest.param(
            {"resources": {"requests": {"cpu": "3"}}, "overhead": {"cpu": "1"}},
            None,
            id="the overhead is besides",
        ),
    ],
)
def test_requests_of_the_pod_as_a_whole_cover_its_devices(spec: dict[str, Any], reason: str | None):
    for features, device in ((OF_136, MAPPED), (OF_137, SPLIT)):
        assert kit(device, features=features).begin(using("one", **spec)).reasons().get("a") == reason


def test_limits_of_the_pod_as_a_whole_cover_its_devices_in_1_37():
    container = {
        "name": "main",
        "image": "i",
        "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}, "claims": [{"name": "c0"}]},
    }
    web = using("one", containers=[container], resources={"requests": {"cpu": "3"}, "limits": {"cpu": "2"}})

    assert kit(SPLIT, features=OF_137).begin(web).reasons()["a"] == (
        "pod level limit for cpu is insufficient to cover the limit and DRA overhead for container main"
    )
    assert "a" not in kit(MAPPED, features=OF_136).begin(web).reasons()


def test_a_pod_that_leaves_a_node_requeues_pods_only_with_such_devices():
    for features, hint in ((OF_136, QueueingHint.QUEUE), (FakeFeatures("1.36"), QueueingHint.SKIP)):
        it = kit(MAPPED, features=features)
        (registered,) = [
            each
            for each in it.plugin.events()
            if each.event.resource is EventResource.ASSIGNED_POD and ActionType.DELETE in each.event.action
        ]
        assert registered.hint is not None
        assert registered.hint(WEB, pod("gone", node="a", cpu="1"), None) is hint


def test_the_plugin_reads_pods_of_nodes_only_with_such_devices():
    assert kit(MAPPED, features=OF_136).plugin.reads_pods
    assert not kit(MAPPED, features=FakeFeatures("1.36")).plugin.reads_pods


def test_why_says_that_the_devices_take_more_than_is_free():
    words = ["the pod and the devices of its claims together need more cpu than is free"]
    for it in (kit(MAPPED, features=OF_136), kit(SPLIT, in_use(WEB), features=OF_137)):
        snapshot = it.table.snapshot()

        said = [it.plugin.why(WEB, snapshot, snapshot.node_info(row)) for row in snapshot.all_rows]

        assert dict(zip(snapshot.names, said, strict=True)) == {"a": [], "b": words}
