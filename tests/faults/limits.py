"""How long work may take in one turn of the event loop: in some campaigns all work is done in the smallest parts.

In virtual time no work takes any time, so with the limits as they are no attempt is ever a long one, and none rests.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from functools import cache
from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from plugins.preemption import candidates
from scheduler import worker_thread
from scheduler.configuration.load import parse
from scheduler.daemon.app import assembly
from scheduler.daemon.app.capabilities import LoopTimeSlice
from scheduler.engine.cycle import group_pauses, long_attempts, time_slices
from scheduler.engine.runtime import registry
from scheduler.framework.sliced_work import WithoutSlices
from scheduler.snapshot import affinity_index

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from random import Random

    from scheduler.configuration.load import Configuration
    from scheduler.engine.ports import Time


def _no_time(time: Time, _: float) -> LoopTimeSlice:
    return LoopTimeSlice(time, 0.0)


def _all_time(time: Time, _: float) -> LoopTimeSlice:
    return LoopTimeSlice(time, inf)


_LIMITS: Final[Mapping[str, Sequence[tuple[object, str, object]]]] = {
    "turns": ((time_slices, "SLICE_SECONDS", 0.0), (time_slices, "_SLICE_SECONDS", 0.0)),
    "plugins": ((assembly, "LoopTimeSlice", _no_time), (long_attempts, "SLICE_SECONDS", 0.0)),
    "victims": ((time_slices, "_WORK_SECONDS", 0.0), (candidates, "_PODS_A_STEP", 2)),
    "groups": ((group_pauses, "_UNIT_SECONDS", 0.0),),
    "members": ((group_pauses, "_PASS_SECONDS", 0.0),),
    "terms": ((affinity_index, "MOST_TERMS_AT_ONCE", 1), (affinity_index, "SLICE_TERMS", 2)),
}
"""What is done in parts -> the constants that say how large a part is, and what they are there."""

PARTS: Final = tuple(_LIMITS)


def drawn(random: Random) -> Sequence[str]:
    """Draw what a campaign does in the smallest parts; nothing in most."""
    if random.random() < 0.6:
        return ()
    return [name for name in _LIMITS if random.random() < 0.6]


@cache
def parsed(text: str) -> Configuration:
    """Read a configuration, of which a campaign has few."""
    return parse(text)


@contextmanager
def installed_plugins_read_once() -> Iterator[None]:
    """Let configurations that name unknown plugins look only once for installed packages that have plugins."""
    with patch.object(registry, "_entry_points", cache(registry._entry_points)):
        yield


class _ReadAtOnce(threading.Thread):
    def start(self) -> None:
        super().start()
        self.join()


@contextmanager
def reads_in_turn() -> Iterator[None]:
    """End each thread before the loop goes on, or the system would choose which of several daemons reads a file first."""
    with patch.object(worker_thread, "threading", SimpleNamespace(Thread=_ReadAtOnce)):
        yield


@contextmanager
def in_parts(names: Sequence[str]) -> Iterator[None]:
    """Do in the smallest parts what the names say."""
    with ExitStack() as stack:
        for name in names:
            for module, constant, value in _LIMITS[name]:
                stack.enter_context(patch.object(module, constant, value))
        yield


@contextmanager
def at_once() -> Iterator[None]:
    """Let daemons that are built meanwhile decide at once: those that never run, and judge others."""
    with (
        patch.object(assembly, "TimeSlices", lambda *_: WithoutSlices()),
        patch.object(assembly, "LoopTimeSlice", _all_time),
    ):
        yield
