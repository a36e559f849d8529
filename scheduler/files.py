"""Reads files that an operator names, with a limit of bytes, and without blocking on special files.

A path may lead to a FIFO, a device, a directory, or a file that grows during the read. A read takes as long
as the file system does, so it must not run in an event loop: see `scheduler.worker_thread`.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES: Final = 4 * 2**20
"""Default limit: a configuration may have 1 MiB, and a bundle of certificates has some 200 KiB."""
_PART_BYTES: Final = 2**20
_KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
}


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file, through any links, and return its descriptor.

    Raises:
        OSError: the file cannot be opened, or is not a regular file; `strerror` says which.
        ValueError: the name is invalid.
    """
    try:
        # Without O_NONBLOCK, opening a FIFO would wait for a writer.
        file = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno != errno.ENXIO:  # a socket, or a FIFO without a reader
            raise
        raise _not_regular(path, path.stat().st_mode) from error
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode):
        return file
    os.close(file)
    raise _not_regular(path, mode)


def read_regular(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: the file cannot be read, is not a regular file, or is too large; `strerror` says which.
        ValueError: the name is invalid.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise _too_large(path, most_bytes)
        return _read(file, path, most_bytes)  # the file may have grown since


def read_any(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a file or a pipe: for commands, whose user sees the wait and can stop it.

    Raises:
        OSError: the file cannot be read, or is too large; `strerror` says which.
        ValueError: the name is invalid.
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
