"""All devices there are, by the nodes that can use them; kept between pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.snapshot import Objects


class Inventory:
    """The devices of all ResourceSlices. The plugin keeps one for the store it reads; it notices what changes there.

    Args:
        slices: what `objects("resource.k8s.io/v1/resourceslices")` gives.
    """

    def __init__(self, slices: Objects) -> None:
        self._slices = slices
