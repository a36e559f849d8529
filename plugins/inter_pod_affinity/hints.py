"""Which changes of pods and nodes may help a pod that affinity or anti-affinity kept waiting.

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

_ANYBODY: Final = ""  # what every pod brings, whatever its labels are
_OWN: Final = "own"  # of a label: of the waiting pod
_NO_LABELS: Final[Mapping[str, str]] = {}
_MOST_TERMS: Final = 100
"""A hint looks at no more terms of a list than these."""


def after_pod_change(pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> QueueingHint:
    """Return whether a pod that came, went or got other labels may help a waiting one."""
    if old is not None and new is not None and new.uid == pod.uid:
        return QueueingHint.QUEUE  # its own labels: others' terms may not mean it any more
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
    """Return whether a node that came or got other labels may help a waiting pod."""
    terms = pod.affinity_terms
    if terms.faults:
        return QueueingHint.QUEUE
    wanted, unwanted = topology_keys(terms.required_affinity), topology_keys(terms.required_anti_affinity)
    if old is None:
        helps = bool(unwanted) or any(key in new.labels for key in wanted)
    else:
        before, after = old.labels, new.labels
        # A node without the label is nowhere near wanted pods, and never too near unwanted ones.
        helps = any(key in after and before.get(key) != after[key] for key in wanted) or any(
            key in before and before[key] != after.get(key) for key in unwanted
        )
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def alike(pod: PodInfo) -> Hashable:
    """Return all that the hints read of a waiting pod."""
    return pod.affinity_terms, pod.namespace, frozenset(pod.labels.items())


def brought_by_pod(old: PodInfo | None, new: PodInfo | None) -> set[Hashable] | None:
    """Return what a pod brings that came, went or got other labels: its labels, and whom it kept away."""
    keys: set[Hashable] = set()
    for each in (old, new):
        if each is not None:
            if not _is_placed(each):
                return set()
            keys.add(_ANYBODY)  # some await that a label is not there
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
    """Return the labels of which others must have one, and the pod's own, which others may keep away."""
    terms = pod.affinity_terms
    if terms.faults:
        return None
    keys: set[Hashable] = {(_OWN, key) for key in keys_of_labels(pod.labels)}
    for some in (terms.required_affinity, terms.required_anti_affinity):
        if some:  # all of them must mean the other pod, so the first
            wanted = keys_of_rule(some[0].term.rule)
            if wanted is None:
                return None
            keys |= wanted
    return keys


def brought_by_node(old: NodeObject | None, new: NodeObject) -> set[LabelKey] | None:
    """Return the labels of a node that came or changed; a new one may help whoever keeps away from others."""
    return None if old is None else set(keys_of_changes(old.labels, new.labels))


def awaited_of_nodes(pod: PodInfo) -> set[LabelKey] | None:
    """Return the topology keys of what a pod requires."""
    terms = pod.affinity_terms
    if terms.faults:
        return None
    return {*topology_keys(terms.required_affinity), *topology_keys(terms.required_anti_affinity)}


def _is_placed(pod: PodInfo) -> bool:
    """Whether a pod is on a node or expected on one."""
    return bool(pod.node_name or pod.pod.status.nominated_node_name)


def _may_match(terms: Sequence[WeightedTerm], pod: PodInfo) -> bool:
    """Whether there are terms and all mean a pod, as far as is looked; what its namespace's labels are is not.

    A hint is asked for each waiting pod, so of very many terms it looks at the first ones. It wakes a pod too often rather
    than not at all.
    """
    return bool(terms) and all(
        each.term.matches(pod.namespace, pod.labels, _NO_LABELS) for each in islice(terms, _MOST_TERMS)
    )


def _do_match(terms: Sequence[WeightedTerm], pod: PodInfo) -> bool:
    """Whether it is certain that there are terms and all mean a pod."""
    return len(terms) <= _MOST_TERMS and _may_match(terms, pod)
