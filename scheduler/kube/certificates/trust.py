"""The one rule of trust of all TLS clients."""

from __future__ import annotations

import ssl
from functools import cache

from scheduler.kube.certificates.key_pair import as_file


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
