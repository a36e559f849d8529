"""Buckets of nodes and pods, and the replica that should own each bucket.

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
    from scheduler.snapshot import Snapshot, UInt16s
    from scheduler.snapshot.arrays import ChangeLog

BUCKETS: Final = 256
"""The number of buckets. All replicas must agree on it, so it is no setting."""
HOSTNAME: Final = "kubernetes.io/hostname"
_NO_AFFINITY: Final = PodAffinity()
_WEIGHTS_KEPT: Final = 2**14
_BUCKETS_KEPT: Final = 2**16


@lru_cache(maxsize=_BUCKETS_KEPT)
def bucket_of(key: str) -> int:
    """Return the bucket of a node's name, or of the key of a pod (see `key_of`).

    That of a node depends on the name alone. Replicas see a changed label at different times, so a bucket that depended on
    the zone could have two owners for one node.
    """
    return _number(key) % BUCKETS


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
        name = min(
            (each for each in owned if sizes[each]), key=lambda each: (-_weight(str(bucket), each), each)
        )
        owners[bucket] = name
        sizes[name] -= 1
    return tuple(owners)


def key_of(pod: PodInfo, *, has_quota: bool = False) -> str:
    """Return the key that decides which replica decides about a pod; pods with one key meet in one replica.

    It is one key for all pods with quotas; else that of the groups of a namespace, because a group may be a part of another
    one; else that of the namespace, for pods with required constraints that pods on other nodes may violate; else the
    controller; else the pod.

    Args:
        pod: the pod.
        has_quota: whether the profile of the pod enforces quotas.
    """
    if has_quota:
        return "quotas"
    if pod.group is not None:
        return f"groups/{pod.namespace}"
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


class NodeBuckets:
    """The bucket of each node of a snapshot."""

    def __init__(self) -> None:
        self._log: ChangeLog | None = None
        self._seen = 0
        self._buckets: UInt16s = np.zeros(0, dtype=np.uint16)

    def of(self, snapshot: Snapshot) -> UInt16s:
        """Return uint16 (n_nodes,), the bucket of each row: the same array until a bucket changes."""
        log = snapshot.node_changes
        assert log is not None, "the nodes of a hypothetical cluster have no owners"
        n_nodes, known = snapshot.n_nodes, self._buckets
        changed = log.since(self._seen) if self._log is log else None
        if changed is None:
            self._buckets = np.array([bucket_of(name) for name in snapshot.names], dtype=np.uint16)
        elif changed:
            # A row may have another node now.
            rows = {row: bucket_of(snapshot.names[row]) for row in changed if row < n_nodes}
            if len(known) != n_nodes or any(known[row] != bucket for row, bucket in rows.items()):
                self._buckets = np.resize(known, n_nodes)
                self._buckets[list(rows)] = list(rows.values())
        self._log, self._seen = log, log.end
        return self._buckets


@lru_cache(maxsize=_WEIGHTS_KEPT)
def _weight(key: str, member: str) -> int:
    return _number(f"{key}\n{member}")


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
