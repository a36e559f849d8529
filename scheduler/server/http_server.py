"""The pages of the daemon, and listening for those who ask for them.

It shares the main loop on purpose: a scheduler that is stuck must not say that it is well.
"""

from __future__ import annotations

import asyncio
import platform
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from scheduler.configuration.write import to_plain
from scheduler.errors import ConfigurationError, FieldError
from scheduler.server.health import health_routes
from scheduler.server.pod_resources import CONTENT_TYPE, pod_resources_text
from scheduler.version import VERSION

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

    from scheduler.configuration.load import Configuration
    from scheduler.objects.pod import PodInfo
    from scheduler.server.access import Access
    from scheduler.server.health import Check, Handler

    StreamHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]
    Metrics = Callable[[str], tuple[bytes, Mapping[str, str]]]

_EVERYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - a pod is probed and scraped from outside
_WAITING_CONNECTIONS = 128
_LONGEST_REQUEST_BYTES = 1024 * 1024
_LAST_ANSWERS_SECONDS = 5.0


def application(
    *,
    metrics: Metrics,
    live: Mapping[str, Check],
    ready: Mapping[str, Check],
    health: Mapping[str, Check] | None = None,
    configuration: Callable[[], Configuration] | None = None,
    pods: Callable[[], Iterable[PodInfo]] | None = None,
    is_leading: Callable[[], bool] = lambda: True,
    explain: Callable[[str], Mapping[str, Any] | None] | None = None,
    access: Access | None = None,
    more: Sequence[web.RouteDef] = (),
    longest_request_bytes: int = _LONGEST_REQUEST_BYTES,
) -> web.Application:
    """Build the server's routes.

    Args:
        metrics: gives the body and the headers of /metrics for an Accept header.
        live: check's name -> check, of /livez; they fail when only a restart can help.
        ready: the same of /readyz; they fail while no pod is placed, or none any more.
        health: the same of /healthz; None is those of /livez.
        configuration: gives what /configz shows; None is no such page.
        pods: what /metrics/resources shows; None is no such page.
        is_leading: whether /metrics/resources shows anything: several schedulers would all show the same.
        explain: tells of a pod by `namespace/name`, None if it is unknown; None is no such page.
        access: who may see what; None is everybody everything.
        more: further pages.
        longest_request_bytes: what is sent to any page is at most so long.
    """
    routes = [
        *health_routes("/healthz", live if health is None else health),
        *health_routes("/livez", live),
        *health_routes("/readyz", ready),
        web.get("/metrics", _metrics(metrics)),
        web.get("/version", _version),
    ]
    if configuration is not None:
        routes.append(web.get("/configz", _json(lambda: _configz(configuration()))))
    if pods is not None:
        routes.append(web.get("/metrics/resources", _pod_resources(pods, is_leading)))
    if explain is not None:
        routes.append(web.get("/debug/explain/{namespace}/{name}", _explanation(explain)))
    paths = msgspec.json.encode({"paths": sorted(route.path for route in routes)})
    app = web.Application(
        middlewares=[_not_found, *([access.middleware] if access else [])],
        client_max_size=longest_request_bytes,
    )
    app.add_routes([web.get("/", _json(lambda: paths)), *routes, *more])
    app.on_response_prepare.append(_keep_out_of_caches)
    return app


@asynccontextmanager
async def serving(
    app: web.Application, host: str, port: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve while the block runs; what is being answered at its end has 5 seconds more.

    Args:
        app: the routes.
        host: the address to listen on; `0.0.0.0` and `::` are all there are, of IPv4 and of IPv6.
        port: 0 takes any that is free.
        tls: None serves plain HTTP.

    Yields:
        The port.

    Raises:
        ConfigurationError: the address cannot be listened on.
    """
    # Access logs of every probe and scrape would drown the rest.
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=_LAST_ANSWERS_SECONDS)
    await runner.setup()
    try:
        await web.SockSite(runner, _listen(host, port), ssl_context=tls).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _listen(host: str, port: int) -> socket.socket:
    try:
        if host in _EVERYWHERE and socket.has_dualstack_ipv6():
            with suppress(OSError):  # a kernel without IPv6; if it is something else, IPv4 fails as well
                return socket.create_server(
                    ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_WAITING_CONNECTIONS
                )
        family, *_, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address, family=family, backlog=_WAITING_CONNECTIONS)
    except OSError as error:
        problem = f"cannot listen on port {port} of {host or 'all addresses'}: {error.strerror or error}"
        raise ConfigurationError([FieldError("", problem)]) from error


def _metrics(metrics: Metrics) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        body, headers = metrics(",".join(request.headers.getall("Accept", [])))
        return web.Response(body=body, headers=headers)

    return answer


def _explanation(explain: Callable[[str], Mapping[str, Any] | None]) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        key = f"{request.match_info['namespace']}/{request.match_info['name']}"
        told = explain(key)
        if told is None:
            return web.Response(status=404, text=f"pod {key} is unknown here, or was placed long ago\n")
        return web.Response(body=msgspec.json.encode(told) + b"\n", content_type="application/json")

    return answer


def _pod_resources(pods: Callable[[], Iterable[PodInfo]], is_leading: Callable[[], bool]) -> StreamHandler:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        await response.prepare(request)
        # aiohttp keeps back the body of an answer to HEAD, but not of one that is written piece by piece.
        if is_leading() and request.method != "HEAD":
            for piece in pod_resources_text(pods()):
                await response.write(piece.encode())
                await asyncio.sleep(0)  # pods are placed meanwhile
        await response.write_eof()
        return response

    return answer


async def _version(_request: web.Request) -> web.Response:
    major, minor, *_ = VERSION.split(".")
    return web.json_response(
        {
            "major": major,
            "minor": minor,
            "gitVersion": f"v{VERSION}",
            "pythonVersion": platform.python_version(),
            "platform": f"{platform.system().lower()}/{platform.machine()}",
        }
    )


def _configz(configuration: Configuration) -> bytes:
    """Return the configuration in effect as JSON; extenders' private keys are withheld.

    Source:
        kube-scheduler v1.36, cmd/kube-scheduler/app/server.go, Run, which registers it as `componentconfig`.
    """
    shown = to_plain(configuration)
    for extender in shown.get("extenders", ()):
        if "keyData" in extender.get("tlsConfig", {}):
            extender["tlsConfig"]["keyData"] = "REDACTED"
    return msgspec.json.encode({"componentconfig": shown})


def _json(body: Callable[[], bytes]) -> Handler:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=body(), content_type="application/json")

    return answer


@web.middleware
async def _not_found(request: web.Request, handler: StreamHandler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return web.Response(text="404 page not found\n", status=404)


async def _keep_out_of_caches(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Cache-Control"] = "no-cache, private"
