"""Finds, on every node, a volume for each unbound claim: the one pre-bound to it, or the smallest that fits.

Source:
    kube-scheduler v1.36, plugins/volumebinding/binder.go, findMatchingVolumes; component-helpers/storage/volume/pv_helpers.go,
    FindMatchingVolume. Of equally good volumes upstream takes any; here it is the first by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from plugins.volume_binding.candidates import CachedPick, VolumeDemand
from plugins.volume_binding.claims import key_of
from plugins.volume_binding.reachability import NONE, nodes_in, reach_of
from plugins.volumes.storage import VOLUMES
from scheduler.objects.selectors import SelectorError
from scheduler.objects.storage import PersistentVolume
from scheduler.snapshot import Index

if TYPE_CHECKING:
    from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence

    from plugins.volume_binding.candidates import VolumeCandidates
    from plugins.volume_binding.reachability import Selection
    from scheduler.objects.storage import PersistentVolumeClaim
    from scheduler.snapshot import Bools, Int64s, Rows, Snapshot


_MOST_ASKED: Final = 2
"""The number of claims of one class whose volumes are cached for the next pods."""
_MOST_CHANGED: Final = 8
"""The number of nodes that are searched one by one; the search of all nodes at once takes no longer than more of them."""


def _holder(volume: PersistentVolume) -> tuple[str, ...]:
    reference = volume.spec.claim_ref
    return () if reference is None else (f"{reference.namespace}/{reference.name}",)


HELD_FOR: Final = Index(PersistentVolume, _holder)
"""Claim -> the volumes that are bound or pre-bound to it."""


@dataclass(frozen=True, eq=False)
class Match:
    """The volume on each node that a claim would be bound to.

    Attributes:
        claim: the claim.
        held: the names of volumes that are pre-bound to it, and bool (n_nodes,), on which nodes each would be taken.
        numbers: int64 (n_nodes,), for all other nodes: indexes in `ranked`, or NONE.
        ranked: rank and name of volumes.
    """

    claim: PersistentVolumeClaim
    held: Sequence[tuple[str, Bools]]
    numbers: Int64s
    ranked: Sequence[tuple[int, str, int]]

    @cached_property
    def is_found(self) -> Bools:
        """Bool (n_nodes,), where there is a volume for the claim."""
        found: Bools = self.numbers != NONE
        for _, rows in self.held:
            found |= rows
        return found

    def volumes_on(self, rows: Rows) -> tuple[list[str], Int64s]:
        """Return the volumes that the claim would be bound to on some nodes.

        Returns:
            The names of volumes, and int64 (len(rows),), the index of a name for each node; -1 for none.
        """
        numbers, places = np.unique(self.numbers[rows], return_inverse=True)
        names = [self.ranked[number][1] for number in numbers.tolist() if number != NONE]  # NONE is the last
        places = np.where(places < len(names), places, -1)
        for name, there in self.held:
            places[there[rows]] = len(names)
            names.append(name)
        return names, places

    def volume_on(self, row: int) -> str | None:
        """Return the name of the volume that the claim would be bound to on a node."""
        for name, rows in self.held:
            if rows[row]:
                return name
        number = int(self.numbers[row])
        return None if number == NONE else self.ranked[number][1]


def match_volumes(
    snapshot: Snapshot,
    claims: Iterable[PersistentVolumeClaim],
    candidates: Mapping[str, VolumeCandidates],
    *,
    knows_attributes: bool = True,
) -> Generator[None, None, Sequence[Match] | str]:
    """Match claims with volumes on every node, in steps, the smallest claim first; no volume is used twice on a node.

    Args:
        snapshot: the cluster; volumes and nodes may not change between two steps.
        claims: the claims.
        candidates: class -> its unclaimed volumes.
        knows_attributes: whether claims may have a VolumeAttributesClass.

    Returns:
        A match for each claim, or the error of one of them, as upstream's message.
    """
    everywhere = np.ones(snapshot.n_nodes, dtype=np.bool_)
    none = np.full(snapshot.n_nodes, NONE, dtype=np.int64)
    none.flags.writeable = False
    held_by_earlier: dict[str, Bools] = {}
    picks: dict[str, _Picks] = {}  # class -> what earlier claims take
    matches: list[Match] = []
    for claim in sorted(claims, key=lambda claim: claim.spec.resources.requests.quantity.nanos):
        if claim.spec.volume_attributes_class_name and not knows_attributes:
            return (
                f"unsupported volumeAttributesClassName is set on claim {key_of(claim)} when the feature-gate "
                "VolumeAttributesClass is disabled"
            )
        try:
            demand = VolumeDemand.of(claim)
        except SelectorError as error:
            return f"error creating internal label selector for claim: {key_of(claim)}: {error}"
        held, undecided = _held(snapshot, claim, demand, held_by_earlier, everywhere)
        of_class = picks.get(demand.class_name)
        if of_class is None:
            of_class = picks[demand.class_name] = _Picks(snapshot, candidates[demand.class_name], none)
        numbers = yield from of_class.next(demand, undecided)
        matches.append(Match(claim, held, numbers, of_class.candidates.ranked))
        yield
    return matches


def _held(
    snapshot: Snapshot,
    claim: PersistentVolumeClaim,
    demand: VolumeDemand,
    by_earlier: dict[str, Bools],
    everywhere: Bools,
) -> tuple[Sequence[tuple[str, Bools]], Bools]:
    """Return the volumes pre-bound to a claim with the nodes of each, and bool (n_nodes,), where others may be taken."""
    held: list[tuple[str, Bools]] = []
    undecided = everywhere
    for name, volume in sorted(snapshot.objects(VOLUMES).indexed(HELD_FOR, key_of(claim)).items()):
        if not (_is_for(volume, claim) and demand.has_room_in(volume)):
            continue
        # A pre-bound volume that cannot be reached excludes all others.
        free = undecided & ~by_earlier[name] if name in by_earlier else undecided
        if free.any():
            rows = free & nodes_in(snapshot, reach_of(volume))
            held.append((name, rows))
            # The pod may name a claim twice.
            by_earlier[name] = by_earlier[name] | rows if name in by_earlier else rows
            undecided = undecided & ~free
    return held, undecided


class _Picks:
    """The volumes of one class that the claims of a pod take, one claim after another, the smallest first.

    Claims that the same volumes fit take increasing numbers on each node, so each claim starts where the previous one
    ended.

    Args:
        snapshot: the cluster.
        candidates: the volumes.
        none: int64 (n_nodes,), NONE everywhere.
    """

    def __init__(self, snapshot: Snapshot, candidates: VolumeCandidates, none: Int64s) -> None:
        self.candidates = candidates
        self._snapshot = snapshot
        self._none = none
        # demand -> the volumes that fit, as bytes and array
        self._kinds: dict[Hashable, tuple[bytes, Bools]] = {}
        self._selections: dict[bytes, Selection] = {}  # volumes that fit -> their selection
        self._last: dict[bytes, Int64s] = {}  # volumes that fit -> what the last such claim took
        self._taken: list[tuple[bytes, Int64s]] = []
        self._version, log = candidates.version, snapshot.node_changes
        self._nodes: Hashable = None if log is None else (log, log.end)
        # What the claims so far asked for; None if what the next one takes is not cached.
        self._asked: tuple[Hashable, ...] | None = None if log is None else ()

    def next(self, demand: VolumeDemand, undecided: Bools) -> Generator[None, None, Int64s]:
        """Return, in steps, what a claim takes, int64 (n_nodes,); NONE where it is not undecided or no volume fits."""
        known = self._kinds.get(demand.traits)
        if known is None:
            fitting = yield from self.candidates.fitting(demand.traits, demand.admits)
            known = self._kinds[demand.traits] = fitting.tobytes(), fitting
        kind, fitting = known
        last, smallest = self._last.get(kind), self.candidates.at_least(demand.nanos)
        is_free = undecided.all()
        if self._asked is not None:
            is_short = is_free and len(self._asked) < _MOST_ASKED
            self._asked = (*self._asked, (demand.traits, smallest)) if is_short else None
        if last is self._none or smallest == len(fitting) or not fitting[smallest:].any():
            return self._none
        numbers = self._known(kind, fitting, smallest)
        if numbers is None:
            selection = self._selections.get(kind)
            if selection is None:
                selection = yield from self.candidates.select(self._snapshot, fitting)
                self._selections[kind] = selection
            at_least = smallest if last is None else np.maximum(smallest, last + 1)
            numbers = yield from self._find(kind, selection, at_least)
        if self._asked is not None and self._version == self.candidates.version:
            earlier = tuple(taken for _, taken in self._taken)
            self.candidates.picks[self._asked] = CachedPick(self._version, self._nodes, numbers, earlier)
        if not is_free:
            decided = np.full_like(numbers, -1) if last is None else last
            self._last[kind] = np.where(undecided, numbers, decided)
            numbers = np.where(undecided, numbers, NONE)
        elif (numbers[:1] == NONE).all() and (numbers == NONE).all():  # mostly the first node is enough
            numbers = self._last[kind] = self._none
        else:
            self._last[kind] = numbers
        if numbers is not self._none:
            self._taken.append((kind, numbers))
        return numbers

    def _known(self, kind: bytes, fitting: Bools, smallest: int) -> Int64s | None:
        """Return what a claim takes if another pod has asked the same, and few volumes were claimed since; None otherwise.

        Nodes are searched again where a claim of this pod would take a volume that is claimed now, or where the earlier
        claims take other volumes.
        """
        known = None if self._asked is None else self.candidates.picks.get(self._asked)
        if known is None or known.nodes != self._nodes or len(known.earlier) != len(self._taken):
            return None
        removed = self.candidates.removed_since(known.version)
        if removed is None:
            return None
        others = [known.numbers == number for number in removed]
        others += [
            before != now
            for before, (_, now) in zip(known.earlier, self._taken, strict=True)
            if before is not now
        ]
        rows = {row for each in others for row in np.flatnonzero(each)[: _MOST_CHANGED + 1].tolist()}
        if not rows:
            return known.numbers
        if len(rows) > _MOST_CHANGED:
            return None
        numbers, last = known.numbers.copy(), self._last.get(kind)
        for row in rows:
            at_least = smallest if last is None else max(smallest, int(last[row]) + 1)
            taken = {int(each[row]) for its, each in self._taken if its != kind} - {NONE}
            found = self.candidates.first_on(self._snapshot, row, fitting, at_least)
            while found in taken:
                found = self.candidates.first_on(self._snapshot, row, fitting, found + 1)
            if found is None:
                return None
            numbers[row] = found
        return numbers

    def _find(
        self, kind: bytes, selection: Selection, at_least: Int64s | int
    ) -> Generator[None, None, Int64s]:
        """Return, in steps, the first numbers that no claim of another kind has taken."""
        others = [numbers for its, numbers in self._taken if its != kind]
        while True:
            numbers = yield from selection.first(at_least)
            if not others:
                return numbers
            taken = np.zeros(len(numbers), dtype=np.bool_)
            for other in others:
                taken |= (numbers == other) & (numbers != NONE)
                yield
            if not taken.any():
                return numbers
            at_least = np.where(taken, numbers + 1, np.minimum(at_least, numbers))


def _is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether the claim reference of a volume means this claim.

    Source:
        kube-scheduler v1.36, component-helpers/storage/volume/pv_helpers.go, IsVolumeBoundToClaim.
    """
    reference = volume.spec.claim_ref
    assert reference is not None, "it was found by the claim that it names"
    return volume.class_name == claim.class_name and reference.uid in {"", claim.metadata.uid}
