"""Gives claims devices on a node, or says why it cannot."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import numpy as np

from plugins.dynamic_resources.structured.counters import AvailableCounters
from plugins.dynamic_resources.structured.errors import (
    AllocationError,
    Alternatives,
    InvalidPoolsError,
    OutOfTimeError,
    Refusal,
)
from plugins.dynamic_resources.structured.results import allocation_result
from plugins.dynamic_resources.structured.search import Search

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plugins.dynamic_resources.structured.allocated import AllocatedDevices
    from plugins.dynamic_resources.structured.errors import Verdict
    from plugins.dynamic_resources.structured.inventory import Inventory, Node
    from plugins.dynamic_resources.structured.pools import Pool, Pools
    from plugins.dynamic_resources.structured.requests import Question
    from plugins.dynamic_resources.structured.search import Solution
    from scheduler.objects.dynamic_resources import AllocationResult, DeviceClass, ResourceClaim
    from scheduler.snapshot import Rows, Snapshot, UInt16s

NOT_ALL = "cannot allocate all claims"


class Allocator:
    """Gives claims devices; made for one pod, asked about many nodes.

    Args:
        inventory: all devices.
        allocated: what is taken of them; it may not change while this allocator is asked.
        device_class: returns a class by its name, None where there is none.
        out_of_time: asked now and then during a search, which ends when it says True.
        new_share_id: makes the id of a share of a device.
    """

    def __init__(
        self,
        inventory: Inventory,
        allocated: AllocatedDevices,
        device_class: Callable[[str], DeviceClass | None],
        *,
        out_of_time: Callable[[], bool] = lambda: False,
        new_share_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._inventory = inventory
        self._allocated = allocated
        self._device_class = device_class
        self._out_of_time = out_of_time
        self._new_share_id = new_share_id
        self._counters = AvailableCounters(allocated)

    def allocate(self, node: Node, claims: Sequence[ResourceClaim]) -> tuple[AllocationResult, ...] | None:
        """Return what each claim can be given on a node, in their order; None if not all can be given something.

        The same node, claims and state give the same devices; only the ids of shares are new each time.

        Raises:
            AllocationError: a selector that cannot be evaluated, a class that is not there, more than 32 devices.
            InvalidPoolsError: not all can be given something, and there are pools that are broken.
            OutOfTimeError: see the class.
        """
        question = self._question(claims)
        solution = self._search(question, claims, question.matter(self._inventory.view_of(node)))
        if solution is None:
            return None
        results = []
        for place, claim in enumerate(claims):
            chosen = [
                alternatives[solution.chosen.get((place, request), 0)]
                for request, alternatives in enumerate(question.claims[place])
            ]
            devices = solution.devices[place]
            results.append(allocation_result(claim, devices, chosen, node.name, self._new_share_id))
        return tuple(results)

    def judge(
        self, snapshot: Snapshot, rows: Rows, claims: Sequence[ResourceClaim]
    ) -> tuple[UInt16s, tuple[Verdict, ...]]:
        """Say of many nodes whether the claims can be given devices there.

        Returns:
            index: (n_nodes,), a place in the table for each of `rows`; elsewhere it may be anything.
            table: None, at place 0, is yes, as is Alternatives; a Refusal is why not.
        """
        try:
            question = self._question(claims)
        except AllocationError as error:
            return np.ones(snapshot.n_nodes, dtype=np.uint16), (None, Refusal(str(error), is_error=True))
        verdicts, views = question.verdicts, self._inventory.views_of_all(snapshot)
        # If they are many, what is said of all is found out, for the next pod.
        if views is not None and (2 * len(rows) >= snapshot.n_nodes or verdicts.is_about(views)):
            say = verdicts.of_all
        else:
            say, views = verdicts.of_some, self._inventory.views(snapshot, rows)
        return say(
            views,
            snapshot.n_nodes,
            self._allocated,
            question.matter,
            lambda pools, same: self._verdict(
                question, claims, pools, lambda: snapshot.name_of(int(same[0]))
            ),
        )

    def _question(self, claims: Sequence[ResourceClaim]) -> Question:
        self._inventory.refresh()
        if self._inventory.fault is not None:
            raise AllocationError(f"gather pool information: {self._inventory.fault}")
        return self._inventory.questions.of(claims, self._device_class)

    def _verdict(
        self, question: Question, claims: Sequence[ResourceClaim], pools: Pools, node_name: Callable[[], str]
    ) -> Verdict:
        """Say whether the claims can be given devices of pools that a node sees."""
        likeness = question.likeness(pools, self._allocated)
        if likeness is None:
            return self._searched(question, claims, pools, node_name)
        if likeness not in question.found:
            verdict = self._searched(question, claims, pools, node_name)
            if isinstance(verdict, Refusal) and verdict.is_error:
                return verdict  # it names a claim
            question.found[likeness] = verdict
        return question.found[likeness]

    def _searched(
        self, question: Question, claims: Sequence[ResourceClaim], pools: Pools, node_name: Callable[[], str]
    ) -> Verdict:
        try:
            solution = self._search(question, claims, pools)
        except AllocationError as error:
            return Refusal(str(error), is_error=True)
        except InvalidPoolsError as error:
            return Refusal(str(error))
        except OutOfTimeError:
            return Refusal(f"node {node_name()}: timed out trying to allocate devices", is_error=True)
        if solution is None:
            return Refusal(NOT_ALL)
        chosen = tuple(place for _, place in sorted(solution.chosen.items()))
        return Alternatives(chosen) if chosen else None

    def _search(
        self, question: Question, claims: Sequence[ResourceClaim], pools: Sequence[Pool]
    ) -> Solution | None:
        names = [claim.key for claim in claims]
        return Search(question, names, pools, self._allocated, self._counters, self._out_of_time).run()
