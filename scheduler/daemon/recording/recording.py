"""The recording of one process, from its start to its end."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from scheduler.daemon.recording.file_writer import RecordingWriter
from scheduler.daemon.recording.recorder import Recorder
from scheduler.daemon.recording.recording_files import Header

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from random import Random

    from scheduler.clock import Clock
    from scheduler.daemon.app.daemon import Daemon
    from scheduler.daemon.recording.limits import RecordingLimits

_FLUSH_SECONDS: Final = 0.5
"""Maximum time between writes: at most this much is lost when the process is killed."""


class Recording:
    """Records a daemon's inputs and decisions in files.

    Args:
        room: folder and limits of the files.
        clock: the real time.
        random: source of the seed.
        max_in_unschedulable_seconds: the daemon's value.

    Attributes:
        hooks: the hooks to build the daemon with.

    Raises:
        OSError: the folder is not writable.
    """

    def __init__(
        self, room: RecordingLimits, clock: Clock, random: Random, *, max_in_unschedulable_seconds: float
    ) -> None:
        header = Header.fresh(clock, random, max_in_unschedulable_seconds=max_in_unschedulable_seconds)
        self._tape = RecordingWriter(room, header)
        self.hooks = Recorder(clock, self._tape, header)

    @asynccontextmanager
    async def of(self, daemon: Daemon) -> AsyncIterator[None]:
        """Record a daemon that was built with these hooks, until the block ends."""
        self.hooks.daemon = daemon
        for name, text, read in (
            (
                "custom_scheduler_recording_bytes",
                "Bytes of all files of the recording, including those of earlier runs.",
                self._tape.size,
            ),
            (
                "custom_scheduler_recording_written_bytes_total",
                "Bytes written to the recording, compressed.",
                lambda: self._tape.written_bytes,
            ),
            (
                "custom_scheduler_recording_lost_notes_total",
                "Notes that could not be written to the recording; the recording has a gap there.",
                lambda: self._tape.lost,
            ),
        ):
            daemon.metrics.watch_gauges(name, text, (), partial(_number, read))
        flushing = asyncio.create_task(self._flush_now_and_then(), name="recording")
        try:
            yield
        finally:
            flushing.cancel()
            self.hooks.end()
            self._tape.close()

    async def _flush_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            self._tape.flush()


def _number(read: Callable[[], int]) -> list[tuple[tuple[str, ...], float]]:
    return [((), float(read()))]
