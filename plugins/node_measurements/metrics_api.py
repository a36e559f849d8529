"""Reads node metrics from the metrics API (`metrics.k8s.io`, implemented by metrics-server)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from scheduler.objects.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.framework import ApiGet
    from scheduler.objects.quantity import Quantity

NODES_PATH = "/apis/metrics.k8s.io/v1beta1/nodes"
NODE_METRICS_RIGHTS = frozenset({"list metrics.k8s.io/v1beta1/nodes"})


UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""The errors of invalid JSON, of too deep nesting, and of undecodable text."""


class _Metadata(msgspec.Struct):
    name: str


class _NodeMetrics(msgspec.Struct):
    metadata: _Metadata
    usage: dict[str, str] = msgspec.field(default_factory=dict)


class _NodeMetricsList(msgspec.Struct):
    items: list[_NodeMetrics]


_DECODER = msgspec.json.Decoder(_NodeMetricsList)


async def node_usages(
    api: ApiGet, read: Mapping[str, Callable[[Quantity], float]], *, timeout_seconds: float
) -> dict[str, dict[str, float]]:
    """Return the usage: resource -> node name -> number.

    Each resource of `read` has its own conversion; an invalid or negative quantity counts as missing.

    Raises:
        OSError: there is no response, or no usable one.
    """
    body = await api.api_get(NODES_PATH, timeout_seconds=timeout_seconds)
    try:
        items = _DECODER.decode(body).items
    except UNREADABLE as error:
        raise OSError(f"{NODES_PATH}: not a list of node metrics: {error}") from error
    if not items:
        raise OSError(f"{NODES_PATH}: metrics of no node at all")
    found: dict[str, dict[str, float]] = {resource: {} for resource in read}
    for item in items:
        for resource, measure in read.items():
            number = _number(item.usage.get(resource), measure)
            if number is not None:
                found[resource][item.metadata.name] = number
    return found


def _number(text: str | None, measure: Callable[[Quantity], float]) -> float | None:
    if text is None:
        return None
    try:
        number = measure(parse_quantity(text))
    except ValueError:
        return None
    return number if number >= 0 else None
