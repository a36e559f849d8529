"""How host and guest hand bytes to each other, and texts in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.wasm.guest import GuestError

if TYPE_CHECKING:
    import wasmtime


class GuestMemory:
    """The memory of one instance; pointers and lengths are unsigned. What reaches beyond it raises GuestError."""

    def __init__(self, store: wasmtime.Store, memory: wasmtime.Memory) -> None:
        self._store = store
        self._memory = memory

    def read(self, pointer: int, length: int) -> bytes:
        """Copy bytes out."""
        self.check(pointer, length)
        return bytes(self._memory.read(self._store, pointer, pointer + length)) if length else b""

    def write(self, pointer: int, content: bytes) -> None:
        """Copy bytes in."""
        self.check(pointer, len(content))
        if content:
            self._memory.write(self._store, content, pointer)

    def give(self, content: bytes, buffer: int, limit: int) -> int:
        """Write what fits as a whole into a guest's buffer, and return its length either way.

        A guest whose buffer is too small asks again with a larger one.
        """
        if len(content) <= limit:
            self.write(buffer, content)
        return len(content)

    def check(self, pointer: int, length: int) -> None:
        """Let pass what lies in the memory; nothing at all does wherever it begins."""
        size = self._memory.data_len(self._store)
        if length and pointer + length > size:
            raise GuestError(f"out of memory: {length} bytes at {pointer}, of {size}")


def null_terminated(content: bytes) -> tuple[str, ...]:
    """Split texts that end in NUL each; empty ones and a tail without an end are left out.

    Source:
        kube-scheduler-wasm-extension, scheduler/plugin/cstring.go.
    """
    whole = content.split(b"\0")[:-1]
    return tuple(text(part) for part in whole if part)


def text(content: bytes) -> str:
    """Read UTF-8; what is none is marked."""
    return content.decode(errors="replace")
