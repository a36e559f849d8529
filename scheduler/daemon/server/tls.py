"""The server's certificate: from files, read again when they change, or created at the start."""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from scheduler.errors import ConfigurationError, FieldError
from scheduler.files import read_regular
from scheduler.kube.tls import as_file, load_key_pair
from scheduler.worker_thread import in_a_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

logger = logging.getLogger(__name__)

_REREAD_SECONDS = 60.0


class KeyPair(NamedTuple):
    """The files of a certificate in PEM; the first may contain a chain, leaf first."""

    certificate: Path
    key: Path


@asynccontextmanager
async def tls_context(
    files: KeyPair | None, *, made: bytes = b"", client_authority: Path | None = None
) -> AsyncIterator[ssl.SSLContext]:
    """Yield the server's TLS 1.2 and 1.3 settings; files are read again every minute while the block runs.

    Args:
        files: None creates a certificate for localhost and a key, in memory only.
        made: a key and a certificate to use instead, PEM.
        client_authority: CA of client certificates: a client with a certificate of another CA is rejected.

    Raises:
        ConfigurationError: a file cannot be read, or key and certificate do not match.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if client_authority is not None:
        doing = f"reading {client_authority}"
        await in_a_thread(partial(_ask_for_certificates, context, client_authority), doing)
    if files is None:
        load_key_pair(context, made or _made_for_localhost())
        yield context
        return
    pem = await in_a_thread(partial(_checked, files), f"reading {files.certificate}")
    load_key_pair(context, pem)
    rereading = asyncio.create_task(_keep_fresh(context, files, pem), name="certificate refresh")
    try:
        yield context
    finally:
        rereading.cancel()
        with suppress(asyncio.CancelledError):
            await rereading


def _made_for_localhost() -> bytes:
    # The import takes a while, and is not needed with a given certificate.
    from scheduler.kube.certificates import issue

    return issue("localhost", dns_names=["localhost"], addresses=["127.0.0.1"]).serving


def _ask_for_certificates(context: ssl.SSLContext, authority: Path) -> None:
    try:
        with as_file(read_regular(authority)) as path:
            context.load_verify_locations(cafile=path)
    except OSError as error:  # includes ssl.SSLError
        problem = f"{authority} cannot be read as certificates: {error.strerror or error}"
        raise ConfigurationError([FieldError("--client-ca-file", problem)]) from error
    # Probes have no certificate; endpoints that need one check for it.
    context.verify_mode = ssl.CERT_OPTIONAL


async def _keep_fresh(context: ssl.SSLContext, files: KeyPair, pem: bytes) -> None:
    """Load changed files periodically; an invalid file leaves the old certificate in use."""
    doing = f"reading {files.certificate}"
    while True:
        await asyncio.sleep(_REREAD_SECONDS)
        try:
            newest = await in_a_thread(partial(_checked, files), doing, gives_up=False)
            if newest != pem:
                load_key_pair(context, newest)
                pem = newest
                logger.info("Certificate changed", extra={"file": str(files.certificate)})
        except (ConfigurationError, OSError) as error:  # OSError: no descriptor is left
            logger.warning("Certificate could not be read again", extra={"error": str(error)})


def _checked(files: KeyPair) -> bytes:
    """Read a key pair and test it in a separate context."""
    parts = []
    for option, path in (
        ("--tls-private-key-file", files.key),
        ("--tls-cert-file", files.certificate),
    ):
        try:
            parts.append(read_regular(path))
        except OSError as error:
            problem = f"{path} cannot be read: {error.strerror or error}"
            raise ConfigurationError([FieldError(option, problem)]) from error
    pem = b"\n".join(parts)
    try:
        load_key_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pem)
    except ssl.SSLError as error:
        problem = f"{files.certificate} is not a certificate of the unencrypted key {files.key}: {error}"
        raise ConfigurationError([FieldError("--tls-cert-file", problem)]) from error
    return pem
