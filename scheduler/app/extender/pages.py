"""Where an extender answers: verbs, health and metrics on one port each of HTTPS and HTTP."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from scheduler.app.extender.certificates import ServingCertificate, given, kept_in, made_for
from scheduler.app.pages import listen, readiness
from scheduler.errors import ConfigurationError, FieldError
from scheduler.server.extender import LONGEST_REQUEST_BYTES, verb_pages
from scheduler.server.http_server import application
from scheduler.server.tls import KeyPair, tls_context

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator
    from pathlib import Path

    from scheduler.app.extender.service import ExtenderService
    from scheduler.server.http_server import Application

_EVERYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - a pod is asked from outside


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
        client_authority: who vouches for schedulers: none other is answered; None answers everybody.
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
    binds: bool = False

    def check(self) -> None:
        """Find out whether all of it goes together.

        Raises:
            ConfigurationError: it does not.
        """
        faults = []
        if not (self.secure_port or self.http_port):
            faults.append(FieldError("--secure-port", "must not be 0 without --http-port"))
        if self.client_authority is not None and not self.secure_port:
            faults.append(FieldError("--client-ca-file", "certificates are shown over HTTPS only"))
        parts = urlsplit(self.prefix)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            faults.append(FieldError("--url", f"must be like https://host:port, was {self.url!r}"))
        elif parts.path:
            faults.append(FieldError("--url", f"must end with the host or port, was {self.url!r}"))
        elif parts.scheme == "https" and not self.secure_port:
            faults.append(FieldError("--url", f"{self.url} is HTTPS, and --secure-port is 0"))
        if faults:
            raise ConfigurationError(faults)

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
    wants_certificate = where.client_authority is not None
    async with AsyncExitStack() as stack:
        if where.secure_port:
            tls = await stack.enter_async_context(
                tls_context(certificate.files, made=certificate.made, client_authority=where.client_authority)
            )
            app = extender_application(
                service, stop, verbs=True, binds=where.binds, wants_certificate=wants_certificate
            )
            await listen(stack, app, where.host, where.secure_port, tls)
        if where.http_port:
            # Where certificates are asked for, plain HTTP is for probes and scrapes.
            app = extender_application(service, stop, verbs=not wants_certificate, binds=where.binds)
            await listen(stack, app, where.host, where.http_port)
        yield


def extender_application(
    service: ExtenderService,
    stop: asyncio.Event,
    *,
    verbs: bool = True,
    binds: bool = False,
    wants_certificate: bool = False,
) -> Application:
    """Build the pages of an extender: health and metrics, and the verbs, of which `bind` may be one.

    Once `stop` is set it is not ready.
    """
    routes = verb_pages(service, service.requests, binds=binds, wants_certificate=wants_certificate)
    return application(
        metrics=service.metrics.text,
        live={},
        ready=readiness(stop, lambda: service.has_synced),
        more=routes if verbs else (),
        longest_request_bytes=LONGEST_REQUEST_BYTES,
        turned_away=service.metrics.turned_away,
    )
