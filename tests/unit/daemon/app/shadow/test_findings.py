"""Counts by cause, and a log of disagreements of limited size."""

from __future__ import annotations

from scheduler.daemon.app.shadow.comparison import (
    AGREEMENT,
    BEST,
    CAUSES,
    MILDEST_FIRST,
    NOT_LOOKED_AT,
    UNKNOWN,
    WORSE,
)
from scheduler.daemon.app.shadow.findings import Findings, lines
from scheduler.daemon.metrics import Metrics


def findings(log_bytes: int = 100_000) -> Findings:
    return Findings(Metrics().families, log_bytes)


def test_every_cause_is_agreement_unknown_or_disagreement() -> None:
    parts = [*AGREEMENT, *UNKNOWN, *MILDEST_FIRST]
    assert sorted(parts) == sorted(CAUSES)


def test_decisions_are_counted_by_profile_and_cause() -> None:
    found = findings()
    for cause, was_moved in [(BEST, False), (BEST, True), (WORSE, False), (NOT_LOOKED_AT, False)]:
        found.note("default", cause, was_moved=was_moved)
    found.note("config", WORSE, was_moved=True)

    details = found.summary()

    assert details["default"] == {
        "decisions": 4,
        "agree": 2,
        "unknown": 1,
        "causes": {
            BEST: {"as_seen": 1, "by_order": 1},
            WORSE: {"as_seen": 1},
            NOT_LOOKED_AT: {"as_seen": 1},
        },
        "tippedBy": {},
    }
    assert list(details) == ["config", "default"]
    text = list(lines({"notSearched": 0, "profiles": details}))
    assert text[2] == "default: 4 decisions, 2 agree (50.00 %), 1 cannot be known"
    assert text[3] == "        2  best: its node was among our best, 1 of them in another order than seen"


def test_the_oldest_disagreements_are_dropped_first() -> None:
    found = findings(log_bytes=2000)
    for number in range(20):
        found.keep(f"default/p{number % 10}", {"number": number})

    kept = [each["number"] for each in found.latest(100)]

    assert kept == list(range(19, 19 - len(kept), -1))
    assert found.forgotten == 20 - len(kept) > 0
    assert [each["number"] for each in found.of("default/p9")] == [19]
    assert found.of("default/p0") == []


def test_the_plugin_that_favours_our_node_most_is_counted() -> None:
    found = findings()
    theirs, ours = {"Fit": 10, "Spread": 200}, {"Fit": 90, "Spread": 180, "Images": 5}
    for _ in range(3):
        choices = {"theirs": {"scores": theirs}, "ours": {"scores": ours}}
        found.keep("default/p", {"profile": "config", **choices})
    found.note("config", WORSE, was_moved=False)

    details = found.summary()

    assert details["config"]["tippedBy"] == {"Fit": 3}
    assert list(lines({"notSearched": 2, "profiles": details}))[-1] == "        3  tipped by Fit"


def test_a_disagreement_that_is_too_large_is_dropped() -> None:
    found = findings(log_bytes=300)
    found.keep("default/p", {"text": "x" * 1000})

    assert (found.latest(10), found.forgotten) == ([], 1)
