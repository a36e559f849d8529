"""The nodes that can provide devices for a pod, their scores, and the deallocation in PostFilter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plugins.dynamic_resources.devices import Devices
from plugins.dynamic_resources.structured import DeviceFeatures
from scheduler.daemon.app.capabilities import TableObjects
from scheduler.framework import Code, NeedsTime, Status
from scheduler.testing.devices import (
    DRIVER,
    allocation,
    claims_of,
    device_class,
    exactly,
    first_available,
    resource_claim,
    resource_slice,
)
from tests.support.builders import node, pod
from tests.unit.plugins.dynamic_resources.kit import Kit
from tests.unit.plugins.dynamic_resources.structured.node_search import long_search

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

WEB, OTHER = pod("web", resourceClaims=claims_of("one")), pod("other")
BOTH = pod("web", resourceClaims=claims_of("one", "two"))
NODES = (node("a"), node("b"), node("c"))
NO_ROOM = "cannot allocate all claims"
ELSEWHERE = "resourceclaim not available on the node"
GPU = "example.com/gpu"
CONDITIONS = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}


def refusals(each: PodInfo, *objects: Any, **args: Any) -> dict[str, str]:
    attempt = Kit(*objects, **args).begin(each)
    assert attempt.pre_filter is None, attempt.pre_filter
    return attempt.reasons()


def test_a_node_needs_free_devices():
    cluster = [
        *NODES,
        device_class(),
        resource_slice("a"),
        resource_slice("b"),
        resource_claim("one"),
        resource_claim("two", allocated=allocation("gpu-0", node="b")),
    ]

    attempt = Kit(*cluster).begin(WEB)

    assert attempt.reasons() == {"b": NO_ROOM, "c": NO_ROOM}
    assert attempt.filter()["b"].code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


def test_all_claims_of_a_pod_are_allocated_together():
    cluster = [*NODES, device_class(), resource_slice("a", 1), resource_slice("b", 2)]

    assert refusals(BOTH, *cluster, resource_claim("one"), resource_claim("two")) == {
        "a": NO_ROOM,
        "c": NO_ROOM,
    }


def test_an_allocated_claim_requires_its_node():
    claim = resource_claim("one", allocated=allocation("gpu-0", node="b"))

    attempt = Kit(*NODES, claim).begin(WEB)

    assert attempt.reasons() == {"a": ELSEWHERE, "c": ELSEWHERE}
    assert attempt.reserve("b") is None
    assert attempt.kit.plugin.pre_bind_pre_flight(attempt.state, WEB, "b") is None


def test_an_allocation_on_another_node_is_reported_before_a_failed_allocation():
    cluster = [*NODES, device_class(), resource_slice("a"), resource_slice("b")]
    claims = [resource_claim("one", allocated=allocation("gpu-9", node="b")), resource_claim("two")]

    assert refusals(BOTH, *cluster, *claims) == {"a": ELSEWHERE, "c": NO_ROOM}


def test_an_allocated_claim_without_a_node_selector_fits_everywhere():
    assert refusals(WEB, *NODES, resource_claim("one", allocated=allocation("gpu-0"))) == {}


def test_an_expression_that_fails_for_a_device_fails_the_attempt():
    claim = resource_claim(
        "one", exactly(selectors=[{"cel": {"expression": 'device.attributes["x"].y == 1'}}])
    )

    outcomes = Kit(*NODES, device_class(), resource_slice("a"), claim).begin(WEB).filter()

    assert outcomes["a"].code is Code.ERROR
    assert outcomes["a"].reasons[0].startswith("claim default/one: selector #0: CEL runtime error: ")
    assert outcomes["b"].code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


def test_a_search_that_takes_too_long_fails_the_attempt():
    devices, claim = long_search()
    cluster = [node("a"), device_class(), resource_slice("a", devices), claim]
    kit = Kit(*cluster, filterTimeout="10s")
    attempt = kit.begin(WEB)
    kit.fakes.time_slice.each_reading = 3.0

    outcome = attempt.filter()["a"]

    assert outcome.code is Code.ERROR
    assert outcome.reasons == ("node a: timed out trying to allocate devices",)
    assert refusals(WEB, *cluster, filterTimeout="0s") == {"a": NO_ROOM}


@pytest.mark.parametrize(("timeout", "is_unlimited"), [("10s", False), ("0s", True)])
def test_a_search_longer_than_a_slice_has_no_limit_if_the_filter_has_none(
    timeout: str,
    is_unlimited: bool,
):
    devices, claim = long_search()
    kit = Kit(node("a"), device_class(), resource_slice("a", devices), claim, filterTimeout=timeout)
    attempt = kit.begin(WEB)
    kit.fakes.time_slice.slice_seconds, kit.fakes.time_slice.each_reading = 0.002, 0.001

    with pytest.raises(NeedsTime) as raised:
        attempt.filter()
    assert raised.value.is_unlimited is is_unlimited


# Extended resources.


ASKS = pod("ai", requests={GPU: 2})


def test_a_node_provides_an_extended_resource_itself_or_by_devices():
    cluster = [
        node("plugin", allocatable={GPU: 2}),
        node("devices"),
        node("few"),
        node("none"),
        device_class(extended_resource=GPU),
        resource_slice("devices", 2),
        resource_slice("few", 1),
    ]

    assert refusals(ASKS, *cluster) == {"few": NO_ROOM, "none": NO_ROOM}


def test_a_resource_of_neither_the_node_nor_a_device_does_not_fit():
    both = pod("ai", requests={GPU: 1, "example.com/disk": 1})
    cluster = [
        node("empty", allocatable={"example.com/disk": 0}),
        node("disk", allocatable={"example.com/disk": 1}),
        node("no-disk"),
        device_class(extended_resource=GPU),
        *(resource_slice(name) for name in ("empty", "disk", "no-disk")),
    ]

    assert refusals(both, *cluster) == {"no-disk": "cannot fit resource"}


def test_claims_and_extended_resources_share_the_devices():
    both = pod("ai", requests={GPU: 1}, resourceClaims=claims_of("one"))
    cluster = [*NODES, device_class(extended_resource=GPU), resource_slice("a", 1), resource_slice("b", 2)]

    assert refusals(both, *cluster, resource_claim("one")) == {"a": NO_ROOM, "c": NO_ROOM}


def test_a_pod_served_by_a_device_plugin_needs_no_allocation():
    attempt = Kit(node("plugin", allocatable={GPU: 2}), device_class(extended_resource=GPU)).begin(ASKS)

    assert attempt.reasons() == {}
    assert attempt.reserve("plugin") is None


def made_for(owner: PodInfo, **fields: Any) -> dict[str, Any]:
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    return resource_claim("left-over", owner=owner, annotations=annotations, **fields)


async def test_a_claim_left_by_an_earlier_attempt_is_deleted_first():
    left = made_for(
        ASKS, allocated=allocation("gpu-0", node="a"), finalizers=["resource.kubernetes.io/delete-protection"]
    )
    kit = Kit(*NODES, device_class(extended_resource=GPU), resource_slice("a", 4), left)
    attempt = kit.begin(ASKS)

    assert set(attempt.reasons().values()) == {"cannot schedule extended resource claim"}
    assert attempt.post_filter() == Status.unschedulable("deletion of ResourceClaim completed")
    words = "resource claim default/left-over is in the process of being given back"
    assert kit.begin(ASKS).pre_filter == Status.unschedulable(words, resolvable=False)
    await kit.fakes.background.carry_out()

    assert [write.method for write in kit.api.writes] == ["PUT", "DELETE"]
    assert kit.fakes.activator.activated == [ASKS.uid]
    kit.watch_shows("default/left-over")
    assert kit.begin(ASKS).reasons() == {"b": NO_ROOM, "c": NO_ROOM}


def test_claims_for_extended_resources_of_other_pods_are_ignored():
    cluster = [*NODES, device_class(extended_resource=GPU), resource_slice("a", 4)]

    assert refusals(ASKS, *cluster, made_for(OTHER), resource_claim("plain", owner=ASKS)) == {
        "b": NO_ROOM,
        "c": NO_ROOM,
    }


# Scores.


def test_a_node_with_the_first_alternative_scores_higher():
    cluster = [
        *NODES,
        device_class("fast", 'device.attributes["gpu.example.com"].model == "fast"'),
        device_class("slow", 'device.attributes["gpu.example.com"].model == "slow"'),
        *(
            resource_slice(name, [{"name": "gpu-0", "attributes": {"model": {"string": model}}}])
            for name, model in (("a", "fast"), ("b", "slow"), ("c", "slow"))
        ),
        resource_claim("one", first_available("r0", "fast", "slow")),
    ]
    attempt = Kit(*cluster).begin(WEB)

    assert attempt.reasons() == {}
    assert attempt.scores() == {"a": 100, "b": 7 * 100 // 8, "c": 7 * 100 // 8}


def test_claims_without_alternatives_score_all_nodes_equally():
    attempt = Kit(
        *NODES, device_class(), *(resource_slice(name) for name in "abc"), resource_claim("one")
    ).begin(WEB)

    assert attempt.scores() == {"a": 0, "b": 0, "c": 0}


def test_an_allocated_alternative_counts_beside_a_new_claim():
    cluster = [*NODES[:1], device_class(), resource_slice("a", 2), resource_claim("two")]
    given = resource_claim(
        "one", first_available("r0", "x", "y"), allocated=allocation("gpu-0", node="a", request="r0/s1")
    )

    assert Kit(*cluster, given).begin(BOTH).scores() == {"a": 100}
    alone = Kit(*NODES[:1], given).begin(WEB)
    assert alone.scores() == {"a": 0}, "upstream looks only where something was to be allocated"


# PostFilter, if no node is left.


def test_a_claim_allocated_to_another_node_is_deallocated():
    claim = resource_claim("one", allocated=allocation("gpu-0", node="gone"), reserved_for=[WEB])
    kit = Kit(*NODES, claim)
    attempt = kit.begin(WEB)

    assert set(attempt.reasons()) == {"a", "b", "c"}
    assert attempt.post_filter() == Status.unschedulable("deallocation of ResourceClaim completed")


@pytest.mark.parametrize(
    ("users", "helps"),
    [
        pytest.param([], True, id="no consumer"),
        pytest.param([WEB], True, id="the pod alone uses it"),
        pytest.param([OTHER], False, id="another uses it"),
        pytest.param([WEB, OTHER], False, id="another uses it too"),
    ],
)
async def test_only_a_claim_without_other_consumers_is_deallocated(users: list[PodInfo], helps: bool):
    claim = resource_claim("one", allocated=allocation("gpu-0", node="gone"), reserved_for=users)
    kit = Kit(*NODES, claim)
    attempt = kit.begin(WEB)
    attempt.reasons()

    said = attempt.post_filter().reasons[0]
    await kit.fakes.background.carry_out()

    assert said == ("deallocation of ResourceClaim completed" if helps else "still not schedulable")
    assert len(kit.api.writes) == helps
    assert ("allocation" in kit.api.claims["default/one"]["status"]) is not helps
    assert kit.fakes.activator.activated == [], "the watch event of it wakes the pod"


def test_a_claim_that_rejected_some_node_is_deallocated():
    claims = [resource_claim("one", allocated=allocation("gpu-0", node="a")), resource_claim("two")]
    attempt = Kit(*NODES, device_class(), resource_slice("b"), *claims).begin(BOTH)

    assert attempt.reasons() == {"a": NO_ROOM, "b": ELSEWHERE, "c": NO_ROOM}
    assert attempt.post_filter().reasons == ("deallocation of ResourceClaim completed",)


def test_an_impossible_claim_needs_no_deallocation():
    attempt = Kit(*NODES, device_class(), resource_claim("one")).begin(WEB)
    attempt.reasons()

    assert attempt.post_filter() == Status.unschedulable("still not schedulable")


async def test_a_claim_under_deallocation_is_not_allocated_to_a_pod():
    claim = resource_claim("one", allocated=allocation("gpu-0", node="gone"))
    kit = Kit(*NODES, device_class(), resource_slice("a"), claim)
    attempt = kit.begin(WEB)
    attempt.reasons()
    attempt.post_filter()
    kit.api.claims["default/one"]["status"] = {}
    kit.watch_shows("default/one")

    waiting = kit.another().pre_filter(kit.begin(WEB).state, WEB, kit.table.snapshot())

    assert waiting == Status.unschedulable(
        "resource claim default/one is in the process of being given back", resolvable=False
    )
    await kit.fakes.background.carry_out()
    assert kit.begin(WEB).reasons() == {"b": NO_ROOM, "c": NO_ROOM}


async def test_a_pod_is_retried_when_its_claim_could_not_be_deallocated():
    from tests.unit.plugins.dynamic_resources.claims_api import CONFLICT

    kit = Kit(*NODES, resource_claim("one", allocated=allocation("gpu-0", node="gone")))
    attempt = kit.begin(WEB)
    attempt.reasons()
    attempt.post_filter()
    kit.api.refusals = [CONFLICT]

    with pytest.raises(type(CONFLICT)):
        await kit.fakes.background.carry_out()

    assert kit.fakes.clock.now == 10.0
    assert kit.fakes.activator.activated == [WEB.uid]
    assert attempt.kit.begin(WEB).pre_filter is None


@pytest.mark.parametrize(
    ("said", "seconds", "ready"),
    [
        pytest.param([], 600, True, id="no conditions, in time"),
        pytest.param([], 601, False, id="no conditions for too long"),
        pytest.param([{"type": "Ready", "status": "True"}], 9999, True, id="ready"),
        pytest.param([{"type": "Broken", "status": "True"}], 1, False, id="broken"),
    ],
)
def test_failed_or_late_devices_are_deallocated(said: list[Any], seconds: int, ready: bool):
    given = allocation("gpu-0", node="a", timestamp="2026-03-01T08:00:00Z", **CONDITIONS)
    status = [{"driver": DRIVER, "pool": "a", "device": "gpu-0", "conditions": said}]
    kit = Kit(*NODES[:1], resource_claim("one", allocated=given, devices=status))
    kit.fakes.clock.advance(seconds)
    attempt = kit.begin(WEB)

    assert attempt.reasons() == ({} if ready else {"a": ELSEWHERE})
    reported = "still not schedulable" if ready else "deallocation of ResourceClaim completed"
    assert attempt.post_filter().reasons == (reported,)


def test_devices_are_read_before_a_pod_that_needs_some_is_evaluated():
    kit = Kit(node("a"), resource_slice("a"), resource_claim("one"))
    inventory = Devices.of(TableObjects(kit.table)).inventory(DeviceFeatures())

    kit.plugin.pre_enqueue(pod("plain"))
    assert inventory.view_of(node("a")) == ()

    kit.plugin.pre_enqueue(pod("web", resourceClaims=claims_of("one")))
    assert [pool.id.pool for pool in inventory.view_of(node("a"))] == ["a"]
