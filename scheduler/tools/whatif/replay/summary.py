"""The summary of a segment of a recording."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from scheduler.clock import rfc3339
from scheduler.configuration.load import parse
from scheduler.daemon.recording.notes import BEGIN_STEPS, SECOND, Note, ObjectEvent

if TYPE_CHECKING:
    from scheduler.tools.whatif.replay.script import Stretch


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
