"""A compiled guest, checked without running it."""

from __future__ import annotations

import atexit
import gc
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import wasmtime

from scheduler.extensions.wasm.engine import engine
from scheduler.framework.slow_plugins import TimeLimitError

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
