"""Verifies columns: recounts some rows from their nodes and pods, and compares the results.

Columns are updated incrementally, so the error of a missed change would stay until the node is removed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from scheduler.objects.pod_affinity import NO_TERMS
from scheduler.snapshot.affinity_index import TermKind
from scheduler.snapshot.table import ClusterTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scheduler.objects.pod_affinity import AffinityTerms
    from scheduler.snapshot.interning import Interned
    from scheduler.snapshot.table import KeptColumns


def wrong_rows(table: ClusterTable, rows: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yield (row, problem) for each column that disagrees with a row's node and pods."""
    fresh = ClusterTable()
    for row in rows:
        place = fresh.add_node(table.nodes[row])
        for pod in table.pods_on(row).values():
            fresh.add_pod(place, pod)
    kept = table.kept_columns
    resources = {*kept.resources, *fresh.resources()}
    here, places = list(rows), list(range(len(rows)))
    found, wanted = (_columns(each, at, kept, resources) for each, at in ((table, here), (fresh, places)))
    for (name, values), (_, counted) in zip(found, wanted, strict=True):
        for row, value, count in zip(rows, values, counted, strict=True):
            if value != count:
                yield row, f"{name} is {value}, should be {count}"


def wrong_terms(table: ClusterTable) -> Iterator[str]:
    """Yield a problem for affinity terms whose indexed rows disagree with the pods on nodes."""
    wanted: defaultdict[AffinityTerms, Counter[int]] = defaultdict(Counter)
    for row in range(table.n_nodes):  # a loop over all nodes; no pod waits for it
        for pod in table.pods_on(row).values():
            if pod.affinity_terms is not NO_TERMS:
                wanted[pod.affinity_terms][row] += 1
    found = {
        terms: Counter(dict(zip(rows.tolist(), counts.tolist(), strict=True)))
        for terms, (rows, counts) in table.pods_by_terms
    }
    for terms in dict.fromkeys((*found, *wanted)):
        if found.get(terms) != wanted.get(terms):
            yield f"{_named(terms)} are counted on wrong nodes"


def _named(terms: AffinityTerms) -> str:
    lists = {kind.value: kind.of(terms) for kind in TermKind if kind.of(terms)}
    kinds = [f"{name} by {terms_of_kind[0].term.topology_key}" for name, terms_of_kind in lists.items()]
    return ", ".join(kinds) or "invalid terms"


def _columns(
    table: ClusterTable, rows: list[int], kept: KeptColumns, resources: Iterable[str]
) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield (name, value of each row) of every column; in this order, no column evicts another."""
    zeros = np.zeros(table.n_nodes, dtype=np.int64)
    for resource in sorted(resources):
        for name, column in (
            ("allocatable", table.allocatable(resource)),
            ("requested", table.requested(resource)),
        ):
            yield f"{name} {resource}", (zeros if column is None else column)[rows].tolist()
    yield "requested", [dict(table.requested_on(row)) for row in rows]
    yield "nonzero requested", [list(table.nonzero_requested_on(row)) for row in rows]
    for resource in ("cpu", "memory"):
        yield f"nonzero requested {resource}", table.nonzero_requested(resource)[rows].tolist()
    yield "pod count", table.pod_count()[rows].tolist()
    yield "unschedulable", table.unschedulable()[rows].tolist()
    yield "taints", _values(table.taints(), rows)
    yield "declared features", _values(table.declared_features(), rows)
    yield "used ports", [table.indexed_ports(row) for row in rows]
    for key in kept.labels:
        yield f"label {key}", _values(table.label(key), rows)
    for image in kept.images:
        state = table.images((image,)).get(image)
        yield f"image {image}", [False] * len(rows) if state is None else state.present[rows].tolist()
    for query in kept.queries:
        yield "pods of a query", table.pods_matching(query)[rows].tolist()
    storage = table.storage()
    yield "pods with volumes", [sorted(pod.uid for pod in storage.pods_on(row)) for row in rows]


def _values(column: Interned[Any], rows: list[int]) -> list[Any]:
    return [column.values[code] for code in column.codes[rows].tolist()]
