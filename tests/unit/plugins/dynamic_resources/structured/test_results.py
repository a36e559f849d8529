"""The allocation in the status of a claim."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.testing.devices import DRIVER, device_class, exactly, first_available, resource_slice
from scheduler.testing.fakes import FakeFeatures
from tests.support.builders import node
from tests.unit.plugins.dynamic_resources.structured.node_search import Search, claim, part

HERE = node("here", labels={"zone": "a", "row": "1"})
OPAQUE = {"opaque": {"driver": DRIVER, "parameters": {"level": [1, {"deep": None}]}}}
ONLY_HERE = {
    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["here"]}]}]
}


def configured(name: str, *configs: Any):
    found = device_class(name)
    found["spec"]["config"] = list(configs)
    return found


def opaque(level: int):
    return {"opaque": {"driver": DRIVER, "parameters": {"level": level}}}


def requirement(key: str, *values: str):
    return {"key": key, "operator": "In", "values": list(values)}


def on(*requirements: Any):
    return {"nodeSelectorTerms": [{"matchExpressions": list(requirements)}]}


def test_a_device_has_the_names_that_its_driver_and_kubelet_need():
    tolerations = [{"key": "sick", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 30}]
    conditions = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}
    search = Search(
        device_class(),
        claim("one", exactly(adminAccess=True, tolerations=tolerations)),
        resource_slice("here", [{"name": "gpu-0", **conditions}]),
    )

    assert search.results(HERE) == [
        {
            "devices": {
                "results": [
                    {
                        "request": "r0",
                        "driver": DRIVER,
                        "pool": "here",
                        "device": "gpu-0",
                        "adminAccess": True,
                        "tolerations": tolerations,
                        **conditions,
                    }
                ]
            },
            "nodeSelector": ONLY_HERE,
        }
    ]


def test_the_configuration_of_a_class_is_listed_once_for_all_its_requests():
    search = Search(
        configured("gpu", opaque(1), opaque(2)),
        configured("other", opaque(3)),
        device_class("plain"),
        claim(
            "one",
            exactly("a"),
            exactly("b", device_class="other"),
            exactly("c"),
            exactly("d", device_class="plain"),
        ),
        resource_slice("here", 4),
    )

    assert search.results(HERE)[0]["devices"]["config"] == [
        {"source": "FromClass", "requests": ["a", "c"], **opaque(1)},
        {"source": "FromClass", "requests": ["a", "c"], **opaque(2)},
        {"source": "FromClass", "requests": ["b"], **opaque(3)},
    ]


def test_the_configuration_is_that_of_the_chosen_class():
    search = Search(
        configured("none", opaque(1)),
        configured("some", opaque(2)),
        claim("one", first_available("r0", "none", "some")),
        resource_slice("here", 1),
    )
    search.add(device_class("none", "false"))

    assert search.results(HERE)[0]["devices"]["config"] == [
        {"source": "FromClass", "requests": ["r0/s1"], **opaque(2)}
    ]


@pytest.mark.parametrize(
    ("requests", "times"),
    [
        pytest.param([], 1, id="for all requests"),
        pytest.param(["a"], 1, id="for one"),
        pytest.param(["a", "b"], 2, id="for each of two"),
        pytest.param(["b/s0"], 0, id="for an alternative that was not chosen"),
        pytest.param(["b/s1"], 1, id="for the alternative that was"),
        pytest.param(["a", "b", "b/s1"], 2, id="for a request and its alternative"),
    ],
)
def test_the_configuration_of_a_claim_follows_that_of_its_classes(requests: Any, times: int):
    config = {"requests": requests, **OPAQUE} if requests else OPAQUE
    search = Search(
        configured("gpu", opaque(1)),
        device_class("none", "false"),
        claim("one", exactly("a"), first_available("b", "none", "gpu"), config=[config]),
        resource_slice("here", 2),
    )

    first, *others = search.results(HERE)[0]["devices"]["config"]

    assert first["source"] == "FromClass"
    assert others == [{"source": "FromClaim", **config}] * times


@pytest.mark.parametrize(
    ("slices", "where"),
    [
        pytest.param([part("s", 1, [{"name": "gpu-0"}], allNodes=True)], None, id="everywhere"),
        pytest.param([part("s", 1, [{"name": "gpu-0"}], node="here")], ONLY_HERE, id="on one node"),
        pytest.param(
            [part("s", 1, [{"name": "gpu-0", "bindsToNode": True}], allNodes=True)],
            ONLY_HERE,
            id="on the node that it is bound to",
        ),
        pytest.param(
            [part("s", 1, [{"name": "gpu-0"}], nodeSelector=on(requirement("zone", "a")))],
            on(requirement("zone", "a")),
            id="on some nodes",
        ),
        pytest.param(
            [
                part(
                    "s",
                    1,
                    [{"name": "gpu-0", "nodeSelector": on(requirement("row", "1"))}],
                    perDeviceNodeSelection=True,
                )
            ],
            on(requirement("row", "1")),
            id="the node selector of the device",
        ),
    ],
)
def test_a_claim_is_available_where_its_devices_are(slices: Any, where: Any):
    search = Search(device_class(), claim("one"), *slices)

    assert search.results(HERE)[0].get("nodeSelector") == where


def test_devices_of_several_places_are_available_only_where_all_of_them_are():
    places = [
        on(requirement("zone", "a", "b"), requirement("row", "1")),
        on(requirement("row", "1"), requirement("zone", "b", "a")),
        on(requirement("zone", "a")),
    ]
    slices = [
        part(f"s{number}", 1, [{"name": "gpu-0"}], pool=f"p{number}", nodeSelector=place)
        for number, place in enumerate(places)
    ]
    search = Search(device_class(), claim("one", exactly(count=3)), *slices)

    assert search.results(HERE)[0]["nodeSelector"] == on(
        requirement("zone", "a", "b"), requirement("row", "1"), requirement("zone", "a")
    )

    search.add(claim("two"))
    search.add(part("s3", 1, [{"name": "gpu-0"}], pool="p3", node="here"))

    assert search.results(HERE)[1]["nodeSelector"] == ONLY_HERE


def test_a_slice_with_several_terms_fails_the_attempt():
    selector = {"nodeSelectorTerms": on(requirement("zone", "a"))["nodeSelectorTerms"] * 2}
    search = Search(device_class(), claim("one"), part("s", 1, [{"name": "gpu-0"}], nodeSelector=selector))

    assert search.devices(HERE) == (
        "create NodeSelector for claim one: unsupported ResourceSlice.NodeSelector with 2 terms"
    )


def configurations(version: str, requests: list[Any], *configs: Any) -> list[Any]:
    """Return source and requests of each configuration of an allocation."""
    search = Search(
        configured("gpu", opaque(0)),
        device_class("other"),
        claim("one", *requests, config=configs),
        resource_slice("here", 3),
        features=FakeFeatures(version),
    )
    config = search.results(HERE)[0]["devices"]["config"]
    return [(each["source"], each.get("requests", [])) for each in config]


@pytest.mark.parametrize(
    ("version", "requests", "names", "found"),
    [
        pytest.param("1.36", ["a", "b"], ["a", "b"], [["a", "b"], ["a", "b"]], id="once for each request"),
        pytest.param("1.37", ["a", "b"], ["a", "b"], [[]], id="for all requests"),
        pytest.param("1.37", ["a", "b", "c"], ["a", "c"], [["a", "c"]], id="once for some"),
        pytest.param("1.37", ["a", "b"], ["z"], [], id="for no request"),
        pytest.param("1.36", ["a", "b"], [], [[]], id="without names in 1.36"),
        pytest.param("1.37", ["a", "b"], [], [[]], id="without names in 1.37"),
    ],
)
def test_the_configuration_of_a_claim_is_listed_once_since_1_37(
    version: str, requests: list[str], names: list[str], found: list[list[str]]
):
    config = {**opaque(1), "requests": names}
    listed = configurations(version, [exactly(name) for name in requests], config)

    assert [named for source, named in listed if source == "FromClaim"] == found


def test_the_configuration_of_a_class_names_no_requests_if_it_is_for_all():
    both = [exactly("a"), exactly("b")]
    other = [exactly("a"), exactly("b", device_class="other")]

    assert configurations("1.36", both) == [("FromClass", ["a", "b"])]
    assert configurations("1.37", both) == [("FromClass", [])]
    assert configurations("1.37", other) == [("FromClass", ["a"])]


def test_a_chosen_alternative_stands_for_its_request():
    config = {**opaque(1), "requests": ["a/s0"]}

    assert configurations("1.37", [first_available("a", "gpu")], config) == [
        ("FromClass", []),
        ("FromClaim", []),
    ]


SKIPPING = {"DRAOptionalNodeOperations": True}
DECLARING = node("here", declared_features=["DRAOptionalNodeOperations"])


@pytest.mark.parametrize(
    ("version", "gates", "found"),
    [
        pytest.param("1.36", {}, [None], id="1.36 does not know the field"),
        pytest.param("1.37", {}, "none", id="ignored without the gate"),
        pytest.param("1.37", SKIPPING, [["*"]], id="with the gate"),
    ],
)
def test_results_name_the_operations_that_nodes_skip(version: str, gates: dict[str, bool], found: Any):
    search = Search(
        device_class(),
        claim("one"),
        resource_slice("here", skipNodeOperations=["*"]),
        features=FakeFeatures(version, **gates),
    )

    if found == "none":
        assert search.devices(DECLARING) == found
    else:
        results = search.results(DECLARING)[0]["devices"]["results"]
        assert [each.get("skipNodeOperations") for each in results] == found


def test_only_nodes_that_declare_the_feature_skip_operations():
    search = Search(
        device_class(),
        claim("one"),
        resource_slice("", pool="p", skipNodeOperations=["*"], allNodes=True),
        features=FakeFeatures("1.37", **SKIPPING),
    )

    assert search.devices(node("here")) == "none"
    assert search.devices(DECLARING) == [["gpu-0"]]
