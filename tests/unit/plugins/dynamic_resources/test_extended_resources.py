"""Extended resources that device classes provide: the class of each, and the requests of a pod's containers.

The cases of requests and their mappings follow createRequestsAndMappings of kube-scheduler v1.36.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plugins.dynamic_resources import extended_resources
from plugins.dynamic_resources.devices import DEVICE_CLASSES, DeviceClasses
from plugins.dynamic_resources.extended_resources import ExtendedResources
from scheduler.objects.dynamic_resources import ResourceClaim
from scheduler.snapshot import ClusterTable
from scheduler.testing.devices import device_class, watch_devices
from tests.support.builders import pod
from tests.support.counted_labels import lines_run

if TYPE_CHECKING:
    from collections.abc import Iterable

GPU, NIC = "example.com/gpu", "example.com/nic"
IMPLICIT = "deviceclass.resource.kubernetes.io/"


def classes(*objects: dict[str, Any]) -> tuple[ClusterTable, DeviceClasses]:
    table = ClusterTable()
    watch_devices(table, *objects)
    return table, DeviceClasses(table.watch_kind(DEVICE_CLASSES))


def behind(known: DeviceClasses) -> dict[str, str]:
    return {name: found.metadata.name for name, found in known.behind.items()}


def test_a_class_provides_its_own_resource_name_and_the_one_it_names():
    _, known = classes(device_class("a"), device_class("b", extended_resource=GPU))

    assert behind(known) == {IMPLICIT + "a": "a", IMPLICIT + "b": "b", GPU: "b"}


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        pytest.param("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "b", id="the newer"),
        pytest.param("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z", "a", id="the newer, under any name"),
        pytest.param(
            "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "a", id="of two as old the first by name"
        ),
    ],
)
@pytest.mark.parametrize("turned", [False, True], ids=["in order", "the other way round"])
def test_one_of_two_classes_for_a_resource_is_used(first: str, second: str, chosen: str, turned: bool):
    both = [
        device_class("a", extended_resource=GPU, created=first),
        device_class("b", extended_resource=GPU, created=second),
    ]
    _, known = classes(*(reversed(both) if turned else both))

    assert behind(known)[GPU] == chosen


def test_the_provided_resources_follow_the_classes():
    table, known = classes(device_class("a", extended_resource=GPU))
    store = table.watch_kind(DEVICE_CLASSES)
    assert behind(known)[GPU] == "a"

    store["a"] = device_class("a", extended_resource=NIC)
    assert behind(known) == {IMPLICIT + "a": "a", NIC: "a"}

    del store["a"]
    assert behind(known) == {}


def container(name: str, *, always: bool = False, **amounts: Any) -> dict[str, Any]:
    """A container that requests amounts of `gpu` and `nic`, and a cpu."""
    requests = {"cpu": "1", **{f"example.com/{each}": amount for each, amount in amounts.items()}}
    restart = {"restartPolicy": "Always"} if always else {}
    return {"name": name, "resources": {"requests": requests}, **restart}


@pytest.mark.parametrize(
    ("init", "main", "requests", "mappings"),
    [
        pytest.param([], [container("m", gpu=2)], {"container-0-request-1": 2}, ["m gpu container-0-request-1"], id="one container"),
        pytest.param(
            [], [container("a", gpu=1), container("b", gpu=2)],
            {"container-0-request-1": 1, "container-1-request-1": 2}, ["a gpu container-0-request-1", "b gpu container-1-request-1"], id="two containers",
        ),
        pytest.param(
            [], [container("m", gpu=1, nic=3)],
            {"container-0-request-1": 1, "container-0-request-2": 3}, ["m gpu container-0-request-1", "m nic container-0-request-2"], id="two resources",
        ),
        pytest.param(
            [container("i", gpu=1)], [container("m", gpu=2)],
            {"container-1-request-1": 2}, ["m gpu container-1-request-1", "i gpu container-1-request-1"], id="an init container uses the devices of the main one",
        ),
        pytest.param(
            [container("i", gpu=5)], [container("m", gpu=2)],
            {"container-0-request-1": 3, "container-1-request-1": 2},
            ["m gpu container-1-request-1", "i gpu container-1-request-1", "i gpu container-0-request-1"], id="an init container that needs more",
        ),
        pytest.param(
            [container("i", gpu=2), container("j", gpu=3)], [container("m")],
            {"container-1-request-1": 3}, ["i gpu container-1-request-1", "j gpu container-1-request-1"], id="init containers share the largest request",
        ),
        pytest.param(
            [container("s", always=True, gpu=1), container("i", gpu=1)], [container("m", gpu=1)],
            {"container-0-request-1": 1, "container-2-request-1": 1},
            ["s gpu container-0-request-1", "m gpu container-2-request-1", "i gpu container-2-request-1"], id="a sidecar keeps its devices",
        ),
        pytest.param([], [container("m", gpu=0)], {}, [], id="none"),
        pytest.param([], [container("m", gpu="1500m")], {}, [], id="no whole number"),
        pytest.param([], [container("m", gpu="2k")], {"container-0-request-1": 2000}, ["m gpu container-0-request-1"], id="a number with a suffix"),
    ],
)  # fmt: skip
def test_each_container_has_a_request_and_init_containers_share_theirs(
    init: list[Any], main: list[Any], requests: dict[str, int], mappings: list[str]
):
    _, known = classes(device_class("a", extended_resource=GPU), device_class("b", extended_resource=NIC))
    asking = pod("p", containers=main, initContainers=init)
    names = frozenset({GPU, NIC})

    found = ExtendedResources(asking, known.behind, {}).claim_for(names, ResourceClaim())

    exact = {each.name: each.exactly for each in found.claim.spec.devices.requests}
    assert {name: each.count for name, each in exact.items() if each} == requests
    assert list(exact) == sorted(exact)
    reported = [
        f"{each.container_name} {each.resource_name.removeprefix('example.com/')} {each.request_name}"
        for each in found.mappings
    ]
    assert reported == mappings


def test_a_request_has_the_number_of_devices_of_the_class():
    _, known = classes(device_class("a", extended_resource=GPU))
    asking = pod("p", requests={GPU: 2})

    (request,) = (
        ExtendedResources(asking, known.behind, {})
        .claim_for(frozenset({GPU}), ResourceClaim())
        .claim.spec.devices.requests
    )

    assert request.exactly is not None
    assert request.exactly.device_class_name == "a"
    assert request.exactly.allocation_mode == "ExactCount"


def test_requests_for_twice_as_many_init_containers_need_twice_the_work():
    _, known = classes(device_class("a", extended_resource=GPU))

    def lines(number: int) -> int:
        init = [
            container(f"i{index}", gpu=10_000 if index % 2 else 1, always=index % 2 == 0)
            for index in range(number)
        ]
        asking = pod("p", containers=[container("m", gpu=1)], initContainers=init)
        found = ExtendedResources(asking, known.behind, {})
        return lines_run(lambda: found.claim_for(frozenset({GPU}), ResourceClaim()))

    assert lines(400) < 2.5 * lines(200)


def test_requests_for_twice_as_many_resources_need_twice_the_work(
    monkeypatch: pytest.MonkeyPatch,
):
    n_sorted = 0

    def counting(items: Iterable[Any], **options: Any) -> list[Any]:
        nonlocal n_sorted
        found = sorted(items, **options)
        n_sorted += len(found)
        return found

    monkeypatch.setattr(extended_resources, "sorted", counting, raising=False)

    def items_sorted(number: int) -> int:
        names = frozenset(f"example.com/r{index}" for index in range(number))
        _, known = classes(*(device_class(name[12:], extended_resource=name) for name in names))
        before = n_sorted
        asking = pod("p", requests=dict.fromkeys(names, "1"))
        found = ExtendedResources(asking, known.behind, {}).claim_for(names, ResourceClaim())
        assert len(found.claim.spec.devices.requests) == number
        return n_sorted - before

    assert items_sorted(200) < 2.5 * items_sorted(100)
