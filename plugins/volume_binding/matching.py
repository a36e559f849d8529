"""Finds, on every node, a volume for each claim that waits for one: the one made ready for it, or the smallest that fits.

Source:
    kube-scheduler v1.36, plugins/volumebinding/binder.go, findMatchingVolumes; component-helpers/storage/volume/pv_helpers.go,
    FindMatchingVolume. Of volumes that are equally good upstream takes any; here it is the first by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from plugins.volume_binding.candidates import VolumeDemand
from plugins.volume_binding.claims import key_of
from plugins.volume_binding.places import NONE, nodes_in, reach_of
from plugins.volumes.storage import VOLUMES
from scheduler.objects.selectors import SelectorError
from scheduler.objects.storage import PersistentVolume
from scheduler.snapshot import Index

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plugins.volume_binding.candidates import KeptCandidates
    from scheduler.objects.storage import PersistentVolumeClaim
    from scheduler.snapshot import Bools, Int64s, Snapshot


def _holder(volume: PersistentVolume) -> tuple[str, ...]:
    reference = volume.spec.claim_ref
    return () if reference is None else (f"{reference.namespace}/{reference.name}",)


HELD_FOR: Final = Index(PersistentVolume, _holder)
"""Claim -> the volumes that are bound to it, or are to be."""


@dataclass(frozen=True, eq=False)
class Match:
    """The volume of each node that a claim would be bound to.

    Attributes:
        claim: the claim.
        held: the names of volumes that are held for it, and bool (n_nodes,), on which nodes each would be taken.
        numbers: int64 (n_nodes,), of all other nodes: places in `names`, or NONE.
        names: names of volumes.
    """

    claim: PersistentVolumeClaim
    held: Sequence[tuple[str, Bools]]
    numbers: Int64s
    names: Sequence[str]

    @property
    def is_found(self) -> Bools:
        """Bool (n_nodes,), where there is a volume for it."""
        found: Bools = self.numbers != NONE
        for _, rows in self.held:
            found |= rows
        return found

    def volume_on(self, row: int) -> str | None:
        """Return the volume it would be bound to on a node."""
        for name, rows in self.held:
            if rows[row]:
                return name
        number = int(self.numbers[row])
        return None if number == NONE else self.names[number]


def match_volumes(
    snapshot: Snapshot, claims: Iterable[PersistentVolumeClaim], kept: KeptCandidates
) -> Sequence[Match] | str:
    """Match claims with volumes on every node, the smallest claim first; on no node is a volume taken twice.

    Returns:
        A match for each claim, or what is wrong with one of them, in upstream's words.
    """
    matches: list[Match] = []
    for claim in sorted(claims, key=lambda claim: claim.spec.resources.requests.quantity.nanos):
        try:
            demand = VolumeDemand.of(claim)
        except SelectorError as error:
            return f"error creating internal label selector for claim: {key_of(claim)}: {error}"
        matches.append(_match(snapshot, claim, demand, kept, matches))
    return matches


def _match(
    snapshot: Snapshot,
    claim: PersistentVolumeClaim,
    demand: VolumeDemand,
    kept: KeptCandidates,
    earlier: Sequence[Match],
) -> Match:
    volumes = snapshot.objects(VOLUMES)
    held, undecided = [], np.ones(snapshot.n_nodes, dtype=np.bool_)
    for name, volume in sorted(volumes.indexed(HELD_FOR, key_of(claim)).items()):
        if _is_for(volume, claim) and demand.has_room_in(volume):
            # One that cannot be reached rules the others out.
            free = undecided & ~_taken(name, earlier)
            held.append((name, free & nodes_in(snapshot, reach_of(volume))))
            undecided &= ~free
    candidates = kept.of(demand, volumes)
    rivals = [match for match in earlier if match.claim.class_name == claim.class_name]
    taken = [_in_terms_of(candidates.names, rival) for rival in rivals]
    *better, numbers = candidates.first(snapshot, len(taken) + 1)  # each rival takes one, so the last is free
    for best in reversed(better):
        is_taken = np.any([numbers_taken == best for numbers_taken in taken], axis=0)
        numbers = np.where(is_taken, numbers, best)
    return Match(claim, held, np.where(undecided, numbers, NONE), candidates.names)


def _is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Say whether a volume that names a claim means this one.

    Source:
        kube-scheduler v1.36, component-helpers/storage/volume/pv_helpers.go, IsVolumeBoundToClaim.
    """
    reference = volume.spec.claim_ref
    assert reference is not None, "it was found by the claim that it names"
    return volume.class_name == claim.class_name and reference.uid in {"", claim.metadata.uid}


def _taken(name: str, earlier: Iterable[Match]) -> Bools | np.bool_:
    """Return where an earlier claim takes a held volume; there is one where the pod names a claim twice."""
    taken: Bools | np.bool_ = np.False_
    for match in earlier:
        for held, rows in match.held:
            if held == name:
                taken = taken | rows
    return taken


def _in_terms_of(names: Sequence[str], match: Match) -> Int64s:
    """Return what a match takes on each node as places in other names; NONE where it is not among them."""
    if match.names is names:
        return match.numbers
    places = {name: place for place, name in enumerate(names)}
    place_of = np.array([*(places.get(name, NONE) for name in match.names), NONE], dtype=np.int64)
    found: Int64s = place_of[np.minimum(match.numbers, len(match.names))]
    return found
