"""The HTTP endpoints of the daemon, with those of health and pod resources, and the listening sockets.

The server shares the main loop on purpose: a blocked scheduler must not report that it is healthy.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/apiserver/pkg/server/healthz/healthz.go.
    kube-scheduler v1.36, metrics/resources/resources.go.
"""

from __future__ import annotations

import logging
import platform
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from scheduler.configuration.write import to_shown
from scheduler.daemon.server.zpages import zpages
from scheduler.engine.cycle.time_slices import answer_in_slices
from scheduler.errors import ConfigurationError, FieldError
from scheduler.http_server.listener import Listener, listening_socket
from scheduler.http_server.messages import JSON, Page, ServerResponse, json_answer
from scheduler.loop_work import loop_work
from scheduler.objects.resource_names import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    is_attachable_volume_resource_name,
    is_hugepage_resource_name,
)
from scheduler.objects.resources import pod_limits, pod_requests
from scheduler.version import VERSION

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

    from scheduler.configuration.load import Configuration
    from scheduler.daemon.server.zpages import Process
    from scheduler.http_server.messages import Handler, ServerRequest
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.quantity import Quantity
    from scheduler.objects.v1 import Pod

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    Check = Callable[[], str]  # "" if healthy, else the problem


def health_pages(path: str, checks: Mapping[str, Check]) -> list[Page]:
    """Return the endpoint of all checks, and one of each.

    The endpoint of all checks accepts `?verbose` and any number of `?exclude=NAME`. It withholds the reason of a failed
    check, since every client may read it; the log and the check's own endpoint have the reason. Without any check there is
    `ping`, which always succeeds.
    """
    checks = checks or {"ping": lambda: ""}
    own = [Page(f"{path}/{name}", _one(check)) for name, check in checks.items()]
    return [Page(path, _all(path.strip("/"), checks)), *own]


def _all(name: str, checks: Mapping[str, Check]) -> Handler:
    async def answer(request: ServerRequest) -> ServerResponse:
        excluded = dict.fromkeys(request.query.get("exclude", ()))
        failed: dict[str, str] = {}
        lines = []
        for check, problem_of in checks.items():
            if check in excluded:
                del excluded[check]
                lines.append(f"[+]{check} excluded: ok")
            elif problem := problem_of():
                failed[check] = problem
                lines.append(f"[-]{check} failed: reason withheld")
            else:
                lines.append(f"[+]{check} ok")
        if excluded:
            unknown = ",".join(f'"{check}"' for check in excluded)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {unknown}")
        lines.append(f"{name} check {'failed' if failed else 'passed'}")
        if failed:
            logger.debug("Health check failed", extra={"path": request.path, "failed": failed})
        elif "verbose" not in request.query:
            return _answer("ok")
        return _answer("\n".join(lines) + "\n", status=500 if failed else 200)

    return answer


def _one(check: Check) -> Handler:
    async def answer(_request: ServerRequest) -> ServerResponse:
        problem = check()
        if problem:
            return _answer(f"internal server error: {problem}\n", status=500)
        return _answer("ok")

    return answer


def _answer(text: str, status: int = 200) -> ServerResponse:
    return ServerResponse(text.encode(), status, headers={"X-Content-Type-Options": "nosniff"})


if TYPE_CHECKING:
    Amounts = Sequence[tuple[str, float]]  # labels of a resource as text, amount


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_STORAGE = "storage"
_UNITS = {CPU: "cores", MEMORY: "bytes", _STORAGE: "bytes", EPHEMERAL_STORAGE: "bytes"}
_POD_LABELS = ("namespace", "pod", "node", "scheduler", "priority")
_RESOURCE_LABELS = ("resource", "unit")
_PODS_AT_A_TIME = 100

_FAMILIES: tuple[tuple[str, str, Callable[[Pod], Mapping[str, Quantity]]], ...] = (
    (
        "kube_pod_resource_request",
        "[STABLE] Resources requested by a pod, with the unit if there is any, as the scheduler counts them.",
        pod_requests,
    ),
    (
        "kube_pod_resource_limit",
        "[STABLE] Limits of a pod's resources, with the unit if there is any, as the scheduler counts them.",
        pod_limits,
    ),
)


