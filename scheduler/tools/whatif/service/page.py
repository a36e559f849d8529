"""The HTTP paths of what-if requests; a child process with a copy of the cluster computes each answer.

Placing pods does not wait for it: the copy is made in steps of a few milliseconds with longer pauses, and the child
process has the lowest priority. There is one request at a time.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.configuration.write import to_yaml
from scheduler.daemon.app.child_process import ending, in_a_child
from scheduler.daemon.metrics.additional import WhatIfMetrics
from scheduler.http_server.messages import JSON, Page, RequestTooLongError, ServerResponse, status_answer
from scheduler.tools.whatif.service.cluster_copy import ChildTask, pieces
from scheduler.tools.whatif.service.limits import SECONDS, memory_left, memory_of_child
from scheduler.tools.whatif.service.openapi import PATH, description

if TYPE_CHECKING:
    from scheduler.daemon.app.child_process import ChildResult
    from scheduler.daemon.app.daemon import Daemon
    from scheduler.http_server.messages import ServerRequest

logger = logging.getLogger(__name__)

_CHILD: Final = "scheduler.tools.whatif.service.child"
_RETRY_SECONDS: Final = 5
_OK: Final = b"200\n"
_LEAST_BYTES: Final = 512 * 2**20


def what_if_pages(daemon: Daemon) -> list[Page]:
    """Return the endpoint of what-if requests, and its description."""
    service = _Service(daemon)
    text = msgspec.json.encode(description())

    async def describe(_request: ServerRequest) -> ServerResponse:
        return ServerResponse(text, content_type=JSON)

    return [Page(PATH, service.answer, ("POST",)), Page(f"{PATH}/openapi.json", describe)]


class _Service:
    """Answers requests about the cluster of a daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._metrics = WhatIfMetrics(daemon.metrics.families)
        self._lock = asyncio.Lock()

    async def answer(self, request: ServerRequest) -> ServerResponse:
        clock = asyncio.get_running_loop().time
        began = clock()
        answer, result = await self._answered(request)
        self._metrics.answered(result, clock() - began)
        return answer

    async def _answered(self, request: ServerRequest) -> tuple[ServerResponse, str]:
        """Return the answer, and the result for the metric."""
        try:
            body = await request.read()
        except RequestTooLongError as error:
            return status_answer(413, "RequestEntityTooLarge", str(error)), "invalid"
        if self._lock.locked():
            details = {"retryAfterSeconds": _RETRY_SECONDS}
            busy = status_answer(
                429, "TooManyRequests", "another what-if request is being answered", details=details
            )
            return busy._replace(headers={"Retry-After": str(_RETRY_SECONDS)}), "busy"
        async with self._lock:
            if not self._daemon.has_synced:
                return _unavailable("the daemon has not read the cluster yet"), "unavailable"
            counts = self._daemon.parts.cache.counts()
            needed, left = memory_of_child(counts["nodes"], counts["pods"]), memory_left()
            if left is not None and left < needed:
                problem = f"an answer needs {needed >> 20} MiB, and the container has {left >> 20} MiB left"
                return _unavailable(problem), "unavailable"
            active = self._daemon.configuration
            task = ChildTask(
                to_yaml(active),
                str(active.folder.absolute()),
                body,
                {name: list(values) for name, values in request.query.items()},
                max(2 * needed, _LEAST_BYTES),
                self._daemon.cycles.preemptions.recent.kept(),
            )
            ended = await in_a_child(_CHILD, pieces(task, self._daemon), SECONDS, request.has_left)
            return _response(ended)


def _response(ended: ChildResult) -> tuple[ServerResponse, str]:
    if ended.output.startswith(_OK):
        return ServerResponse(ended.output.removeprefix(_OK) + b"\n", content_type=JSON), "success"
    if ended.is_given_up:
        return _unavailable("the client has left"), "left"
    if ended.late:
        problem = f"the answer takes {ended.late}; send fewer pods or nodes"
        return status_answer(HTTPStatus.GATEWAY_TIMEOUT, "Timeout", problem), "late"
    status, newline, faults = ended.output.partition(b"\n")
    if not newline:
        problem = f"the evaluation ended with {ending(ended.status)}"
        logger.warning("What-if request failed", extra={"error": problem})
        return status_answer(500, "InternalError", problem), "failed"
    causes = msgspec.json.decode(faults)
    message = "; ".join(": ".join(filter(None, (each["field"], each["message"]))) for each in causes)
    code = HTTPStatus(int(status))
    if code is HTTPStatus.UNPROCESSABLE_ENTITY:
        return status_answer(code, "Invalid", message, details={"causes": causes}), "invalid"
    return status_answer(code, "InternalError", message), "failed"


def _unavailable(problem: str) -> ServerResponse:
    return status_answer(503, "ServiceUnavailable", problem)
