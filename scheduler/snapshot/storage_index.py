"""The pods on nodes that attach storage, by node and by storage. Most pods attach none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from scheduler.snapshot.arrays import ChangeLog

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from scheduler.objects.pod import PodInfo
    from scheduler.objects.storage import StorageUse
    from scheduler.snapshot.arrays import Rows

_NONE: Mapping[str, PodInfo] = {}
_NOWHERE: Mapping[int, int] = {}


class StorageInUse(Protocol):
    """The pods that attach storage."""

    @property
    def index(self) -> StorageIndex | None:
        """The index of the live cluster with the same rows; None if the rows differ."""
        ...

    @property
    def changed_rows(self) -> Collection[int]:
        """The rows whose pods differ from those in `index`."""
        ...

    def rows(self) -> Collection[int]:
        """Return the rows with such pods."""
        ...

    def pods_on(self, row: int) -> Collection[PodInfo]:
        """Return such pods on the node in a row, in the order in which they were added."""
        ...

    def holders(self, use: StorageUse) -> Collection[int]:
        """Return the rows with pods that attach a storage object."""
        ...


class StorageIndex:
    """The pods of the live cluster that attach storage; see `StorageInUse`.

    Attributes:
        changes: the rows where such a pod was added or removed.
    """

    __slots__ = ("_holders", "_pods", "changes")

    def __init__(self) -> None:
        self._pods: dict[int, dict[str, PodInfo]] = {}  # row -> pod uid -> pod
        self._holders: dict[StorageUse, dict[int, int]] = {}  # row -> how many pods
        self.changes = ChangeLog()

    @property
    def index(self) -> StorageIndex:
        return self

    @property
    def changed_rows(self) -> Collection[int]:
        return ()

    def rows(self) -> Collection[int]:
        return self._pods.keys()

    def pods_on(self, row: int) -> Collection[PodInfo]:
        return self._pods.get(row, _NONE).values()

    def holders(self, use: StorageUse) -> Collection[int]:
        return self._holders.get(use, _NOWHERE).keys()

    def count(self, row: int, pod: PodInfo, sign: int, n_nodes: int) -> None:
        """Add or remove a pod that attaches storage; `n_nodes` is the number of rows."""
        pods = self._pods.setdefault(row, {})
        if sign > 0:
            pods[pod.uid] = pod
        else:
            del pods[pod.uid]
        if not pods:
            del self._pods[row]
        for use in pod.storage_uses:
            holders = self._holders.setdefault(use, {})
            holders[row] = holders.get(row, 0) + sign
            if not holders[row]:
                del holders[row]
            if not holders:
                del self._holders[use]
        self.changes.note(row, n_nodes)

    def replace(self, row: int, pod: PodInfo) -> None:
        """Replace a pod by another version with the same storage."""
        self._pods[row][pod.uid] = pod


class ChangedStorage:
    """The pods that attach storage, with differences on some rows."""

    __slots__ = ("_base", "_pods", "_touched")

    def __init__(self, base: StorageInUse) -> None:
        self._base = base
        self._pods: dict[int, dict[str, PodInfo]] = {}  # changed row -> pod uid -> pod
        self._touched: dict[StorageUse, set[int]] = {}  # rows where pods that attach it were added or removed

    @property
    def index(self) -> StorageIndex | None:
        return self._base.index

    @property
    def changed_rows(self) -> Collection[int]:
        before = self._base.changed_rows
        return {*before, *self._pods} if before else self._pods.keys()

    def rows(self) -> Collection[int]:
        rows = set(self._base.rows()).difference(self._pods)
        return rows.union(row for row, pods in self._pods.items() if pods)

    def pods_on(self, row: int) -> Collection[PodInfo]:
        changed = self._pods.get(row)
        return self._base.pods_on(row) if changed is None else changed.values()

    def holders(self, use: StorageUse) -> Collection[int]:
        held, touched = self._base.holders(use), self._touched.get(use)
        if touched is None:
            return held
        now = {row for row in touched if any(use in pod.storage_uses for pod in self._pods[row].values())}
        return set(held).difference(touched) | now

    def count(self, row: int, pod: PodInfo, sign: int) -> None:
        """Add or remove a pod that attaches storage."""
        pods = self._pods.get(row)
        if pods is None:
            pods = self._pods[row] = {each.uid: each for each in self._base.pods_on(row)}
        if sign > 0:
            pods[pod.uid] = pod
        else:
            del pods[pod.uid]
        for use in pod.storage_uses:
            self._touched.setdefault(use, set()).add(row)


class TakenStorage:
    """The pods that attach storage on some rows only; rows after these have none."""

    def __init__(self, base: StorageInUse, rows: Rows) -> None:
        self._base = base
        self._old_row = rows.tolist()
        self._new_row = {old: new for new, old in enumerate(self._old_row)}

    @property
    def index(self) -> None:
        """The rows differ from those of the live cluster."""

    @property
    def changed_rows(self) -> Collection[int]:
        return ()

    def rows(self) -> Collection[int]:
        return {self._new_row[row] for row in self._base.rows() if row in self._new_row}

    def pods_on(self, row: int) -> Collection[PodInfo]:
        return self._base.pods_on(self._old_row[row]) if row < len(self._old_row) else ()

    def holders(self, use: StorageUse) -> Collection[int]:
        return {self._new_row[row] for row in self._base.holders(use) if row in self._new_row}
