"""Explains which affinity or anti-affinity term keeps a pod from a node, and the pod on the other side of it."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec.structs import replace

from scheduler.framework import Change, NodesExplanation, Remedy
from scheduler.objects.label_index import some_of, value_of, written_rule
from scheduler.snapshot import TermKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plugins.inter_pod_affinity.terms import IncomingTerms
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_affinity import AffinityTerm
    from scheduler.snapshot import NodeInfo, PodQuery, Rows, Snapshot

_MOST_TERMS: Final = 16
"""The number of terms that are explained."""


class AffinityExplanation:
    """Explains the terms of one pod, and those of pods on nodes that match it, in the current cluster.

    Args:
        pod: the pod.
        terms: its terms.
        namespace_labels: the labels of its namespace.
        snapshot: the cluster.
    """

    def __init__(
        self, pod: PodInfo, terms: IncomingTerms, namespace_labels: Mapping[str, str], snapshot: Snapshot
    ) -> None:
        self._pod, self._terms, self._snapshot = pod, terms, snapshot
        self._namespace_labels = namespace_labels

    def why_not_on(self, node: NodeInfo) -> Iterator[str]:
        """Yield each term that keeps the pod from a node; nothing if there is none."""
        yield from (f"{term}: {why}" for term, why in self._own_terms(node, "this node"))
        yield from self._existing(node, "this node")

    def _own_terms(self, node: NodeInfo, here: str) -> Iterator[tuple[str, str]]:
        """Yield each of the pod's terms that keeps it from a node, which is called `here`, and why."""
        yield from self._affinity(node)
        own = self._pod.affinity_terms.required_anti_affinity[:_MOST_TERMS]
        for each, counted in zip(own, self._terms.anti_affinity, strict=False):
            other = self._near(counted.query, counted.topology_key, node, here)
            if other is not None:
                yield f"anti-affinity {_written(each.term)}", other

    def remedies(self, rows: Rows) -> NodesExplanation:
        """Return the remedies: the pod without its required affinity, or without its required anti-affinity."""
        affinity = self._pod.pod.spec.affinity
        if affinity is None:
            return NodesExplanation(self._summary(rows))
        found = []
        own = self._pod.affinity_terms
        if own.required_affinity and affinity.pod_affinity is not None:
            without = replace(affinity.pod_affinity, required_during_scheduling_ignored_during_execution=())
            found.append(self._without(self._pod.with_spec(affinity=replace(affinity, pod_affinity=without))))
        if own.required_anti_affinity and affinity.pod_anti_affinity is not None:
            without = replace(
                affinity.pod_anti_affinity, required_during_scheduling_ignored_during_execution=()
            )
            found.append(
                self._without(self._pod.with_spec(affinity=replace(affinity, pod_anti_affinity=without)))
            )
        return NodesExplanation(self._summary(rows), found)

    def _summary(self, rows: Rows) -> str:
        """Return the first term that keeps the pod from the first node."""
        if not rows.size:
            return ""
        node = self._snapshot.node_info(int(rows[0]))
        own = (f"{term}: {why}" for term, why in self._own_terms(node, node.name))
        return next(chain(own, self._existing(node, node.name)), "")

    def _without(self, relaxed: PodInfo) -> Remedy:
        def change(fitting: Rows) -> Change | None:
            row = int(fitting[0])
            node = self._snapshot.node_info(row)
            terms = [f"{term} ({why})" for term, why in self._own_terms(node, node.name)]
            if not terms:
                return None
            return Change(row, f"it did not require the {' and the '.join(terms)}", relaxed)

        return Remedy(relaxed, change)

    def _affinity(self, node: NodeInfo) -> Iterator[tuple[str, str]]:
        """Yield the terms of required affinity that a node does not satisfy.

        A pod near the node has to match all terms. The first pod of a series with affinity to itself needs no other.
        """
        own, query = self._pod.affinity_terms.required_affinity, self._terms.affinity
        if not own:
            return
        places = np.flatnonzero(self._snapshot.pods_matching(query))
        if not places.size and query.matches(self._pod):
            places = self._snapshot.all_rows  # only the labels of the node matter
        for each in own[:_MOST_TERMS]:
            key, term = each.term.topology_key, f"affinity {_written(each.term)}"
            if key not in node.labels:
                yield term, f"{node.name} has no label {key}"
            elif places is not self._snapshot.all_rows and self._near(query, key, node, "") is None:
                yield (
                    term,
                    f"no such pod in {value_of(key, node.labels)}{self._elsewhere(query, key, places)}",
                )

    def _elsewhere(self, query: PodQuery, key: str, places: Rows) -> str:
        """Return where pods match a query."""
        if not places.size:
            return ", nor on any other node"
        shown = [
            f"{other} on {node.name} ({value_of(key, node.labels)})"
            for node in (self._snapshot.node_info(row) for row in places[:2].tolist())
            if (other := _matching(query, node)) is not None
        ]
        rest = len(places) - len(shown)
        return f"; such pods: {', '.join(shown)}" + (f" and on {rest} more nodes" if rest > 0 else "")

    def _near(self, query: PodQuery, key: str, node: NodeInfo, here: str) -> str | None:
        """Return the pods that match a query in the domain of a node, which is called `here`; None if there are none."""
        if key not in node.labels:
            return None
        rows = self._domain(np.flatnonzero(self._snapshot.pods_matching(query)), key, node)
        if not rows.size:
            return None
        other = self._snapshot.node_info(int(rows[0]))
        where = here if other.name == node.name else f"{other.name} ({value_of(key, other.labels)})"
        return f"pod {_matching(query, other)} is on {where}"

    def _domain(self, rows: Rows, key: str, node: NodeInfo) -> Rows:
        """Return the rows that are in the domain of a node, its own row first."""
        codes = self._snapshot.label(key).codes
        same: Rows = rows[codes[rows] == codes[node.row]]
        return np.concatenate([same[same == node.row], same[same != node.row]])

    def _existing(self, node: NodeInfo, here: str) -> Iterator[str]:
        """Yield the required anti-affinity of pods near a node, which is called `here`, that matches the pod."""
        pod = self._pod
        found = self._snapshot.affinity_terms(TermKind.REQUIRED_ANTI_AFFINITY).matching(
            pod.namespace, pod.labels, self._namespace_labels
        )
        for key, rows, counts in found.amounts():
            near = self._domain(rows[counts > 0], key, node) if key in node.labels else rows[:0]
            for row in near[:1].tolist():
                other = self._snapshot.node_info(row)
                where = here if row == node.row else f"{other.name} ({value_of(key, other.labels)})"
                for each, term in self._held(other, key):
                    yield f"pod {each.key} on {where} has anti-affinity to {_written(term)}"

    def _held(self, node: NodeInfo, key: str) -> Iterator[tuple[PodInfo, AffinityTerm]]:
        """Yield the first pod on a node with a term against the pod, and the term."""
        pod = self._pod
        for each in node.pods:
            for weighted in each.affinity_terms.required_anti_affinity[:_MOST_TERMS]:
                term = weighted.term
                if term.topology_key == key and term.matches(
                    pod.namespace, pod.labels, self._namespace_labels
                ):
                    yield each, term
                    return


def _matching(query: PodQuery, node: NodeInfo) -> str | None:
    """Return the pods on a node that match a query."""
    found = [each.key for each in node.pods if query.matches(each)]
    return some_of(found) if found else None


def _written(term: AffinityTerm) -> str:
    return f"{written_rule(term.rule)} in {term.topology_key}"
