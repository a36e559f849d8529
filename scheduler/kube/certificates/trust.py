"""Trust rules of TLS clients with given authorities."""

from __future__ import annotations

import ssl


def believe_as_go(context: ssl.SSLContext) -> None:
    """Trust every given certificate as an authority, as Go clients with the same configuration do.

    By default OpenSSL also needs the root certificate if the given one belongs to an intermediate authority
    or to the server itself. Since 3.13 Python also rejects authorities that lack extensions, such as
    hand-made ones.
    """
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
