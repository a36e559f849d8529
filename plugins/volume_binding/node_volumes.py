"""The nodes that can have all volumes of a pod, the reasons of the others, and the changes to bind and provision on each node.

All nodes are evaluated at once: the state of a claim is an array by node.

Source:
    kube-scheduler v1.36, plugins/volumebinding/binder.go, FindPodVolumes.
"""

from __future__ import annotations

from enum import IntFlag, auto
from operator import is_
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from plugins.volume_binding.claims import MIGRATED, key_of, migrated_plugin, reach_by_driver, selected_node
from plugins.volume_binding.matching import HELD_FOR, match_volumes
from plugins.volume_binding.reachability import nodes_in, reach_of, rules_of
from plugins.volumes.storage import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    VOLUME_NOT_FOUND,
    VOLUMES,
    StorageObjects,
)
from scheduler.framework import PASS, Code, Outcome, Outcomes, Reason
from scheduler.objects.selectors import NodeSelector, NodeSelectorTerm, Operator, SelectorRequirement

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from plugins.volume_binding.candidates import (
        Candidates,
        CapacityCandidates,
        KeptCandidates,
        VolumeCandidates,
    )
    from plugins.volume_binding.claims import PodClaims
    from plugins.volume_binding.matching import Match
    from plugins.volume_binding.reachability import Reach
    from plugins.volumes.csi_migration import InTreePlugin
    from scheduler.objects.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
    from scheduler.snapshot import Bools, Int64s, Objects, Rows, Snapshot, UInt16s


class NodeRefusal(IntFlag):
    """Why a node cannot have all volumes, in the order of the messages; there may be several reasons."""

    NOT_REACHED = auto()
    NO_VOLUME = auto()
    NO_ROOM = auto()
    GONE = auto()


REASONS: Final = {
    NodeRefusal.NOT_REACHED: Reason(
        "node(s) didn't match PersistentVolume's node affinity", "VolumeNodeAffinityMismatch"
    ),
    NodeRefusal.NO_VOLUME: Reason(
        "node(s) didn't find available persistent volumes to bind", "NoMatchingVolume"
    ),
    NodeRefusal.NO_ROOM: Reason("node(s) did not have enough free storage", "InsufficientStorage"),
    NodeRefusal.GONE: Reason(
        "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)", VOLUME_NOT_FOUND
    ),
}

