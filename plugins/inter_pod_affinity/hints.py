"""Queueing hints: which changes of pods and nodes may help a pod that affinity or anti-affinity rejected.

Source:
    kube-scheduler v1.36, plugins/interpodaffinity: plugin.go, isSchedulableAfterPodChange and
    isSchedulableAfterNodeChange; filtering.go, podMatchesAllAffinityTerms.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from scheduler.framework import QueueingHint
from scheduler.objects.label_keys import keys_of_changes, keys_of_labels, keys_of_rule
from scheduler.objects.pod_affinity import topology_keys

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from scheduler.objects.label_keys import LabelKey
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_affinity import WeightedTerm

_ANYBODY: Final = ""  # a key of every pod event, whatever its labels are
_OWN: Final = "own"  # prefix of keys for the waiting pod's own labels
_NO_LABELS: Final[Mapping[str, str]] = {}
_MOST_TERMS: Final = 100
"""The maximum number of terms that a hint checks."""


def after_pod_change(pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> QueueingHint:
    """Return whether an added, deleted or relabelled pod may help a waiting one."""
    if old is not None and new is not None and new.uid == pod.uid:
        return QueueingHint.QUEUE  # its own labels changed: other pods' terms may not match it any more
    if any(each is not None and not _is_placed(each) for each in (new, old)):
        return QueueingHint.SKIP
    terms = pod.affinity_terms
    if terms.faults:
        return QueueingHint.QUEUE
    wanted, unwanted = terms.required_affinity, terms.required_anti_affinity
    if old is None:
        assert new is not None, "something came or went"
        helps = _may_match(wanted, new)
    elif new is None:
        others = old.affinity_terms
        helps = (
            _may_match(unwanted, old) or bool(others.faults) or _may_match(others.required_anti_affinity, pod)
        )
    else:
        helps = (_may_match(wanted, new) and not _do_match(wanted, old)) or (
            _may_match(unwanted, old) and not _do_match(unwanted, new)
        )
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def after_node_change(pod: PodInfo, old: NodeObject | None, new: NodeObject) -> QueueingHint:
    """Return whether an added or relabelled node may help a waiting pod."""
    terms = pod.affinity_terms
    if terms.faults:
        return QueueingHint.QUEUE
    wanted, unwanted = topology_keys(terms.required_affinity), topology_keys(terms.required_anti_affinity)
    if old is None:
        helps = bool(unwanted) or any(key in new.labels for key in wanted)
    else:
        before, after = old.labels, new.labels
        # A node without the label has no domain: it never satisfies affinity, and never violates anti-affinity.
        helps = any(key in after and before.get(key) != after[key] for key in wanted) or any(
            key in before and before[key] != after.get(key) for key in unwanted
        )
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def alike(pod: PodInfo) -> Hashable:
    """Return all fields of a waiting pod that the hints read."""
    return pod.affinity_terms, pod.namespace, frozenset(pod.labels.items())


def brought_by_pod(old: PodInfo | None, new: PodInfo | None) -> set[Hashable] | None:
    """Return the keys of a pod event: the pod's labels, and the pods that its anti-affinity excluded."""
    keys: set[Hashable] = set()
    for each in (old, new):
        if each is not None:
            if not _is_placed(each):
                return set()
            keys.add(_ANYBODY)  # some pods wait for the absence of a label
            keys.update(keys_of_labels(each.labels))
    if old is not None and new is None:
        others = old.affinity_terms
        if others.faults:
            return None
        if others.required_anti_affinity:
            kept_away = keys_of_rule(others.required_anti_affinity[0].term.rule)
            if kept_away is None:
                return None
            keys.update((_OWN, key) for key in kept_away)
    return keys


def awaited_of_pods(pod: PodInfo) -> set[Hashable] | None:
    """Return the labels one of which another pod must have, and the pod's own, which another pod may exclude."""
    terms = pod.affinity_terms
    if terms.faults:
        return None
    keys: set[Hashable] = {(_OWN, key) for key in keys_of_labels(pod.labels)}
    for some in (terms.required_affinity, terms.required_anti_affinity):
        if some:  # another pod must match all terms, so the first one is enough
            wanted = keys_of_rule(some[0].term.rule)
            if wanted is None:
                return None
            keys |= wanted
    return keys


def brought_by_node(old: NodeObject | None, new: NodeObject) -> set[LabelKey] | None:
    """Return the new or changed labels of a node; an added node may help any pod with anti-affinity."""
    return None if old is None else set(keys_of_changes(old.labels, new.labels))


def awaited_of_nodes(pod: PodInfo) -> set[LabelKey] | None:
    """Return the topology keys of a pod's required terms."""
    terms = pod.affinity_terms
    if terms.faults:
        return None
    return {*topology_keys(terms.required_affinity), *topology_keys(terms.required_anti_affinity)}


def _is_placed(pod: PodInfo) -> bool:
    """Return whether a pod is on a node or nominated to one."""
    return bool(pod.node_name or pod.pod.status.nominated_node_name)


def _may_match(terms: Sequence[WeightedTerm], pod: PodInfo) -> bool:
    """Return whether there are terms and all may match a pod; namespace selectors are not evaluated.

    A hint is called for each waiting pod, so of very many terms it checks the first ones only. It may requeue a pod too
    often, but never misses an event.
    """
    return bool(terms) and all(
        each.term.matches(pod.namespace, pod.labels, _NO_LABELS) for each in islice(terms, _MOST_TERMS)
    )


def _do_match(terms: Sequence[WeightedTerm], pod: PodInfo) -> bool:
    """Return whether there certainly are terms and all match a pod."""
    return len(terms) <= _MOST_TERMS and _may_match(terms, pod)
