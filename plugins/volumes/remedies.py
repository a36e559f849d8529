"""Proposes remedies for pods that are rejected because of their claims: that the claims were as a node needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.framework import Change, NodesExplanation, Remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Rows

MOST_COMPARED: Final = 64
"""The number of nodes among which the one with the smallest change is searched."""


def without_claims(pod: PodInfo, keys: Collection[str]) -> PodInfo:
    """Return a pod as if it did not use some claims, by `namespace/name`."""
    volumes = {claim.volume for claim in pod.claims if claim.key in keys}
    return pod.with_spec(volumes=tuple(each for each in pod.pod.spec.volumes if each.name not in volumes))


def remedy_of_claims(
    pod: PodInfo, rows: Rows, clauses_on: Callable[[int], Mapping[str, str]]
) -> NodesExplanation:
    """Propose the remedy for some nodes.

    Args:
        pod: the pod.
        rows: the nodes that are rejected.
        clauses_on: row -> the claims that keep the pod from the node, each with the clause after which it does not.
    """
    keys = {key for row in rows[:MOST_COMPARED].tolist() for key in clauses_on(row)}
    if not keys:
        return NodesExplanation()

    def change(fitting: Rows) -> Change | None:
        on_rows = {row: clauses_on(row) for row in fitting[:MOST_COMPARED].tolist()}
        rejected = [row for row, clauses in on_rows.items() if clauses]
        if not rejected:
            return None
        row = min(rejected, key=lambda row: len(on_rows[row]))
        text = " and ".join(dict.fromkeys(on_rows[row].values()))
        return Change(row, text, without_claims(pod, on_rows[row]))

    return NodesExplanation("", [Remedy(without_claims(pod, keys), change)])
