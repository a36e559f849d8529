"""The HTTP endpoints of a daemon, also /debug/cache, and its named health checks."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.daemon.app.consistency.checker import node_text, nodes, pending, pod_text, summary
from scheduler.daemon.app.live_explain import live_explanation, live_groups
from scheduler.daemon.metrics.registry import process_began
from scheduler.daemon.server.access import Access
from scheduler.daemon.server.http_server import application, serving
from scheduler.daemon.server.tls import tls_context
from scheduler.daemon.server.zpages import Process
from scheduler.http_server.messages import JSON, Page, ServerResponse

if TYPE_CHECKING:
    import asyncio
    import ssl
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from scheduler.clock import Clock
    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.assembly import Parts
    from scheduler.daemon.app.consistency.checker import ConsistencyChecker, Report
    from scheduler.daemon.app.daemon import Daemon
    from scheduler.daemon.server import Serving
    from scheduler.daemon.server.http_server import Application, Check, Guard
    from scheduler.http_server.messages import ServerRequest
    from scheduler.kube.client.connection import ApiConnection

logger = logging.getLogger(__name__)

_TOLERATED_SECONDS = 20.0
"""Source: kube-scheduler v1.36, cmd/kube-scheduler/daemon/app/options/options.go, makeLeaderElectionConfig's watchdog."""


class LeaderElectionWatchdog:
    """Reports a leader whose lease expired long ago and that still runs.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/client-go/tools/leaderelection/healthzadaptor.go.
    """

    def __init__(self, daemon: Daemon, lease: str, clock: Clock) -> None:
        self._daemon = daemon
        self._lease = lease
        self._clock = clock
        self._led_at: float | None = None

    def problem(self) -> str:
        """Return the problem, "" if there is none; waiting for the lease is no problem."""
        now = self._clock.monotonic()
        if self._daemon.leadership.is_leading():
            self._led_at = now
        if self._led_at is None or now - self._led_at <= _TOLERATED_SECONDS:
            return ""
        return f"failed election to renew leadership on lease {self._lease}"


def pages(
    daemon: Daemon,
    configuration: Configuration,
    *,
    stop: asyncio.Event,
    clock: Clock,
    flags: Mapping[str, str] = {},
    access: Guard | None = None,
    more: Sequence[Page] = (),
) -> Application:
    """Build a daemon's endpoints; the checks have kube-scheduler's names. It is not ready once `stop` is set.

    The configuration is the initial one, with the lease; /configz shows the active one. Without `access` every client may
    read everything. `more` are additional endpoints.
    """
    election = configuration.settings.leader_election
    health: dict[str, Check] = {}
    if election.leader_elect:
        name = f"{election.resource_namespace}/{election.resource_name}"
        health["leaderElection"] = LeaderElectionWatchdog(daemon, name, clock).problem
    ready: dict[str, Check] = {
        **health,
        **readiness(stop, lambda: daemon.has_synced),
        "plugins": lambda: _at_rest(daemon.parts.budget.paused),
    }
    return application(
        metrics=daemon.metrics.pieces,
        health=health,
        live={},
        ready=ready,
        configuration=lambda: daemon.configuration,
        pods=daemon.parts.pods.values,
        is_leading=daemon.leadership.is_leading,
        explain=lambda key: live_explanation(daemon, key, clock),
        explain_group=lambda key: live_groups(daemon.parts, daemon.cycles.group_attempts, key),
        process=Process(
            "custom-scheduler",
            flags,
            process_began,
            lambda: daemon.configuration.features.version,
        ),
        access=access,
        connection_rejected=daemon.metrics.connection_rejected,
        # Clients in plain HTTP are not authenticated, so they may change nothing.
        more=[cache_page(daemon.consistency, daemon.parts, may_repair=access is not None), *more],
    )


def serving_pages(
    daemon: Daemon,
    configuration: Configuration,
    where: Serving,
    *,
    connection: ApiConnection,
    stop: asyncio.Event,
    clock: Clock,
    more: Sequence[Page] = (),
    guarding: Callable[[Access], Guard] = lambda access: access,
) -> AbstractAsyncContextManager[None]:
    """Serve a daemon's endpoints, as `serving_all`; `more` are additional ones, `guarding` may grant more access."""
    build = partial(pages, daemon, configuration, stop=stop, clock=clock, flags=where.flags, more=more)
    access = Access(connection, where.always_allowed)
    return serving_all(where, lambda: build(access=guarding(access)), build)


