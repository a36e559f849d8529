"""The result for one pool holds for equivalent pools, and for no others."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from plugins.dynamic_resources.structured import AllocationError, InvalidPoolsError
from scheduler.testing.devices import (
    DRIVER,
    allocation,
    device_class,
    exactly,
    resource_claim,
    resource_slice,
)
from tests.support.builders import node
from tests.support.snapshots import cache_of
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

N_NODES = 40
A, C = f'device.attributes["{DRIVER}"]', f'device.capacity["{DRIVER}"]'
EXPRESSIONS = (
    f'{A}.model == "h100"',
    f'{A}["index"] < 2',
    f'"mig" in {A} && {A}.mig',
    "device.attributes[device.driver].index != 1",
    f'{A}.exists(name, name == "mig")',
    f'{C}.memory.compareTo(quantity("40Gi")) >= 0',
    'device.driver.startsWith("gpu")',
    "!device.allowMultipleAllocations",
)


def _device(random: Random, number: int) -> dict[str, Any]:
    attributes: dict[str, Any] = {"uuid": f"u{random.randrange(10**9)}", "index": random.randrange(3)}
    if random.random() < 0.9:
        attributes["model"] = random.choice(["h100", "a100"])
    if random.random() < 0.5:
        attributes["mig"] = random.random() < 0.5
    found = device(
        f"gpu-{number}", capacity={"memory": random.choice(["40Gi", "80Gi", "10Gi"])}, **attributes
    )
    if random.random() < 0.1:
        found["taints"] = [{"key": "k", "effect": random.choice(["NoSchedule", "None"])}]
    if random.random() < 0.05:
        found["allowMultipleAllocations"] = True
    if random.random() < 0.03:
        found["attributes"]["bad"] = {"version": "none"}
    return found


def _request(random: Random, name: str) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if random.random() < 0.7:
        more["selectors"] = selecting(random.choice(EXPRESSIONS))
    if random.random() < 0.2:
        more["tolerations"] = [{"key": "k", "operator": "Exists"}]
    if random.random() < 0.2:
        more["capacity"] = {"requests": {"memory": random.choice(["20Gi", "60Gi"])}}
    return all_of(name, **more) if random.random() < 0.15 else exactly(name, random.choice([1, 1, 2]), **more)


def _world(random: Random) -> Search:
    search = Search(device_class("gpu", f'device.driver == "{DRIVER}"'))
    for number in range(N_NODES):
        devices = [_device(random, place) for place in range(random.choice([0, 1, 1, 2, 2, 3]))]
        search.add(part(f"s{number}", 2 if random.random() < 0.03 else 1, devices, node=f"n{number}"))
    search.add(resource_slice("", [_device(random, 9)], pool="everywhere", allNodes=True))
    return search


def _ask(search: Search, random: Random) -> None:
    constraints = [
        {
            random.choice(
                ["matchAttribute", "distinctAttribute"]
            ): f"{DRIVER}/{random.choice(['model', 'index'])}"
        }
    ]
    requests = [_request(random, f"r{number}") for number in range(random.choice([1, 1, 2]))]
    search.claims[:] = []
    search.add(
        claim(
            f"c{random.randrange(10**9)}", *requests, constraints=constraints if random.random() < 0.4 else ()
        )
    )


def _one_by_one(search: Search, nodes: list[Any]) -> Mapping[str, str]:
    """Node -> the result of a separate search there."""
    found = {}
    for each in nodes:
        try:
            given = search.allocator().allocate(each, search.claims)
        except (AllocationError, InvalidPoolsError) as error:
            found[each.name] = str(error)
        else:
            found[each.name] = "" if given is not None else "cannot allocate all claims"
    return found


@pytest.mark.parametrize("seed", range(25))
def test_the_result_for_all_nodes_equals_that_of_each_alone(seed: int):
    random = Random(seed)
    search, nodes = _world(random), [node(f"n{number}") for number in range(N_NODES)]
    cache = cache_of(nodes)
    for turn in range(8):
        _ask(search, random)
        assert search.judge(cache.snapshot()) == _one_by_one(search, nodes), f"turn {turn}"
        name = f"n{random.randrange(N_NODES)}"
        if random.random() < 0.5:
            search.add(resource_claim(f"t{turn}", allocated=allocation("gpu-0", node=name, pool=name)))
        else:
            search.add(part(f"s{name[1:]}", 1, [_device(random, 0)], node=name))


def alike(*devices: dict[str, Any], expression: str = "true", **more: Any) -> int:
    """The number of equivalence classes of nodes, by the steps of searches, if each node has one of these devices."""
    search = Search(device_class(), claim("c", exactly(selectors=selecting(expression)), **more))
    for number, each in enumerate(devices):
        search.add(resource_slice(f"n{number}", [each]))
    search.judge(cache_of([node(f"n{number}") for number in range(len(devices))]).snapshot())
    return search.steps


ONE = alike(device("a", model="x"))


@pytest.mark.parametrize(
    ("devices", "options", "kinds"),
    [
        pytest.param([device("a", uuid="1"), device("b", uuid="2")], {}, 1, id="attributes that are not read"),
        pytest.param([device("a", index=1), device("b", index=2)], {"expression": f"{A}.index > 0"}, 1, id="selected by the same attribute"),
        pytest.param(
            [device("a", index=1), device("b", index=2)],
            {"constraints": [{"matchAttribute": f"{DRIVER}/index"}]}, 2, id="a constraint compares",
        ),
        pytest.param(
            [device("a"), device("b") | {"allowMultipleAllocations": True}], {}, 2, id="one that several may have"
        ),
    ],
)  # fmt: skip
def test_nodes_of_one_kind_are_searched_once(devices: Any, options: Any, kinds: int):
    assert alike(*devices, **options) == kinds * ONE


def test_counters_of_different_nodes_are_separate():
    search = Search(device_class(), claim("c", exactly(count=2)))
    for name, left in (("n0", "2"), ("n1", "4")):
        takes = {"consumesCounters": [{"counterSet": "s", "counters": {"slots": {"value": "2"}}}]}
        counters = [{"name": "s", "counters": {"slots": {"value": left}}}]
        search.add(
            part(f"{name}-d", 2, [{"name": f"gpu-{number}", **takes} for number in range(2)], node=name)
        )
        search.add(part(f"{name}-c", 2, [], node=name, sharedCounters=counters))

    said = search.judge(cache_of([node("n0"), node("n1")]).snapshot())

    assert said == {"n0": "cannot allocate all claims", "n1": ""}


def test_devices_of_a_slice_for_other_nodes_do_not_count():
    devices = [{"name": f"gpu-{number}", "nodeName": name} for number, name in enumerate(("n0", "n1", "n1"))]
    search = Search(device_class(), claim("c", exactly(count=2)))
    search.add(resource_slice("", devices, perDeviceNodeSelection=True))

    said = search.judge(cache_of([node("n0"), node("n1")]).snapshot())

    assert said == {"n0": "cannot allocate all claims", "n1": ""}


def test_the_first_of_several_invalid_pools_by_name_is_reported():
    doubled = [{"name": "gpu-0"}, {"name": "gpu-0"}]
    waiting = [
        {**each, "bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]} for each in doubled
    ]
    search = Search(device_class(), claim("c", all_of()))
    search.add(resource_slice("n0", waiting, pool="a"))
    search.add(resource_slice("n0", doubled, pool="b"))

    (said,) = search.judge(cache_of([node("n0")]).snapshot()).values()

    assert f"resource pool {DRIVER}/a is currently invalid" in said