def pod_resources_text(pods: Iterable[PodInfo]) -> Iterator[str]:
    """Yield the metrics in pieces of a few milliseconds; other tasks may run between two pieces.

    `prometheus_client` writes all metrics at once, which would block the loop for seconds with many pods. Pods on nodes that
    have ended use nothing and are excluded; so are zero amounts.
    """
    known = [pod for pod in pods if not (pod.node_name and pod.is_terminal)]
    for name, text, amounts_of in _FAMILIES:
        yield f"# HELP {name} {text}\n# TYPE {name} gauge\n"
        computed: dict[tuple[int, ...], Amounts] = {}  # ids of shared parts of a pod -> its amounts
        for start in range(0, len(known), _PODS_AT_A_TIME):
            yield "".join(
                line
                for pod in known[start : start + _PODS_AT_A_TIME]
                for line in _lines(name, pod, amounts_of, computed)
            )


def _lines(
    name: str,
    pod: PodInfo,
    amounts_of: Callable[[Pod], Mapping[str, Quantity]],
    computed: dict[tuple[int, ...], Amounts],
) -> Iterator[str]:
    spec = pod.pod.spec
    # Replicas on nodes share these objects, all of which exist until the end of this scrape.
    key = (id(spec.containers), id(spec.init_containers), id(spec.overhead), id(spec.resources))
    amounts = computed.get(key)
    if amounts is None:
        amounts = computed[key] = _amounts(pod, amounts_of)
    if not amounts:
        return
    values = (pod.namespace, pod.name, pod.node_name, pod.scheduler_name, str(pod.priority))
    of_pod = _label_pairs(_POD_LABELS, values)
    for labels, amount in amounts:
        yield f"{name}{{{of_pod},{labels}}} {amount}\n"


def _amounts(pod: PodInfo, amounts_of: Callable[[Pod], Mapping[str, Quantity]]) -> Amounts:
    try:
        quantities = amounts_of(pod.pod)
    except ValueError as error:  # the cache has validated requests, but not limits
        logger.debug("Resources cannot be shown", extra={"pod": pod.key, "error": str(error)})
        return ()
    return [
        (_label_pairs(_RESOURCE_LABELS, (resource, _unit(resource))), _approximate(quantity))
        for resource, quantity in quantities.items()
        if not quantity.is_zero
    ]


def _label_pairs(names: Iterable[str], values: Iterable[str]) -> str:
    return ",".join(
        f'{name}="{value.translate(_ESCAPED)}"' for name, value in zip(names, values, strict=True)
    )


def _unit(resource: str) -> str:
    if is_hugepage_resource_name(resource):
        return "bytes"
    return _UNITS.get(resource, "integer" if is_attachable_volume_resource_name(resource) else "")


def _approximate(quantity: Quantity) -> float:
    """Return the same float as upstream's AsApproximateFloat64."""
    try:
        return float(quantity.unscaled) * float(f"1e{quantity.exponent}")
    except OverflowError:
        return float("inf") if quantity.unscaled > 0 else float("-inf")


if TYPE_CHECKING:
    Metrics = Callable[[str], tuple[bytes | Iterable[bytes], Mapping[str, str]]]

UNREVIEWED = "unreviewed"
"""Why a request was rejected: too many reviews of unknown clients."""
_LONGEST_REQUEST_BYTES = 1024 * 1024
_SAFE_METHODS = frozenset({"GET", "HEAD"})
"""Methods that another site may have a browser send: they change nothing, and that site cannot read the response."""


