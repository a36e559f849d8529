"""Events requeue the same pods as in kube-scheduler in every stored case."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.events import CASES, FAMILIES, EventCase, judge, load, paths

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.name.removesuffix('.json.gz')}"


@pytest.mark.parametrize("path", paths(), ids=_name)
def test_events_requeue_the_pods_that_they_requeue_in_kube_scheduler(path: Path) -> None:
    case = load(path)

    finding = judge(case)

    assert not finding.differences, "\n".join(map(str, finding.differences[:20]))


def test_no_case_is_missing() -> None:
    assert Counter(path.parent.name for path in paths()) == {
        "resources": 11,
        "taints": 11,
        "nodeaffinity": 11,
        "ports": 9,
        "spread": 12,
        "interpod": 14,
        "volumes": 16,
        "preemption": 8,
        "dra": 14,
        "mixed": 6,
        "gates": 8,
    }, f"in {CASES}"
    assert {path.parent.name for path in paths()} == set(FAMILIES)


# The judge itself.


@pytest.fixture(scope="module")
def case() -> EventCase:
    """A case that matches, in which an event wakes some of its pods."""
    return load(CASES / "taints" / "taints-000.json.gz")


def test_a_case_that_matches_has_no_differences(case: EventCase) -> None:
    finding = judge(case)

    assert finding.differences == []
    assert finding.wrong_events == 0
    assert finding.judged == len(case.events) * len(case.rejectors)


def _sleep(event: dict[str, Any]) -> None:
    event["sleeps"] += event.pop("wakes")
    event["wakes"] = []


def _wake(event: dict[str, Any]) -> None:
    event["wakes"] += event.pop("sleeps")
    event["sleeps"] = []


@pytest.mark.parametrize(
    "change", [pytest.param(_sleep, id="to sleep"), pytest.param(_wake, id="to requeue")]
)
def test_an_event_that_only_kube_scheduler_registers_is_reported(
    case: EventCase, change: Callable[[dict[str, Any]], None]
) -> None:
    events = copy.deepcopy(case.events)
    mixed = next(event for event in events if event["wakes"] and event["sleeps"])
    change(mixed)

    finding = judge(replace(case, events=[mixed]))

    assert finding.wrong_events == 1
    assert {difference.what for difference in finding.differences} == {mixed["what"]}


def test_a_different_rejecting_plugin_is_reported(case: EventCase) -> None:
    pod = next(iter(case.rejectors))

    finding = judge(replace(case, rejectors={**case.rejectors, pod: ["NodePorts"]}, events=[]))

    assert [(difference.pod, difference.what) for difference in finding.differences] == [(pod, "rejected by")]


def test_a_different_gated_pod_is_reported(case: EventCase) -> None:
    pod = next(iter(case.rejectors))

    finding = judge(replace(case, gated=frozenset({pod}), events=[]))

    assert [(difference.pod, difference.what) for difference in finding.differences] == [(pod, "gated")]
