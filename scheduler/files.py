"""Reads files that an operator names: so many bytes at most, and nothing that never ends or never begins.

A name may lead to a FIFO, a device, a directory, or a file that grows while it is read. Reading takes as long as the file
system does, so never in an event loop: see `scheduler.aside`.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES: Final = 4 * 2**20
"""Of a file of which nothing else is said: a configuration may have 1 MiB, a bundle of certificates has some 200 KiB."""
_PART_BYTES: Final = 2**20
_KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
}


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file, whatever links lead to it, and return its descriptor.

    Raises:
        OSError: it cannot be opened, or is something else; `strerror` says what.
        ValueError: no file can have such a name.
    """
    try:
        # Without O_NONBLOCK a FIFO would be waited for until somebody writes into it.
        file = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno != errno.ENXIO:  # a socket, or a FIFO that nobody reads
            raise
        raise _not_regular(path, path.stat().st_mode) from error
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode):
        return file
    os.close(file)
    raise _not_regular(path, mode)


def read_regular(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return what a regular file holds.

    Raises:
        OSError: it cannot be read, is no regular file, or has more bytes; `strerror` says so.
        ValueError: no file can have such a name.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise _too_large(path, most_bytes)
        return _read(file, path, most_bytes)  # the size is only what it was: the file may grow meanwhile


def read_any(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return what a file holds, or what somebody writes into a pipe: for commands, whose user sees them wait and can end them.

    Raises:
        OSError: it cannot be read, or has more bytes; `strerror` says so.
        ValueError: no file can have such a name.
    """
    with path.open("rb") as file:
        return _read(file, path, most_bytes)


def _read(file: BinaryIO, path: Path, most_bytes: int) -> bytes:
    content = bytearray()
    while part := file.read(min(_PART_BYTES, most_bytes + 1 - len(content))):
        content += part
        if len(content) > most_bytes:
            raise _too_large(path, most_bytes)
    return bytes(content)


def _too_large(path: Path, most_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"has more than {most_bytes} bytes", str(path))


def _not_regular(path: Path, mode: int) -> OSError:
    kind = _KINDS.get(stat.S_IFMT(mode), "something else")
    return OSError(errno.EINVAL, f"is {kind}, a regular file is expected", str(path))
