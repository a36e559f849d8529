"""What one attempt knows of the quotas, and what is in use after pods are added to or removed from a node."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from plugins.capacity_scheduling.quotas import add, exceeds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Self

    from plugins.capacity_scheduling.quotas import Quota
    from scheduler.objects.pod import PodInfo

_NOTHING: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Accounts:
    """The quotas, what is in use, and what one pod requests; amounts are milliCPU, bytes or counts by resource.

    Attributes:
        quotas: namespace -> its quota.
        guaranteed: the sum of their min.
        used: namespace -> what its pods use.
        total: what the pods of all namespaces with a quota use.
        request: what the pod requests.
        in_quota: the request, and the requests of nominated pods of its namespace of no lower priority.
        in_all: the request, and the requests of nominated pods of other namespaces that are not over their min.
        rows_with: namespace -> the rows with pods of it.
        changed: row -> namespace -> what added pods use in addition, or removed pods use no longer.
    """

    quotas: Mapping[str, Quota]
    guaranteed: Mapping[str, int]
    used: Mapping[str, Mapping[str, int]]
    total: Mapping[str, int]
    request: Mapping[str, int]
    in_quota: dict[str, int]
    in_all: Mapping[str, int]
    rows_with: Mapping[str, Collection[int]]
    changed: dict[int, dict[str, dict[str, int]]] = field(default_factory=dict)

    def clone(self) -> Self:
        copied = {
            row: {namespace: dict(amounts) for namespace, amounts in its.items()}
            for row, its in self.changed.items()
        }
        return replace(self, changed=copied)

    def count(self, pods: Iterable[tuple[int, PodInfo]], sign: int) -> None:
        """Count (row, pod) pairs as added, or with a sign of -1 as removed; pods without a quota do not matter."""
        for row, pod in pods:
            if pod.namespace in self.quotas:
                its = self.changed.setdefault(row, {})
                add(its.setdefault(pod.namespace, {}), pod.resources.taken, sign)

    def used_by(self, namespace: str, row: int | None = None) -> Mapping[str, int]:
        """Return what a namespace uses, including the changes on one row."""
        used = self.used.get(namespace, _NOTHING)
        changed = None if row is None else self.changed.get(row, {}).get(namespace)
        return used if changed is None else _sum(used, changed)

    def over_max(self, namespace: str, more: Mapping[str, int], row: int | None = None) -> bool:
        """Return whether a namespace would exceed its max with more in use."""
        return self.quotas[namespace].over_max(self.used_by(namespace, row), more)

    def over_guaranteed(self, more: Mapping[str, int], row: int | None = None) -> bool:
        """Return whether all namespaces together would exceed the sum of min with more in use."""
        changed = [] if row is None else self.changed.get(row, {}).values()
        return exceeds(_sum(self.total, more, *changed), self.guaranteed)


def _sum(first: Mapping[str, int], *others: Mapping[str, int]) -> dict[str, int]:
    total = dict(first)
    for amounts in others:
        add(total, amounts)
    return total
