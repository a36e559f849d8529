"""The entries of one run, in order, read on demand, and their summary."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.clock import rfc3339
from scheduler.configuration.load import parse
from scheduler.daemon.recording.recording_files import (
    BEGIN_STEPS,
    SECOND,
    SUFFIX,
    FileReader,
    Note,
    ObjectEvent,
    RecordingError,
)

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


class Summary(msgspec.Struct, kw_only=True, rename="camel"):
    """The summary of a segment.

    Attributes:
        run: id of the run.
        by: version of custom-scheduler that wrote it.
        began: time of its first step.
        ended: time of its last step.
        seconds: duration.
        files: number of files.
        bytes: size of all files.
        is_from_the_start: whether it contains the beginning of the run.
        notes: number of entries.
        events: number of watch events.
        objects: kind -> number of objects at the end.
        profiles: profiles of the last active configuration.
        configurations: number of active configurations.
        decisions: number of decisions.
        placed: number of decisions with a node.
        failed: number of decisions without a node.
        preemptions: number of decisions that preempted pods.
        torn: files whose end is missing.
        lost: number of entries that could not be written.
    """

    run: str
    by: str
    began: str
    ended: str
    seconds: float
    files: int
    bytes: int
    is_from_the_start: bool
    notes: int
    events: int
    objects: dict[str, int]
    profiles: list[str]
    configurations: int
    decisions: int
    placed: int
    failed: int
    preemptions: int
    torn: list[str]
    lost: int


def summary(stretch: Stretch) -> Summary:
    """Read a segment to its end."""
    header = stretch.header
    counts, objects = Counter[str](), Counter[str]()
    began = ended = lost = 0
    is_first, text = True, ""
    for note in stretch.notes():
        kind = note[0]
        counts["notes"] += 1
        if kind in BEGIN_STEPS or kind == Note.STATE:
            ended = note[1]
            began, is_first = (ended if is_first else began), False
        match kind:
            case Note.TOLD:
                counts["events"] += 1
                objects[note[2]] += (note[3] == ObjectEvent.ADDED) - (note[3] == ObjectEvent.DELETED)
            case Note.OBJECT:
                objects[note[1]] += 1
            case Note.STATE:  # all existing objects follow
                objects.clear()
                if not text:
                    text = note[2]["configuration"]
                    counts["configurations"] += 1
            case Note.CONFIGURED if note[2] == "active":
                text = note[3]
                counts["configurations"] += 1
            case Note.DECIDED:
                counts["placed" if note[2] else "failed"] += 1
                counts["preemptions"] += bool(note[4])
            case Note.LOST:
                lost += note[2]
    profiles = [profile.scheduler_name for profile in parse(text).settings.profiles] if text else []
    return Summary(
        run=header.run,
        by=header.by,
        began=_time(header.wall + began / SECOND),
        ended=_time(header.wall + ended / SECOND),
        seconds=(ended - began) / SECOND,
        files=len(stretch.files),
        bytes=sum(file.path.stat().st_size for file in stretch.files),
        is_from_the_start=header.number == 1,
        notes=counts["notes"],
        events=counts["events"],
        objects={kind: number for kind, number in sorted(objects.items()) if number},
        profiles=profiles,
        configurations=counts["configurations"],
        decisions=counts["placed"] + counts["failed"],
        placed=counts["placed"],
        failed=counts["failed"],
        preemptions=counts["preemptions"],
        torn=[str(path) for path in stretch.torn],
        lost=lost,
    )


def _time(seconds: float) -> str:
    return rfc3339(datetime.fromtimestamp(seconds, UTC))
