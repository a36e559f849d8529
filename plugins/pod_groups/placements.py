"""Placements of groups: one for each domain, nodes with the same label value; the one that fits the most pods is preferred.

Source:
    kube-scheduler v1.36, plugins/topologyaware/topology_placement.go.
    kube-scheduler v1.36, plugins/podgrouppodscount/podgroup_pods_count.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework import (
    ActionType,
    ClusterEvent,
    EventResource,
    EventWithHint,
    Features,
    Placement,
    PlacementGeneratePlugin,
    PlacementScorePlugin,  # the constructor's types are read
    PodGroupMembers,  # the constructor's types are read
    PodGroupObjects,
    QueueingHint,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from scheduler.framework import PodGroup
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey
    from scheduler.snapshot import Snapshot

_UNKNOWN = "cannot determine domain for already scheduled pods:"


def _group(pod: PodInfo) -> GroupKey | None:
    return pod.group


def _groups(pod: PodInfo) -> tuple[GroupKey, ...]:
    return () if pod.group is None else (pod.group,)


class TopologyPlacementGenerator(PlacementGeneratePlugin):
    """Creates a placement for each domain; for a group with placed pods, only for their domain."""

    name = "TopologyPlacementGenerator"
    api_version = 1

    def __init__(self, *, members: PodGroupMembers, groups: PodGroupObjects, features: Features) -> None:
        self._members, self._groups = members, groups
        self._has_trees = features.enabled("CompositePodGroup")

    def events(self) -> Sequence[EventWithHint]:
        """Register for added and relabelled nodes, and for deleted pods of the group: other domains may fit then."""
        return (
            EventWithHint(ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)),
            EventWithHint(
                ClusterEvent(EventResource.ASSIGNED_POD, ActionType.DELETE),
                self._after_deletion,
                _group,
                lambda gone, _: self._in_tree_of(gone),
                _groups,
            ),
        )

    def _after_deletion(self, waiting: PodInfo, gone: PodInfo, _: None) -> QueueingHint:
        return QueueingHint.QUEUE if waiting.group in self._in_tree_of(gone) else QueueingHint.SKIP

    def _in_tree_of(self, pod: PodInfo) -> Collection[GroupKey]:
        """Return the groups that a topology constraint may place together with a pod."""
        if pod.group is None or not self._has_trees:
            return _groups(pod)
        lineage = self._groups.lineage(pod.group)
        tree = self._groups.tree(lineage[-1].key) if lineage else None
        return _groups(pod) if tree is None else tree.leaf_keys

    def generate_placements(
        self, group: PodGroup, members: Sequence[PodInfo], snapshot: Snapshot
    ) -> Sequence[Placement] | Status | None:
        if not group.topology_key:
            return None
        labels = snapshot.label(group.topology_key)
        domain = self._domain_of_placed(group, snapshot)
        if isinstance(domain, Status):
            return domain
        codes, values = labels.codes, labels.values
        if not len(codes):
            return []
        order = np.argsort(codes, kind="stable")
        found, begins = np.unique(codes[order], return_index=True)
        placements = [
            Placement(value, rows)
            for code, rows in zip(found.tolist(), np.split(order, begins[1:]), strict=True)
            if (value := values[code]) is not None and domain in {None, value}
        ]
        # Sorted by name: ties must not depend on the order in which labels were added.
        return sorted(placements, key=lambda each: each.name)

    def _domain_of_placed(self, group: PodGroup, snapshot: Snapshot) -> str | Status | None:
        """Return the domain of the group's placed pods; None if there are none."""
        domains: set[str] = set()
        for pod in (pod for leaf in group.leaves for pod in self._members.placed(leaf.key)):
            row = snapshot.row_of(pod.node_name)
            if row is None:
                return Status.failed(
                    f'{_UNKNOWN} getting node for pod {pod.key}: node "{pod.node_name}" not found'
                )
            domain = snapshot.nodes[row].labels.get(group.topology_key)
            if domain is None:
                return Status.failed(f"{_UNKNOWN} no topology domain found for pod {pod.key}")
            domains.add(domain)
        if len(domains) > 1:
            domain_names = ", ".join(sorted(domains))
            return Status.failed(f"{_UNKNOWN} more than 1 domain found for pod group: {domain_names}")
        return domains.pop() if domains else None


class PodGroupPodsCount(PlacementScorePlugin):
    """Prefers the placement that fits the most pods of a group."""

    name = "PodGroupPodsCount"
    api_version = 1

    def __init__(self, *, members: PodGroupMembers) -> None:
        self._members = members

    def score_placement(
        self, group: PodGroup, placement: Placement, assigned: Sequence[PodInfo], snapshot: Snapshot
    ) -> int:
        return sum(len(self._members.placed(leaf.key)) for leaf in group.leaves) + len(assigned)

    def foresee(
        self, group: PodGroup, placement: Placement, members: Sequence[PodInfo], snapshot: Snapshot
    ) -> int | None:
        return self.score_placement(group, placement, members, snapshot)

    def normalize_placement_scores(self, group: PodGroup, scores: Sequence[int]) -> Sequence[int]:
        most = max(scores)
        if not most:
            raise ValueError("no pods from pod group are assigned to any of the candidate placements")
        return [score * 100 // most for score in scores]
