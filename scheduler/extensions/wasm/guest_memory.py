"""Exchange of bytes and texts between host and guest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.extensions.wasm.guest import GuestError

if TYPE_CHECKING:
    import wasmtime


class GuestMemory:
    """The memory of one instance; pointers and lengths are unsigned. An access out of bounds raises GuestError."""

    def __init__(self, store: wasmtime.Store, memory: wasmtime.Memory) -> None:
        self._store = store
        self._memory = memory

    def read(self, pointer: int, length: int) -> bytes:
        """Copy bytes from the memory."""
        self.check(pointer, length)
        return bytes(self._memory.read(self._store, pointer, pointer + length)) if length else b""

    def write(self, pointer: int, content: bytes) -> None:
        """Copy bytes into the memory."""
        self.check(pointer, len(content))
        if content:
            self._memory.write(self._store, content, pointer)

    def give(self, content: bytes, buffer: int, limit: int) -> int:
        """Write content to a guest's buffer if all of it fits, and return its length in any case.

        A guest with too small a buffer calls again with a larger one.
        """
        if len(content) <= limit:
            self.write(buffer, content)
        return len(content)

    def check(self, pointer: int, length: int) -> None:
        """Check bounds; an empty range is valid at any position."""
        size = self._memory.data_len(self._store)
        if length and pointer + length > size:
            raise GuestError(f"out of memory: {length} bytes at {pointer}, of {size}")


def null_terminated(content: bytes) -> tuple[str, ...]:
    """Split NUL-terminated texts; empty ones and an unterminated rest are ignored.

    Source:
        kube-scheduler-wasm-extension, scheduler/plugin/cstring.go.
    """
    whole = content.split(b"\0")[:-1]
    return tuple(text(part) for part in whole if part)


def text(content: bytes) -> str:
    """Decode UTF-8; invalid bytes are replaced."""
    return content.decode(errors="replace")
