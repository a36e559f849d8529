"""The requests of a pod's claims, read once for all nodes and for all pods with equal claims."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from plugins.dynamic_resources.structured.pool_equivalence import Likeness, Numbers, likeness_of
from plugins.dynamic_resources.structured.requests import DeviceCandidates, WantedDevices
from scheduler.objects.dynamic_resources import ExactDeviceRequest

if TYPE_CHECKING:
    from collections.abc import Generator, Hashable, Iterator, Sequence

    from plugins.dynamic_resources.cel import DeviceInput
    from plugins.dynamic_resources.structured.allocated import AllocatedDevices
    from plugins.dynamic_resources.structured.pool_equivalence import Selection
    from plugins.dynamic_resources.structured.pools import Pool, Pools
    from plugins.dynamic_resources.structured.requests import Compiled
    from scheduler.objects.dynamic_resources import (
        DeviceClass,
        DeviceConstraint,
        DeviceRequest,
        ResourceClaimSpec,
    )

KEPT_POOLS = 50_000
"""The limit of results for pools of a question."""
_DROPPED_POOLS = 1000
_MOST_FACTS = 64


class Question:
    """The requests of some claims, for all pods with equal claims, with the cached results for pools.

    Attributes:
        claims: for each claim, for each of its requests, the alternatives, the best first.
        has_choice: for each claim, for each of its requests, whether it was written as a list of alternatives.
        constraints: the constraints of each claim.
        wants_all: whether a request wants all devices; then incomplete pools matter.
        n_candidates: how many candidates are cached.

    Args:
        compiled: the expressions of requests and classes.
    """

    def __init__(
        self,
        specs: Sequence[ResourceClaimSpec],
        classes: Sequence[DeviceClass | None],
        shapes: Numbers,
        compiled: Compiled,
    ) -> None:
        left = iter(classes)
        self.claims = [
            [_alternatives(place, request, left, compiled) for request in spec.devices.requests]
            for place, spec in enumerate(specs)
        ]
        self.has_choice = [
            [bool(request.first_available) for request in spec.devices.requests] for spec in specs
        ]
        self.constraints: list[tuple[DeviceConstraint, ...]] = [spec.devices.constraints for spec in specs]
        self.wants_all = any(wanted.all_devices for wanted in self.wanted())
        self.n_candidates = 0
        compared = [each.match_attribute or each.distinct_attribute for each in chain(*self.constraints)]
        attributes = tuple(dict.fromkeys(name for name in compared if name))
        self._likeness = Likeness(self.wanted(), self._facts(), attributes, shapes)
        self._selections: dict[Pool, Selection] = {}
        self._candidates: dict[tuple[WantedDevices, Pool], DeviceCandidates] = {}
        self._matter: dict[Pools, Pools] = {}
        self._seen_dropped = 0

    def candidates(self, wanted: WantedDevices, pool: Pool) -> DeviceCandidates:
        """Return the devices of a pool that a request selects."""
        known = self._candidates.get((wanted, pool))
        if known is None:
            known = self._candidates[wanted, pool] = DeviceCandidates(wanted, pool)
        return known

    def likeness(self, pools: Pools, allocated: AllocatedDevices) -> Hashable | None:
        """Return the key on which a search in relevant pools depends; None if there is no short one."""
        selections = [self._selections.get(pool) for pool in pools]
        if None in selections:
            return None
        return likeness_of(selections, allocated)  # type: ignore[arg-type]  # none is None

    def selected(self, pool: Pool) -> tuple[int, ...]:
        """Return the indexes of the devices that requests select in a pool with a kind."""
        return self._selections[pool].places

    def has_selected(self, pools: Pools) -> bool:
        """Return whether the selected devices of some pools are known."""
        return all(pool in self._selections for pool in pools)

    def known_matter(self, seen: Pools) -> Pools | None:
        """Return the result of `matter`, if that needs no evaluations; None otherwise."""
        known = self._matter.get(seen)
        if known is not None:
            return known
        selections = self._selections
        found = []
        for pool in seen:
            selection = selections.get(pool)
            if selection is None:
                selection = self._likeness.known(pool)
                if selection is None:
                    return None
                selections[pool] = selection
            if selection.places if pool.gives else pool.is_invalid or self.wants_all:
                found.append(pool)
        known = self._matter[seen] = tuple(found)
        return known

    def matter(self, seen: Pools) -> Generator[None, None, Pools]:
        """Return the pools that make a difference: nodes with the same relevant pools are equivalent."""
        while True:
            known = self.known_matter(seen)
            if known is not None:
                return known
            for pool in seen:
                if pool not in self._selections:
                    self._selections[pool] = self._likeness.known(pool) or (
                        yield from self._likeness.selection(pool)
                    )

    def forget(self, dropped: int) -> None:
        """Forget the results for removed pools if there are many, or all results if they are too large.

        Args:
            dropped: how many pools the inventory has dropped so far.
        """
        if dropped - self._seen_dropped > _DROPPED_POOLS:
            self._seen_dropped = dropped
            self._selections = {pool: each for pool, each in self._selections.items() if not pool.is_gone}
            self._candidates = {key: each for key, each in self._candidates.items() if not key[1].is_gone}
            self._matter = {
                seen: each for seen, each in self._matter.items() if not any(pool.is_gone for pool in seen)
            }
        if max(len(self._candidates), len(self._selections), len(self._matter)) > KEPT_POOLS:
            self.forget_candidates()
            self._selections.clear()
            self._matter.clear()

    def forget_candidates(self) -> None:
        """Forget which devices requests select."""
        self._candidates.clear()
        self.n_candidates = 0

    def _facts(self) -> tuple[DeviceInput, ...] | None:
        """Return what all selectors read, in a fixed order; None if that is unknown, or too much."""
        found: set[DeviceInput] = set()
        for wanted in self.wanted():
            if wanted.facts is None:
                return None
            found |= wanted.facts
        return tuple(sorted(found, key=repr)) if len(found) <= _MOST_FACTS else None

    def wanted(self) -> Iterator[WantedDevices]:
        """Yield all requests of all claims, and their alternatives."""
        for requests in self.claims:
            for alternatives in requests:
                yield from alternatives


def _alternatives(
    claim: int, request: DeviceRequest, classes: Iterator[DeviceClass | None], compiled: Compiled
) -> list[WantedDevices]:
    if request.first_available:
        return [
            WantedDevices(claim, each, (request.name, each.name), next(classes), compiled)
            for each in request.first_available
        ]
    exactly = request.exactly or ExactDeviceRequest()
    return [WantedDevices(claim, exactly, (request.name,), next(classes), compiled)]
