"""A gate that a version turned on by default decides as it does where it is turned on in the version before.

All other differences of the two versions are made equal: every change without a gate counts as made in both, gates that only
the later version has are off, and the gates of both have the default of the later one. Gates of groups are left out: here
they are on in all versions.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scheduler.configuration import feature_gates
from scheduler.configuration.feature_gates import (
    CHANGES,
    EFFECTS,
    NEEDS,
    VERSIONS,
    features_of,
    stages_at,
)
from tests.conformance.corpus import CASES, Case, explain, load
from tests.conformance.version_cases import version_cases

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

RANDOM_CLUSTERS = 3
FAMILIES = {
    "DRA": "dra",
    "InPlace": "resources",
    "Node": "resources",
    "Storage": "volumes",
    "Volume": "volumes",
}
"""Start of a gate's name -> the family of recorded cases whose random clusters it is tried in."""


def turned_on() -> Iterator[tuple[str, str, str]]:
    """Yield (gate, version, next version) for each gate with an effect that is on by default since the next version."""
    for version, following in pairwise(VERSIONS):
        before, after = stages_at(version), stages_at(following)
        for gate in sorted(EFFECTS.keys() & before.keys() & after.keys()):
            if after[gate].default and not before[gate].default:
                yield gate, version, following


def equal_gates(version: str, following: str) -> tuple[dict[str, bool], dict[str, bool]]:
    """Return gates for each of two versions with which they have the same gates on."""
    before, after = stages_at(version), stages_at(following)
    free = {gate for gate in EFFECTS.keys() & after.keys() if not after[gate].locked}
    both = {gate: after[gate].default for gate in free & before.keys() if not before[gate].locked}
    return both, both | dict.fromkeys(free - before.keys(), False)


def without(gate: str, version: str) -> dict[str, bool]:
    """Return a gate as off, with those that need it."""
    off = {gate}
    while more := {each for each, needed in NEEDS.items() if off & {*needed}} - off:
        off |= more
    return dict.fromkeys(off & stages_at(version).keys(), False)


@cache
def clusters(gate: str) -> Sequence[Mapping[str, Any]]:
    """Return random clusters, and those of the cases in `versions/pods` that name the gate."""
    family = next(family for start, family in FAMILIES.items() if gate.startswith(start))
    paths = sorted((CASES / family).glob("*.json.gz"))[:RANDOM_CLUSTERS]
    cases = [case for case in version_cases("pods").values() if gate in case.gates]
    shown = {case.stored["name"]: case.stored["objects"] for case in cases}
    lists = ({"apiVersion": "v1", "kind": "List", "items": objects} for objects in shown.values())
    return [*(load(path).cluster for path in paths), *lists]


def decided(gate: str, version: str, gates: Mapping[str, bool]) -> list[Any]:
    """Return the explanations of the pods of each cluster, without `details`, which have a time limit."""
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "emulatedVersion": version,
        "featureGates": gates,
        "profiles": [{"schedulerName": "default-scheduler"}],
    }
    text = msgspec.json.encode(config).decode()
    cases = [Case(gate, "versions", text, dict(each), "independent", []) for each in clusters(gate)]
    return [each | {"nodes": _verdicts(each)} for case in cases for each in explain(case)]


def _verdicts(explanation: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {field: value for field, value in node.items() if field != "details"}
        for name, node in explanation["nodes"].items()
    }


@pytest.fixture(autouse=True)
def every_change_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {name: (VERSIONS[0], effect) for name, (_, effect) in CHANGES.items()}
    monkeypatch.setattr(feature_gates, "CHANGES", made)


@pytest.mark.parametrize(("gate", "version", "following"), list(turned_on()))
def test_a_gate_decides_the_same_before_and_after_it_is_on_by_default(
    gate: str, version: str, following: str
) -> None:
    gates, later_gates = equal_gates(version, following)
    on, later_on = features_of(gates, version).names, features_of(later_gates, following).names
    assert on & EFFECTS.keys() == later_on & EFFECTS.keys()

    later = decided(gate, following, later_gates)

    assert decided(gate, version, gates) == later
    assert decided(gate, following, later_gates | without(gate, following)) != later, "no cluster shows it"


def test_gates_that_were_turned_on_by_default_are_found() -> None:
    assert {following for _, _, following in turned_on()} >= {"1.36", "1.37"}
