"""Data that plugins keep from one extension point to the next within a pod's scheduling cycle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from scheduler.framework.pod_groups import PodGroup
    from scheduler.objects.pod import PodInfo

T = TypeVar("T")


@runtime_checkable
class Cloneable(Protocol):
    """Data with its own copy method."""

    def clone(self) -> Self: ...


class CycleState:
    """Named data of one attempt at one pod; arrays in it are by row of the cycle's snapshot.

    A clone shares all data until one of the two requests it with `mutable`, so that hundreds of clones (one
    per node with nominated pods, one per preemption candidate) cost only their changes.

    Attributes:
        nominated: row -> other nominated pods of equal or higher priority.
        exhaustive: whether all results are needed, also those without influence on the decision.
        group: the group that the pod is scheduled with; None if it is scheduled by itself.
        attempt: the number of the attempt at the pod; an attempt that starts again after NeedsTime keeps its number.
    """

    __slots__ = (
        "_by_row",
        "_data",
        "_own",
        "attempt",
        "exhaustive",
        "group",
        "nominated",
    )

    def __init__(
        self, nominated: Mapping[int, Sequence[PodInfo]] | None = None, *, exhaustive: bool = False
    ) -> None:
        self.nominated: Mapping[int, Sequence[PodInfo]] = {} if nominated is None else nominated
        self.exhaustive = exhaustive
        self.group: PodGroup | None = None
        self.attempt = 0
        self._data: dict[str, Any] = {}
        self._own: set[str] = set()  # keys whose data are not shared
        self._by_row: frozenset[str] = frozenset()  # keys whose data are valid only with the snapshot

    def write(self, key: str, data: object, *, by_row: bool = False) -> None:
        """Store data under a key; by convention the plugin's name, with a suffix if it has several keys.

        Args:
            key: the key.
            data: any object.
            by_row: whether the data are large and need the snapshot: they are deleted once a node is chosen.
        """
        self._data[key] = data
        self._own.add(key)
        if by_row:
            self._by_row |= {key}

    def forget_rows(self) -> None:
        """Delete the data by row: the snapshot ends, while pods may wait long for their binding."""
        for key in self._by_row:
            self.delete(key)

    def read(self, key: str, kind: type[T]) -> T:
        """Return stored data, for reading only.

        Raises:
            LookupError: the key does not exist.
            TypeError: the data have another type.
        """
        try:
            data = self._data[key]
        except KeyError:
            raise LookupError(
                f"cycle state has no {key!r}; did the plugin's earlier extension point run?"
            ) from None
        if not isinstance(data, kind):
            raise TypeError(f"cycle state {key!r} holds a {type(data).__name__}, not a {kind.__name__}")
        return data

    def find(self, key: str, kind: type[T]) -> T | None:
        """Return stored data as `read`; None if the key does not exist."""
        return self.read(key, kind) if key in self._data else None

    def mutable(self, key: str, kind: type[T]) -> T:
        """Return stored data, to be changed in place; copied first if a clone shares them.

        Raises:
            LookupError: as `read`.
            TypeError: as `read`, or shared data are neither an array or collection nor have a `clone` method.
        """
        data = self.read(key, kind)
        if key not in self._own:
            data = _copied(key, data)
            self.write(key, data)
        return data

    def __contains__(self, key: str) -> bool:
        return key in self._data

    @property
    def keys(self) -> frozenset[str]:
        """The names under which anything was written."""
        return frozenset(self._data)

    def delete(self, key: str) -> None:
        """Delete a key, if it exists."""
        self._data.pop(key, None)
        self._own.discard(key)

    def clear(self) -> None:
        """Delete all keys."""
        self._data.clear()
        self._own.clear()

    def take_over(self, other: CycleState) -> None:
        """Share the data of another state, which does not change: a change here makes a copy."""
        self._data.update(other._data)
        self._own.difference_update(other._data)
        self._by_row |= other._by_row

    def clone(self) -> Self:
        """Return an independent state that shares data until one of the two changes it."""
        twin: Self = type(self)(self.nominated, exhaustive=self.exhaustive)
        twin.group, twin.attempt = self.group, self.attempt
        twin._data = dict(self._data)
        twin._by_row = self._by_row
        self._own.clear()
        return twin


def _copied(key: str, data: T) -> T:
    if isinstance(data, np.ndarray | dict | list | set):
        return data.copy()  # type: ignore[return-value]
    if isinstance(data, Cloneable):
        return data.clone()
    raise TypeError(
        f"cycle state {key!r}: a {type(data).__name__} needs a clone method to be changed in a clone"
    )
