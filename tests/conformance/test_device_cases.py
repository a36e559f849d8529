"""Devices are judged as the kube-scheduler of each Kubernetes version does."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from tests.conformance.corpus import Case, explain

if TYPE_CHECKING:
    from collections.abc import Iterator

STORED: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "cases_1_37" / "devices.yaml").read_text())


def expectations() -> Iterator[Any]:
    for case in STORED["cases"]:
        for expected in case["expected"]:
            gates = ", ".join(f"{gate} {value}" for gate, value in expected.get("gates", {}).items())
            yield pytest.param(case, expected, id=f"{case['name']}, {expected['version']} {gates}".strip())


def cluster_of(case: dict[str, Any]) -> dict[str, Any]:
    """Return the common objects, with the request and the capacity of a case."""
    objects = copy.deepcopy(STORED["objects"])
    of_kind = {each["kind"]: each for each in objects}
    request = of_kind["ResourceClaim"]["spec"]["devices"]["requests"][0]["exactly"]
    if "requests" in case:
        request["capacity"] = {"requests": case["requests"]}
    if "selector" in case:
        request["selectors"] = [{"cel": {"expression": case["selector"]}}]
    if "slots" in case:
        of_kind["ResourceSlice"]["spec"]["devices"][0]["capacity"]["slots"] = case["slots"]
    return {"apiVersion": "v1", "kind": "List", "items": [*objects, *case.get("objects", ())]}


@pytest.mark.parametrize(("case", "expected"), list(expectations()))
def test_devices_are_judged_as_by_the_kube_scheduler_of_a_version(
    case: dict[str, Any], expected: dict[str, Any]
) -> None:
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "emulatedVersion": expected["version"],
        "featureGates": expected.get("gates", {}),
    }
    config = msgspec.json.encode(configuration).decode()

    (found,) = explain(Case(case["name"], "devices", config, cluster_of(case), "independent", []))

    nodes = found["nodes"]
    assert [name for name, each in nodes.items() if each["feasible"]] == expected["fits"]
    if "reasons" in expected:
        assert nodes["n0"]["reasons"] == expected["reasons"]
