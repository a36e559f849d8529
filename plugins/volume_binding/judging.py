"""Which nodes can have all volumes of a pod, why the others cannot, and what would be bound and made for it on each.

All nodes are judged at once: what is known of a claim are arrays by node.

Source:
    kube-scheduler v1.36, plugins/volumebinding/binder.go, FindPodVolumes.
"""

from __future__ import annotations

from enum import IntFlag, auto
from operator import is_
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from plugins.volume_binding.claims import key_of, selected_node
from plugins.volume_binding.matching import HELD_FOR, match_volumes
from plugins.volume_binding.migration import MIGRATED, migrated_plugin, reach_by_driver
from plugins.volume_binding.places import nodes_in, reach_of, rules_of
from plugins.volumes.storage import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    VOLUMES,
    Storage,
)
from scheduler.framework import PASS, Code, Outcome, Outcomes
from scheduler.objects.selectors import NodeSelector, NodeSelectorTerm, Operator, SelectorRequirement

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from plugins.volume_binding.candidates import (
        Candidates,
        CapacityCandidates,
        KeptCandidates,
        VolumeCandidates,
    )
    from plugins.volume_binding.claims import PodClaims
    from plugins.volume_binding.matching import Match
    from plugins.volume_binding.places import Reach
    from plugins.volumes.csi_migration import InTreePlugin
    from scheduler.objects.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
    from scheduler.snapshot import Bools, Objects, Snapshot, UInt16s


class Refusal(IntFlag):
    """Why a node cannot have all volumes, in the order in which it is said; there may be several reasons."""

    NOT_REACHED = auto()
    NO_VOLUME = auto()
    NO_ROOM = auto()
    GONE = auto()


REASONS: Final = {
    Refusal.NOT_REACHED: "node(s) didn't match PersistentVolume's node affinity",
    Refusal.NO_VOLUME: "node(s) didn't find available persistent volumes to bind",
    Refusal.NO_ROOM: "node(s) did not have enough free storage",
    Refusal.GONE: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
}

