"""What is in a stretch of a recording, in numbers."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from scheduler.clock import rfc3339
from scheduler.configuration.load import parse
from scheduler.recording.notes import BEGIN_STEPS, SECOND, Note, Word

if TYPE_CHECKING:
    from scheduler.whatif.replay.script import Stretch


class Summary(msgspec.Struct, kw_only=True, rename="camel"):
    """A stretch.

    Attributes:
        run: names the run.
        by: which custom-scheduler wrote it.
        began: the time of its first step.
        ended: of its last.
        seconds: between them.
        files: how many.
        bytes: of all of them.
        is_from_the_start: whether the run's beginning is in it.
        notes: how many.
        events: of watches.
        objects: kind -> how many there were in the end.
        profiles: the names of the last configuration in force.
        configurations: how many were in force.
        decisions: how many were made.
        placed: likewise, that ended with a node.
        failed: likewise, with none.
        preemptions: likewise, with room made for the pod.
        torn: the files whose end is missing.
        lost: notes that could not be written.
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
    """Read a stretch to its end."""
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
                objects[note[2]] += (note[3] == Word.ADDED) - (note[3] == Word.DELETED)
            case Note.OBJECT:
                objects[note[1]] += 1
            case Note.STATE:  # all objects there are follow
                objects.clear()
                if not text:
                    text = note[2]["configuration"]
                    counts["configurations"] += 1
            case Note.CONFIGURED if note[2] == "in force":
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
