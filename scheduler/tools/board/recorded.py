"""The board of a moment of a recording, by a replay up to that moment."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from scheduler.daemon.recording.recording_files import SECOND, RecordingError
from scheduler.tools.board.subject import of_daemon
from scheduler.tools.whatif.replay.replay import Replay
from scheduler.tools.whatif.replay.script import Script, stretches

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.tools.board.subject import Subject


def of_recording(folder: Path, at: datetime | None) -> tuple[Subject, datetime]:
    """Return the subject of the board at a moment, or at the end, and the moment.

    Raises:
        RecordingError: there is no recording, or it begins later.
    """
    found = stretches(folder)
    if at is not None:
        found = [each for each in found if each.header.wall <= at.timestamp()]
    if not found:
        raise RecordingError(f"{folder}: the recording begins after {at}")
    stretch = found[-1]
    wall, until = stretch.header.wall, None if at is None else at.timestamp()
    replay = Replay(stretch.header, Script(stretch.notes()))
    logging.disable(logging.CRITICAL)  # do not log the recorded run again
    try:
        replay.run(lambda made: until is not None and wall + made.us / SECOND >= until)
    finally:
        logging.disable(logging.NOTSET)
    daemon = replay.daemon
    return of_daemon(daemon, daemon.parts.clock), datetime.fromtimestamp(wall + replay.us / SECOND, UTC)
