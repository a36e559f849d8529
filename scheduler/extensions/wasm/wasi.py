"""WASI functions of this host: wasmtime's own ones could block the loop for longer than a guest's time limit.

A time limit stops a guest in its own code, but not within a host function that does not return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.extensions.wasm.guest_memory import GuestMemory

MAX_OUTPUT_BYTES = 64 * 1024
"""The limit of the output that is kept of one call."""
_MOST_ITEMS = 1024  # as Linux limits one call
_SUCCESS, _BAD_FILE, _INVALID, _NOT_SUPPORTED = 0, 8, 28, 58  # WASI's errno
_VECTOR_BYTES, _SUBSCRIPTION_BYTES, _EVENT_BYTES = 8, 48, 32
_CLOCK = 0


def fd_write(
    memory: GuestMemory, output: bytearray, file: int, vectors: int, count: int, written: int
) -> int:
    """Keep what a guest writes to its standard output and error."""
    if file not in {1, 2}:
        return _BAD_FILE
    if count > _MOST_ITEMS:
        return _INVALID
    total = 0
    for number in range(count):
        vector = memory.read(vectors + _VECTOR_BYTES * number, _VECTOR_BYTES)
        pointer, length = (int.from_bytes(vector[at : at + 4], "little") for at in (0, 4))
        memory.check(pointer, length)
        output += memory.read(pointer, min(length, MAX_OUTPUT_BYTES - len(output)))
        total += length
    memory.write(written, (total & 0xFFFFFFFF).to_bytes(4, "little"))
    return _SUCCESS


def poll_oneoff(memory: GuestMemory, subscriptions: int, events: int, count: int, happened: int) -> int:
    """End every sleep at once, as upstream does for its guests; there are no files to wait for."""
    if not 0 < count <= _MOST_ITEMS:
        return _INVALID
    for number in range(count):
        subscription = memory.read(subscriptions + _SUBSCRIPTION_BYTES * number, _SUBSCRIPTION_BYTES)
        kind = subscription[8]
        error = _SUCCESS if kind == _CLOCK else _NOT_SUPPORTED
        event = subscription[:8] + error.to_bytes(2, "little") + bytes((kind,))
        memory.write(events + _EVENT_BYTES * number, event.ljust(_EVENT_BYTES, b"\0"))
    memory.write(happened, count.to_bytes(4, "little"))
    return _SUCCESS
