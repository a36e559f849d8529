"""Loads certificates and keys into TLS from memory."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator


@contextmanager
def as_file(pem: bytes) -> Iterator[str]:
    """Yield the path of a file in memory: OpenSSL needs a path, and a pod may have no writable or free file system.

    Raises:
        OSError: no file descriptor is left.
    """
    descriptor = os.memfd_create("certificate")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(pem)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def load_key_pair(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a key pair from memory.

    Raises:
        ssl.SSLError: the PEM text is not a key pair.
        OSError: no file descriptor is left.
    """
    with as_file(pem) as path:
        # Without a password an encrypted key is an error, instead of a prompt on the terminal.
        context.load_cert_chain(path, password="")
