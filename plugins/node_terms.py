"""Required and preferred node terms of a pod: a few terms are evaluated at once, very many in steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.selectors import Operator, Requirement
from scheduler.snapshot import WeighedTerms, nodes_required, nodes_with_labels

if TYPE_CHECKING:
    from plugins.pod_work import PluginWork
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Bools, Int64s, Snapshot

_MOST_BYTES: Final = 8 * 1024
"""Node affinity with more terms than this is evaluated in steps."""
_MOST_LABELS: Final = 128
"""A nodeSelector with more labels than this is evaluated in steps."""


def has_many_terms(pod: PodInfo) -> bool:
    """Return whether evaluating a pod's nodeSelector and node affinity may take longer than one time slice."""
    return len(pod.written_node_affinity) > _MOST_BYTES or len(pod.pod.spec.node_selector) > _MOST_LABELS


def nodes_demanded(snapshot: Snapshot, pod: PodInfo, work: PluginWork) -> Bools:
    """Return bool (n_nodes,), which nodes match a pod's nodeSelector and required node affinity.

    Raises:
        NeedsTime: evaluating the terms takes longer than one time slice.
    """
    if not has_many_terms(pod):
        return nodes_required(snapshot, pod.required_node_affinity)
    labels = pod.pod.spec.node_selector.items()
    chosen = nodes_with_labels(
        snapshot, (Requirement(key, Operator.IN, frozenset({value})) for key, value in labels)
    )
    affinity = pod.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is not None:
        terms = WeighedTerms(("required", pod.written_node_affinity), required.node_selector_terms)
        tally = snapshot.node_tally(terms)
        work.done(tally.steps())
        chosen &= tally.worth() > 0
    return chosen


def worth_of_preferences(snapshot: Snapshot, pod: PodInfo, work: PluginWork) -> Int64s:
    """Return int64 (n_nodes,), the sum of the weights of a pod's matching preferred terms.

    Raises:
        NeedsTime: evaluating the terms takes longer than one time slice.
        SelectorError: a term is invalid.
    """
    affinity = pod.node_affinity
    preferred = affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()
    terms = WeighedTerms(
        ("preferred", pod.written_node_affinity),
        [each.preference for each in preferred],
        [each.weight for each in preferred],
        needs_rules=True,
    )
    tally = snapshot.node_tally(terms)
    work.done(tally.steps())
    return tally.worth()
