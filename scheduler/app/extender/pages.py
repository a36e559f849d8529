"""Where an extender answers: verbs, health and metrics on one port each of HTTPS and HTTP."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from scheduler.app.extender.certificates import (
    ServingCertificate,
    client_authority_in,
    given,
    kept_in,
    made_for,
)
from scheduler.app.extender.token_file import following_token, token_in
from scheduler.app.pages import listen, readiness
from scheduler.errors import ConfigurationError, FieldError
from scheduler.server.callers import Callers
from scheduler.server.extender import LONGEST_REQUEST_BYTES, verb_pages
from scheduler.server.http_server import application
from scheduler.server.tls import KeyPair, tls_context
from scheduler.urls import shown_url

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator
    from pathlib import Path

    from scheduler.app.extender.service import ExtenderService
    from scheduler.server.http_server import Application

_EVERYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - a pod is asked from outside

_NOBODY = (
    "nobody would be answered: --cert-dir makes a certificate that kube-scheduler shows, --client-ca-file takes one of "
    "yours, --token-file takes a token; --allow-anybody answers whoever comes"
)


@dataclass(frozen=True, slots=True)
class ExtenderAddress:
    """Where an extender listens, and how it is reached there.

    Attributes:
        host: the address to listen on.
        secure_port: of HTTPS; 0 for none.
        http_port: of plain HTTP; 0 for none.
        url: how schedulers reach it; "" is how it is reached on this machine.
        key_pair: the certificate of HTTPS; None makes one.
        authority: who vouches for that, for clients; None leaves it to them.
        folder: where one that is made is kept; None makes another at each start.
        client_authority: who vouches for schedulers that are answered; None is one kept in the folder, where there is
            one and nothing else says who is answered.
        token_file: with a bearer token, for which whoever brings it is answered.
        answers_anybody: whether whoever comes is answered.
        binds: whether pods are bound.
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
        """Find out whether all of it goes together.

        Raises:
            ConfigurationError: it does not.
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
            faults.append(FieldError("--client-ca-file", "certificates are shown over HTTPS only"))
        if self.token_file is not None and not self.secure_port:
            faults.append(FieldError("--token-file", "a token is shown over HTTPS only"))
        if not (authority or self.token_file or self.answers_anybody):
            faults.append(FieldError("", _NOBODY))
        if self.answers_anybody and (self.client_authority or self.token_file):
            problem = "goes with neither --client-ca-file nor --token-file, which keep others out"
            faults.append(FieldError("--allow-anybody", problem))
        if self.answers_anybody and self.binds:
            problem = "whoever is answered can have pods bound, so it does not go with --allow-anybody"
            faults.append(FieldError("--bind", problem))
        return faults

    @property
    def makes_clients(self) -> bool:
        """Whether the certificate that schedulers show is made and kept, as the one they are shown is."""
        told_otherwise = self.client_authority or self.token_file or self.answers_anybody
        return self.folder is not None and bool(self.secure_port) and not told_otherwise

    def callers(self) -> tuple[Callers | None, Path | None]:
        """Return who is answered, None for everybody, and who vouches for certificates, if these are asked for.

        Raises:
            ConfigurationError: a file cannot be read, or made.
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
        """How schedulers reach it, without a verb."""
        if self.url:
            return self.url.rstrip("/")
        host = "localhost" if self.host in _EVERYWHERE else self.host
        host = f"[{host}]" if ":" in host else host
        return f"https://{host}:{self.secure_port}" if self.secure_port else f"http://{host}:{self.http_port}"

    def certificate(self) -> ServingCertificate:
        """Return what HTTPS is served with.

        Raises:
            ConfigurationError: it cannot be read, or made.
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
    """Answer while the block runs; once `stop` is set, as not ready.

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
            # Where not everybody is answered, plain HTTP is for probes and scrapes.
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
    """Build the pages of an extender: health and metrics, and the verbs, of which `bind` may be one.

    Once `stop` is set it is not ready. Without `callers` everybody is answered.
    """
    routes = verb_pages(service, service.requests, binds=binds, callers=callers)
    return application(
        metrics=service.metrics.pieces,
        live={},
        ready=readiness(stop, lambda: service.has_synced),
        more=routes if verbs else (),
        longest_request_bytes=LONGEST_REQUEST_BYTES,
        turned_away=service.metrics.turned_away,
    )
