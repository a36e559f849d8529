"""A recording in memory, and the same gone through again."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.recording.files import Header
from scheduler.recording.recorder import Recorder
from scheduler.recording.tape import packed_note
from scheduler.whatif.replay.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.clock import Clock

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

    def __init__(self, clock: Clock) -> None:
        self.tape = Tape()
        self.steps = Recorder(clock, self.tape, Random(SEED))

    @property
    def header(self) -> Header:
        return Header(by="test", run="run", number=1, base=self.steps.base, wall=self.steps.wall, seed=SEED)

    def notes(self) -> Iterator[list[Any]]:
        for note in self.tape.notes:
            yield msgspec.msgpack.decode(msgspec.msgpack.encode(packed_note(note)))

    def replay(self) -> Replay:
        """Go through it to the end."""
        replay = Replay(self.header, self.notes())
        replay.run()
        return replay
