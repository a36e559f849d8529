"""Cases in which versions of Kubernetes differ, with the verdicts of each kube-scheduler, derived by hand from its source.

A case is a YAML file: `source`, `objects`, and `expected`, a list of `versions`, `gates` and `pods`. Of a pod, only the
named fields are compared: `message`, and for each node `reasons`, or weighted `scores` of some plugins.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.conformance.corpus import Case, explain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CASES = Path(__file__).parent / "cases-versions"


def judged(case: dict[str, Any], version: str, gates: Mapping[str, bool]) -> Iterator[dict[str, Any]]:
    """Yield the explanation of each pending pod by a version with some gates."""
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "emulatedVersion": version,
        "featureGates": dict(gates),
        "profiles": [{"schedulerName": "default-scheduler"}],
    }
    cluster = {"apiVersion": "v1", "kind": "List", "items": case["objects"]}
    yield from explain(Case("case", "versions", yaml.safe_dump(config), cluster, "independent", []))


def parts(found: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an explanation that are expected."""
    shown: dict[str, Any] = {}
    if "message" in expected:
        shown["message"] = found["message"]
    for name, each in expected.get("nodes", {}).items():
        node = found["nodes"][name]
        scores = {plugin: node["scores"].get(plugin) for plugin in each.get("scores", {})}
        some = {"scores": scores} if "scores" in each else {}
        shown.setdefault("nodes", {})[name] = some | (
            {"reasons": node.get("reasons", [])} if "reasons" in each else {}
        )
    return shown


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_verdicts_are_those_of_each_version(path: Path):
    case = yaml.safe_load(path.read_text())
    for each in case["expected"]:
        for version in each["versions"]:
            found = {pod["pod"]: pod for pod in judged(case, version, each.get("gates", {}))}
            shown = {name: parts(found[name], pod) for name, pod in each["pods"].items()}
            assert shown == each["pods"], f"{version} {each.get('gates', '')}"
