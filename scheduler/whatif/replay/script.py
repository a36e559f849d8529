"""The notes of one run in their order, read as they are needed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from scheduler.recording.files import SUFFIX, FileReader, RecordingError
from scheduler.recording.notes import BEGIN_STEPS, Note

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from scheduler.recording.files import Header


@dataclass(frozen=True, slots=True)
class Stretch:
    """Files of one run without a gap between them.

    Attributes:
        files: in order.
    """

    files: Sequence[FileReader]

    @property
    def header(self) -> Header:
        """Of the first file."""
        return self.files[0].header

    @property
    def torn(self) -> Sequence[Path]:
        """The files whose end is missing; known when they were read."""
        return [file.path for file in self.files if file.is_torn]

    def notes(self) -> Iterator[list[Any]]:
        """Yield all notes; where the end of a file is missing, one says so before the next file begins."""
        us = 0
        for file in self.files:
            for batch in file.batches():
                for note in batch:
                    us = note[1] if note[0] in BEGIN_STEPS else us
                    yield note
            if file.is_torn and file is not self.files[-1]:
                yield [Note.LOST, us, 0]


def stretches(folder: Path) -> list[Stretch]:
    """Return what is in a folder, in the order of time; empty files, of a process that was killed, are passed over.

    Raises:
        RecordingError: there is no recording, or one that cannot be read.
        OSError: likewise.
    """
    paths = [folder] if folder.is_file() else sorted(_begun(folder))
    if not paths:
        raise RecordingError(f"{folder}: no recording is there: no file that ends with {SUFFIX}")
    files = sorted(
        (FileReader(path) for path in paths),
        key=lambda file: (file.header.wall, file.header.run, file.header.number),
    )
    found: list[Stretch] = []
    for _, of_run in groupby(files, key=lambda file: file.header.run):
        # Numbers that follow each other, minus their places, are the same.
        numbered = enumerate(of_run)
        for _, row in groupby(numbered, key=lambda item: item[1].header.number - item[0]):
            found.append(Stretch([file for _, file in row]))
    return found


def _begun(folder: Path) -> Iterator[Path]:
    return (path for path in folder.glob(f"*{SUFFIX}") if path.stat().st_size)


class Script:
    """Notes with a place in them.

    Attributes:
        taken: how many were taken.
        last: the last of them.
    """

    def __init__(self, notes: Iterator[list[Any]]) -> None:
        self._notes = notes
        self._next: list[Any] | None = next(notes, None)
        self.taken = 0
        self.last: deque[list[Any]] = deque(maxlen=12)

    def peek(self) -> list[Any] | None:
        """Return the next note; None at the end."""
        return self._next

    def take(self) -> list[Any]:
        """Return the next note, and go on to the one after it; there must be one."""
        note, self._next = self._next, next(self._notes, None)
        assert note is not None
        self.taken += 1
        self.last.append(note)
        return note

    def skip_to(self, kind: Note) -> None:
        """Go on to the next note of a kind, or to the end."""
        while self._next is not None and self._next[0] != kind:
            self.take()

    def has_stopped(self) -> bool:
        """Say whether something was stopped for want of time in what is left of this step, which is taken."""
        while self._next is not None and self._next[0] >= Note.OBSERVED and self._next[0] < Note.STATE:
            if self.take()[0] == Note.STOPPED:
                return True
        return False

    def take_if(self, *beginning: object) -> list[Any] | None:
        """Take the next note if it begins like that."""
        note = self._next
        if note is None or note[: len(beginning)] != list(beginning):
            return None
        return self.take()