_TABLE: Final = (
    PASS,
    *(
        Outcome(
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
            tuple(words for refusal, words in REASONS.items() if number & refusal),
        )
        for number in range(1, 1 << len(Refusal))
    ),
)
"""Outcomes by the sum of refusals."""

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""What stands in a class whose volumes nobody makes."""


class VolumesOnNode(NamedTuple):
    """What would be done for a pod on one node.

    Attributes:
        bindings: claims, and the names of the volumes to bind them to.
        provisions: claims for which volumes are to be made.
    """

    bindings: Sequence[tuple[PersistentVolumeClaim, str]]
    provisions: Sequence[PersistentVolumeClaim]


class NodeVolumes:
    """What the nodes of a snapshot have for the claims of one pod: `judge` finds out.

    Args:
        snapshot: the cluster.
        claims: the pod's.
        kept: what is known of volumes already.

    Attributes:
        outcomes: what is said of each node; None before all nodes are judged.
    """

    def __init__(self, snapshot: Snapshot, claims: PodClaims, kept: KeptCandidates) -> None:
        self._snapshot = snapshot
        self._storage = Storage(snapshot)
        self._claims = claims
        self._kept = kept
        self._volumes: dict[str, VolumeCandidates] = {}  # class -> those that no claim holds
        self._capacities: dict[str, CapacityCandidates] = {}  # class -> the reports of the room for new ones
        self._is_following = True
        self._seen: tuple[Any, ...] | None = None  # the cluster that is judged, while others have a turn
        self._seen_volumes = 0
        self._keys: set[str] = set()  # of claims that volumes may be held for
        self._names: set[str] = set()  # of volumes that are the pod's, or held for it
        self.outcomes: Outcomes | None = None
        self._begin()

    def _begin(self) -> None:
        """Begin to judge all nodes."""
        self._refusals: UInt16s = np.zeros(self._snapshot.n_nodes, dtype=np.uint16)
        self._failures: list[tuple[str, Bools]] = []
        self._migrated_nodes: dict[str, Bools] = {}  # in-tree plugin -> where a CSI driver does its work
        self._offers: dict[str, Bools] = {}  # class -> where volumes of it are made
        self._matches: Sequence[Match] = ()
        self._selected: Sequence[PersistentVolumeClaim] = ()
        self.outcomes = None
        self._rest = self._compare()

    def go_on(self, snapshot: Snapshot, claims: PodClaims) -> bool:
        """Judge another snapshot from now on, with what was found so far; False where these are not the claims any more."""
        self._snapshot, self._storage = snapshot, Storage(snapshot)
        return all(
            len(mine) == len(others) and all(map(is_, mine, others))
            for mine, others in zip(self._claims, claims, strict=True)
        )

    def judge(self) -> Generator[None, None, Outcomes]:
        """Judge all nodes, in steps; return what is said of each.

        The cluster may change between two steps after `pause`: what concerns the pod is then judged anew by the next call,
        and `is_current` says that there is no use in going on with this one.
        """
        if self._seen is None and self.outcomes is not None:
            return self.outcomes
        self._is_following = True
        yield from self.follow()
        self._is_following = False
        if self._seen is not None:
            if not self.is_current():
                self._begin()
            self.pause()
        for _ in self._rest:  # not `yield from`, which would end it with this call
            yield
        assert self.outcomes is not None, "all steps are done"
        return self.outcomes

    def pause(self) -> None:
        """Note which cluster is judged: others have a turn, and may change it."""
        if self._is_following:
            # What was compared before, if anything was, is of the cluster that was noted then.
            self._seen = self._seen or ()
            return
        volumes = self._snapshot.objects(VOLUMES)
        self._seen, self._seen_volumes = self._versions(), volumes.changes
        self._keys = set(map(key_of, self._claims.unbound))
        self._names = {claim.spec.volume_name for claim in self._claims.bound}
        for key in self._keys:
            self._names.update(volumes.indexed(HELD_FOR, key))

    def is_current(self) -> bool:
        """Say whether the cluster is for the pod as it was at `pause`, or it does not matter yet."""
        if self._is_following:
            return True
        if self._seen != self._versions():
            return False
        changed = self._snapshot.objects(VOLUMES).changed_since(self._seen_volumes)
        if not changed:
            return changed is not None
        shown = (self._storage.volume(name) for name in changed)
        return self._names.isdisjoint(changed) and all(
            volume is None or self._keys.isdisjoint(HELD_FOR.of(volume)) for volume in shown
        )

    def follow(self) -> Generator[None, None, None]:
        """See, in steps, that what is kept of volumes is as they are."""
        if not self._claims.unbound:
            return
        volumes, reports = self._snapshot.objects(VOLUMES), self._snapshot.objects(CSI_STORAGE_CAPACITIES)
        yield from volumes.read(HELD_FOR)
        for name in dict.fromkeys(claim.class_name for claim in self._claims.unbound):
            if name not in self._volumes:
                self._volumes[name] = self._kept.volumes(name)
            if name not in self._capacities and self._is_room_reported(name):
                self._capacities[name] = self._kept.capacities(name)
        followed: list[tuple[Candidates[Any, Any], Objects]]
        followed = [(each, volumes) for each in self._volumes.values()]
        followed += [(each, reports) for each in self._capacities.values()]
        # Until nothing has changed since the last step.
        while behind := [(each, objects) for each, objects in followed if each.is_behind(objects)]:
            for each, objects in behind:
                yield from each.follow(objects)

    def _is_room_reported(self, class_name: str) -> bool:
        storage_class = self._storage.storage_class(class_name)
        if storage_class is None or storage_class.provisioner == NO_PROVISIONER:
            return False
        driver = self._storage.csi_driver(storage_class.provisioner)
        return driver is not None and bool(driver.spec.storage_capacity)

    def _versions(self) -> tuple[Any, ...]:
        """Return what is another when something changed that concerns the pod; which volumes are bound or held is not in it."""
        snapshot = self._snapshot
        log = snapshot.node_changes
        kinds = (STORAGE_CLASSES, CSI_DRIVERS, CSI_NODES)
        return (
            log or snapshot,
            log and log.end,
            len(snapshot.nodes),  # that the last node goes is in no log
            *(snapshot.objects(kind).changes for kind in kinds),
            *(each.version for each in self._volumes.values()),
            *(each.version for each in self._capacities.values()),
        )

    def _compare(self) -> Generator[None, None, None]:
        """Judge all nodes of a cluster that stays as it is."""
        yield from self._check_bound()
        if self._claims.unbound:
            yield from self._check_unbound()
        index = self._refusals
        table = [*_TABLE]
        for words, rows in reversed(self._failures):  # the first that happened on a node is told
            index[rows] = len(table)
            table.append(Outcome(Code.ERROR, (words,)))
        self.outcomes = Outcomes(index, tuple(table))

    @property
    def claims(self) -> PodClaims:
        """Those that are judged."""
        return self._claims

    def refusals_of(self, row: int) -> Refusal:
        """Return all that is said against a node; none of a node where judging failed."""
        assert self.outcomes is not None, "judged"
        refusals = int(self.outcomes.index[row])
        return Refusal(refusals) if refusals < len(_TABLE) else Refusal(0)

    def lacks_volume(self, claim: PersistentVolumeClaim, row: int) -> bool:
        """Say whether there is no volume on a node that a claim could be bound to; False of one that nobody looked for."""
        return any(match.claim is claim and match.volume_on(row) is None for match in self._matches)

    def on(self, node_name: str) -> VolumesOnNode | None:
        """Return what is to be done on a node that passed; None where nothing was judged, or the node is none."""
        row = self._snapshot.row_of(node_name)
        if row is None or self.outcomes is None:
            return None
        bindings, provisions = [], [*self._selected]
        for match in self._matches:
            volume = match.volume_on(row)
            if volume is None:
                provisions.append(match.claim)
            else:
                bindings.append((match.claim, volume))
        return VolumesOnNode(bindings, provisions)

    # Claims that have their volumes.

    def _check_bound(self) -> Generator[None, None, None]:
        standing = np.ones(self._snapshot.n_nodes, dtype=np.bool_)
        seen: set[tuple[Reach, str]] = set()
        for claim in self._claims.bound:
            volume = self._storage.bound_volume(claim)
            if volume is None:
                self._refuse(standing, Refusal.GONE)
                return
            plugin = migrated_plugin(volume)
            # Of volumes reached alike one is enough, and so are those before the last node is refused.
            alike = reach_of(volume), "" if plugin is None else volume.metadata.name
            if alike in seen or not standing.any():
                continue
            seen.add(alike)
            reached = self._reached(volume, plugin, standing)
            self._refuse(standing & ~reached, Refusal.NOT_REACHED)
            standing &= reached
            yield

    def _reached(self, volume: PersistentVolume, plugin: InTreePlugin | None, standing: Bools) -> Bools:
        """Return bool (n_nodes,), which nodes reach a volume; those that have its plugin's CSI driver by the driver's labels."""
        reached = nodes_in(self._snapshot, reach_of(volume))
        if plugin is None:
            return reached
        migrated = self._migrated(plugin) & standing
        if not migrated.any():
            return reached
        try:
            by_driver = nodes_in(self._snapshot, reach_by_driver(volume, plugin))
        except ValueError as error:
            self._fail(migrated, str(error))
            return reached | migrated
        return np.where(migrated, by_driver, reached)

    def _migrated(self, plugin: InTreePlugin) -> Bools:
        """Return bool (n_nodes,), where a CSI driver does a plugin's work."""
        # A loop over nodes, for volumes of times before CSI only.
        known = self._migrated_nodes.get(plugin.name)
        if known is None:
            names = self._snapshot.objects(CSI_NODES).indexed(MIGRATED, plugin.name)
            rows = [row for row in map(self._snapshot.row_of, names) if row is not None]
            known = self._migrated_nodes[plugin.name] = np.zeros(self._snapshot.n_nodes, dtype=np.bool_)
            known[rows] = True
        return known

    # Claims that wait for a node.

    def _check_unbound(self) -> Generator[None, None, None]:
        """Match claims with volumes, and see whether those that are left can have new ones made."""
        self._selected = [claim for claim in self._claims.unbound if selected_node(claim) is not None]
        standing = yield from self._nodes_selected()
        self._refuse(~standing, Refusal.NO_VOLUME)
        for _, rows in self._failures:
            standing &= ~rows
        if not standing.any():
            return
        open_claims = [claim for claim in self._claims.unbound if selected_node(claim) is None]
        found = yield from match_volumes(self._snapshot, open_claims, self._volumes)
        if isinstance(found, str):
            self._fail(standing, found)
            return
        self._matches = found
        yield from self._check_provisions(standing)

    def _nodes_selected(self) -> Generator[None, None, Bools]:
        """Return bool (n_nodes,), all nodes but those that a claim's selected node leaves out."""
        selected = np.ones(self._snapshot.n_nodes, dtype=np.bool_)
        for claim in self._selected:
            there = np.zeros(self._snapshot.n_nodes, dtype=np.bool_)
            row = self._snapshot.row_of(selected_node(claim) or "")
            if row is not None:
                there[row] = True
            selected &= there
            yield
        return selected

    def _check_provisions(self, standing: Bools) -> Generator[None, None, None]:
        """Refuse nodes for which a claim's volume cannot be made, where there is none."""
        standing = standing.copy()
        lacking: list[tuple[PersistentVolumeClaim, Match | None]] = [
            (claim, None) for claim in self._selected
        ]
        lacking += [(match.claim, match) for match in self._matches]
        everywhere: set[tuple[str, str | float | None]] = set()
        for claim, match in lacking:
            demanded = claim.class_name, claim.spec.resources.requests.storage
            if demanded in everywhere:
                continue
            rows = np.ones_like(standing) if match is None else ~match.is_found
            if rows.all():  # what was said of all nodes is said of the next claim alike
                everywhere.add(demanded)
            needed = rows & standing
            yield
            if not needed.any():
                continue
            storage_class = self._storage.storage_class(claim.class_name)
            assert storage_class is not None, "of a class that is not there claims do not wait for a node"
            offered = needed & self._offered(storage_class)
            self._refuse(needed & ~offered, Refusal.NO_VOLUME)
            roomy = offered
            if offered.any():
                roomy = offered & (yield from self._roomy(claim, storage_class))
            self._refuse(offered & ~roomy, Refusal.NO_ROOM)
            standing &= ~needed | roomy

    def _offered(self, storage_class: StorageClass) -> Bools:
        """Return bool (n_nodes,), where volumes of a class are made."""
        name = storage_class.metadata.name
        if name not in self._offers:
            if storage_class.provisioner in {"", NO_PROVISIONER}:
                self._offers[name] = np.zeros(self._snapshot.n_nodes, dtype=np.bool_)
            else:
                self._offers[name] = nodes_in(self._snapshot, topologies(storage_class))
        return self._offers[name]

    def _roomy(
        self, claim: PersistentVolumeClaim, storage_class: StorageClass
    ) -> Generator[None, None, Bools]:
        """Return bool (n_nodes,), where there is room for a claim's volume, as far as its driver tells.

        Source:
            kube-scheduler v1.36, plugins/volumebinding/binder.go, hasEnoughCapacity.
        """
        request = claim.spec.resources.requests
        driver = self._storage.csi_driver(storage_class.provisioner)
        if request.storage is None or driver is None or not driver.spec.storage_capacity:
            return np.ones(self._snapshot.n_nodes, dtype=np.bool_)
        largest = yield from self._capacities[claim.class_name].largest_bytes(self._snapshot)
        roomy: Bools = largest >= max(0, request.quantity.value())
        return roomy

    # What is said.

    def _refuse(self, rows: Bools, refusal: Refusal) -> None:
        self._refusals[rows] |= np.uint16(refusal)

    def _fail(self, rows: Bools, words: str) -> None:
        self._failures.append((words, rows))


def topologies(storage_class: StorageClass) -> Reach:
    """Return the nodes of a class's allowed topologies.

    Source:
        kube-scheduler v1.36, pkg/apis/core/v1/helper/helpers.go, MatchTopologySelectorTerms.
    """
    if not storage_class.allowed_topologies:
        return None
    terms = (
        NodeSelectorTerm(
            match_expressions=tuple(
                SelectorRequirement(each.key, Operator.IN.value, each.values)
                for each in term.match_label_expressions
            )
        )
        for term in storage_class.allowed_topologies
    )
    return rules_of(NodeSelector(node_selector_terms=tuple(terms)))
