"""A recording in memory, and its replay."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from plugins.registry import IN_TREE
from scheduler.daemon.recording.recorder import Recorder
from scheduler.daemon.recording.recording import packed_note
from scheduler.daemon.recording.recording_files import Header
from scheduler.tools.whatif.replay.replay import Replay
from scheduler.tools.whatif.replay.script import Script

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scheduler.clock import Clock
    from scheduler.framework import Plugin

SEED = 7


class Tape:
    """Notes in memory, as files would return them.

    Attributes:
        notes: all notes.
        notes_of_a_file: number of notes after which the next file is wanted.
        files: indices of the notes that begin a file, except the first.
        wants_state: whether the next file is due.
    """

    def __init__(self) -> None:
        self.notes: list[Any] = []
        self.notes_of_a_file = 250
        self.files: list[int] = []
        self.wants_state, self._n_in_file = False, 0

    def put(self, note: Any) -> None:
        self.notes.append(note)
        self._n_in_file += 1
        if self._n_in_file >= self.notes_of_a_file:
            self.wants_state = True

    def begin_file(self, state: Sequence[Any]) -> None:
        self.wants_state, self._n_in_file = False, 0
        self.files.append(len(self.notes))
        self.notes += state


class Taped:
    """A recorder with a recording in memory.

    Attributes:
        recorder: the ports to build the daemon with.
        header: header of the first file.
    """

    def __init__(self, clock: Clock, max_in_unschedulable_seconds: float = 300.0) -> None:
        self.tape = Tape()
        self.header = Header.fresh(
            clock, Random(SEED), max_in_unschedulable_seconds=max_in_unschedulable_seconds
        )
        self.recorder = Recorder(clock, self.tape, self.header)

    def notes(self, begin: int = 0) -> Iterator[list[Any]]:
        """Yield the notes from an index on, as a `Stretch` does."""
        for note in self.tape.notes[begin:]:
            yield msgspec.msgpack.decode(msgspec.msgpack.encode(packed_note(note)))

    def replay(self, in_tree: Mapping[str, type[Plugin]] = IN_TREE, begin: int = 0) -> Replay:
        """Replay the recording from an index on, to the end."""
        replay = Replay(self.header, Script(self.notes(begin)), in_tree)
        replay.run()
        return replay
