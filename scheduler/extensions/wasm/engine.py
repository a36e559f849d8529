"""The wasmtime engine of the process, and the timer that stops guests over their time limit."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from functools import cache
from math import ceil
from typing import TYPE_CHECKING

import wasmtime

if TYPE_CHECKING:
    from collections.abc import Iterator

TICK_SECONDS = 0.01
_IDLE_TICKS = 100


@cache
def engine() -> wasmtime.Engine:
    """Return the engine that runs all guests."""
    config = wasmtime.Config()
    config.epoch_interruption = True
    return wasmtime.Engine(config)


class Ticker:
    """Advances the engine's epoch while guests run; its thread sleeps a second after the last call.

    Guests are compiled to check the epoch in every loop and call. wasmtime lets other threads run meanwhile, so this thread
    advances the epoch while the main thread is inside a guest.
    """

    def __init__(self, ticked: wasmtime.Engine) -> None:
        self._engine = ticked
        self._lock = threading.Lock()
        self._running = 0
        self._awake = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """Keep the epoch advancing."""
        with self._lock:
            self._running += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._tick, name="wasm-epochs", daemon=True)
                self._thread.start()
            if not self._awake.is_set():
                self._awake.set()
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1

    def _tick(self) -> None:
        idle = 0
        while True:
            self._awake.wait()
            time.sleep(TICK_SECONDS)
            self._engine.increment_epoch()
            with self._lock:
                idle = 0 if self._running else idle + 1
                if idle >= _IDLE_TICKS:
                    self._awake.clear()
                    idle = 0


@cache
def ticker() -> Ticker:
    """Return the ticker of the engine."""
    return Ticker(engine())


def ticks(seconds: float) -> int:
    """Return the number of ticks for a call of the given time: at least two, since one may come at once."""
    return max(2, ceil(seconds / TICK_SECONDS) + 1)
