"""Replays a recording under its own configuration, and shows the result."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from scheduler.clock import rfc3339_micro
from scheduler.daemon.recording.notes import SECOND, Note
from scheduler.engine.cycle.explanation import explain
from scheduler.tools.whatif.replay.replay import Replay
from scheduler.tools.whatif.replay.script import Script

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.tools.whatif.replay.replayed_hooks import Difference
    from scheduler.tools.whatif.replay.script import Stretch

_WORDS = {
    Note.STARTED: "task started:",
    Note.RESUMED: "task resumed:",
    Note.OBSERVED: "end of a time slice, or another recorded branch:",
}


class Wanted(NamedTuple):
    """The decisions to explain.

    Attributes:
        key: `namespace/name` of the pod.
        attempt: number of the attempt; None for all.
        all_nodes: whether to show every node.
    """

    key: str
    attempt: int | None
    all_nodes: bool


def exactly(found: Sequence[Stretch], wanted: Wanted | None) -> int:
    """Replay all sessions, and print the result; return the exit status."""
    logging.disable(logging.CRITICAL)  # do not log the recorded run again
    status, explained = 0, 0
    for stretch in found:
        script = Script(stretch.notes())
        while script.peek() is not None:
            replay = Replay(stretch.header, script)
            began = time.monotonic()
            if wanted is None:
                replay.run()
            else:
                watch = _Watch(wanted)
                replay.run(watch)
                explained += watch.explained
            status = max(status, _tell(stretch, replay, time.monotonic() - began))
            if status or (wanted is not None and wanted.attempt and explained):
                break
            script.skip_to(Note.STATE)
        for path in stretch.torn:
            click.echo(f"{path}: its end is missing; replayed up to there")
    if wanted is not None and not explained:
        click.echo(f"error: the recording has no such decision about pod {wanted.key}", err=True)
        return 1
    return status


class _Watch:
    """Finds decisions about a pod, and explains each in the state in which it was made."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._noted = 0
        self.explained = 0

    def __call__(self, replay: Replay) -> bool:
        attempts = replay.daemon.cycles.attempts
        if attempts.noted == self._noted:
            return False
        fresh = attempts.since(self._noted, attempts.noted - self._noted)
        self._noted = attempts.noted
        for attempt in fresh:
            if attempt.decision.pod.key == self._wanted.key and self._wanted.attempt in {
                None,
                attempt.number,
            }:
                self.explained += 1
                click.echo(f"{rfc3339_micro(attempt.at)}, attempt {attempt.number}")
                _show(
                    {"pod": self._wanted.key, **explain(attempt.decision, attempt.names)},
                    self._wanted.all_nodes,
                )
        return self._wanted.attempt is not None and self.explained > 0


def _show(explanation: dict[str, Any], all_nodes: bool) -> None:
    from rich.console import Console

    from scheduler.tools.whatif.explanation_text import show

    show(Console(highlight=False), explanation, all_nodes=all_nodes, drawn=True)


def _tell(stretch: Stretch, replay: Replay, seconds: float) -> int:
    difference = replay.difference
    what = f"run {stretch.header.run}: {replay.n_steps:,} steps, {replay.decisions:,} decisions"
    if difference is None:
        end = f", until {replay.ended}" if replay.ended else ""
        click.echo(f"{what}, identical to the recording{end} ({seconds:.1f} s)")
        return 0
    at = datetime.fromtimestamp(stretch.header.wall + difference.at / SECOND, UTC)
    click.echo(f"{what}; at {rfc3339_micro(at)} differs from the recording:")
    click.echo(f"  recorded: {_words(difference.recorded, replay)}")
    click.echo(f"  replayed: {_words(difference.here, replay)}")
    _explain_here(difference, replay)
    return 1


def _words(note: Sequence[Any] | None, replay: Replay) -> str:
    if note is None:
        return "the end"
    kind, *said = note
    match kind:
        case Note.DECIDED:
            uid, node, message, nominated = said
            room = f"; nominated node {nominated}" if nominated else ""
            goes = f"assigned to {node}" if node else f"not scheduled: {message}{room}"
            description = f"pod {_key(uid, replay)} {goes}"
        case Note.ASKED:
            description = f"external call: {said[1]}"
        case Note.TOLD:
            description = f"watch event: {said[1]} {said[3]}"
        case int():
            description = f"{_WORDS.get(Note(kind), Note(kind).name)} {said}"
        case _:
            description = ", ".join(map(str, note))
    return description


def _key(uid: str, replay: Replay) -> str:
    return next((pod.key for pod in replay.daemon.parts.pods.values() if pod.uid == uid), uid)


def _explain_here(difference: Difference, replay: Replay) -> None:
    """Show the explanation of the replayed decision, if the difference is one."""
    if difference.here[0] != Note.DECIDED:
        return
    key = _key(difference.here[1], replay)
    attempt = replay.daemon.cycles.attempts.last(key)
    if attempt is not None:
        _show({"pod": key, **explain(attempt.decision, attempt.names)}, all_nodes=False)
