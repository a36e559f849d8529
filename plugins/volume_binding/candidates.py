"""Volumes and capacity reports that may satisfy a demand, cached and updated: one pass over them serves all demands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from plugins.volume_binding.reachability import ReachabilityIndex, reach_of
from scheduler.objects.caches import BoundedDict
from scheduler.objects.label_index import matcher
from scheduler.objects.quantity import parse_quantity
from scheduler.objects.selectors import LabelRule, NodeRule, SelectorError, parse_label_selector
from scheduler.objects.storage import CSIStorageCapacity, PersistentVolume
from scheduler.snapshot import Index

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Sequence

    from plugins.volume_binding.reachability import Reach, Selection
    from scheduler.objects.label_index import Matcher
    from scheduler.objects.storage import PersistentVolumeClaim
    from scheduler.snapshot import Bools, Int64s, Objects, Snapshot

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")
C = TypeVar("C", bound="Candidates[Any, Any]")

AVAILABLE: Final = "Available"

_FILESYSTEM = "Filesystem"
_MOST_CLASSES = 64
"""The number of classes whose objects are cached; the least recently used one is removed first."""
_MOST_DEMANDS = 1024
"""The number of demands whose results are cached for each class."""
_MOST_NEW = 1000
"""The maximum number of objects that are numbered in one step."""
_MOST_REMOVED = 16
"""The number of objects without a fit whose removal is recorded."""
_MOST_PICKS = 4
"""The number of arrays by node that are cached for each class."""
_COMPARED_AT_ONCE = 64
"""The maximum number of traits that are compared with a demand in one step."""


class VolumeTraits(NamedTuple):
    """The traits that decide whether an unclaimed volume fits a claim, apart from its size and its nodes."""

    is_available: bool
    volume_mode: str
    attributes_class: str
    access_modes: frozenset[str]
    labels: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class VolumeDemand:
    """The demand of a claim for an unclaimed volume; the smallest volume is the best.

    Source:
        kube-scheduler v1.36, component-helpers/storage/volume/pv_helpers.go, FindMatchingVolume.
    """

    class_name: str
    nanos: int
    volume_mode: str
    attributes_class: str
    access_modes: frozenset[str]
    labels: LabelRule | None

    @classmethod
    def of(cls, claim: PersistentVolumeClaim) -> VolumeDemand:
        """Return the demand of a claim.

        Raises:
            SelectorError: the claim's selector is invalid.
        """
        spec = claim.spec
        return cls(
            claim.class_name,
            spec.resources.requests.quantity.nanos,
            _FILESYSTEM if spec.volume_mode is None else spec.volume_mode,
            spec.volume_attributes_class_name or "",
            frozenset(spec.access_modes),
            None if spec.selector is None else parse_label_selector(spec.selector),
        )

    @property
    def traits(self) -> Hashable:
        """The fields of claims of one class on which `admits` depends."""
        return self.volume_mode, self.attributes_class, self.access_modes, self.labels

    @cached_property
    def matches(self) -> Matcher:
        """Matches the labels of volumes that the claim selects."""
        return matcher(self.labels or LabelRule(()))

    def admits(self, traits: VolumeTraits) -> bool:
        """Return whether a volume that is large enough fits on a node that reaches it."""
        return (
            traits.is_available
            and traits.volume_mode == self.volume_mode
            and traits.attributes_class == self.attributes_class
            and self.access_modes <= traits.access_modes
            and (self.labels is None or self.matches(dict(traits.labels)))
        )

    def has_room_in(self, volume: PersistentVolume) -> bool:
        """Return whether a volume is large enough, of the right mode and not being deleted; pre-bound volumes need no more."""
        traits = traits_of(volume)
        return (
            volume.spec.capacity.quantity.nanos >= self.nanos
            and traits.volume_mode == self.volume_mode
            and traits.attributes_class == self.attributes_class
            and not volume.metadata.deletion_timestamp
        )


def traits_of(volume: PersistentVolume) -> VolumeTraits:
    """Return the traits of a volume that decide whether it fits a claim."""
    spec, metadata = volume.spec, volume.metadata
    return VolumeTraits(
        spec.claim_ref is None and volume.status.phase == AVAILABLE and not metadata.deletion_timestamp,
        _FILESYSTEM if spec.volume_mode is None else spec.volume_mode,
        spec.volume_attributes_class_name or "",
        frozenset(spec.access_modes),
        frozenset(metadata.labels.items()),
    )


@dataclass(frozen=True)
class CapacityDemand:
    """The demand for capacity to provision a new volume of a class.

    Source:
        kube-scheduler v1.36, plugins/volumebinding/binder.go, capacitySufficient and nodeHasAccess.
    """

    class_name: str
    size_bytes: int

    def is_met_by(self, capacity: CSIStorageCapacity) -> bool:
        """Return whether a report about the class shows enough capacity on its nodes."""
        largest_bytes = _largest_bytes(capacity)
        return largest_bytes is not None and largest_bytes >= self.size_bytes


def _largest_bytes(capacity: CSIStorageCapacity) -> int | None:
    largest = capacity.largest_volume
    return None if largest is None else largest.value()


class Candidates(ABC, Generic[S, T]):
    """The objects of one class that may satisfy a demand, numbered by rank, then by name; lower numbers are better.

    Demands differ, and pods may have any number of them. So objects are read once for all demands, and a demand is
    compared once with all objects that have the same traits. Both results are cached and computed in steps.

    Args:
        class_name: the StorageClass.

    Attributes:
        ranked: rank and name of each object, and when it was added, by number; some may be stale. It is replaced when
            objects are added, and never changed.
        version: changes whenever objects are added or their traits change.
    """

    struct: ClassVar[type[Any]]
    index: ClassVar[Index[Any]]

    def __init__(self, class_name: str) -> None:
        self._class_name = class_name
        self._objects: Objects | None = None  # what `follow` has read
        self._seen = 0
        self._left: dict[str, None] = {}  # names that have to be read again
        self.version = 0
        # Numbers: the last changes, if they were removals.
        self._removed: deque[int] = deque(maxlen=_MOST_REMOVED)
        self._clear()

    def _clear(self) -> None:
        self.ranked: Sequence[tuple[int, str, int]] = ()
        self._known: dict[str, tuple[tuple[int, str, int], Reach]] = {}  # name -> its place in `ranked`
        # Objects without a number, and their codes.
        self._new: dict[str, tuple[tuple[int, str, int], Reach, int]] = {}
        self._added = 0
        self._codes: Int64s = np.zeros(0, dtype=np.int64)  # by number: places in `_traits`
        self._n_fit = 0  # how many codes are not 0
        self._traits: list[T | None] = [None]  # None for an object that fits no demand
        self._code_of: dict[T | None, int] = {None: 0}
        # Demand -> result for each of the traits.
        self._verdicts: BoundedDict[Hashable, bytearray] = BoundedDict(_MOST_DEMANDS)
        self._places = ReachabilityIndex()
        self._changed()

    @abstractmethod
    def _is_one(self, obj: S) -> bool:
        """Return whether an object is a candidate."""

    @abstractmethod
    def _traits_of(self, obj: S) -> T | None:
        """Return the traits that demands compare; None for an object that fits no demand."""

    @abstractmethod
    def _reach_of(self, obj: S) -> Reach:
        """Return the nodes that reach an object."""

    def _rank_of(self, obj: S) -> int:
        """Return a number that is lower for objects that are preferred."""
        return 0

    def is_behind(self, objects: Objects) -> bool:
        """Return whether an object has changed since the last update."""
        return bool(self._objects is not objects or self._seen != objects.changes or self._left or self._new)

    def follow(self, objects: Objects) -> Generator[None, None, None]:
        """Read, in steps, the objects that have changed since the last update; objects may change between two steps."""
        yield from objects.read(self.index)
        while self.is_behind(objects):
            changed = objects.changed_since(self._seen) if self._objects is objects else None
            if changed is None or self._is_mostly_past():
                self._clear()
                self._left = dict.fromkeys(objects.indexed(self.index, self._class_name))
            else:
                self._left.update(dict.fromkeys(changed))
            self._objects, self._seen = objects, objects.changes
            while self._left:
                name, _ = self._left.popitem()
                self._look_again(name, objects.typed(self.struct, name))
                if len(self._new) >= _MOST_NEW:
                    self._number_new()
                yield
            self._number_new()

    def fitting(self, demand: Hashable, admits: Callable[[T], bool]) -> Generator[None, None, Bools]:
        """Return, in steps, bool (n,), by number, which objects a demand admits.

        Args:
            demand: an equal value for demands that admit the same objects.
            admits: returns whether the demand admits an object, by its traits.
        """
        verdicts = self._verdicts.get(demand)
        if verdicts is None:
            verdicts = self._verdicts[demand] = bytearray(1)
        self._verdicts.move_to_end(demand)
        while len(verdicts) < len(self._traits):
            traits = self._traits[len(verdicts) : len(verdicts) + _COMPARED_AT_ONCE]
            verdicts.extend([each is not None and admits(each) for each in traits])
            yield
        fitting: Bools = np.frombuffer(verdicts, dtype=np.bool_)[self._codes]
        return fitting

    def at_least(self, rank: int) -> int:
        """Return the smallest number of an object of this rank or a higher one."""
        return bisect_left(self.ranked, (rank,))

    def select(self, snapshot: Snapshot, fitting: Bools) -> Generator[None, None, Selection]:
        """Return some of the objects, by the nodes that reach them; see `ReachabilityIndex.select`."""
        return self._places.select(snapshot, fitting)

    def first_on(self, snapshot: Snapshot, row: int, fitting: Bools, at_least: int) -> int | None:
        """Return the smallest number on one node; see `ReachabilityIndex.first_on`."""
        return self._places.first_on(snapshot, row, fitting, at_least)

    def removed_since(self, version: int) -> Sequence[int] | None:
        """Return the numbers of objects that fit no demand any more; None if other changes were made, or too many."""
        missed = self.version - version
        return (
            None if missed > len(self._removed) else [self._removed[-place] for place in range(1, missed + 1)]
        )

    def _changed(self) -> None:
        self._removed.clear()
        self.version += 1

    def _is_mostly_past(self) -> bool:
        most = 1024 + 4 * self._n_fit
        return len(self.ranked) > most or len(self._traits) > most

    def _look_again(self, name: str, obj: S | None) -> None:
        """Update the entry of an object."""
        known = self._known.get(name)
        self._new.pop(name, None)
        if obj is None or not self._is_one(obj):
            if known is not None:
                self._set(known[0], 0)
            return
        rank, reach, traits = self._rank_of(obj), self._reach_of(obj), self._traits_of(obj)
        code = self._code_of.get(traits)
        if code is None:
            code = self._code_of[traits] = len(self._traits)
            self._traits.append(traits)
        if known is not None and known[0][0] == rank and known[1] == reach:
            self._set(known[0], code)
            return
        if known is not None:
            self._set(known[0], 0)
        self._added += 1
        self._new[name] = (rank, name, self._added), reach, code

    def _set(self, place: tuple[int, str, int], code: int) -> None:
        number = bisect_left(self.ranked, place)
        before = int(self._codes[number])
        if before != code:
            self._codes[number] = code
            self._n_fit += (code != 0) - (before != 0)
            if code:
                self._changed()
            else:
                self._removed.append(number)
                self.version += 1

    def _number_new(self) -> None:
        """Number new objects; the numbers of the objects after them increase."""
        if not self._new:
            return
        new = sorted(self._new.values(), key=lambda each: each[0])
        before = np.array([bisect_left(self.ranked, place) for place, _, _ in new], dtype=np.int64)
        old = np.arange(len(self.ranked), dtype=np.int64)
        if len(old) and before[0] < len(old):
            self._places.renumber(old + np.searchsorted(before, old, side="right"))
        self._codes = np.insert(self._codes, before, [code for _, _, code in new])
        self.ranked = sorted([*self.ranked, *(place for place, _, _ in new)])
        for number, (place, reach, _) in zip((before + np.arange(len(new))).tolist(), new, strict=True):
            self._places.add(number, reach)
            self._known[place[1]] = place, reach
        self._n_fit += len(new)
        self._new = {}
        self._changed()


UNCLAIMED: Final = Index(
    PersistentVolume, lambda volume: (volume.class_name,) if volume.spec.claim_ref is None else ()
)
"""Class -> its unclaimed volumes."""


class CachedPick(NamedTuple):
    """The volume or storage that a claim takes on each node.

    Attributes:
        version: the version of the volumes.
        nodes: the version of the nodes.
        numbers: int64 (n_nodes,), the numbers of volumes.
        earlier: the numbers that earlier claims of the same pod take.
    """

    version: int
    nodes: Hashable
    numbers: Int64s
    earlier: tuple[Int64s, ...]


class VolumeCandidates(Candidates[PersistentVolume, VolumeTraits]):
    """The unclaimed volumes of a class.

    Attributes:
        picks: what claims took, for the claims of the next pods; see `match_volumes`.
    """

    struct = PersistentVolume
    index = UNCLAIMED

    def __init__(self, class_name: str) -> None:
        super().__init__(class_name)
        self.picks: BoundedDict[Hashable, CachedPick] = BoundedDict(_MOST_PICKS)

    def _is_one(self, volume: PersistentVolume) -> bool:
        return volume.spec.claim_ref is None and volume.class_name == self._class_name

    def _traits_of(self, volume: PersistentVolume) -> VolumeTraits:
        return traits_of(volume)

    def _reach_of(self, volume: PersistentVolume) -> Reach:
        return reach_of(volume)

    def _rank_of(self, volume: PersistentVolume) -> int:
        return volume.spec.capacity.quantity.nanos


CAPACITIES_OF_CLASS: Final = Index(CSIStorageCapacity, lambda capacity: (capacity.storage_class_name,))


class CapacityTraits(NamedTuple):
    """The amounts in a report about a class, in bytes: the largest volume that fits, and the capacity."""

    largest: int
    capacity: int


class CapacityCandidates(Candidates[CSIStorageCapacity, CapacityTraits]):
    """Drivers' reports of the capacity for new volumes of a class."""

    struct = CSIStorageCapacity
    index = CAPACITIES_OF_CLASS

    def __init__(self, class_name: str) -> None:
        super().__init__(class_name)
        # Versions of reports and nodes, and the result.
        self._largest: tuple[tuple[object, ...], Int64s] | None = None

    def _is_one(self, capacity: CSIStorageCapacity) -> bool:
        return capacity.storage_class_name == self._class_name

    def _traits_of(self, capacity: CSIStorageCapacity) -> CapacityTraits | None:
        largest = _largest_bytes(capacity)
        if largest is None:
            return None
        free = 0 if capacity.capacity is None else parse_quantity(capacity.capacity).value()
        return CapacityTraits(min(largest, _MOST_BYTES), min(free, _MOST_BYTES))

    def _reach_of(self, capacity: CSIStorageCapacity) -> Reach:
        return reach_of_capacity(capacity)

    def largest_bytes(self, snapshot: Snapshot) -> Generator[None, None, Int64s]:
        """Return, in steps, the size of the largest volume that can be provisioned for each node, int64 (n_nodes,); -1 for none."""
        log = snapshot.node_changes
        seen = self.version, log, None if log is None else log.end
        if log is None or self._largest is None or self._largest[0] != seen:
            sizes = [-1 if each is None else each.largest for each in self._traits]
            values = np.array(sizes, dtype=np.int64)[self._codes]
            self._largest = seen, (yield from self._places.highest(snapshot, values))
        return self._largest[1]

    def capacity_for(self, snapshot: Snapshot, size_bytes: int) -> Generator[None, None, Int64s]:
        """Return, in steps, the capacity in a report that shows enough for a volume, int64 (n_nodes,); -1 without one.

        Source:
            kube-scheduler v1.36, plugins/volumebinding/binder.go, hasEnoughCapacity. Of several sufficient reports
            upstream takes any; here it is the first by name.
        """
        fitting = yield from self.fitting(size_bytes, lambda traits: traits.largest >= size_bytes)
        selection = yield from self.select(snapshot, fitting)
        numbers = yield from selection.first()
        of_traits = np.array([-1 if each is None else each.capacity for each in self._traits], dtype=np.int64)
        capacities = np.append(of_traits[self._codes], -1)
        found: Int64s = capacities[np.minimum(numbers, len(capacities) - 1)]
        return found


_MOST_BYTES: Final = (1 << 63) - 1


def reach_of_capacity(capacity: CSIStorageCapacity) -> Reach:
    """Return the nodes of a report's topology; no nodes if it is missing or invalid."""
    try:
        rule = parse_label_selector(capacity.node_topology)
    except SelectorError:
        return ()
    return () if rule.expressions is None else (NodeRule(rule.requirements),)


class KeptCandidates:
    """The candidates of the most recently used classes."""

    def __init__(self) -> None:
        self._kept: BoundedDict[tuple[type[Candidates[Any, Any]], str], Candidates[Any, Any]] = BoundedDict(
            _MOST_CLASSES
        )

    def volumes(self, class_name: str) -> VolumeCandidates:
        """Return the unclaimed volumes of a class; the caller updates them from all volumes with `follow`."""
        return self._of(VolumeCandidates, class_name)

    def capacities(self, class_name: str) -> CapacityCandidates:
        """Return the reports about a class; the caller updates them from all reports with `follow`."""
        return self._of(CapacityCandidates, class_name)

    def _of(self, kind: type[C], class_name: str) -> C:
        key = kind, class_name
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = kind(class_name)
        self._kept.move_to_end(key)
        assert isinstance(found, kind)
        return found
