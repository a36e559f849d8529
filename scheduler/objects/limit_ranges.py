"""LimitRanges: their defaults, and those that they give to new pods; the limits of new pods and claims.

Source:
    kube-apiserver v1.36, plugin/pkg/admission/limitranger/admission.go.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from scheduler.errors import AdmissionError
from scheduler.objects.decode import typed_object
from scheduler.objects.quantity import parse_quantity, quantity_text
from scheduler.objects.resources import pod_limits, pod_requests
from scheduler.objects.v1 import Pod

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from scheduler.objects.quantity import Quantity

    Object = dict[str, Any]


def default_limit_range(limit_range: Object) -> None:
    """Set the defaults of a LimitRange."""
    for item in limit_range["spec"].get("limits", ()):
        if item.get("type") != "Container":
            continue
        limits = item.get("max", {}) | item.get("default", {})
        requests = item.get("min", {}) | limits | item.get("defaultRequest", {})
        for field, amounts in (("default", limits), ("defaultRequest", requests)):
            if amounts:
                item[field] = amounts


def apply_limit_ranges(pod: Object, limit_ranges: Iterable[Object]) -> None:
    """Add the defaults of the LimitRanges of its namespace to a new pod, and check its limits.

    Raises:
        AdmissionError: a limit is violated.
    """
    items = _items(pod, limit_ranges)
    if not items:
        return
    notes = [note for limits in items for note in _add_defaults(pod, limits)]
    if notes:
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations["kubernetes.io/limit-ranger"] = f"LimitRanger plugin set: {'; '.join(notes)}"
    problems: list[str] = []
    for item in (item for limits in items for item in limits):
        if item["type"] == "Container":
            for container in _containers(pod):
                problems += _problems(item, *_amounts(container))
        elif item["type"] == "Pod":
            spec = typed_object(pod, Pod)
            problems += _problems(item, pod_requests(spec), pod_limits(spec))
    _refuse(problems)


def check_claim(claim: Object, limit_ranges: Iterable[Object]) -> None:
    """Check the storage that a PersistentVolumeClaim requests.

    Raises:
        AdmissionError: a limit of the namespace is violated.
    """
    requests = _parsed(claim["spec"].get("resources", {}).get("requests", {}))
    problems: list[str] = []
    for item in (item for limits in _items(claim, limit_ranges) for item in limits):
        if item["type"] == "PersistentVolumeClaim":
            problems += _below(item, requests, {})
            problems += _above(item, "request", requests)
    _refuse(problems)


def _items(obj: Object, limit_ranges: Iterable[Object]) -> list[list[Object]]:
    """Return the limits of each LimitRange in the namespace of an object."""
    namespace = obj["metadata"].get("namespace", "")
    return [
        found["spec"].get("limits", [])
        for found in limit_ranges
        if found["metadata"]["namespace"] == namespace
    ]


def _refuse(problems: list[str]) -> None:
    if problems:
        text = problems[0] if len(problems) == 1 else f"[{', '.join(dict.fromkeys(problems))}]"
        raise AdmissionError(text)


def _containers(pod: Object) -> list[Object]:
    return [*pod["spec"].get("containers", ()), *pod["spec"].get("initContainers", ())]


def _add_defaults(pod: Object, items: list[Object]) -> Iterator[str]:
    """Add the defaults of one LimitRange to the containers of a pod; yield what was added."""
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    for item in items:
        if item["type"] == "Container":
            requests |= item.get("defaultRequest", {})
            limits |= item.get("default", {})
    inits = pod["spec"].get("initContainers", ())
    for container in _containers(pod):
        what = "init container" if any(container is each for each in inits) else "container"
        resources = container.setdefault("resources", {})
        for field, word, defaults in (("requests", "request", requests), ("limits", "limit", limits)):
            missing = {name: defaults[name] for name in defaults.keys() - resources.get(field, {}).keys()}
            if missing:
                resources[field] = resources.get(field, {}) | missing
                yield f"{', '.join(sorted(missing))} {word} for {what} {container['name']}"


def _amounts(container: Object) -> tuple[Mapping[str, Quantity], Mapping[str, Quantity]]:
    resources = container.get("resources", {})
    return _parsed(resources.get("requests", {})), _parsed(resources.get("limits", {}))


def _parsed(amounts: Mapping[str, str]) -> dict[str, Quantity]:
    return {name: parse_quantity(amount) for name, amount in amounts.items()}


def _problems(
    item: Object, requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]
) -> Iterator[str]:
    """Yield how requests and limits violate one item of a LimitRange."""
    yield from _below(item, requests, limits)
    yield from _above(item, "limit", limits, requests)
    yield from _beyond_ratio(item, requests, limits)


def _below(item: Object, requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> Iterator[str]:
    for name, least in sorted(item.get("min", {}).items()):
        what, bound = f"minimum {name} usage per {item['type']} is {least}", parse_quantity(least)
        if name not in requests:
            yield f"{what}.  No request is specified"
        elif requests[name] < bound:
            yield f"{what}, but request is {quantity_text(requests[name], least)}"
        elif name in limits and limits[name] < bound:
            yield f"{what}, but limit is {quantity_text(limits[name], least)}"


def _above(
    item: Object,
    field: str,
    amounts: Mapping[str, Quantity],
    requests: Mapping[str, Quantity] = MappingProxyType({}),
) -> Iterator[str]:
    for name, most in sorted(item.get("max", {}).items()):
        what, bound = f"maximum {name} usage per {item['type']} is {most}", parse_quantity(most)
        if name not in amounts:
            yield f"{what}.  No {field} is specified"
        elif bound < amounts[name]:
            yield f"{what}, but {field} is {quantity_text(amounts[name], most)}"
        elif name in requests and bound < requests[name]:
            yield f"{what}, but request is {quantity_text(requests[name], most)}"


def _beyond_ratio(
    item: Object, requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]
) -> Iterator[str]:
    for name, most in sorted(item.get("maxLimitRequestRatio", {}).items()):
        what = f"{name} max limit to request ratio per {item['type']} is {most}"
        request, limit = requests.get(name), limits.get(name)
        if request is None or request.is_zero:
            yield f"{what}, but no request is specified or request is 0"
        elif limit is None or limit.is_zero:
            yield f"{what}, but no limit is specified or limit is 0"
        elif (ratio := limit.nanos / request.nanos) > parse_quantity(most).nanos / 10**9:
            yield f"{what}, but provided ratio is {ratio:f}"
