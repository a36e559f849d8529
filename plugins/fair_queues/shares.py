"""Fair shares: what each queue deserves, by weighted dominant-resource fairness between siblings, from the roots down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from plugins.fair_queues.queues import Tree
    from scheduler.snapshot import Int64s

    Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

_CLOSE: Final = 1e-9
"""The difference, as a fraction of the total, up to which two amounts count as equal."""


def divide(room: Floats, whole: Floats, wanted: Floats, sure: Floats, weights: Floats) -> Floats:
    """Divide free capacity between siblings: first the guaranteed amounts, then by dominant shares in proportion to weight.

    All shares grow together, each in proportion to what the queue wants, until a queue has what it wants or a resource
    that it needs is exhausted. The other queues get what is left.

    Args:
        room: (n_resources,), the capacity to divide.
        whole: (n_resources,), the total of which shares are fractions; above 0 where anything is wanted.
        wanted: (n_queues, n_resources), what each queue would use.
        sure: (n_queues, n_resources), what each queue gets before others; scaled down if there is less capacity.
        weights: (n_queues,).

    Returns:
        (n_queues, n_resources), never above `wanted`, in sum never above `room`.
    """
    floor = np.minimum(sure, wanted)
    floor *= np.minimum(1.0, room / np.maximum(floor.sum(axis=0), np.maximum(room, _CLOSE)))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(wanted > 0, wanted / whole, 0.0).max(axis=1, initial=0.0)
        full = np.where(share > 0, share / weights, 0.0)  # the level at which a queue has what it wants
        rate = np.where(wanted > 0, wanted / full[:, None], 0.0)
        begin = np.where(
            rate > 0, floor / rate, 0.0
        )  # the level from which it grows beyond its guaranteed amount
    stop = full.copy()
    grows = full > 0
    level = 0.0
    while grows.any():
        held = np.clip(rate * stop[:, None], floor, wanted)[~grows].sum(axis=0)
        reached = _levels(room - held, floor[grows], rate[grows], begin[grows], full[grows], room * _CLOSE)
        if np.isinf(reached).all():
            break
        level = max(level, float(reached.min()))
        out = reached <= level * (1 + _CLOSE)
        needs = (rate > 0) & (begin <= level * (1 + _CLOSE)) & out
        stopped = grows & needs.any(axis=1) & (full > level)
        if not stopped.any():  # because of rounding: queues that use the exhausted resource stop
            stopped = grows & ((rate > 0) & out).any(axis=1)
        stop[stopped] = np.minimum(level, full[stopped])
        grows &= ~stopped
    found: Floats = np.clip(rate * stop[:, None], floor, wanted)
    found[stop >= full] = wanted[stop >= full]
    return found


def _levels(room: Floats, floor: Floats, rate: Floats, begin: Floats, full: Floats, slack: Floats) -> Floats:
    """Return (n_resources,): the level up to which queues may grow until each resource is exhausted; inf for never."""
    n_queues = len(full)
    levels = np.concatenate([begin, np.broadcast_to(full[:, None], begin.shape)])
    slopes = np.concatenate([rate, -rate])
    order = np.argsort(levels, axis=0, kind="stable")
    levels = np.take_along_axis(levels, order, axis=0)
    slope = np.cumsum(np.take_along_axis(slopes, order, axis=0), axis=0)
    steps = np.diff(levels, axis=0) * slope[:-1]
    totals = floor.sum(axis=0) + np.concatenate([np.zeros_like(levels[:1]), np.cumsum(steps, axis=0)])
    beyond = totals > room + slack
    reached = np.full(len(room), np.inf)
    for resource in np.flatnonzero(beyond.any(axis=0)):
        first = int(np.argmax(beyond[:, resource]))
        if first == 0:
            reached[resource] = 0.0
            continue
        before = first - 1
        left = max(0.0, room[resource] - totals[before, resource])
        reached[resource] = levels[before, resource] + left / slope[before, resource]
    assert n_queues, "a queue grows"
    return reached


class FairShares:
    """The fair shares of a tree's queues; only parts of the tree that changed are computed again.

    Args:
        tree: the queues.
        resources: the names of the columns.
    """

    def __init__(self, tree: Tree, resources: tuple[str, ...]) -> None:
        self._tree = tree
        self._weights, self._weights_version = _weights_of(tree), tree.weights_version
        shape = (len(tree), len(resources))
        self._sure = np.zeros(shape)
        self.limit: Int64s = np.full(shape, np.iinfo(np.int64).max)
        """(n_queues, n_resources), their max."""
        for amounts, column_of in ((self._sure, tree.minimums), (self.limit, tree.maximums)):
            for column, name in enumerate(resources):
                if name in column_of:
                    places, given = column_of[name]
                    amounts[places, column] = given
        self._known: dict[int, tuple[bytes, Floats]] = {}

    def deserved(self, wanted: Int64s, room: Int64s, whole: Int64s) -> Int64s:
        """Return the fair shares, (n_queues, n_resources).

        Args:
            wanted: (n_queues, n_resources), what the pods of each queue and of those below use and request, within its max.
            room: (n_resources,), the capacity for queues.
            whole: (n_resources,), the total capacity.
        """
        if self._weights_version != self._tree.weights_version:
            self._weigh()
        asked, found = wanted.astype(np.float64), np.zeros(wanted.shape)
        available, all_there = room.astype(np.float64), np.maximum(whole, 1).astype(np.float64)
        for parent in sorted(self._tree.children):  # parents before their children
            children, there = self._tree.children[parent], available if parent < 0 else found[parent]
            found[children] = self._divided(parent, children, there, all_there, asked[children])
        # Remove rounding errors below a whole number.
        return np.minimum(np.floor(found * (1 + 1e-12) + 1e-6).astype(np.int64), wanted)

    def _weigh(self) -> None:
        """Take over changed weights, and compute the shares of the siblings of such queues again."""
        before, self._weights = self._weights, _weights_of(self._tree)
        self._weights_version = self._tree.weights_version
        for place in np.flatnonzero(before != self._weights).tolist():
            self._known.pop(self._tree.parents[place], None)

    def _divided(
        self, parent: int, children: list[int], room: Floats, whole: Floats, wanted: Floats
    ) -> Floats:
        if not wanted.any():
            return np.zeros(wanted.shape)
        key = room.tobytes() + whole.tobytes() + wanted.tobytes()
        known = self._known.get(parent)
        if known is None or known[0] != key:
            found = divide(room, whole, wanted, self._sure[children], self._weights[children])
            known = self._known[parent] = key, found
        return known[1]


def _weights_of(tree: Tree) -> Floats:
    return np.array([queue.weight for queue in tree.queues], dtype=np.float64)
