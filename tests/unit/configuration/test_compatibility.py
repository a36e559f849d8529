"""docs/compatibility.md says what the tables of versions and feature gates say."""

from __future__ import annotations

from pathlib import Path

from scheduler.configuration.feature_gates import (
    CHANGES,
    EFFECTS,
    VERSIONS,
    features_of,
    stages_at,
)
from scheduler.daemon.metrics.stages import GATES, STAGES, stage_in

DOCUMENT = Path(__file__).parents[3] / "docs" / "compatibility.md"


def rows(heading: str) -> list[str]:
    """Return the rows of the table in a section, without its head."""
    section = DOCUMENT.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


def state_at(name: str, version: str) -> str:
    stage = stages_at(version).get(name)
    on = "on" if features_of({}, version).enabled(name) else "off"
    if name in CHANGES:
        return on
    return "" if stage is None else f"{stage.name}, {on}{' (locked)' if stage.locked else ''}"


def test_the_document_lists_what_differs_between_versions():
    effects = {**EFFECTS, **{name: text for name, (_, text) in CHANGES.items()}}
    expected = [
        f"| {name} | {' | '.join(state_at(name, version) for version in VERSIONS)} | {text} |"
        for name, text in sorted(effects.items())
    ]

    assert rows("What differs") == expected


def metric_in(name: str, version: str) -> str:
    """Return a stage as in the document: `beta`, or `alpha, deprecated`."""
    stage = stage_in(name, version) or ""
    level, _, deprecated = stage.partition("] ")
    return level.strip("[]").lower() + (", deprecated" if deprecated else "")


def test_the_document_lists_the_metrics_that_differ_between_versions():
    expected = []
    for name in STAGES:
        stages = [metric_in(name, version) for version in VERSIONS]
        if name in GATES or len({*stages}) > 1:
            expected.append(f"| `{name}` | {' | '.join(stages)} | {GATES.get(name, '')} |")

    assert rows("Metrics") == expected
