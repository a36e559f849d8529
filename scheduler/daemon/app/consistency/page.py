"""/debug/cache: the findings of a check, and the contents of the cache and the queue."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.daemon.app.consistency.checker import node_text, nodes, pending, pod_text, summary
from scheduler.http_server.messages import JSON, Page, ServerResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scheduler.daemon.app.assembly import Parts
    from scheduler.daemon.app.consistency.checker import ConsistencyChecker, Report
    from scheduler.http_server.messages import ServerRequest

PATH = "/debug/cache"
_MOST_SHOWN = 1000


def cache_page(checker: ConsistencyChecker, parts: Parts, *, may_repair: bool) -> Page:
    """Return the endpoint: GET compares and reports; POST, if allowed, also repairs.

    The output is JSON, or kube-scheduler's text format with `?output=text`.
    """

    async def answer(request: ServerRequest) -> ServerResponse:
        report = await checker.check(repair=request.method == "POST")
        if request.query.get("output") == ["text"]:
            return ServerResponse(_text(report, parts))
        return ServerResponse(_json(report, parts), content_type=JSON)

    return Page(PATH, answer, ("GET", "POST") if may_repair else ("GET",))


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


def _json(report: Report, parts: Parts) -> Iterator[bytes]:
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


def _text(report: Report, parts: Parts) -> Iterator[bytes]:
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
