"""Explains which constraint a node violates, with the pods of each domain, and which maxSkew would admit the pod."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from scheduler.framework import Change, NodesExplanation, Remedy
from scheduler.objects.label_index import some_of, written_rule
from scheduler.objects.v1 import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plugins.pod_topology_spread.constraints import DomainCounts
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Rows, Snapshot

_DOMAINS_SHOWN: Final = 8


def why_not_on(counts: Sequence[DomainCounts], row: int) -> Iterator[str]:
    """Yield each constraint that a node violates; nothing if it violates none."""
    for each in counts:
        constraint = each.constraint
        domain = each.domain_of(row)
        if domain is None:
            yield f"{_written(each)}: the node has no label {constraint.topology_key}"
            continue
        skew = each.skew_of(row)
        if skew > constraint.max_skew:
            yield (
                f"{_written(each)}: a pod here would make the skew {skew}; {domain} has {_pods(each.pods_of(row))}, "
                f"the minimum is {each.fewest}; {_counts(each)}"
            )


def why_not_on_nodes(
    counts: Sequence[DomainCounts], pod: PodInfo, snapshot: Snapshot, rows: Rows
) -> NodesExplanation:
    """Return which constraints some nodes violate, and the remedies: a higher maxSkew for one constraint."""
    violated = [each for each in counts if each.verdicts(Counter())[rows].any()]
    summary = "; ".join(f"{_written(each)}: {_counts(each)}" for each in violated)
    written = pod.pod.spec.topology_spread_constraints
    places = [place for place, each in enumerate(written) if each.when_unsatisfiable == DO_NOT_SCHEDULE]
    # The constraints of the configuration are not the pod's to change.
    remedies = [
        _higher_skew(pod, places[number], each, snapshot)
        for number, each in enumerate(counts)
        if each in violated and number < len(places)
    ]
    return NodesExplanation(summary, remedies)


def _higher_skew(pod: PodInfo, place: int, counts: DomainCounts, snapshot: Snapshot) -> Remedy:
    """Return the remedy that a pod's constraint allows a larger skew."""

    def with_constraint(**changed: int | str) -> PodInfo:
        constraints = list(pod.pod.spec.topology_spread_constraints)
        constraints[place] = replace(constraints[place], **changed)
        return pod.with_spec(topology_spread_constraints=tuple(constraints))

    relaxed = with_constraint(when_unsatisfiable=SCHEDULE_ANYWAY)
    key, now = counts.constraint.topology_key, counts.constraint.max_skew

    def change(rows: Rows) -> Change | None:
        row = int(rows[counts.skews(rows).argmin()])
        if counts.domain_of(row) is None:
            text = f"{snapshot.name_of(row)} had the label {key} (or the pod were not spread over it)"
            return Change(row, text, relaxed)
        skew = counts.skew_of(row)
        if skew <= now:
            return None
        text = f"maxSkew of its spread over {key} were {skew} or more (now {now})"
        return Change(row, text, with_constraint(max_skew=skew))

    return Remedy(relaxed, change)


def _written(counts: DomainCounts) -> str:
    constraint = counts.constraint
    return f"spread of {written_rule(constraint.rule)} over {constraint.topology_key} (maxSkew {constraint.max_skew})"


def _counts(counts: DomainCounts) -> str:
    """Return the matching pods by domain, the fewest first."""
    domains = [f"{domain} {pods}" for domain, pods in counts.by_domain()]
    if not domains:
        return "no node counts as a domain"
    least = counts.constraint.min_domains
    few = f", fewer domains than minDomains {least}" if len(domains) < least else ""
    return f"pods by domain: {some_of(domains, _DOMAINS_SHOWN)}{few}"


def _pods(count: int) -> str:
    return f"{count} pod{'' if count == 1 else 's'}"
