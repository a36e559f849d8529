"""What the pods of each namespace use, recounted only on nodes whose pods changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugins.capacity_scheduling.quotas import add

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot
    from scheduler.snapshot.arrays import ChangeLog

    Used = Mapping[str, Mapping[str, int]]

_NOTHING: Mapping[str, int] = {}


class NamespaceUsage:
    """The requests of the pods on nodes, including assumed pods, by namespace and for all namespaces with a quota.

    Finished pods are on no node any more, so they do not count.

    Args:
        account_of: returns the account of a pod, if that is not its namespace.

    Attributes:
        by_namespace: namespace -> resource -> milliCPU, bytes or a count; namespaces without pods may be missing.
        total: the sum over all named namespaces.
        changed: the accounts recounted since a reader last cleared the set.
        rows_with: namespace -> the rows with pods of it; a namespace without pods may have an empty set.
    """

    def __init__(self, account_of: Callable[[PodInfo], str] | None = None) -> None:
        self._account_of = account_of or _namespace
        self.by_namespace: dict[str, dict[str, int]] = {}
        self.total: dict[str, int] = {}
        self.changed: set[str] = set()
        self._with_quota: Mapping[str, object] = {}
        self._on_row: list[Used] = []
        self.rows_with: dict[str, set[int]] = {}
        self._changes: ChangeLog | None = None
        self._seen = 0

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        with_quota: Mapping[str, object],
        account_of: Callable[[PodInfo], str] | None = None,
    ) -> NamespaceUsage:
        """Count the pods of a hypothetical snapshot, which is not the live cluster."""
        usage = cls(account_of)
        usage._follow_rows(
            snapshot, range(snapshot.n_nodes)
        )  # a loop over all nodes, outside of scheduling cycles
        usage._name(with_quota)
        return usage

    def follow(self, snapshot: Snapshot, changes: ChangeLog, with_quota: Mapping[str, object]) -> None:
        """Recount what changed since the last call.

        Args:
            snapshot: the live cluster.
            changes: the change log of that snapshot.
            with_quota: the namespaces of `total`; the same object as long as they do not change.
        """
        rows = changes.since(self._seen) if changes is self._changes else None
        if rows is None:
            self.changed.update(self.by_namespace)
            self.by_namespace, self.total, self._on_row, self.rows_with = {}, {}, [], {}
            rows = range(snapshot.n_nodes)  # all nodes: at first, and after more changes than the log holds
        self._changes, self._seen = changes, changes.end
        self._follow_rows(snapshot, {*rows, *range(snapshot.n_nodes, len(self._on_row))})
        if with_quota is not self._with_quota:
            self._name(with_quota)

    def _name(self, with_quota: Mapping[str, object]) -> None:
        self._with_quota, self.total = with_quota, {}
        for namespace in with_quota:
            add(self.total, self.by_namespace.get(namespace, _NOTHING))

    def _follow_rows(self, snapshot: Snapshot, rows: Iterable[int]) -> None:
        """Recount rows; removed rows hold nothing."""
        missing = snapshot.n_nodes - len(self._on_row)
        self._on_row.extend({} for _ in range(missing))
        for row in rows:
            if row < len(self._on_row):
                found = self._found_on(snapshot, row) if row < snapshot.n_nodes else {}
                before = self._on_row[row]
                self._count(before, -1)
                self._count(found, 1)
                if found.keys() != before.keys():
                    for namespace in before:
                        self.rows_with[namespace].discard(row)
                    for namespace in found:
                        self.rows_with.setdefault(namespace, set()).add(row)
                self._on_row[row] = found
        del self._on_row[snapshot.n_nodes :]

    def _found_on(self, snapshot: Snapshot, row: int) -> Used:
        used: dict[str, dict[str, int]] = {}
        for pod in snapshot.pods_on(row):
            add(used.setdefault(self._account_of(pod), {}), pod.resources.taken)
        return used

    def _count(self, used: Used, sign: int) -> None:
        self.changed.update(used)
        for namespace, amounts in used.items():
            add(self.by_namespace.setdefault(namespace, {}), amounts, sign)
            if namespace in self._with_quota:
                add(self.total, amounts, sign)


def _namespace(pod: PodInfo) -> str:
    return pod.namespace
