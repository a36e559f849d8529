"""The server's certificate: from files, read again when they change, or made on the spot."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import ssl
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from scheduler.errors import ConfigurationError, FieldError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

logger = logging.getLogger(__name__)

_REREAD_SECONDS = 60.0
_VALID = timedelta(days=3650)
"""Of a certificate made on the spot. Nobody can verify it, so nobody is served by its expiry."""


class KeyPair(NamedTuple):
    """The files of a certificate: PEM; the first may hold a chain, leaf first."""

    certificate: Path
    key: Path


@asynccontextmanager
async def tls_context(files: KeyPair | None) -> AsyncIterator[ssl.SSLContext]:
    """Yield what a server needs for TLS 1.2 and 1.3; files are read again every minute while the block runs.

    Args:
        files: None makes a certificate for localhost and a key that never leave memory.

    Raises:
        ConfigurationError: a file cannot be read, or the two do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files is None:
        _load(context, self_signed())
        yield context
        return
    pem = _checked(files)
    _load(context, pem)
    rereading = asyncio.create_task(_keep_fresh(context, files, pem), name="certificate refresh")
    try:
        yield context
    finally:
        rereading.cancel()
        with suppress(asyncio.CancelledError):
            await rereading


def self_signed() -> bytes:
    """Return a new key and a certificate of its own making for localhost, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    loopback = ipaddress.ip_address("127.0.0.1")
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(loopback)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + _VALID)
        .add_extension(names, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private + certificate.public_bytes(Encoding.PEM)


async def _keep_fresh(context: ssl.SSLContext, files: KeyPair, pem: bytes) -> None:
    """Take over what is new in the files, for ever; what makes no sense leaves the old certificate in use."""
    while True:
        await asyncio.sleep(_REREAD_SECONDS)
        try:
            found = _checked(files)
        except ConfigurationError as error:
            logger.warning("Certificate could not be read again", extra={"error": str(error)})
            continue
        if found != pem:
            _load(context, found)
            pem = found
            logger.info("Certificate changed", extra={"file": str(files.certificate)})


def _checked(files: KeyPair) -> bytes:
    """Read a key pair and try it where nobody is served by it yet."""
    parts = []
    for option, path in (
        ("--tls-private-key-file", files.key),
        ("--tls-cert-file", files.certificate),
    ):
        try:
            parts.append(path.read_bytes())
        except OSError as error:
            problem = f"{path} cannot be read: {error.strerror or error}"
            raise ConfigurationError([FieldError(option, problem)]) from error
    pem = b"\n".join(parts)
    try:
        _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pem)
    except ssl.SSLError as error:
        problem = f"{files.certificate} is no certificate of the unencrypted key {files.key}: {error}"
        raise ConfigurationError([FieldError("--tls-cert-file", problem)]) from error
    return pem


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a key pair from memory; OpenSSL asks for a file, and a pod may have no place to write one."""
    descriptor = os.memfd_create("serving-certificate")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(pem)
        # Without a password an encrypted key is an error, instead of a question on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
    finally:
        os.close(descriptor)
