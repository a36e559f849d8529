"""The stored cases in which Kubernetes versions differ, and what our scheduler says of their pods; see versions/README.md."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from tests.conformance.corpus import Case, explain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FOLDER = Path(__file__).parent / "versions"


@dataclass(frozen=True)
class VersionCase:
    """What one version with some gates does.

    Attributes:
        name: the case, the version and the gates.
        stored: the case as it is in the file.
        expected: one entry of `expected`.
    """

    name: str
    version: str
    gates: Mapping[str, bool]
    stored: Mapping[str, Any]
    expected: Mapping[str, Any]


@cache
def version_cases(kind: str) -> Mapping[str, VersionCase]:
    """Return name -> case, for every version of every case.

    Args:
        kind: `pods` or `groups`, the name of a folder.

    Raises:
        ValueError: a case has no source, or two cases have one name.
    """
    found: dict[str, VersionCase] = {}
    for path in sorted(FOLDER.glob(f"{kind}/*.yaml")):
        document = yaml.safe_load(path.read_text())
        for stored in document["cases"]:
            if not stored.get("source"):
                raise ValueError(f"{path.name}, {stored['name']}: a case names its source")
            stored["objects"] = _replaced(document.get("objects", ()), stored.get("objects", ()))
            for case in _cases_of(stored):
                if case.name in found:
                    raise ValueError(f"two cases have the name {case.name}")
                found[case.name] = case
    return found


def wrong_pods(case: VersionCase) -> list[str]:
    """Return each pod of which our scheduler does not say what is expected, with both."""
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "emulatedVersion": case.version,
        "featureGates": case.gates,
        "profiles": [{"schedulerName": "default-scheduler"}],
    }
    cluster = {"apiVersion": "v1", "kind": "List", "items": case.stored["objects"]}
    text = msgspec.json.encode(config).decode()
    explained = explain(Case(case.name, "versions", text, cluster, "independent", []))
    found = {pod["pod"]: pod for pod in explained}
    pairs = ((name, pod, _parts(found[name], pod)) for name, pod in case.expected["pods"].items())
    return [f"{name}: expected {pod}, got {parts}" for name, pod, parts in pairs if parts != pod]


def _replaced(common: Any, own: Any) -> list[Any]:
    """Return the objects of a file, except those that a case replaces, and the objects of the case."""
    named = {_identity(each) for each in own}
    return [*(each for each in common if _identity(each) not in named), *own]


def _identity(obj: Mapping[str, Any]) -> tuple[str, ...]:
    metadata = obj["metadata"]
    return obj["kind"], metadata.get("namespace", ""), metadata["name"]


def _cases_of(stored: Mapping[str, Any]) -> Iterator[VersionCase]:
    for expected in stored["expected"]:
        gates = expected.get("gates", {})
        words = "".join(f", {gate} {'on' if value else 'off'}" for gate, value in gates.items())
        for version in expected["versions"]:
            yield VersionCase(f"{stored['name']}, {version}{words}", version, gates, stored, expected)


def _parts(found: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an explanation that are expected."""
    parts: dict[str, Any] = {}
    if "message" in expected:
        parts["message"] = found["message"]
    if "fits" in expected:
        parts["fits"] = [name for name, node in found["nodes"].items() if node["feasible"]]
    if "nodes" in expected:
        parts["nodes"] = {
            name: _parts_of_node(found["nodes"][name], each) for name, each in expected["nodes"].items()
        }
    return parts


def _parts_of_node(found: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    if "reasons" in expected:
        parts["reasons"] = found.get("reasons", [])
    if "scores" in expected:
        parts["scores"] = {plugin: found["scores"].get(plugin) for plugin in expected["scores"]}
    return parts
