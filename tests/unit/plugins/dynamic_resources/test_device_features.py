"""Feature gates of devices, on and off."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from plugins.dynamic_resources.pod_claims import consumer_of
from plugins.dynamic_resources.pod_devices import PodDevices
from scheduler.framework import ActionType, Code, EventResource
from scheduler.testing.devices import (
    CLASS,
    DRIVER,
    allocation,
    claims_of,
    device_class,
    exactly,
    first_available,
    resource_claim,
    resource_slice,
    taint_rule,
)
from scheduler.testing.fakes import FakeFeatures
from tests.support.builders import node, pod
from tests.unit.plugins.dynamic_resources.kit import Kit, placed
from tests.unit.plugins.dynamic_resources.structured.node_search import (
    Search,
    all_of,
    claim,
    device,
    part,
    selecting,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = node("here")
WEB = pod("web", resourceClaims=claims_of("one"))
GPU = "example.com/gpu"


def without(*gates: str, version: str = "1.36") -> FakeFeatures:
    return FakeFeatures(version, **dict.fromkeys(gates, False))


def given(*objects: Mapping[str, Any], features: FakeFeatures | None = None) -> Any:
    return Search(device_class(), *objects, features=features).devices(HERE)


def test_admin_access_is_an_error_if_it_is_off():
    wanted = claim("one", exactly(adminAccess=True))
    words = "claim default/one, request r0: admin access is requested, but the feature is disabled"

    assert given(resource_slice("here"), wanted) == [["gpu-0"]]
    assert given(resource_slice("here"), wanted, features=without("DRAAdminAccess")) == words


def test_capacity_requests_are_an_error_without_consumable_capacity():
    cluster = resource_slice("here", [device("gpu-0", capacity={"memory": "8Gi"})])
    asked = {"requests": {"memory": "1Gi"}}
    off = without("DRAConsumableCapacity")
    words = "has capacity requests, but the DRAConsumableCapacity feature is disabled"

    assert given(cluster, claim("one", exactly(capacity=asked))) == [["gpu-0"]]
    assert (
        given(cluster, claim("one", exactly(capacity=asked)), features=off)
        == f"claim default/one, request r0: {words}"
    )
    several = first_available("r1", CLASS)
    several["firstAvailable"][0]["capacity"] = asked
    assert given(cluster, claim("one", several), features=off) == f"claim default/one, subrequest s0: {words}"


def test_a_device_is_not_shared_without_consumable_capacity():
    shared = {**device("gpu-0", capacity={"memory": "8Gi"}), "allowMultipleAllocations": True}
    cluster = resource_slice("here", [shared]), claim("one", exactly("r0"))
    off = Search(device_class(), *cluster, features=without("DRAConsumableCapacity"))

    assert "shareID" in Search(device_class(), *cluster).results(HERE)[0]["devices"]["results"][0]
    assert off.results(HERE)[0]["devices"]["results"] == [
        {"request": "r0", "driver": DRIVER, "pool": "here", "device": "gpu-0"}
    ]


def counting(*, per_device: bool = False) -> list[dict[str, Any]]:
    takes = [{"counterSet": "all", "counters": {"memory": {"value": "1Gi"}}}]
    devices = [{"name": "part", "consumesCounters": takes}, {"name": "whole"}]
    sets = [{"name": "all", "counters": {"memory": {"value": "1Gi"}}}]
    if per_device:
        devices = [{"name": "whole", "allNodes": True}]
        return [part("devices", 1, devices, pool="p", perDeviceNodeSelection=True)]
    return [
        part("counters", 2, [], node="here", sharedCounters=sets),
        part("devices", 2, devices, node="here"),
    ]


def test_devices_with_counters_are_not_allocated_without_partitionable_devices():
    off = without("DRAPartitionableDevices")

    assert given(*counting(), claim("one", exactly())) == [["part"]]
    assert given(*counting(), claim("one", exactly()), features=off) == [["whole"]]
    assert given(*counting(), claim("one", all_of()), features=off) == "none"


def test_slices_that_select_nodes_per_device_need_partitionable_devices():
    slices = counting(per_device=True)

    assert given(*slices, claim("one", exactly())) == [["whole"]]
    assert given(*slices, claim("one", exactly()), features=without("DRAPartitionableDevices")) == "none"


def test_taints_do_not_count_without_device_taints():
    tainted = {"name": "gpu-0", "taints": [{"key": "broken", "effect": "NoSchedule"}]}
    cluster = resource_slice("here", [tainted]), claim("one", exactly())

    assert given(*cluster) == "none"
    assert given(*cluster, features=without("DRADeviceTaints")) == [["gpu-0"]]
    assert given(*cluster, features=FakeFeatures("1.34")) == [["gpu-0"]]
    assert given(*cluster, features=FakeFeatures("1.34", DRADeviceTaints=True)) == "none"


@pytest.mark.parametrize("gate", ["DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"])
def test_devices_with_binding_conditions_need_both_gates(gate: str):
    waiting = {"name": "gpu-0", "bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
    cluster = resource_slice("here", [waiting, {"name": "gpu-1"}]), claim("one", exactly())
    failing = exactly(selectors=selecting('device.attributes["x"].y == 1'))

    assert given(*cluster) == [["gpu-0"]]
    assert given(*cluster, features=without(gate)) == [["gpu-1"]]
    # Such a device is not evaluated either.
    assert given(resource_slice("here", [waiting]), claim("one", failing), features=without(gate)) == "none"


def test_binding_conditions_of_allocated_devices_do_not_count_without_the_gate():
    given_ = allocation(
        "gpu-0", node="a", bindingConditions=["ready"], bindingFailureConditions=["failed"]
    ) | {"allocationTimestamp": "2020-01-01T00:00:00Z"}
    cluster = node("a"), resource_claim("one", allocated=given_)

    assert Kit(*cluster).begin(WEB).reasons() == {"a": "resourceclaim not available on the node"}
    assert Kit(*cluster, features=without("DRADeviceBindingConditions")).begin(WEB).reasons() == {}


@pytest.mark.parametrize("gates", [(), ("DRADeviceBindingConditions",)])
def test_allocations_have_a_time_only_with_binding_conditions(gates: tuple[str, ...]):
    is_on = not gates
    waiting = {"name": "gpu-0", "bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
    cluster = node("a"), device_class(), resource_slice("a", [waiting] if is_on else 1)
    kit = Kit(*cluster, resource_claim("one"), features=without(*gates))
    written = placed(kit, WEB, "a")
    its = written.state.read("DynamicResources", PodDevices)
    asyncio.run(kit.plugin._writes.reserve(its.held[0], consumer_of(WEB), its.given[0]))

    allocated = kit.api.claims["default/one"]["status"]["allocation"]
    assert ("allocationTimestamp" in allocated) == is_on


def test_a_failed_device_does_not_fail_the_binding_without_the_gate():
    given_ = allocation("gpu-0", node="a", bindingConditions=["ready"], bindingFailureConditions=["failed"])
    failed = {"type": "failed", "status": "True", "reason": "Why", "message": ""}
    status = {"driver": DRIVER, "pool": "a", "device": "gpu-0", "conditions": [failed]}
    cluster = node("a"), resource_claim("one", allocated=given_, devices=[status])
    attempt = placed(Kit(*cluster, features=without("DRADeviceBindingConditions")), WEB, "a")

    assert asyncio.run(attempt.pre_bind("a")) is None


def test_pools_with_and_without_counters_are_not_equivalent_without_partitionable_devices():
    takes = [{"counterSet": "all", "counters": {"memory": {"value": "1Gi"}}}]
    slices = [
        resource_slice(f"n{number}", [{"name": "gpu-0", "consumesCounters": takes if number % 2 else []}])
        for number in range(4)
    ]
    kit = Kit(
        *(node(f"n{number}") for number in range(4)),
        device_class(),
        *slices,
        resource_claim("one"),
        features=without("DRAPartitionableDevices"),
    )

    assert kit.begin(WEB).reasons().keys() == {"n1", "n3"}


def test_alternatives_wait_without_prioritized_lists():
    cluster = node("here"), device_class(), resource_slice("here")
    wanted = resource_claim("one", first_available("r0", CLASS))
    off = Kit(*cluster, wanted, features=without("DRAPrioritizedList")).begin(WEB).pre_filter

    assert Kit(*cluster, wanted).begin(WEB).pre_filter is None
    assert off is not None
    assert off.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert off.reasons == (
        "resource claim default/one, request r0: has subrequests, but the DRAPrioritizedList feature is disabled",
    )


def test_device_classes_provide_no_extended_resources_without_the_gate():
    cluster = node("here"), device_class(extended_resource=GPU), resource_slice("here")
    wanting = pod("web", requests={GPU: "1"})

    assert Kit(*cluster).begin(wanting).pre_filter is None
    for features in (without("DRAExtendedResource"), FakeFeatures("1.34")):
        off = Kit(*cluster, features=features)
        assert off.begin(wanting).pre_filter is not None
        assert off.begin(wanting).pre_filter.code is Code.SKIP
        assert off.plugin.signature(wanting) == ()


def test_a_search_has_no_time_limit_without_the_gate():
    assert Kit().plugin._filter_seconds == 10
    assert Kit(features=without("DRASchedulerFilterTimeout")).plugin._filter_seconds == 0


def test_taint_rules_are_watched_only_if_they_count():
    kind = "resource.k8s.io/v1/devicetaintrules"
    off, on = Kit().plugin, Kit(features=FakeFeatures("1.37")).plugin

    assert kind not in off.needs.kinds
    assert kind in on.needs.kinds
    assert {f"{verb} {kind}" for verb in ("list", "watch")} <= off.needs.rights
    resources = [each.event.resource for each in off.events()]
    assert EventResource.DEVICE_TAINT_RULE not in resources


def test_a_changed_rule_requeues_pods():
    plugin = Kit(features=FakeFeatures("1.37")).plugin
    (hint,) = (
        each.hint for each in plugin.events() if each.event.resource is EventResource.DEVICE_TAINT_RULE
    )
    rule, other = taint_rule("a", {}), taint_rule("a", {"pool": "p"})
    said = rule | {"status": {"conditions": []}}

    answers = [hint(WEB, *pair).name for pair in ((rule, other), (rule, None), (None, rule), (rule, said))]
    assert answers == ["QUEUE", "QUEUE", "QUEUE", "SKIP"]


def test_the_error_of_a_selector_names_the_device_since_1_37():
    missing = claim("one", exactly(selectors=selecting('device.attributes["x"].y == 1')))
    wrong = claim("one", exactly(selectors=selecting("1/0 == 1")))
    cluster = resource_slice("here")
    before = "claim default/one: selector #0: CEL runtime error: no such key: y"
    advice = (
        ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() "
        "for optional fields"
    )

    assert given(cluster, missing) == before
    after = before.replace("#0", f"#0 on device {DRIVER}/here/gpu-0") + advice
    assert given(cluster, missing, features=FakeFeatures("1.37")) == after
    without_key = given(cluster, wrong, features=FakeFeatures("1.37"))
    assert f"#0 on device {DRIVER}/here/gpu-0: CEL runtime error: " in without_key
    assert "optional chaining" not in without_key


SKIPPING = {"DRAOptionalNodeOperations": True}
DECLARING = node("here", declared_features=["DRAOptionalNodeOperations"])


def with_skipped_operations(features: FakeFeatures) -> Kit:
    given_before = allocation("gpu-0", pool="p", skipNodeOperations=["*"])
    slices = resource_slice("", pool="p", allNodes=True)
    claims = resource_claim("one", allocated=given_before)
    return Kit(DECLARING, node("there"), device_class(), slices, claims, features=features)


def test_an_allocation_that_skips_operations_needs_a_node_that_declares_it():
    words = "node does not declare DRAOptionalNodeOperations, which the resourceclaim requires"

    assert with_skipped_operations(FakeFeatures("1.37", **SKIPPING)).begin(WEB).reasons() == {"there": words}
    assert with_skipped_operations(FakeFeatures("1.37")).begin(WEB).reasons() == {}


def test_why_names_the_feature_that_a_node_does_not_declare():
    it = with_skipped_operations(FakeFeatures("1.37", **SKIPPING))
    snapshot = it.table.snapshot()

    here, there = (it.plugin.why(WEB, snapshot, snapshot.node_info(row)) for row in snapshot.all_rows)

    assert not here
    assert there is not None
    assert "DRAOptionalNodeOperations" in there[0]


@pytest.mark.parametrize(("gates", "is_read"), [(SKIPPING, True), ({}, False)])
def test_a_newly_declared_feature_requeues_pods_only_with_the_gate(gates: dict[str, bool], is_read: bool):
    it = with_skipped_operations(FakeFeatures("1.37", **gates))

    actions = [each.event.action for each in it.plugin.events() if each.event.resource is EventResource.NODE]

    assert any(ActionType.UPDATE_NODE_DECLARED_FEATURE in action for action in actions) is is_read


def test_a_share_counts_as_the_whole_device_without_consumable_capacity():
    shared = {**device("gpu-0", capacity={"memory": "8Gi"}), "allowMultipleAllocations": True}
    share = allocation("gpu-0", node="here", shareID="x", consumedCapacity={"memory": "1Gi"})
    asked = claim("one", exactly(capacity={"requests": {"memory": "1Gi"}}))
    cluster = resource_slice("here", [shared]), resource_claim("other", allocated=share)

    assert given(*cluster, asked) == [["gpu-0"]]
    assert given(*cluster, claim("one"), features=without("DRAConsumableCapacity")) == "none"
