"""The entries of one run, in order, read on demand."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from scheduler.daemon.recording.notes import BEGIN_STEPS, Note
from scheduler.daemon.recording.recording_files import SUFFIX, FileReader, RecordingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from scheduler.daemon.recording.recording_files import Header


@dataclass(frozen=True, slots=True)
class Stretch:
    """A segment of a recording: consecutive files of one run.

    Attributes:
        files: the files, in order.
    """

    files: Sequence[FileReader]

    @property
    def header(self) -> Header:
        """Header of the first file."""
        return self.files[0].header

    @property
    def torn(self) -> Sequence[Path]:
        """Files whose end is missing; known after they were read."""
        return [file.path for file in self.files if file.is_torn]

    def notes(self) -> Iterator[list[Any]]:
        """Yield all entries; if the end of a file is missing, a LOST entry precedes the next file."""
        us = 0
        for file in self.files:
            for batch in file.batches():
                for note in batch:
                    us = note[1] if note[0] in BEGIN_STEPS else us
                    yield note
            if file.is_torn and file is not self.files[-1]:
                yield [Note.LOST, us, 0]


def stretches(folder: Path) -> list[Stretch]:
    """Return the segments in a folder, by time; empty files, from a process that was killed, are skipped.

    Raises:
        RecordingError: there is no recording, or it cannot be read.
        OSError: a file cannot be read.
    """
    paths = [folder] if folder.is_file() else sorted(_begun(folder))
    if not paths:
        raise RecordingError(f"{folder}: there is no recording (no file *{SUFFIX})")
    files = sorted(
        (FileReader(path) for path in paths),
        key=lambda file: (file.header.wall, file.header.run, file.header.number),
    )
    found: list[Stretch] = []
    for _, of_run in groupby(files, key=lambda file: file.header.run):
        # Consecutive numbers minus their positions are equal.
        numbered = enumerate(of_run)
        for _, row in groupby(numbered, key=lambda item: item[1].header.number - item[0]):
            found.append(Stretch([file for _, file in row]))
    return found


def _begun(folder: Path) -> Iterator[Path]:
    return (path for path in folder.glob(f"*{SUFFIX}") if path.stat().st_size)


class Script:
    """Entries, with a read position.

    Attributes:
        taken: number of entries that were read.
        last: the last entries.
    """

    def __init__(self, notes: Iterator[list[Any]]) -> None:
        self._notes = notes
        self._next: list[Any] | None = next(notes, None)
        self.taken = 0
        self.last: deque[list[Any]] = deque(maxlen=12)

    def peek(self) -> list[Any] | None:
        """Return the next entry; None at the end."""
        return self._next

    def take(self) -> list[Any]:
        """Return the next entry, and advance; there must be one."""
        note, self._next = self._next, next(self._notes, None)
        assert note is not None
        self.taken += 1
        self.last.append(note)
        return note

    def skip_to(self, kind: Note) -> None:
        """Advance to the next entry of a kind, or to the end."""
        while self._next is not None and self._next[0] != kind:
            self.take()

    def has_stopped(self) -> bool:
        """Read the rest of this step; return whether something in it exceeded its time budget."""
        while self._next is not None and self._next[0] >= Note.OBSERVED and self._next[0] < Note.STATE:
            if self.take()[0] == Note.STOPPED:
                return True
        return False

    def take_if(self, *beginning: object) -> list[Any] | None:
        """Read the next entry if it begins with these values."""
        note = self._next
        if note is None or note[: len(beginning)] != list(beginning):
            return None
        return self.take()
