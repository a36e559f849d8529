"""Whom a TLS client believes that is given authorities."""

from __future__ import annotations

import ssl


def believe_as_go(context: ssl.SSLContext) -> None:
    """Believe every certificate that was given as an authority, as clients in Go do that read the same configuration.

    OpenSSL wants to be given the root as well where it is an intermediate authority's, or the server's own. From 3.13 on
    Python is strict, too: about extensions that authorities made by hand lack.
    """
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
