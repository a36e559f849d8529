"""The pages of the daemon, and listening for those who ask for them.

It shares the main loop on purpose: a scheduler that is stuck must not say that it is well.
"""

from __future__ import annotations

import platform
import socket
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from scheduler.configuration.write import to_shown
from scheduler.cycle.turns import answered_in_turns
from scheduler.errors import ConfigurationError, FieldError
from scheduler.server.door import Door
from scheduler.server.health import health_pages
from scheduler.server.messages import JSON, Answer, Page, json_answer
from scheduler.server.pod_resources import CONTENT_TYPE, pod_resources_text
from scheduler.server.zpages import zpages
from scheduler.version import VERSION

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from scheduler.configuration.load import Configuration
    from scheduler.objects.pod import PodInfo
    from scheduler.server.health import Check
    from scheduler.server.messages import Handler, Request
    from scheduler.server.zpages import Process

    Metrics = Callable[[str], tuple[bytes | Iterable[bytes], Mapping[str, str]]]

_EVERYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - a pod is probed and scraped from outside
_WAITING_CONNECTIONS = 1024
"""What the system holds while the loop is at something else; beyond that clients try again after a second."""
UNREVIEWED = "unreviewed"
"""Why a request was not answered: the API server was asked about too many strangers."""
_LONGEST_REQUEST_BYTES = 1024 * 1024
_SAFE_METHODS = frozenset({"GET", "HEAD"})
"""What a page elsewhere may have a browser ask: it changes nothing, and that page cannot read the answer."""


class Guard(Protocol):
    """Who may see what."""

    async def refusal(self, request: Request) -> Answer | None:
        """Say why a request is not answered; None if it is."""
        ...


def application(
    *,
    metrics: Metrics | None,
    live: Mapping[str, Check],
    ready: Mapping[str, Check],
    health: Mapping[str, Check] | None = None,
    configuration: Callable[[], Configuration] | None = None,
    pods: Callable[[], Iterable[PodInfo]] | None = None,
    is_leading: Callable[[], bool] = lambda: True,
    explain: Callable[[str], Mapping[str, Any] | None] | None = None,
    explain_group: Callable[[str], Mapping[str, Any] | None] | None = None,
    process: Process | None = None,
    access: Guard | None = None,
    more: Sequence[Page] = (),
    longest_request_bytes: int = _LONGEST_REQUEST_BYTES,
    turned_away: Callable[[str], None] = lambda _: None,
) -> Application:
    """Build the server's pages.

    Args:
        metrics: gives the body and the headers of /metrics for an Accept header; None is no such page.
        live: check's name -> check, of /livez; they fail when only a restart can help.
        ready: the same of /readyz; they fail while no pod is placed, or none any more.
        health: the same of /healthz; None is those of /livez.
        configuration: gives what /configz shows; None is no such page.
        pods: what /metrics/resources shows; None is no such page.
        is_leading: whether /metrics/resources shows anything: several schedulers would all show the same.
        explain: tells of a pod by `namespace/name`, None if it is unknown, and may raise NeedsTime; None is no such page.
        explain_group: the same of a group.
        process: what /statusz and /flagz tell of; None is no such pages.
        access: who may see what; None is everybody everything.
        more: further pages.
        longest_request_bytes: what is sent to any page is at most so long.
        turned_away: as of `Application`.
    """
    pages = [
        *health_pages("/healthz", live if health is None else health),
        *health_pages("/livez", live),
        *health_pages("/readyz", ready),
        Page("/version", _version),
    ]
    if metrics is not None:
        pages.append(Page("/metrics", _metrics(metrics)))
    if configuration is not None:
        pages.append(Page("/configz", _json(lambda: _configz(configuration()))))
    if pods is not None:
        pages.append(Page("/metrics/resources", _pod_resources(pods, is_leading)))
    if explain is not None:
        pages.append(Page("/debug/explain/{namespace}/{name}", _explanation(explain, "pod")))
    if explain_group is not None:
        pages.append(Page("/debug/explain/groups/{namespace}/{name}", _explanation(explain_group, "group")))
    pages += more
    if process is not None:
        pages += zpages(process, pages)
    paths = msgspec.json.encode({"paths": sorted(page.path for page in pages)})
    return Application([Page("/", _json(lambda: paths)), *pages], access, longest_request_bytes, turned_away)