_TABLE: Final = (
    PASS,
    *(
        Outcome(
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
            tuple(words for refusal, words in REASONS.items() if number & refusal),
        )
        for number in range(1, 1 << len(NodeRefusal))
    ),
)
"""Outcomes by the sum of refusals."""

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""The provisioner of a class whose volumes are created manually."""


class VolumesOnNode(NamedTuple):
    """The changes for a pod on one node.

    Attributes:
        bindings: claims, and the names of the volumes to bind them to.
        provisions: claims for which volumes are to be provisioned.
    """

    bindings: Sequence[tuple[PersistentVolumeClaim, str]]
    provisions: Sequence[PersistentVolumeClaim]


class MigratedNodes:
    """The nodes where in-tree plugins are migrated to CSI drivers, cached until nodes or CSINodes change."""

    def __init__(self) -> None:
        self._seen: tuple[Any, ...] = ()
        self._of_plugin: dict[str, Bools] = {}

    def of(self, plugin: InTreePlugin, snapshot: Snapshot) -> Bools:
        """Return bool (n_nodes,), where a plugin is migrated."""
        nodes, log = snapshot.objects(CSI_NODES), snapshot.node_changes
        if log is None:
            return _migrated_nodes(plugin, snapshot)
        seen = nodes.changes, log, log.end
        if seen != self._seen:
            self._seen, self._of_plugin = seen, {}
        known = self._of_plugin.get(plugin.name)
        if known is None:
            known = self._of_plugin[plugin.name] = _migrated_nodes(plugin, snapshot)
        return known


def _migrated_nodes(plugin: InTreePlugin, snapshot: Snapshot) -> Bools:
    there = snapshot.objects(CSI_NODES).indexed(MIGRATED, plugin.name)
    found = np.fromiter((node.name in there for node in snapshot.nodes), np.bool_, snapshot.n_nodes)
    found.flags.writeable = False
    return found


class NodeVolumes:
    """Evaluates the nodes of a snapshot for the claims of one pod, with `judge`.

    Args:
        snapshot: the cluster.
        claims: the pod's claims.
        kept: the cached candidates.
        scores: whether the nodes will be scored by their storage.
        knows_attributes: whether claims may have a VolumeAttributesClass.

    Attributes:
        matches: for each claim without a selected node, the volume that it would be bound to on each node.
        outcomes: the result of each node; None before all nodes are evaluated.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        claims: PodClaims,
        kept: KeptCandidates,
        *,
        scores: bool,
        knows_attributes: bool,
    ) -> None:
        self._snapshot = snapshot
        self._scores = scores
        self._knows_attributes = knows_attributes
        self._storage = StorageObjects(snapshot)
        self._claims = claims
        self._kept = kept
        self._migrated_nodes = snapshot.objects(CSI_NODES).companion(MigratedNodes, MigratedNodes)
        self._volumes: dict[str, VolumeCandidates] = {}  # class -> its unclaimed volumes
        self._capacities: dict[str, CapacityCandidates] = {}  # class -> the reports of its free capacity
        self._is_following = True
        self._seen: tuple[Any, ...] | None = None  # versions of the evaluated cluster, during a pause
        self._seen_volumes = 0
        self._keys: set[str] = set()  # claims that volumes may be pre-bound to
        self._names: set[str] = set()  # volumes that are bound or pre-bound to the pod's claims
        self.outcomes: Outcomes | None = None
        self._begin()

    def _begin(self) -> None:
        """Start the evaluation of all nodes."""
        self._refusals: UInt16s = np.zeros(self._snapshot.n_nodes, dtype=np.uint16)
        self._failures: list[tuple[str, Bools]] = []
        self._offers: dict[str, Bools] = {}  # class -> the nodes where it provisions volumes
        self._free: dict[tuple[str, str | float | None], Int64s] = {}  # class and request -> free bytes
        self.matches: Sequence[Match] = ()
        self._selected: Sequence[PersistentVolumeClaim] = ()
        self.outcomes = None
        self._rest = self._compare()

    def go_on(self, snapshot: Snapshot, claims: PodClaims) -> bool:
        """Continue with another snapshot and the results so far; return False if the pod's claims have changed."""
        self._snapshot, self._storage = snapshot, StorageObjects(snapshot)
        return all(
            len(mine) == len(others) and all(map(is_, mine, others))
            for mine, others in zip(self._claims, claims, strict=True)
        )

    def judge(self) -> Generator[None, None, Outcomes]:
        """Evaluate all nodes, in steps; return the result of each.

        The cluster may change between two steps after `pause`. If a change concerns the pod, the next call evaluates the
        nodes again, and `is_current` returns False for this evaluation.
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
        """Record which cluster is evaluated: other work runs now, and may change it."""
        if self._is_following:
            # Earlier comparisons, if any, belong to the cluster that was recorded then.
            self._seen = self._seen or ()
            return
        volumes = self._snapshot.objects(VOLUMES)
        self._seen, self._seen_volumes = self._versions(), volumes.changes
        self._keys = set(map(key_of, self._claims.unbound))
        self._names = {claim.spec.volume_name for claim in self._claims.bound}
        for key in self._keys:
            self._names.update(volumes.indexed(HELD_FOR, key))

    def is_current(self) -> bool:
        """Return whether the cluster, as far as it concerns the pod, is as it was at `pause`; True before any comparison."""
        if self._snapshot.n_nodes != len(self._snapshot.nodes):
            return False  # the snapshot itself is of an earlier cluster
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
        """Update the cached candidates, in steps."""
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
        # Repeat until nothing has changed since the last step.
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
        """Return versions that change with everything that concerns the pod, except which volumes are bound or pre-bound."""
        snapshot = self._snapshot
        log = snapshot.node_changes
        kinds = (STORAGE_CLASSES, CSI_DRIVERS, CSI_NODES)
        return (
            log or snapshot,
            log and log.end,
            *(snapshot.objects(kind).changes for kind in kinds),
            *(each.version for each in self._volumes.values()),
            *(each.version for each in self._capacities.values()),
        )

    def _compare(self) -> Generator[None, None, None]:
        """Evaluate all nodes of a cluster that does not change meanwhile."""
        yield from self._check_bound()
        if self._claims.unbound:
            yield from self._check_unbound()
        index = self._refusals
        table = [*_TABLE]
        for words, rows in reversed(self._failures):  # a node reports its first failure
            index[rows] = len(table)
            table.append(Outcome(Code.ERROR, (words,)))
        self.outcomes = Outcomes(index, tuple(table))

    def has_failed_on(self, rows: Rows) -> bool:
        """Return whether any of some nodes could not be evaluated."""
        return any(failed[rows].any() for _, failed in self._failures) if self._failures else False

    @property
    def claims(self) -> PodClaims:
        """The evaluated claims."""
        return self._claims

    def refusals_of(self, row: int) -> NodeRefusal:
        """Return all reasons against a node; no reasons for a node whose evaluation failed."""
        assert self.outcomes is not None, "judged"
        refusals = int(self.outcomes.index[row])
        return NodeRefusal(refusals) if refusals < len(_TABLE) else NodeRefusal(0)

    def lacks_volume(self, claim: PersistentVolumeClaim, row: int) -> bool:
        """Return whether a node has no volume for a claim; False if no volume was searched for."""
        return any(match.claim is claim and match.volume_on(row) is None for match in self.matches)

    def on(self, node_name: str) -> VolumesOnNode | None:
        """Return the changes on a node that passed; None if nothing was evaluated or the node does not exist."""
        row = self._snapshot.row_of(node_name)
        if row is None or self.outcomes is None:
            return None
        bindings, provisions = [], [*self._selected]
        for match in self.matches:
            volume = match.volume_on(row)
            if volume is None:
                provisions.append(match.claim)
            else:
                bindings.append((match.claim, volume))
        return VolumesOnNode(bindings, provisions)

    def provisions(self, rows: Rows) -> Iterator[tuple[PersistentVolumeClaim, Bools]]:
        """Yield claims, and bool (len(rows),), on which of some nodes their volumes are to be provisioned."""
        for claim in self._selected:
            yield claim, np.ones(len(rows), dtype=np.bool_)
        for match in self.matches:
            yield match.claim, ~match.is_found[rows]

    def free_bytes(self, claim: PersistentVolumeClaim) -> Int64s | None:
        """Return int64 (n_nodes,), the reported capacity for a claim's volume, -1 for none; None if no driver reports any."""
        return self._free.get(_demanded(claim))

    # Claims that have their volumes.

    def _check_bound(self) -> Generator[None, None, None]:
        standing = np.ones(self._snapshot.n_nodes, dtype=np.bool_)
        seen: set[tuple[Reach, str]] = set()
        for claim in self._claims.bound:
            volume = self._storage.bound_volume(claim)
            if volume is None:
                self._refuse(standing, NodeRefusal.GONE)
                return
            plugin = migrated_plugin(volume)
            # One of several volumes with the same reach is enough.
            alike = reach_of(volume), "" if plugin is None else volume.metadata.name
            if alike in seen or not standing.any():
                continue
            seen.add(alike)
            reached = self._reached(volume, plugin, standing)
            self._refuse(standing & ~reached, NodeRefusal.NOT_REACHED)
            standing &= reached
            yield

    def _reached(self, volume: PersistentVolume, plugin: InTreePlugin | None, standing: Bools) -> Bools:
        """Return bool (n_nodes,), which nodes reach a volume; the driver's labels count where the plugin is migrated to CSI."""
        reached = nodes_in(self._snapshot, reach_of(volume))
        if plugin is None:
            return reached
        migrated = self._migrated_nodes.of(plugin, self._snapshot) & standing
        if not migrated.any():
            return reached
        try:
            by_driver = nodes_in(self._snapshot, reach_by_driver(volume, plugin))
        except ValueError as error:
            self._fail(migrated, str(error))
            return reached | migrated
        return np.where(migrated, by_driver, reached)

    # Claims that wait for a node.

    def _check_unbound(self) -> Generator[None, None, None]:
        """Match claims with volumes, and check whether volumes can be provisioned for the other claims."""
        self._selected = [claim for claim in self._claims.unbound if selected_node(claim) is not None]
        standing = yield from self._nodes_selected()
        if self._selected:
            self._refuse(~standing, NodeRefusal.NO_VOLUME)
        for _, rows in self._failures:
            standing &= ~rows
        if not standing.any():
            return
        open_claims = [claim for claim in self._claims.unbound if selected_node(claim) is None]
        found = yield from match_volumes(
            self._snapshot, open_claims, self._volumes, knows_attributes=self._knows_attributes
        )
        if isinstance(found, str):
            self._fail(standing, found)
            return
        self.matches = found
        yield from self._check_provisions(standing)

    def _nodes_selected(self) -> Generator[None, None, Bools]:
        """Return bool (n_nodes,), all nodes except those excluded by a claim's selected node."""
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
        """Reject nodes that have no volume for a claim and for which none can be provisioned."""
        standing = standing.copy()
        lacking: list[tuple[PersistentVolumeClaim, Match | None]] = [
            (claim, None) for claim in self._selected
        ]
        lacking += [(match.claim, match) for match in self.matches]
        everywhere = set[tuple[str, str | float | None]]()
        for claim, match in lacking:
            demanded = _demanded(claim)
            if demanded in everywhere:
                continue
            rows = np.ones_like(standing) if match is None else ~match.is_found
            if rows.all():  # an equal demand has the same result on all nodes
                everywhere.add(demanded)
            needed = rows & standing
            yield
            if not needed.any():
                continue
            storage_class = self._storage.storage_class(claim.class_name)
            assert storage_class is not None, "of a class that is not there claims do not wait for a node"
            offered = needed & self._offered(storage_class)
            self._refuse(needed & ~offered, NodeRefusal.NO_VOLUME)
            if offered.any():
                roomy = offered & (yield from self._roomy(claim, storage_class))
                self._refuse(offered & ~roomy, NodeRefusal.NO_ROOM)
                offered = roomy
            standing &= ~needed | offered

    def _offered(self, storage_class: StorageClass) -> Bools:
        """Return bool (n_nodes,), where volumes of a class are provisioned."""
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
        """Return bool (n_nodes,), where there is capacity for a claim's volume, as far as its driver reports it.

        Source:
            kube-scheduler v1.36, plugins/volumebinding/binder.go, hasEnoughCapacity.
        """
        request = claim.spec.resources.requests
        driver = self._storage.csi_driver(storage_class.provisioner)
        if request.storage is None or driver is None or not driver.spec.storage_capacity:
            return np.ones(self._snapshot.n_nodes, dtype=np.bool_)
        size_bytes, reports = max(0, request.quantity.value()), self._capacities[claim.class_name]
        if self._scores:
            free = self._free[_demanded(claim)] = yield from reports.capacity_for(self._snapshot, size_bytes)
            return free >= 0
        roomy: Bools = (yield from reports.largest_bytes(self._snapshot)) >= size_bytes
        return roomy

    # Results.

    def _refuse(self, rows: Bools, refusal: NodeRefusal) -> None:
        np.bitwise_or(self._refusals, np.uint16(refusal), out=self._refusals, where=rows)

    def _fail(self, rows: Bools, words: str) -> None:
        self._failures.append((words, rows))


def _demanded(claim: PersistentVolumeClaim) -> tuple[str, str | float | None]:
    """Return an equal value for claims for which volumes are provisioned on the same nodes."""
    return claim.class_name, claim.spec.resources.requests.storage


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
