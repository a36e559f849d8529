"""The HTTP endpoints of a shadow: its findings, explanations of single pods, metrics and health."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.daemon.app.live_explain import attempt_json, known_of, live_verdict
from scheduler.daemon.app.pages import readiness, serving_all
from scheduler.daemon.app.shadow.findings import lines
from scheduler.daemon.metrics.registry import process_began
from scheduler.daemon.server.access import Access
from scheduler.daemon.server.http_server import application
from scheduler.daemon.server.zpages import Process
from scheduler.http_server.messages import JSON, Page, ServerResponse

if TYPE_CHECKING:
    import asyncio
    from contextlib import AbstractAsyncContextManager

    from scheduler.clock import Clock
    from scheduler.daemon.app.shadow.service import ShadowService
    from scheduler.daemon.server import Serving
    from scheduler.daemon.server.http_server import Application, Guard
    from scheduler.http_server.messages import ServerRequest
    from scheduler.kube.client.connection import ApiConnection

PATH = "/debug/shadow"
_MOST_SHOWN = 1000


def shadow_application(
    service: ShadowService,
    *,
    stop: asyncio.Event,
    clock: Clock,
    process: Process | None = None,
    access: Guard | None = None,
) -> Application:
    """Build the endpoints of a shadow; not ready once `stop` is set. Without `access` every client may read everything."""
    return application(
        metrics=service.metrics.pieces,
        live={},
        ready=readiness(stop, lambda: service.has_synced),
        configuration=lambda: service.configuration,
        explain=lambda key: shadow_explanation(service, key, clock),
        process=process,
        access=access,
        connection_rejected=service.metrics.connection_rejected,
        more=[_page(service)],
    )


def shadow_explanation(service: ShadowService, key: str, clock: Clock) -> dict[str, Any] | None:
    """Explain a pod (`namespace/name`) in the format of the daemon; None if it is unknown.

    `attempt` is this scheduler's decision at the time of the other's, `shadow` the disagreements, oldest first.
    """
    pod, attempted = known_of(service.parts, service.attempts, key)
    if pod is None:
        return None
    answer = {
        "pod": key,
        "node": pod.node_name or None,
        "place": "outside",
        "history": [],
        "schedulingGates": [gate.name for gate in pod.pod.spec.scheduling_gates],
        "group": None,
        "attempt": attempted and attempt_json(service.parts, pod, attempted, clock),
        "now": None,
        "shadow": service.findings.of(key),
    }
    return {"verdict": live_verdict(service.parts, pod, answer), **answer}


def serving_shadow(
    service: ShadowService,
    where: Serving,
    *,
    connection: ApiConnection,
    stop: asyncio.Event,
    clock: Clock,
) -> AbstractAsyncContextManager[None]:
    """Serve the endpoints, as `serving_all`."""
    process = Process(
        "custom-scheduler",
        where.flags,
        process_began,
        lambda: service.configuration.features.version,
    )
    build = partial(shadow_application, service, stop=stop, clock=clock, process=process)
    return serving_all(where, partial(build, access=Access(connection, where.always_allowed)), build)


def _page(service: ShadowService) -> Page:
    """Return /debug/shadow: the summary and the last disagreements, as JSON; as text with `?output=text`."""

    async def answer(request: ServerRequest) -> ServerResponse:
        summary = service.summary()
        if request.query.get("output") == ["text"]:
            return ServerResponse("".join(f"{line}\n" for line in lines(summary)).encode())
        found = {**summary, "disagreements": service.findings.latest(_MOST_SHOWN)}
        return ServerResponse(msgspec.json.encode(found), content_type=JSON)

    return Page(PATH, answer)
