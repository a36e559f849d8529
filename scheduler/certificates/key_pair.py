"""A certificate and its key, given to TLS from memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


def load_key_pair(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a key pair from memory; OpenSSL asks for a file, and a pod may have no place to write one.

    Raises:
        ssl.SSLError: it is none.
    """
    descriptor = os.memfd_create("serving-certificate")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(pem)
        # Without a password an encrypted key is an error, instead of a question on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
    finally:
        os.close(descriptor)
