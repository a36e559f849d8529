"""The verbs of an extender over HTTP, answered by a `ExtenderBackend`, and the accepted clients.

kube-scheduler shows the Error of a response on the pod, but of a status other than 200 only the number. An error is
therefore sent as Error if the response has that field, and else as a status with a text.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from scheduler.engine.cycle.time_slices import SLICE_SECONDS, answer_in_slices
from scheduler.errors import SchedulerError
from scheduler.extensions import extender_serving_wire
from scheduler.extensions.extender_serving_wire import RequestError
from scheduler.http_server.messages import JSON, Page, RequestTooLongError, ServerResponse
from scheduler.worker_thread import in_a_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from scheduler.extensions.extender_serving_wire import BindingRequest, NodesRequest, PreemptionRequest
    from scheduler.extensions.extender_wire import FilterAnswer, MetaVictims
    from scheduler.http_server.messages import Handler, ServerRequest

logger = logging.getLogger(__name__)

_WITHOUT_CERTIFICATE = (
    "a client certificate is asked for, see tlsConfig of the extender in kube-scheduler's configuration"
)
_ASKED_FOR_ONE = "a bearer token is asked for"


@dataclass(slots=True)
class Callers:
    """The accepted credentials; one of them suffices.

    Attributes:
        certificate: whether a client certificate is accepted; TLS verifies it.
        token: the accepted bearer token; b"" for none.
    """

    certificate: bool = False
    token: bytes = field(default=b"", repr=False)

    def refusal(self, request: ServerRequest) -> ServerResponse | None:
        """Return the response that rejects a request; None if it is accepted."""
        if (self.certificate and request.shows_certificate) or self._has_token(request):
            request.is_let_in = True
            return None
        problem = _WITHOUT_CERTIFICATE if self.certificate else _ASKED_FOR_ONE
        if not self.token:
            return ServerResponse(f"{problem}\n".encode(), HTTPStatus.FORBIDDEN)
        return ServerResponse(
            f"{problem}\n".encode(), HTTPStatus.UNAUTHORIZED, headers={"WWW-Authenticate": "Bearer"}
        )

    def _has_token(self, request: ServerRequest) -> bool:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if not self.token or scheme.lower() != "bearer":
            return False
        # Digests, so that the duration of the comparison reveals nothing about the token.
        shown, right = (
            hashlib.sha256(each).digest() for each in (token.strip().encode("latin-1"), self.token)
        )
        return hmac.compare_digest(shown, right)


if TYPE_CHECKING:
    Verb = Callable[[bytes], Awaitable[bytes]]

T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")


FILTER, PRIORITIZE, PREEMPT, BIND = "filter", "prioritize", "preempt", "bind"
LONGEST_REQUEST_BYTES = 16 * 1024 * 1024
"""Enough for the names of 60,000 nodes of any length; a request with whole nodes gets an error that explains it."""
_LARGE_BYTES: Final = 256 * 1024
"""A larger request is decoded in a thread: victims take more than a tenth of a second for each MiB."""

SUCCESS, ERROR, INVALID = "success", "error", "invalid"
"""Results of requests, as in the metric: answered; valid but failed; invalid or not served."""

_TOO_LONG = f"a request is at most {LONGEST_REQUEST_BYTES} bytes long; set nodeCacheCapable: true, so that nodes are sent by name"


class ExtenderBackend(Protocol):
    """Answers a scheduler's requests. Every method raises SchedulerError if it fails.

    All but `bind` may also raise NeedsTime, and are called again after the work was done.
    """

    def filter(self, request: NodesRequest) -> FilterAnswer:
        """Return the nodes that can run a pod."""
        ...

    def prioritize(self, request: NodesRequest) -> Sequence[tuple[str, int]]:
        """Return the score of each node: 0 to 10."""
        ...

    def preempt(self, request: PreemptionRequest) -> Mapping[str, MetaVictims]:
        """Return the nodes on which the pod fits without the victims."""
        ...

    async def bind(self, request: BindingRequest) -> None:
        """Bind a pod."""
        ...


class ExtenderRequestObserver(Protocol):
    """Counts requests."""

    def extender_asked(self, verb: str, result: str, seconds: float) -> None:
        """Count an answered request, with its result and duration."""
        ...


def verb_pages(
    judge: ExtenderBackend,
    observer: ExtenderRequestObserver,
    *,
    binds: bool = False,
    callers: Callers | None = None,
) -> list[Page]:
    """Return the endpoint of each verb, and one that lists the verbs for any other path.

    Args:
        judge: answers the requests.
        observer: counts the requests.
        binds: whether `bind` is served: every accepted client can then bind pods.
        callers: the accepted clients; None for all.
    """
    verbs = {name: verb for name, verb in _verbs(judge).items() if binds or name != BIND}
    pages = [
        Page(f"/{name}", _answering(name, verb, observer, callers), ("POST",)) for name, verb in verbs.items()
    ]
    there = ", ".join(verbs)
    refusals = [Page(f"/{name}", _refusing(405, f"{name} takes POST\n"), ()) for name in verbs]
    unserved = "" if binds else "; bind is served with --bind only"
    return [*pages, *refusals, Page("/{verb}", _refusing(404, f"there is {there}{unserved}\n"), ())]


def _verbs(judge: ExtenderBackend) -> dict[str, Verb]:
    """Return verb -> function from the request's body to the response's body."""

    async def filter_(body: bytes) -> bytes:
        return extender_serving_wire.filter_result(
            await _answered(judge.filter, await _read(extender_serving_wire.nodes_request, body))
        )

    async def prioritize(body: bytes) -> bytes:
        return extender_serving_wire.priorities_result(
            await _answered(judge.prioritize, await _read(extender_serving_wire.nodes_request, body))
        )

    async def preempt(body: bytes) -> bytes:
        return extender_serving_wire.preemption_result(
            await _without_victims(judge, await _read(extender_serving_wire.preemption_request, body))
        )

    async def bind(body: bytes) -> bytes:
        await judge.bind(await _read(extender_serving_wire.binding_request, body))
        return extender_serving_wire.binding_result()

    return {FILTER: filter_, PRIORITIZE: prioritize, PREEMPT: preempt, BIND: bind}


async def _answered(ask: Callable[[R], A], request: R) -> A:
    """Call a judge; work that exceeds a time slice is done in slices."""
    return await answer_in_slices(partial(ask, request))


async def _without_victims(judge: ExtenderBackend, request: PreemptionRequest) -> Mapping[str, MetaVictims]:
    """Call a judge for one node after another: each runs all plugins, and other work runs in between."""
    clock = asyncio.get_running_loop().time
    left: dict[str, MetaVictims] = {}
    until = clock() + SLICE_SECONDS
    for node_name, victims in request.victims.items():
        left.update(await _answered(judge.preempt, replace(request, victims={node_name: victims})))
        if clock() >= until:
            await asyncio.sleep(0)
            until = clock() + SLICE_SECONDS
    return left


_SAY_ERROR: Final = {
    FILTER: extender_serving_wire.failed_filter_result,
    BIND: extender_serving_wire.binding_result,
}
"""Verb -> function from an error to a response, for responses with an Error."""


def _answering(name: str, verb: Verb, observer: ExtenderRequestObserver, callers: Callers | None) -> Handler:
    async def answer(request: ServerRequest) -> ServerResponse:
        clock = asyncio.get_running_loop().time
        began, result = clock(), ERROR
        try:
            refusal = None if callers is None else callers.refusal(request)
            if refusal is not None:
                result = INVALID
                return refusal
            body = await verb(await _body(request))
        except SchedulerError as error:
            is_invalid = isinstance(error, RequestError)
            result = INVALID if is_invalid else ERROR
            logger.warning("Extender could not answer", extra={"verb": name, "error": str(error)})
            if name in _SAY_ERROR:
                return ServerResponse(_SAY_ERROR[name](str(error)), content_type=JSON)
            status = HTTPStatus.BAD_REQUEST if is_invalid else HTTPStatus.INTERNAL_SERVER_ERROR
            return ServerResponse(f"{error}\n".encode(), status)
        else:
            result = SUCCESS
            return ServerResponse(body, content_type=JSON)
        finally:
            observer.extender_asked(name, result, clock() - began)

    return answer


async def _read(read: Callable[[bytes], T], body: bytes) -> T:
    """Decode a request; a large one in a thread, so that the loop is not blocked."""
    if len(body) < _LARGE_BYTES:
        return read(body)
    return await in_a_thread(partial(read, body), "reading a request")


async def _body(request: ServerRequest) -> bytes:
    try:
        return await request.read()
    except RequestTooLongError as error:
        raise RequestError(_TOO_LONG) from error


def _refusing(status: int, text: str) -> Handler:
    async def answer(_request: ServerRequest) -> ServerResponse:
        return ServerResponse(text.encode(), status)

    return answer
