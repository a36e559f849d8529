from __future__ import annotations

from typing import Any

import pytest

from scheduler.objects.api_types import api_type
from scheduler.tools.simulator.apimachinery.structure import Reading, StructureError, read_structure
from tests.support.errors import raises


def read(
    obj: object, api_version: str = "v1", kind: str = "Pod", *, fills: bool = False
) -> tuple[object, list[str]]:
    reading = Reading(fills)
    return read_structure(api_type(api_version, kind), obj, reading), reading.unknown


def test_unknown_fields_are_dropped_and_named_by_their_paths():
    pod = {"speck": 1, "spec": {"nodeNme": "x", "containers": [{"name": "a"}, {"imagee": "b", "name": "b"}]}}

    found, unknown = read(pod)

    assert found == {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}
    assert unknown == ["speck", "spec.nodeNme", "spec.containers[1].imagee"]


@pytest.mark.parametrize(
    ("pod", "path"),
    [
        pytest.param({"spec": {"containers": "x"}}, "spec.containers", id="text for a list"),
        pytest.param(
            {"spec": {"containers": [{"name": 1}]}}, "spec.containers[0].name", id="a number for text"
        ),
        pytest.param({"spec": {"hostNetwork": "true"}}, "spec.hostNetwork", id="text for a boolean"),
        pytest.param({"spec": {"priority": "5"}}, "spec.priority", id="text for a number"),
        pytest.param({"spec": {"priority": True}}, "spec.priority", id="a boolean for a number"),
        pytest.param({"spec": {"priority": 1.5}}, "spec.priority", id="a fraction for a whole number"),
        pytest.param({"metadata": {"labels": {"a": 1}}}, "metadata.labels.a", id="a number in labels"),
        pytest.param({"metadata": []}, "metadata", id="a list for a struct"),
        pytest.param({"status": {"startTime": "yesterday"}}, "status.startTime", id="no time"),
        pytest.param(
            {"spec": {"containers": [{"resources": {"requests": {"cpu": "lots"}}}]}},
            "spec.containers[0].resources.requests.cpu",
            id="no quantity",
        ),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_at_its_path(pod: Any, path: str):
    with raises(StructureError, path=path):
        read(pod)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        pytest.param({"spec": {"nodeName": ""}}, {"spec": {}}, id="empty text"),
        pytest.param({"spec": {"hostNetwork": False}}, {"spec": {}}, id="false"),
        pytest.param(
            {"spec": {"enableServiceLinks": False}},
            {"spec": {"enableServiceLinks": False}},
            id="false behind a pointer",
        ),
        pytest.param({"spec": {"tolerations": []}}, {"spec": {}}, id="an empty list"),
        pytest.param({"metadata": {"labels": {}}}, {"metadata": {}}, id="an empty map"),
        pytest.param({"metadata": {"creationTimestamp": None}}, {"metadata": {}}, id="null"),
        pytest.param(
            {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
            {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
            id="an empty struct stays",
        ),
        pytest.param(
            {"metadata": {"labels": {"a": ""}}},
            {"metadata": {"labels": {"a": ""}}},
            id="an empty label stays",
        ),
    ],
)
def test_zero_values_are_omitted_as_in_go(written: Any, kept: Any):
    assert read(written)[0] == kept


def test_times_and_quantities_are_normalized():
    pod = {"status": {"startTime": "2026-01-01T02:00:00.7+02:00"}, "spec": {"overhead": {"cpu": 0.5}}}

    assert read(pod)[0] == {
        "status": {"startTime": "2026-01-01T00:00:00Z"},
        "spec": {"overhead": {"cpu": "500m"}},
    }


def test_micro_times_keep_six_decimals():
    lease = {"spec": {"renewTime": "2026-01-01T00:00:00Z"}}

    assert read(lease, "coordination.k8s.io/v1", "Lease")[0] == {
        "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}
    }


def test_zero_values_that_go_writes_are_filled_in_except_for_lists():
    written = {"spec": {"containers": [{"name": "a"}]}, "status": {"conditions": [{"type": "Ready"}]}}
    condition = {"type": "Ready", "status": "", "lastProbeTime": None, "lastTransitionTime": None}

    assert read(written, fills=True)[0] == {
        "metadata": {},
        "spec": {"containers": [{"name": "a", "resources": {}}]},
        "status": {"conditions": [condition]},
    }
    assert read({}, fills=True)[0] == {"metadata": {}, "spec": {}, "status": {}}
