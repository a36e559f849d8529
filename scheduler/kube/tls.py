"""Trust of all TLS clients, by one rule, and loading of certificates and keys from memory."""

from __future__ import annotations

import os
import ssl
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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


def client_context(authority: bytes | None = None, *, verifies: bool = True) -> ssl.SSLContext:
    """Return the TLS context of a client.

    Every given certificate is trusted as an authority, as by Go clients with the same configuration. By default
    OpenSSL also needs the root certificate if the given one belongs to an intermediate authority or to the
    server itself. Since 3.13 Python also rejects authorities that lack extensions, such as hand-made ones.

    Args:
        authority: PEM certificates to trust; None for those that the system trusts.
        verifies: whether the server's certificate is verified.

    Raises:
        ssl.SSLError: the authority is not certificates in PEM.
        OSError: no file descriptor is left.
    """
    if not verifies:  # without the system's certificates, which take a hundred times as long to load
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    if authority is None:
        context = ssl.create_default_context()
    else:
        with as_file(authority) as path:
            context = ssl.create_default_context(cafile=path)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


@cache
def system_context() -> ssl.SSLContext:
    """Return the context that trusts the system's authorities; loading them takes some 30 ms, so it is shared."""
    return client_context()