@dataclass(frozen=True, slots=True)
class Application:
    """Answers requests.

    Attributes:
        pages: of several for a path and method the first answers.
        access: who may see what; None is everybody everything.
        longest_request_bytes: of a body.
        turned_away: is told why a connection was closed, or a request not answered, for others' sake.
    """

    pages: Sequence[Page]
    access: Guard | None
    longest_request_bytes: int
    turned_away: Callable[[str], None] = lambda _: None

    async def answer(self, request: Request) -> Answer:
        """Answer a request, which nobody keeps in a cache."""
        if request.method not in _SAFE_METHODS and request.is_of_another_site:
            return Answer(b"403 sent by a page of another site\n", HTTPStatus.FORBIDDEN)
        refusal = await self.access.refusal(request) if self.access else None
        if refusal is not None and refusal.status == HTTPStatus.TOO_MANY_REQUESTS:
            self.turned_away(UNREVIEWED)
        answer = refusal or await self._page(request)
        return answer._replace(headers={**answer.headers, "Cache-Control": "no-cache, private"})

    async def _page(self, request: Request) -> Answer:
        allowed: list[str] = []
        for page in self.pages:
            parts = page.parts_of(request.path)
            if parts is not None:
                if not page.methods or request.method in page.methods:
                    request.parts = parts
                    return await page.handler(request)
                allowed += page.methods
        if allowed:
            return Answer(b"405 method not allowed\n", 405, headers={"Allow": ",".join(allowed)})
        return Answer(b"404 page not found\n", 404)


@asynccontextmanager
async def serving(
    app: Application, host: str, port: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve while the block runs; what is being answered at its end has 5 seconds more.

    Args:
        app: who answers.
        host: the address to listen on; `0.0.0.0` and `::` are all there are, of IPv4 and of IPv6.
        port: 0 takes any that is free.
        tls: None serves plain HTTP.

    Yields:
        The port.

    Raises:
        ConfigurationError: the address cannot be listened on.
    """
    listening = _listen(host, port)
    door = Door(listening, app.answer, app.longest_request_bytes, tls, app.turned_away)
    door.open()
    try:
        yield listening.getsockname()[1]
    finally:
        await door.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        listening = _listening(host, port)
    except OSError as error:
        problem = f"cannot listen on port {port} of {host or 'all addresses'}: {error.strerror or error}"
        raise ConfigurationError([FieldError("", problem)]) from error
    listening.setblocking(False)
    # Connections inherit it. Without it the last small piece of an answer waits for the client's delayed acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _listening(host: str, port: int) -> socket.socket:
    if host in _EVERYWHERE and socket.has_dualstack_ipv6():
        with suppress(OSError):  # a kernel without IPv6; if it is something else, IPv4 fails as well
            return socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_WAITING_CONNECTIONS
            )
    family, *_, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return socket.create_server(address, family=family, backlog=_WAITING_CONNECTIONS)


def _metrics(metrics: Metrics) -> Handler:
    async def answer(request: Request) -> Answer:
        body, headers = metrics(request.headers.get("accept", ""))
        rest = dict(headers)
        return Answer(body, content_type=rest.pop("Content-Type"), headers=rest)

    return answer


def _explanation(explain: Callable[[str], Mapping[str, Any] | None], what: str) -> Handler:
    async def answer(request: Request) -> Answer:
        key = f"{request.parts['namespace']}/{request.parts['name']}"
        told = await answered_in_turns(partial(explain, key))
        if told is None:
            return Answer(f"{what} {key} is unknown here, or was placed long ago\n".encode(), 404)
        return Answer(msgspec.json.encode(told) + b"\n", content_type=JSON)

    return answer


def _pod_resources(pods: Callable[[], Iterable[PodInfo]], is_leading: Callable[[], bool]) -> Handler:
    async def answer(_request: Request) -> Answer:
        shown = pod_resources_text(pods()) if is_leading() else ()
        return Answer((piece.encode() for piece in shown), content_type=CONTENT_TYPE)

    return answer


async def _version(_request: Request) -> Answer:
    major, minor, *_ = VERSION.split(".")
    return json_answer(
        {
            "major": major,
            "minor": minor,
            "gitVersion": f"v{VERSION}",
            "pythonVersion": platform.python_version(),
            "platform": f"{platform.system().lower()}/{platform.machine()}",
        }
    )


def _configz(configuration: Configuration) -> bytes:
    """Return the configuration in effect as JSON, without what is secret.

    Source:
        kube-scheduler v1.36, cmd/kube-scheduler/app/server.go, Run, which registers it as `componentconfig`.
    """
    return msgspec.json.encode({"componentconfig": to_shown(configuration)})


def _json(body: Callable[[], bytes]) -> Handler:
    async def answer(_request: Request) -> Answer:
        return Answer(body(), content_type=JSON)

    return answer