def waiting_pages(where: Serving) -> AbstractAsyncContextManager[None]:
    """Serve health, as `serving_all`, while the daemon cannot start: alive, but not ready."""
    ready = {"api-server": lambda: "waiting for the API server"}
    build = partial(application, metrics=None, live={}, ready=ready)
    return serving_all(where, build, build)


@asynccontextmanager
async def serving_all(
    where: Serving, secure: Callable[[], Application], plain: Callable[[], Application]
) -> AsyncIterator[None]:
    """Serve endpoints over HTTPS, and others in plain HTTP, each if it has a port, while the block runs.

    Raises:
        ConfigurationError: an address cannot be listened on, or the certificate cannot be used.
    """
    async with AsyncExitStack() as stack:
        if where.secure_port:
            tls = await stack.enter_async_context(tls_context(where.key_pair))
            await listen(stack, secure(), where.host, where.secure_port, tls)
        if where.http_port:
            await listen(stack, plain(), where.plain_host or where.host, where.http_port)
        yield


def readiness(stop: asyncio.Event, has_synced: Callable[[], bool]) -> dict[str, Check]:
    """Return the readiness checks of a process that watches a cluster, under kube-scheduler's names."""
    return {
        "shutdown": lambda: "process is shutting down" if stop.is_set() else "",
        "sched-handler-sync": lambda: "" if has_synced() else "handlers are not fully synchronized",
    }


def _at_rest(plugins: list[str]) -> str:
    return f"stopped again and again, and at rest: {', '.join(plugins)}" if plugins else ""


async def listen(
    stack: AsyncExitStack, app: Application, host: str, port: int, tls: ssl.SSLContext | None = None
) -> None:
    """Serve HTTP endpoints until the stack is closed.

    Raises:
        ConfigurationError: the address cannot be listened on.
    """
    taken = await stack.enter_async_context(serving(app, host, port, tls))
    sentence = "Serving in plain HTTP" if tls is None else "Serving securely"
    logger.info(sentence, extra={"address": host, "port": taken})


_CACHE_PATH = "/debug/cache"
_MOST_SHOWN = 1000


def cache_page(checker: ConsistencyChecker, parts: Parts, *, may_repair: bool) -> Page:
    """Return the endpoint: GET compares and reports; POST, if allowed, also repairs.

    The output is JSON, or kube-scheduler's text format with `?output=text`.
    """

    async def answer(request: ServerRequest) -> ServerResponse:
        report = await checker.check(repair=request.method == "POST")
        if request.query.get("output") == ["text"]:
            return ServerResponse(_cache_text(report, parts))
        return ServerResponse(_cache_json(report, parts), content_type=JSON)

    return Page(_CACHE_PATH, answer, ("GET", "POST") if may_repair else ("GET",))


def _comparison(report: Report) -> dict[str, Any]:
    return {
        "result": report.result,
        "repaired": report.is_repaired,
        "compared": report.compared,
        "unread": report.unread,
        "found": len(report.findings),
        "findings": [
            {"what": each.what.value, "object": each.key, "problem": each.problem}
            for each in report.findings[:_MOST_SHOWN]
        ],
    }


def _cache_json(report: Report, parts: Parts) -> Iterator[bytes]:
    yield b'{"comparison":' + msgspec.json.encode(_comparison(report))
    yield b',"nodes":['
    yield from _listed(nodes(parts))
    queue = msgspec.json.encode({"summary": summary(parts)})
    yield b'],"queue":' + queue[:-1] + b',"pods":['
    yield from _listed(pending(parts))
    yield b"]}}\n"


def _listed(items: Iterable[Any]) -> Iterator[bytes]:
    comma = b""
    for item in items:
        yield comma + msgspec.json.encode(item)
        comma = b","


def _cache_text(report: Report, parts: Parts) -> Iterator[bytes]:
    comparison = _comparison(report)
    yield f"Comparison: {comparison['result']}, {comparison['found']} found{', put right' if comparison['repaired'] else ''}\n".encode()
    for kind, number in report.compared.items():
        yield f"compared {kind}: {number}\n".encode()
    for kind, why in report.unread.items():
        yield f"not compared {kind}: {why}\n".encode()
    for finding in report.findings[:_MOST_SHOWN]:
        yield f"{finding}\n".encode()
    cached = (f"\n{node_text(node)}" for node in nodes(parts))
    head = f"\nDump of scheduling queue: {summary(parts)}\n"
    for piece in chain(cached, (head,), map(pod_text, pending(parts))):
        yield piece.encode()
