"""/metrics/resources: the requests and limits of every pod, as the scheduler computes them.

Source:
    kube-scheduler v1.36, metrics/resources/resources.go.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scheduler.objects.pod_limits import pod_limits
from scheduler.objects.pod_requests import pod_requests
from scheduler.objects.resource_names import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    is_attachable_volume_resource_name,
    is_hugepage_resource_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from scheduler.objects.pod import PodInfo
    from scheduler.objects.quantity import Quantity
    from scheduler.objects.v1 import Pod

    Amounts = Sequence[tuple[str, float]]  # labels of a resource as text, amount

logger = logging.getLogger(__name__)

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
        "Resources requested by a pod, with the unit if there is any, as the scheduler counts them.",
        pod_requests,
    ),
    (
        "kube_pod_resource_limit",
        "Limits of a pod's resources, with the unit if there is any, as the scheduler counts them.",
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
