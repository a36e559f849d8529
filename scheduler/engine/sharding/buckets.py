"""Buckets of nodes, the replica that should own each bucket, and the order in which replicas try a pod.

Every replica computes the same results from the same names. These are rules of this scheduler; docs/sharding.md has the
reasons.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.objects.pod_affinity import PodAffinity
from scheduler.objects.v1 import DO_NOT_SCHEDULE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_affinity import PodAffinityTerm
    from scheduler.objects.pod_group import GroupKey
    from scheduler.snapshot import Int32s, Rows, Snapshot
    from scheduler.snapshot.arrays import ChangeLog

BUCKETS: Final = 256
"""The number of buckets. All replicas must agree on it, so it is no setting."""
HOSTNAME: Final = "kubernetes.io/hostname"
_NO_AFFINITY: Final = PodAffinity()
_NAMES_KEPT: Final = 2**18


@lru_cache(maxsize=_NAMES_KEPT)
def bucket_of(node_name: str) -> int:
    """Return the bucket of a node.

    It depends on the name alone. Replicas see a changed label at different times, so a bucket that depended on the zone
    could have two owners for one node.
    """
    return _number(node_name) % BUCKETS


def wanted_owners(
    members: Collection[str], before: Sequence[str] = (), *, count: int = BUCKETS
) -> tuple[str, ...]:
    """Return the member that should own each bucket.

    Each member owns as many buckets as any other, or one more. A bucket stays with its owner if possible: if a member
    joins, its buckets are all that move, and if one leaves, only its buckets move. Where a free bucket goes, and which
    buckets move to a new member, is decided by rendezvous hashing.

    Args:
        members: the names of the members.
        before: the owners until now; a name that is no member owns nothing. Empty for none.
        count: the number of buckets.

    Raises:
        ValueError: there is no member, or there are more members than buckets.
    """
    if not 0 < len(members) <= count:
        raise ValueError(f"{len(members)} members cannot own {count} buckets")
    owned: dict[str, list[int]] = {name: [] for name in sorted(members)}
    for bucket, name in enumerate(before):
        if name in owned:
            owned[name].append(bucket)
    fewest, more = divmod(count, len(owned))
    largest_first = sorted(owned, key=lambda name: -len(owned[name]))
    sizes = {name: fewest + (rank < more) for rank, name in enumerate(largest_first)}
    owners = [""] * count
    for name, buckets in owned.items():
        kept = sorted(buckets, key=lambda bucket: -_weight(str(bucket), name))[: sizes[name]]
        sizes[name] -= len(kept)
        for bucket in kept:
            owners[bucket] = name
    for bucket in [bucket for bucket, name in enumerate(owners) if not name]:
        name = next(each for each in ranked(str(bucket), owned) if sizes[each])
        owners[bucket] = name
        sizes[name] -= 1
    return tuple(owners)


def ranked(key: str, members: Collection[str]) -> tuple[str, ...]:
    """Return the members in the order of their weight for a key; without one of them, the order of the others stays."""
    return tuple(sorted(members, key=lambda name: (-_weight(key, name), name)))


def key_of(pod: PodInfo, group: GroupKey | None = None) -> str:
    """Return the key by which the replicas are ranked for a pod; pods with one key meet in one replica.

    The key is that of the group; else of the namespace, for pods with required constraints that pods on other nodes may
    violate; else of the controller; else of the pod.

    Args:
        pod: the pod.
        group: the root of the tree of its group; None for the group that the pod names.
    """
    group = group or pod.group
    if group is not None:
        return "/".join(("group", *group))
    if any(_wide_constraints(pod)):
        # A term may select pods of other namespaces: all pods with such terms meet.
        return "namespaces" if any(_selects_namespaces(pod)) else f"namespace/{pod.namespace}"
    owners = pod.pod.metadata.owner_references
    controller = next((owner for owner in owners if owner.controller), None)
    return f"pod/{pod.uid}" if controller is None else f"controller/{controller.uid or controller.name}"


def _wide_constraints(pod: PodInfo) -> Iterator[bool]:
    """Return, for each required constraint, whether a pod that another replica places at the same time may violate it.

    One replica alone adds pods to a node, so anti-affinity between pods of a node, and spread over nodes, are safe. Required
    affinity is not: several first pods of a set could begin it in several domains.
    """
    for constraint in pod.pod.spec.topology_spread_constraints:
        yield constraint.when_unsatisfiable == DO_NOT_SCHEDULE and constraint.topology_key != HOSTNAME
    near, apart = _required_terms(pod)
    yield bool(near)
    for term in apart:
        yield term.topology_key != HOSTNAME


def _selects_namespaces(pod: PodInfo) -> Iterator[bool]:
    for term in chain(*_required_terms(pod)):
        yield term.namespace_selector is not None or not {pod.namespace}.issuperset(term.namespaces)


def _required_terms(pod: PodInfo) -> tuple[Sequence[PodAffinityTerm], Sequence[PodAffinityTerm]]:
    """Return the terms of affinity, and those of anti-affinity, as written: parsing thousands of them takes long."""
    affinity = pod.pod.spec.affinity
    if affinity is None:
        return (), ()
    near, apart = affinity.pod_affinity or _NO_AFFINITY, affinity.pod_anti_affinity or _NO_AFFINITY
    return (
        near.required_during_scheduling_ignored_during_execution,
        apart.required_during_scheduling_ignored_during_execution,
    )


class NodeShards:
    """The nodes of each replica, while the owners do not change.

    Args:
        members: the replicas.

    Attributes:
        passed_on: number of pods that another replica than the first placed.

    Raises:
        ValueError: there is no member, or there are more members than buckets.
    """

    def __init__(self, members: Collection[str]) -> None:
        self.passed_on = 0
        self._members = tuple(members)
        places = {name: place for place, name in enumerate(self._members)}
        self._place_of_bucket = [places[name] for name in wanted_owners(self._members)]
        self._log: ChangeLog | None = None
        self._seen = 0
        self._places: Int32s = np.zeros(0, dtype=np.int32)  # the owner of each row, as an index of `members`

    def order(self, key: str, first: str = "") -> Sequence[str]:
        """Return the replicas in the order in which they try the pods with a key.

        Args:
            key: the key.
            first: a node whose owner comes first; "" for none.
        """
        names = ranked(key, self._members)
        if not first:
            return names
        owner = self._members[self._place_of_bucket[bucket_of(first)]]
        return (owner, *(name for name in names if name != owner))

    def rows(self, member: str, snapshot: Snapshot) -> Rows:
        """Return the rows of a replica's nodes, ascending."""
        self._follow(snapshot)
        return np.flatnonzero(self._places == self._members.index(member))

    def _follow(self, snapshot: Snapshot) -> None:
        log = snapshot.node_changes
        assert log is not None, "the nodes of a hypothetical cluster have no owners"
        if self._log is log and self._seen == log.end and len(self._places) == snapshot.n_nodes:
            return
        self._log, self._seen = log, log.end
        # All nodes are read, because a row may have another node now; nodes change rarely.
        places = [self._place_of_bucket[bucket_of(name)] for name in snapshot.names]
        self._places = np.array(places, dtype=np.int32)


@lru_cache(maxsize=_NAMES_KEPT)
def _weight(key: str, member: str) -> int:
    return _number(f"{key}\n{member}")


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
