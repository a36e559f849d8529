"""Loads certificates and keys into TLS from memory."""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
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


def load_key_pair(context: ssl.SSLContext, pem: bytes, key: bytes | None = None) -> None:
    """Load a key pair from memory.

    Args:
        context: the context to load it into.
        pem: the certificate, and the key too if it is not given by itself.
        key: the key.

    Raises:
        ssl.SSLError: the PEM text is not a key pair.
        OSError: no file descriptor is left.
    """
    with as_file(pem) as path, nullcontext() if key is None else as_file(key) as key_path:
        # Without a password an encrypted key is an error, instead of a prompt on the terminal.
        context.load_cert_chain(path, key_path, password="")
