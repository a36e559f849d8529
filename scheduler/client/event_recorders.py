"""Who records the events of each schedulerName."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, NoReturn

from scheduler.client.events import FINISH_SECONDS, REFRESHES_AFTER, EventRecorder

if TYPE_CHECKING:
    from scheduler.client.events import EventQueue
    from scheduler.clock import Clock


class EventRecorders:
    """Recorders by schedulerName, each made when it is first asked for.

    Those of names that are served no longer stay: bindings end under them, and series of events later still. `run` must
    run beside them, to write what is counted.

    Args:
        sink: where events go.
        clock: for the events' times.
        hostname: of this machine; None to ask it.
    """

    def __init__(self, sink: EventQueue, clock: Clock, *, hostname: str | None = None) -> None:
        self._sink = sink
        self._clock = clock
        self._hostname = hostname
        self._recorders: dict[str, EventRecorder] = {}

    def of(self, scheduler_name: str) -> EventRecorder:
        """Return who records the events of a profile, or of another controller of this process."""
        recorder = self._recorders.get(scheduler_name)
        if recorder is None:
            recorder = self._recorders[scheduler_name] = EventRecorder(
                self._sink, self._clock, scheduler_name, hostname=self._hostname
            )
        return recorder

    async def run(self) -> NoReturn:
        """Finish and refresh series until cancelled."""
        for rounds in itertools.count(1):
            await asyncio.sleep(FINISH_SECONDS)
            for recorder in list(self._recorders.values()):
                recorder.finish_series()
                if rounds % REFRESHES_AFTER == 0:
                    recorder.flush()
        raise AssertionError("counting ends nowhere")
