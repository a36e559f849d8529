"""Web servers and API servers with measurements of nodes, for plugins that use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping


class FakePrometheus:
    """Implements `HttpGet`: answers instant queries.

    Attributes:
        series: value of the label -> number, as text or as a number; None where there is no answer.
        by_word: the same for queries that hold a word, which go first.
        body: what is answered instead of all that, unless it is empty.
        label: the label's name.
        asked: the queries, oldest first.
        calls: (url, options) of each.
    """

    def __init__(self, series: Mapping[str, object] | None = None, *, label: str = "instance") -> None:
        self.series = series
        self.by_word: dict[str, Mapping[str, object]] = {}
        self.body = b""
        self.label = label
        self.asked: list[str] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []

    async def http_get(self, url: str, **options: Any) -> bytes:
        self.calls.append((url, options))
        (query,) = parse_qs(urlsplit(url).query)["query"]
        self.asked.append(query)
        if self.body:
            return self.body
        series = next((found for word, found in self.by_word.items() if word in query), self.series)
        if series is None:
            raise OSError(f"GET {url}: nobody is there")
        return vector([({self.label: name}, number) for name, number in series.items()])


def vector(samples: list[tuple[dict[str, str], object]]) -> bytes:
    """Return the answer to an instant query, as Prometheus writes it."""
    result = [{"metric": metric, "value": [1_700_000_000.123, str(number)]} for metric, number in samples]
    return msgspec.json.encode({"status": "success", "data": {"resultType": "vector", "result": result}})


class FakeMetricsApi:
    """Implements `ApiGet`: answers for metrics-server.

    Attributes:
        usage: node name -> resource -> quantity; None where there is no answer.
        paths: what was asked for.
    """

    def __init__(self, usage: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.usage = usage
        self.paths: list[str] = []

    async def api_get(self, path: str, *, timeout_seconds: float = 5.0) -> bytes:
        self.paths.append(path)
        if self.usage is None:
            raise OSError(f"GET {path}: 503: the server is currently unable to handle the request")
        return msgspec.json.encode(node_metrics_list(self.usage))


def node_metrics_list(usage: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return a `NodeMetricsList`, as metrics-server writes it."""
    items = [
        {
            "metadata": {"name": name, "creationTimestamp": "2026-03-01T08:00:00Z"},
            "timestamp": "2026-03-01T08:00:00Z",
            "window": "20s",
            "usage": dict(used),
        }
        for name, used in usage.items()
    ]
    return {"kind": "NodeMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items}
