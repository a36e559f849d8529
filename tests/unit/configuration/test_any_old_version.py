"""Properties of every configuration of an old version, including invalid ones."""

from __future__ import annotations

import re
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.configuration.load import examine, parse
from scheduler.configuration.versions import OLD_VERSIONS
from scheduler.configuration.write import converted_yaml

NAMES = st.sampled_from(
    [
        "NodeResourcesFit",
        "NodeResourcesLeastAllocated",
        "NodeResourcesMostAllocated",
        "RequestedToCapacityRatio",
        "NodeAffinity",
        "NodeLabel",
        "ServiceAffinity",
        "NodePreferAvoidPods",
        "SelectorSpread",
        "DefaultPodTopologySpread",
        "PodTopologySpread",
        "EBSLimits",
        "NodeVolumeLimits",
        "mine.py",
        "*",
    ]
)
POINTS = st.sampled_from(["filter", "score", "preScore", "postFilter", "reserve", "unreserve", "multiPoint"])
ODD: st.SearchStrategy[Any] = st.sampled_from([None, 3, "x", True, [], {}, [3], [None]])
PLUGIN = st.fixed_dictionaries({"name": NAMES}, optional={"weight": st.integers(0, 9) | ODD}) | ODD
PLUGIN_SET = (
    st.fixed_dictionaries(
        {}, optional={key: st.lists(PLUGIN, max_size=4) | ODD for key in ("enabled", "disabled")}
    )
    | ODD
)
ARGS = (
    st.fixed_dictionaries(
        {},
        optional={
            "resources": st.just([{"Name": "cpu", "weight": 2}]) | ODD,
            "shape": st.just([{"utilization": 0, "Score": 3}]) | ODD,
            "presentLabels": st.just(["a"]) | ODD,
            "defaultConstraints": st.just([{"maxSkew": 1}]) | ODD,
            "scoringStrategy": ODD,
            "addedAffinity": ODD,
        },
    )
    | ODD
)
PLUGIN_CONFIG = st.lists(st.fixed_dictionaries({"name": NAMES | ODD, "args": ARGS}) | ODD, max_size=3) | ODD
PROFILE = {
    "schedulerName": st.sampled_from(["a", "b"]) | ODD,
    "plugins": st.dictionaries(POINTS, PLUGIN_SET, max_size=4) | ODD,
    "pluginConfig": PLUGIN_CONFIG,
}
ALGORITHM_SOURCE = st.sampled_from(
    [{"provider": "ClusterAutoscalerProvider"}, {"provider": 3}, {"policy": {"file": {"path": "/nowhere"}}}]
)
WHOLE = {
    **PROFILE,
    "profiles": st.lists(st.fixed_dictionaries({}, optional=PROFILE) | ODD, max_size=3) | ODD,
    "leaderElection": st.sampled_from([{"resourceLock": "endpoints"}, {"lockObjectName": "x"}]) | ODD,
    "algorithmSource": ALGORITHM_SOURCE | ODD,
    "healthzBindAddress": ODD,
    "disablePreemption": ODD,
    "bindTimeoutSeconds": ODD,
    "hardPodAffinitySymmetricWeight": ODD,
    "extenders": ODD,
}
DOCUMENT = st.fixed_dictionaries({"apiVersion": st.sampled_from(OLD_VERSIONS)}, optional=WHOLE)

CONFIG = st.fixed_dictionaries(
    {"apiVersion": st.sampled_from(OLD_VERSIONS)},
    optional={
        "profiles": st.lists(
            st.fixed_dictionaries(
                {"schedulerName": st.uuids().map(str)},
                optional={
                    "plugins": st.dictionaries(
                        st.sampled_from(["filter", "score", "preScore", "postFilter"]),
                        st.fixed_dictionaries(
                            {},
                            optional={
                                key: st.lists(
                                    st.fixed_dictionaries(
                                        {"name": NAMES}, optional={"weight": st.integers(0, 9)}
                                    ),
                                    max_size=3,
                                    unique_by=lambda plugin: plugin["name"],
                                )
                                for key in ("enabled", "disabled")
                            },
                        ),
                    )
                },
            ),
            max_size=2,
        ),
        "disablePreemption": st.booleans(),
    },
)


def text_of(document: dict[str, Any]) -> str:
    return yaml.safe_dump({"kind": "KubeSchedulerConfiguration", **document})


def has(document: Any, path: str) -> bool:
    """Return whether a document has the path's value, or the mapping in which it is missing."""
    steps = re.findall(r"\[(\d+)\]|([^.\[\]]+)", path)
    for number, (index, key) in enumerate(steps):
        last = number == len(steps) - 1
        if index and isinstance(document, list) and int(index) < len(document):
            document = document[int(index)]
        elif key and isinstance(document, dict) and (key in document or last):
            document = document.get(key)
        else:
            return False
    return True


@given(document=DOCUMENT)
@settings(max_examples=100)
def test_every_error_has_a_place_in_the_file(document: dict[str, Any]) -> None:
    found = examine(text_of(document))

    assert [str(error) for error in found.errors if not has(document, error.path)] == []


@given(document=CONFIG)
@settings(max_examples=100)
def test_a_converted_file_means_the_same(document: dict[str, Any]) -> None:
    found = examine(text_of(document))

    if not found.errors:
        assert found.configuration is not None
        again = parse(converted_yaml(found.configuration))
        assert again == found.configuration
        assert not again.notes or {note.text for note in again.notes} <= {
            note.text for note in found.configuration.notes
        }