class Guard(Protocol):
    """Controls access to the endpoints."""

    async def refusal(self, request: ServerRequest) -> ServerResponse | None:
        """Return the response that rejects a request; None if it is admitted."""
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
    connection_rejected: Callable[[str], None] = lambda _: None,
) -> Application:
    """Build the server's endpoints.

    Args:
        metrics: returns the body and the headers of /metrics for an Accept header; None for no such endpoint.
        live: name -> check of /livez; a check fails if only a restart can help.
        ready: name -> check of /readyz; a check fails while pods are not scheduled, or no longer.
        health: name -> check of /healthz; None for those of /livez.
        configuration: returns the configuration for /configz; None for no such endpoint.
        pods: returns the pods for /metrics/resources; None for no such endpoint.
        is_leading: whether /metrics/resources shows anything: otherwise all replicas would show the same.
        explain: explains a pod (`namespace/name`), None if it is unknown, may raise NeedsTime; None for no such endpoint.
        explain_group: the same for a group.
        process: the process for /statusz and /flagz; None for no such endpoints.
        access: access control; None admits every request.
        more: additional endpoints.
        longest_request_bytes: limit of a request's body.
        connection_rejected: as for `Application`.
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
    return Application(
        [Page("/", _json(lambda: paths)), *pages], access, longest_request_bytes, connection_rejected
    )


@dataclass(frozen=True, slots=True)
class Application:
    """Answers requests.

    Attributes:
        pages: endpoints; the first one for a path and method answers.
        access: access control; None admits every request.
        longest_request_bytes: limit of a body.
        connection_rejected: called with the reason of a connection or request that was rejected because of a limit.
    """

    pages: Sequence[Page]
    access: Guard | None
    longest_request_bytes: int
    connection_rejected: Callable[[str], None] = lambda _: None

    @loop_work("request", lambda request: f"request {request.method} {request.path}")
    async def answer(self, request: ServerRequest) -> ServerResponse:
        """Answer a request; the response must not be cached."""
        if request.method not in _SAFE_METHODS and request.is_of_another_site:
            return ServerResponse(b"403 sent by a page of another site\n", HTTPStatus.FORBIDDEN)
        refusal = await self.access.refusal(request) if self.access else None
        if refusal is not None and refusal.status == HTTPStatus.TOO_MANY_REQUESTS:
            self.connection_rejected(UNREVIEWED)
        answer = refusal or await self._page(request)
        return answer._replace(headers={**answer.headers, "Cache-Control": "no-cache, private"})

    async def _page(self, request: ServerRequest) -> ServerResponse:
        allowed: list[str] = []
        for page in self.pages:
            parts = page.parts_of(request.path)
            if parts is not None:
                if not page.methods or request.method in page.methods:
                    request.parts = parts
                    return await page.handler(request)
                allowed += page.methods
        if allowed:
            return ServerResponse(b"405 method not allowed\n", 405, headers={"Allow": ",".join(allowed)})
        return ServerResponse(b"404 page not found\n", 404)


@asynccontextmanager
async def serving(
    app: Application, host: str, port: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve while the block runs; requests in progress at its end have 5 more seconds.

    Args:
        app: answers requests.
        host: the address to listen on; `0.0.0.0` and `::` are all addresses, of IPv4 and of IPv6.
        port: 0 for any free port.
        tls: None serves plain HTTP.

    Yields:
        The port.

    Raises:
        ConfigurationError: the address cannot be listened on.
    """
    listening = _listen(host, port)
    listener = Listener(listening, app.answer, app.longest_request_bytes, tls, app.connection_rejected)
    listener.open()
    try:
        yield listening.getsockname()[1]
    finally:
        await listener.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        return listening_socket(host, port)
    except OSError as error:
        problem = f"cannot listen on port {port} of {host or 'all addresses'}: {error.strerror or error}"
        raise ConfigurationError([FieldError("", problem)]) from error


def _metrics(metrics: Metrics) -> Handler:
    async def answer(request: ServerRequest) -> ServerResponse:
        body, headers = metrics(request.headers.get("accept", ""))
        rest = dict(headers)
        return ServerResponse(body, content_type=rest.pop("Content-Type"), headers=rest)

    return answer


def _explanation(explain: Callable[[str], Mapping[str, Any] | None], what: str) -> Handler:
    async def answer(request: ServerRequest) -> ServerResponse:
        key = f"{request.parts['namespace']}/{request.parts['name']}"
        details = await answer_in_slices(partial(explain, key))
        if details is None:
            return ServerResponse(f"{what} {key} is unknown here, or was placed long ago\n".encode(), 404)
        return ServerResponse(msgspec.json.encode(details) + b"\n", content_type=JSON)

    return answer


def _pod_resources(pods: Callable[[], Iterable[PodInfo]], is_leading: Callable[[], bool]) -> Handler:
    async def answer(_request: ServerRequest) -> ServerResponse:
        shown = pod_resources_text(pods()) if is_leading() else ()
        return ServerResponse((piece.encode() for piece in shown), content_type=CONTENT_TYPE)

    return answer


async def _version(_request: ServerRequest) -> ServerResponse:
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
    """Return the active configuration as JSON, without secrets.

    Source:
        kube-scheduler v1.36, cmd/kube-scheduler/daemon/app/server.go, Run, which registers it as `componentconfig`.
    """
    return msgspec.json.encode({"componentconfig": to_shown(configuration)})


def _json(body: Callable[[], bytes]) -> Handler:
    async def answer(_request: ServerRequest) -> ServerResponse:
        return ServerResponse(body(), content_type=JSON)

    return answer
