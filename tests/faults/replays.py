"""The daemons of a campaign gone through again: each must decide as it did."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from plugins.registry import IN_TREE
from scheduler.daemon.recording.recording_files import Note
from tests.faults.decision_checker import witnesses
from tests.faults.faulty_plugins import TROUBLES, BrokenFromTheStart, Mood

if TYPE_CHECKING:
    from scheduler.framework import Plugin
    from scheduler.objects.pod import PodInfo
    from tests.faults.daemon_runs import Life
    from tests.faults.stage import Stage


class _ReplayedMood(Mood):
    """The same mood at the same time."""

    @property
    def is_calm(self) -> bool:
        return asyncio.get_running_loop().time() >= self._stage.calm_at

    def reached(self, step: str, pod: PodInfo) -> None:
        """Nobody waits for that any more."""


class _BlindLedger:
    """Judges nothing: all was judged when it happened."""

    def within_quotas(self, *_: object) -> None: ...
    def over_quotas(self, *_: object) -> None: ...
    def reserved(self, *_: object) -> None: ...
    def released(self, *_: object) -> None: ...
    def bound(self, *_: object) -> None: ...


def replay_all(stage: Stage) -> None:
    """Go through every daemon's life again; where one differs is a finding."""
    if stage.plan.guest:
        return  # its file is gone
    for life in stage.lives.past:
        if not _is_moody(life):
            _replay(stage, life)


def _is_moody(life: Life) -> bool:
    """Whether plugins of it went wrong at random: those are asked by others as well, and draw otherwise then."""
    assert life.taped is not None
    texts = [note[3] for note in life.taped.tape.notes if note[0] == Note.CONFIGURED]
    return any(trouble.name in text for text in texts for trouble in TROUBLES)


def _replay(stage: Stage, life: Life) -> None:
    assert life.taped is not None
    mood = _ReplayedMood(stage, stage.random_of(f"plugins of {life.name}"))
    plugins: dict[str, type[Plugin]] = {
        trouble.name: type(trouble.__name__, (trouble,), {"mood": mood}) for trouble in TROUBLES
    }
    plugins[BrokenFromTheStart.name] = BrokenFromTheStart
    plugins |= witnesses(_BlindLedger())
    for begin in (0, *life.taped.tape.files[-1:]):
        replay = life.taped.replay({**IN_TREE, **plugins}, begin)
        if replay.difference is not None:
            stage.find(f"{life.name} decides otherwise, from note {begin} on: {replay.difference}")
