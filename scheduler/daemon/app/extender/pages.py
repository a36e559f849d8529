"""The HTTP endpoints of an extender: verbs, health and metrics; and the bearer token of its clients."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from scheduler.daemon.app.extender.certificates import (
    ServingCertificate,
    client_authority_in,
    given,
    kept_in,
    made_for,
)
from scheduler.daemon.app.pages import listen, readiness
from scheduler.daemon.server.extender import LONGEST_REQUEST_BYTES, Callers, verb_pages
from scheduler.daemon.server.http_server import application
from scheduler.daemon.server.tls import KeyPair, tls_context
from scheduler.errors import ConfigurationError, FieldError
from scheduler.files import read_regular
from scheduler.urls import shown_url
from scheduler.worker_thread import in_a_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from scheduler.daemon.app.extender.service import ExtenderService
    from scheduler.daemon.server.http_server import Application

logger = logging.getLogger(__name__)

_REREAD_SECONDS: Final = 10.0


def token_in(path: Path) -> bytes:
    """Return the token in a file.

    Raises:
        ConfigurationError: the file cannot be read, or contains no token.
    """
    try:
        token = read_regular(path).strip()
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror or error}"
        raise ConfigurationError([FieldError("--token-file", problem)]) from error
    if not token:
        raise ConfigurationError([FieldError("--token-file", f"{path} has no token")])
    return token


@asynccontextmanager
async def following_token(callers: Callers, path: Path) -> AsyncIterator[None]:
    """Update the accepted token from the file while the block runs; an invalid file leaves the old token in use."""
    rereading = asyncio.create_task(_keep_fresh(callers, path), name="token refresh")
    try:
        yield
    finally:
        rereading.cancel()
        with suppress(asyncio.CancelledError):
            await rereading


async def _keep_fresh(callers: Callers, path: Path) -> None:
    while True:
        await asyncio.sleep(_REREAD_SECONDS)
        try:
            newest = await in_a_thread(partial(token_in, path), f"reading {path}", gives_up=False)
        except ConfigurationError as error:
            logger.warning("Token could not be read again", extra={"error": str(error)})
            continue
        if newest != callers.token:
            callers.token = newest
            logger.info("Token changed", extra={"file": str(path)})


_EVERYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - clients of a pod are outside it

_NOBODY = (
    "no client would be accepted: --cert-dir creates a certificate for kube-scheduler, --client-ca-file accepts your "
    "own, --token-file accepts a token; --allow-anybody accepts every client"
)


@dataclass(frozen=True, slots=True)
class ExtenderAddress:
    """The addresses on which an extender listens, and the clients that it accepts.

    Attributes:
        host: the address to listen on.
        secure_port: port of HTTPS; 0 for none.
        http_port: port of plain HTTP; 0 for none.
        url: the URL for schedulers; "" for the URL on this machine.
        key_pair: the certificate of HTTPS; None creates one.
        authority: CA of that certificate, for clients; None if unknown.
        folder: directory of a created certificate; None creates another one at each start.
        client_authority: CA of the certificates of accepted schedulers; None for the one in `folder`, if there is one and
            no other setting determines the accepted clients.
        token_file: file with a bearer token; clients with the token are accepted.
        answers_anybody: whether every client is accepted.
        binds: whether the extender binds pods.
    """

    host: str
    secure_port: int
    http_port: int = 0
    url: str = ""
    key_pair: KeyPair | None = None
    authority: Path | None = None
    folder: Path | None = None
    client_authority: Path | None = None
    token_file: Path | None = None
    answers_anybody: bool = False
    binds: bool = False

    def check(self) -> None:
        """Check that the settings are consistent.

        Raises:
            ConfigurationError: they are not.
        """
        faults = []
        if not (self.secure_port or self.http_port):
            faults.append(FieldError("--secure-port", "must not be 0 without --http-port"))
        faults += self._faults_of_callers()
        parts = urlsplit(self.prefix)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            faults.append(FieldError("--url", f"must be like https://host:port, was {shown_url(self.url)!r}"))
        elif parts.path:
            faults.append(FieldError("--url", f"must end with the host or port, was {shown_url(self.url)!r}"))
        elif parts.scheme == "https" and not self.secure_port:
            faults.append(FieldError("--url", f"{shown_url(self.url)} is HTTPS, and --secure-port is 0"))
        if faults:
            raise ConfigurationError(faults)

    def _faults_of_callers(self) -> list[FieldError]:
        authority = self.client_authority is not None or self.makes_clients
        faults = []
        if self.client_authority is not None and not self.secure_port:
            faults.append(FieldError("--client-ca-file", "client certificates need HTTPS"))
        if self.token_file is not None and not self.secure_port:
            faults.append(FieldError("--token-file", "a token needs HTTPS"))
        if not (authority or self.token_file or self.answers_anybody):
            faults.append(FieldError("", _NOBODY))
        if self.answers_anybody and (self.client_authority or self.token_file):
            problem = "cannot be combined with --client-ca-file or --token-file, which restrict the clients"
            faults.append(FieldError("--allow-anybody", problem))
        if self.answers_anybody and self.binds:
            problem = (
                "every accepted client can have pods bound, so it cannot be combined with --allow-anybody"
            )
            faults.append(FieldError("--bind", problem))
        return faults

    @property
    def makes_clients(self) -> bool:
        """Whether the client certificate of schedulers is created and kept in the same directory as the serving one."""
        told_otherwise = self.client_authority or self.token_file or self.answers_anybody
        return self.folder is not None and bool(self.secure_port) and not told_otherwise

    def callers(self) -> tuple[Callers | None, Path | None]:
        """Return the accepted clients (None for all), and the CA of client certificates, if these are requested.

        Raises:
            ConfigurationError: a file cannot be read or created.
        """
        if self.answers_anybody:
            return None, None
        authority = self.client_authority
        if self.makes_clients and self.folder is not None:
            authority = client_authority_in(self.folder)
        token = b"" if self.token_file is None else token_in(self.token_file)
        return Callers(certificate=authority is not None, token=token), authority

    @property
    def prefix(self) -> str:
        """The URL for schedulers, without a verb."""
        if self.url:
            return self.url.rstrip("/")
        host = "localhost" if self.host in _EVERYWHERE else self.host
        host = f"[{host}]" if ":" in host else host
        return f"https://{host}:{self.secure_port}" if self.secure_port else f"http://{host}:{self.http_port}"

    def certificate(self) -> ServingCertificate:
        """Return the certificate of HTTPS.

        Raises:
            ConfigurationError: it cannot be read or created.
        """
        if not self.secure_port:
            return ServingCertificate()
        if self.key_pair is not None:
            return given(self.key_pair, self.authority)
        host = urlsplit(self.prefix).hostname or "localhost"
        return made_for(host) if self.folder is None else kept_in(self.folder, host)


@asynccontextmanager
async def serving_extender(
    service: ExtenderService,
    where: ExtenderAddress,
    certificate: ServingCertificate,
    *,
    stop: asyncio.Event,
) -> AsyncIterator[None]:
    """Serve requests while the block runs; not ready once `stop` is set.

    Raises:
        ConfigurationError: an address cannot be listened on, or the certificate cannot be used.
    """
    callers, client_authority = where.callers()
    async with AsyncExitStack() as stack:
        if callers is not None and where.token_file is not None:
            await stack.enter_async_context(following_token(callers, where.token_file))
        if where.secure_port:
            tls = await stack.enter_async_context(
                tls_context(certificate.files, made=certificate.made, client_authority=client_authority)
            )
            app = extender_application(service, stop, binds=where.binds, callers=callers)
            await listen(stack, app, where.host, where.secure_port, tls)
        if where.http_port:
            # If not all clients are accepted, plain HTTP is for probes and scrapes only.
            app = extender_application(service, stop, verbs=callers is None, binds=where.binds)
            await listen(stack, app, where.host, where.http_port)
        yield


def extender_application(
    service: ExtenderService,
    stop: asyncio.Event,
    *,
    verbs: bool = True,
    binds: bool = False,
    callers: Callers | None = None,
) -> Application:
    """Build the endpoints of an extender: health, metrics, and the verbs, optionally with `bind`.

    It is not ready once `stop` is set. Without `callers` every client is accepted.
    """
    routes = verb_pages(service, service.requests, binds=binds, callers=callers)
    return application(
        metrics=service.metrics.pieces,
        live={},
        ready=readiness(stop, lambda: service.has_synced),
        more=routes if verbs else (),
        longest_request_bytes=LONGEST_REQUEST_BYTES,
        connection_rejected=service.metrics.connection_rejected,
    )
