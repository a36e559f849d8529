"""A compiled guest: checked as far as can be seen without running it."""

from __future__ import annotations

import atexit
import gc
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import wasmtime

from scheduler.framework.slow_plugins import TimeLimitError
from scheduler.wasm.engine import engine

if TYPE_CHECKING:
    from collections.abc import Iterator

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
"""Exported function -> the type of its result; none takes arguments."""
_LEADING = frozenset({"prefilter", "filter", "score", "reserve", "permit", "bind"})
"""One of these must be there; the others only go with them."""


class GuestError(Exception):
    """What a guest did wrong, or what it was refused."""


class GuestTimeError(GuestError, TimeLimitError):
    """A guest used up its time limit."""


@dataclass(frozen=True)
class Guest:
    """One compiled module.

    Attributes:
        module: the code.
        digest: SHA-256 of its bytes.
        exports: which of EXPORTS it has.
        starts: which functions are run once in every new instance, in order.
        wants_wasi: whether it imports from WASI.
    """

    module: wasmtime.Module
    digest: str
    exports: frozenset[str]
    starts: tuple[str, ...]
    wants_wasi: bool


def compile_guest(content: bytes) -> Guest:
    """Compile a core module, binary or in text format; about half a second for a megabyte, so never in a cycle.

    Raises:
        GuestError: it is no module, or none that keeps the ABI.
    """
    return _compile(content, hashlib.sha256(content).hexdigest())


@lru_cache(maxsize=16)  # profiles share guests, and a reload mostly changes none
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
    """Free what was compiled while wasmtime's library is still there; later it would complain on standard error."""
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
            yield f"wasm: export {name} is no function"
            continue
        was = f"({' '.join(map(str, found.params))}) -> ({' '.join(map(str, found.results))})"
        if was != f"() -> ({result})":
            yield f"wasm: export {name} must be of type () -> ({result}), was {was}"
