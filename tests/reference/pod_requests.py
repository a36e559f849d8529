"""A pod's requests as KEP-753 defines them, one resource at a time, in exact fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tests.reference.quantity import exact

if TYPE_CHECKING:
    from collections.abc import Mapping


def request(spec: Mapping[str, Any], name: str, least: str | None = None) -> Fraction:
    """Return how much of a resource a pod's spec asks for, `least` for containers that do not say."""

    def asks(container: Mapping[str, Any]) -> Fraction:
        text = container["resources"]["requests"].get(name, least)
        return Fraction(0) if text is None else exact(text)

    def is_sidecar(container: Mapping[str, Any]) -> bool:
        return container.get("restartPolicy") == "Always"

    init_containers = spec["initContainers"]
    running = sum(map(asks, spec["containers"])) + sum(map(asks, filter(is_sidecar, init_containers)))
    starting = [
        asks(container) + sum(map(asks, filter(is_sidecar, init_containers[:index])))
        for index, container in enumerate(init_containers)
    ]
    return max([Fraction(running), *starting]) + exact(spec["overhead"].get(name, "0"))
