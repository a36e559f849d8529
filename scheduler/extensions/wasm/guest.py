"""A compiled guest, checked without running it, and the wasmtime engine of the process."""

from __future__ import annotations

import atexit
import gc
import hashlib
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from math import ceil
from typing import TYPE_CHECKING

import wasmtime

from scheduler.framework.interface import TimeLimitError

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


EXPORTS = {
    "enqueue": "",
    "prefilter": "i32",
    "addpod": "i32",
    "removepod": "i32",
    "filter": "i32",
    "postfilter": "i64",
    "prescore": "i32",
    "score": "i64",
    "normalizescore": "i32",
    "reserve": "i32",
    "unreserve": "",
    "permit": "i64",
    "prebind": "i32",
    "bind": "i32",
    "postbind": "",
}
"""Exported function -> type of its result; none has parameters."""
_LEADING = frozenset({"prefilter", "filter", "score", "reserve", "permit", "bind"})
"""At least one of these must be exported; the others only extend them."""


class GuestError(Exception):
    """An error of a guest, or a limit that it exceeded."""


class GuestTimeError(GuestError, TimeLimitError):
    """A guest exceeded its time limit."""


@dataclass(frozen=True)
class Guest:
    """One compiled module.

    Attributes:
        module: the code.
        digest: SHA-256 of its bytes.
        exports: the functions of EXPORTS that it has.
        starts: the functions that run once in every new instance, in order.
        wants_wasi: whether it imports from WASI.
    """

    module: wasmtime.Module
    digest: str
    exports: frozenset[str]
    starts: tuple[str, ...]
    wants_wasi: bool


def compile_guest(content: bytes) -> Guest:
    """Compile a core module, binary or in text format; takes half a second for a megabyte, so never in a cycle.

    Raises:
        GuestError: it is not a module, or does not implement the ABI.
    """
    return _compile(content, hashlib.sha256(content).hexdigest())


@lru_cache(maxsize=16)  # profiles share guests, and a reload usually changes none
def _compile(content: bytes, digest: str) -> Guest:
    try:
        module = wasmtime.Module(engine(), content)
    except wasmtime.WasmtimeError as error:
        raise GuestError(f"wasm: cannot be compiled: {error}") from error
    faults = list(_faults(module))
    if faults:
        raise GuestError("; ".join(faults))
    functions = {export.name for export in module.exports if isinstance(export.type, wasmtime.FuncType)}
    return Guest(
        module,
        digest,
        frozenset(functions & EXPORTS.keys()),
        tuple(name for name in ("_initialize", "_start") if name in functions),
        any(imported.module.startswith("wasi_") for imported in module.imports),
    )


@atexit.register
def _forget() -> None:
    """Free compiled modules while wasmtime's library is still loaded; later it would write to standard error."""
    _compile.cache_clear()
    gc.unfreeze()
    gc.collect()


def _faults(module: wasmtime.Module) -> Iterator[str]:
    types = {export.name: export.type for export in module.exports}
    if not isinstance(types.get("memory"), wasmtime.MemoryType):
        yield "wasm: guest doesn't export memory[memory]"
    if not types.keys() & EXPORTS.keys():
        yield "wasm: guest does not export any plugin functions"
    elif not types.keys() & _LEADING:
        yield "wasm: filter, score, reserve, permit or bind must be exported"
    for name, result in EXPORTS.items():
        found = types.get(name)
        if found is None:
            continue
        if not isinstance(found, wasmtime.FuncType):
            yield f"wasm: export {name} is not a function"
            continue
        was = f"({' '.join(map(str, found.params))}) -> ({' '.join(map(str, found.results))})"
        if was != f"() -> ({result})":
            yield f"wasm: export {name} must be of type () -> ({result}), was {was}"
