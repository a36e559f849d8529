"""The HTTP endpoints of the daemon. Here are their addresses and access control: the import of the server takes a while."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scheduler.daemon.server.tls import KeyPair
from scheduler.errors import ConfigurationError, FieldError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ALWAYS_ALLOWED = ("/healthz", "/readyz", "/livez")
"""The default paths that every client may read."""


@dataclass(frozen=True, slots=True)
class Serving:
    """The addresses and the access control of the HTTP endpoints.

    Attributes:
        host: the address to listen on.
        secure_port: port of HTTPS, where the API server controls access; 0 for none.
        http_port: port of plain HTTP, where every client may read everything; 0 for none.
        tls_cert_file: the certificate of HTTPS; None, without a key, creates one.
        tls_private_key_file: the key of the certificate.
        always_allowed: paths that every client may read over HTTPS.
        flags: the flags of the process, flag -> value, for clients that may read them.
        plain_host: the address to listen on for plain HTTP; "" for `host`.
    """

    host: str
    secure_port: int
    http_port: int = 0
    tls_cert_file: Path | None = None
    tls_private_key_file: Path | None = None
    always_allowed: Sequence[str] = ALWAYS_ALLOWED
    flags: Mapping[str, str] = field(default_factory=dict)
    plain_host: str = ""

    @property
    def key_pair(self) -> KeyPair | None:
        """The files of the certificate.

        Raises:
            ConfigurationError: one is given without the other.
        """
        certificate, key = self.tls_cert_file, self.tls_private_key_file
        if certificate is not None and key is not None:
            return KeyPair(certificate, key)
        if certificate is None and key is None:
            return None
        given, missing = "--tls-cert-file", "--tls-private-key-file"
        if certificate is None:
            given, missing = missing, given
        raise ConfigurationError([FieldError(missing, f"must be given where {given} is")])
