"""The explanations of rejections by DynamicResources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

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
from tests.unit.plugins.dynamic_resources.kit import Kit, placed

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

WEB, BOTH = pod("web", resourceClaims=claims_of("one")), pod("web", resourceClaims=claims_of("one", "two"))
GPUS = device_class("gpu", f'device.driver == "{DRIVER}"')
LARGE = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'


def told(kit: Kit, waiting: PodInfo, name: str | None = "a") -> list[str] | None:
    snapshot = kit.table.snapshot()
    row = None if name is None else snapshot.row_of(name)
    said = kit.plugin.why(waiting, snapshot, None if row is None else snapshot.node_info(row))
    return None if said is None else list(said)


def gpu(number: int, **more: Any) -> dict[str, Any]:
    return {"name": f"gpu-{number}", "capacity": {"memory": {"value": "80Gi"}}, **more}


def test_the_reason_lists_each_device_of_the_node():
    devices = [
        gpu(0), gpu(1), gpu(2),
        gpu(3, taints=[{"key": "sick", "value": "yes", "effect": "NoExecute"}]),
        gpu(4, capacity={"memory": {"value": "10Gi"}}),
        gpu(5, capacity={"memory": {"value": "50Gi"}}),
        gpu(6),
    ]  # fmt: skip
    kit = Kit(
        node("a"), node("b"), GPUS, resource_slice("a", devices), resource_slice("a", 1, driver="nic.example.com", pool="n"),
        resource_claim("one", exactly("gpu", 3, selectors=[{"cel": {"expression": LARGE}}])),
        resource_claim("z", exactly(), allocated=allocation("gpu-1", "gpu-2", pool="a")),
        resource_claim("y", exactly(), allocated=allocation("gpu-6", pool="a")),
    )  # fmt: skip

    assert told(kit, WEB) == [
        "claim one, request gpu: needs 3 devices of class gpu; 2 of 8 here fit",
        "  2 in use by claim default/z: gpu-1, gpu-2",
        "  1 tainted, sick=yes:NoExecute: gpu-3",
        f"  1 not selected by the request, {LARGE}: gpu-4",
        "  1 in use by claim default/y: gpu-6",
        f'  1 not selected by the class, device.driver == "{DRIVER}": gpu-0',
        "what would help: 1 more such devices free on this node",
    ]
    assert told(kit, WEB, "b") == [
        "claim one, request gpu: needs 3 devices of class gpu; there are no devices here",
        "what would help: 3 more such devices free on this node",
    ]


def test_a_device_about_to_be_allocated_names_its_claim():
    kit = Kit(
        node("a"),
        GPUS,
        resource_slice("a", 1),
        resource_claim("one", exactly()),
        resource_claim("two", exactly()),
    )
    placed(kit, pod("first", resourceClaims=claims_of("two")), "a")

    assert told(kit, WEB) == [
        "claim one, request r0: needs a device of class gpu; 0 of 1 here fit",
        "  1 in use by claim default/two: gpu-0",
        "what would help: 1 more such devices free on this node",
    ]


def test_all_alternatives_are_listed_and_satisfied_requests_are_not():
    kit = Kit(
        node("a"), GPUS, device_class("none", "false"), device_class("never", "false"), resource_slice("a", 1),
        resource_claim("one", first_available("either", "none", "never"), exactly("fine")),
    )  # fmt: skip

    said = told(kit, WEB)
    assert said is not None
    assert [line.partition(";")[0] for line in said if line.startswith("claim")] == [
        "claim one, request either/s0: needs a device of class none",
        "claim one, request either/s1: needs a device of class never",
    ]


def test_requests_that_fail_only_together_are_listed_with_the_constraints():
    devices = [gpu(number, attributes={"root": {"string": f"r{number}"}}) for number in range(2)]
    claim = resource_claim("one", exactly("first"), exactly("second"))
    claim["spec"]["devices"]["constraints"] = [
        {"matchAttribute": f"{DRIVER}/root"},
        {"distinctAttribute": f"{DRIVER}/model", "requests": ["first"]},
    ]

    assert told(Kit(node("a"), GPUS, resource_slice("a", devices), claim), WEB) == [
        "claim one: each request alone could be satisfied here, but not all of them together",
        f"  a constraint requires all devices to have one value of {DRIVER}/root",
        f"  a constraint requires all devices of first to have different values of {DRIVER}/model",
        "what would help: more free devices on this node that meet the constraints together",
    ]


def test_all_devices_must_be_free():
    claim = resource_claim("one", exactly("every", allocationMode="All"))
    taken = resource_claim("z", exactly(), allocated=allocation("gpu-1", pool="a"))

    assert told(Kit(node("a"), GPUS, resource_slice("a", 2), claim, taken), WEB) == [
        "claim one, request every: needs all devices of class gpu; 1 of 2 here fit",
        "  1 in use by claim default/z: gpu-1",
        "what would help: all of them free, and at least one",
    ]


@pytest.mark.parametrize(
    ("pool", "why"),
    [
        pytest.param({"resourceSliceCount": 2}, "slices of it are missing", id="incomplete"),
        pytest.param({}, "its slices contradict each other", id="invalid"),
    ],
)
def test_an_invalid_pool_is_named(pool: Any, why: str):
    found = resource_slice("a", [gpu(0), gpu(0)])
    found["spec"]["pool"] |= pool

    said = told(Kit(node("a"), GPUS, found, resource_claim("one", exactly())), WEB)

    assert said is not None
    assert f"pool {DRIVER}/a provides no devices: {why}" in said
    assert said[-1] == "what would help: 1 more such devices free on this node"


def test_exhausted_counters_are_listed():
    takes = [{"counterSet": "set", "counters": {"slots": {"value": "2"}}}]
    counters = [{"name": "set", "counters": {"slots": {"value": "3"}}}]
    devices = [gpu(number, consumesCounters=takes) for number in range(2)]
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 2}
    kit = Kit(
        node("a"), GPUS,
        resource_slice("a", devices, name="devices") | {},
        resource_slice("a", (), name="counters", sharedCounters=counters),
        resource_claim("one", exactly()),
        resource_claim("z", exactly(), allocated=allocation("gpu-1", pool="a")),
    )  # fmt: skip
    for name in ("devices", "counters"):
        store = kit.table.watch_kind("resource.k8s.io/v1/resourceslices")
        store[name] = store[name] | {"spec": {**store[name]["spec"], "pool": pool}}

    assert told(kit, WEB) == [
        "claim one, request r0: needs a device of class gpu; 0 of 2 here fit",
        "  1 without enough left of their shared counters: gpu-0",
        "  1 in use by claim default/z: gpu-1",
        "what would help: 1 more such devices free on this node",
    ]


def test_the_free_share_of_a_device_counts():
    shared = gpu(0, allowMultipleAllocations=True)
    asks = {"requests": {"memory": "50Gi"}}
    holds = allocation("gpu-0", pool="a", shareID="s", consumedCapacity={"memory": "40Gi"})
    kit = Kit(
        node("a"), GPUS, resource_slice("a", [shared]),
        resource_claim("one", exactly(capacity=asks)), resource_claim("z", exactly(), allocated=holds),
    )  # fmt: skip

    said = told(kit, WEB)
    assert said is not None
    assert said[1] == "  1 in use, with too little left, by claim default/z: gpu-0"


def test_a_claim_allocated_elsewhere_has_its_node_and_pods_listed():
    its = allocation("gpu-0", node="b", pool="b")
    kit = Kit(node("a"), node("b"), GPUS, resource_claim("one", exactly(), allocated=its))

    assert told(kit, WEB) == [
        f"claim one has devices already ({DRIVER}/b/gpu-0), only for nodes with metadata.name in (b)",
        "what would help: free capacity on such a node, or releasing the devices",
    ]
    assert told(kit, WEB, "b") == []


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        pytest.param([], None, id="no such claim: the reason names it"),
        pytest.param(
            [resource_claim("one", exactly(device_class="nope"))],
            ["request r0: device class nope does not exist"],
            id="no such class",
        ),
        pytest.param([GPUS, resource_claim("one", exactly())], [], id="no errors"),
    ],
)
def test_the_reasons_that_hold_for_every_node(objects: list[Any], said: list[str] | None):
    assert told(Kit(node("a"), *objects), WEB, None) == said


def test_a_claim_that_cannot_be_evaluated_has_the_error():
    bad = resource_claim("one", exactly(selectors=[{"cel": {"expression": "nonsense("}}]))

    said = told(Kit(node("a"), GPUS, resource_slice("a", 1), bad), WEB)

    assert said is not None
    assert said[0].startswith("claim default/one: selector #0: CEL compile error")


def test_a_device_at_which_a_selector_fails_is_named():
    claim = resource_claim("one", exactly(selectors=[{"cel": {"expression": LARGE}}]))
    kit = Kit(node("a"), GPUS, resource_slice("a", [gpu(0, capacity={})]), claim)

    assert told(kit, WEB) == [
        "claim default/one: selector #0: CEL runtime error: no such key: memory",
        f"  request r0 cannot be decided for {DRIVER}/a/gpu-0: selector #0: CEL runtime error: no such key: memory",
        "what would help: a selector that first checks whether a device has the attribute that it reads",
    ]


def test_explaining_changes_nothing():
    kit = Kit(node("a"), GPUS, resource_slice("a", 1), resource_claim("one", exactly()))
    kit.plugin._devices.given_up["uid-of-one", WEB.uid] = False
    before = dict(kit.plugin._devices.given_up)

    told(kit, WEB, None)
    told(kit, WEB)

    assert kit.plugin._devices.given_up == before
