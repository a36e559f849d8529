"""What a pod demands and prefers of its node: a few terms are judged at once, very many in steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.selectors import Operator, Requirement
from scheduler.snapshot import WeighedTerms, nodes_required, nodes_with_labels

if TYPE_CHECKING:
    from plugins.work_in_steps import Work
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Bools, Int64s, Snapshot

_MOST_BYTES: Final = 8 * 1024
"""A pod whose node affinity is longer is judged in steps."""
_MOST_LABELS: Final = 128
"""So is a pod whose nodeSelector names more labels."""


def has_many_terms(pod: PodInfo) -> bool:
    """Return whether a pod's nodeSelector and node affinity may take longer than one call may."""
    return len(pod.written_node_affinity) > _MOST_BYTES or len(pod.pod.spec.node_selector) > _MOST_LABELS


def nodes_demanded(snapshot: Snapshot, pod: PodInfo, work: Work) -> Bools:
    """Return bool (n_nodes,), where a pod's nodeSelector and required node affinity hold.

    Raises:
        NeedsTime: there are so many terms that it takes longer than one call may.
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


def worth_of_preferences(snapshot: Snapshot, pod: PodInfo, work: Work) -> Int64s:
    """Return int64 (n_nodes,), the sum of the weights of a pod's preferred terms that hold.

    Raises:
        NeedsTime: there are so many that it takes longer than one call may.
        SelectorError: a term is not valid.
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
