"""A recording in memory, and the same gone through again."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from plugins.registry import IN_TREE
from scheduler.recording.files import Header
from scheduler.recording.recorder import Recorder
from scheduler.recording.tape import packed_note
from scheduler.whatif.replay.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.clock import Clock
    from scheduler.framework import Plugin

SEED = 7


class Tape:
    """Notes as they would come back from a file."""

    def __init__(self) -> None:
        self.notes: list[Any] = []

    def put(self, note: Any) -> None:
        self.notes.append(note)


class Taped:
    """A recorder whose recording is kept in memory.

    Attributes:
        steps: what a daemon is built with.
    """

    def __init__(self, clock: Clock, *, flushes: bool = True) -> None:
        self._seconds = 300.0 if flushes else 1e9
        self.tape = Tape()
        self.steps = Recorder(clock, self.tape, Random(SEED))

    @property
    def header(self) -> Header:
        return Header(
            by="test",
            run="run",
            number=1,
            base=self.steps.base,
            wall=self.steps.wall,
            seed=SEED,
            max_in_unschedulable_seconds=self._seconds,
        )

    def notes(self) -> Iterator[list[Any]]:
        for note in self.tape.notes:
            yield msgspec.msgpack.decode(msgspec.msgpack.encode(packed_note(note)))

    def replay(self, in_tree: Mapping[str, type[Plugin]] = IN_TREE) -> Replay:
        """Go through it to the end."""
        replay = Replay(self.header, self.notes(), in_tree)
        replay.run()
        return replay
