"""The objects that may do for a demand, kept and brought up to date: one look at them serves all demands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, TypeVar

import msgspec

from plugins.volume_binding.places import Places, reach_of
from scheduler.objects.matchers import matcher
from scheduler.objects.selectors import LabelRule, NodeRule, SelectorError, parse_label_selector
from scheduler.objects.storage import CSIStorageCapacity, PersistentVolume
from scheduler.snapshot import Index
from scheduler.snapshot.interning import InternedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plugins.volume_binding.places import Reach
    from scheduler.objects.matchers import Matcher
    from scheduler.objects.storage import PersistentVolumeClaim
    from scheduler.snapshot import Bools, Int64s, Objects, Snapshot

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")
C = TypeVar("C", bound="Candidates[Any, Any]")

AVAILABLE: Final = "Available"

_FILESYSTEM = "Filesystem"
_MOST_CLASSES = 64
"""Classes whose objects are kept numbered; the one not asked about for the longest goes first."""


class VolumeTraits(NamedTuple):
    """What decides whether an unclaimed volume does for a claim, beside its size and its nodes."""

    is_available: bool
    volume_mode: str
    attributes_class: str
    access_modes: frozenset[str]
    labels: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class VolumeDemand:
    """A volume for a claim, out of those that no claim holds; the smallest is the best.

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
        """Return what a claim asks for.

        Raises:
            SelectorError: its selector is none.
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

    @cached_property
    def matches(self) -> Matcher:
        """Says whether labels of a volume are those that the claim selects."""
        return matcher(self.labels or LabelRule(()))

    def admits(self, traits: VolumeTraits) -> bool:
        """Say whether a volume that is large enough would do on a node that reaches it."""
        return (
            traits.is_available
            and traits.volume_mode == self.volume_mode
            and traits.attributes_class == self.attributes_class
            and self.access_modes <= traits.access_modes
            and (self.labels is None or self.matches(dict(traits.labels)))
        )

    def has_room_in(self, volume: PersistentVolume) -> bool:
        """Say whether a volume is large enough, of the right kind, and stays; all that is asked of one that waits for the claim."""
        traits = traits_of(volume)
        return (
            volume.spec.capacity.quantity.nanos >= self.nanos
            and traits.volume_mode == self.volume_mode
            and traits.attributes_class == self.attributes_class
            and not volume.metadata.deletion_timestamp
        )


def traits_of(volume: PersistentVolume) -> VolumeTraits:
    """Return what of a volume decides whether it does for a claim."""
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
    """Room for a new volume of a class.

    Source:
        kube-scheduler v1.36, plugins/volumebinding/binder.go, capacitySufficient and nodeHasAccess.
    """

    class_name: str
    size_bytes: int

    def is_met_by(self, capacity: CSIStorageCapacity) -> bool:
        """Say whether there is room on the nodes of a report about the class."""
        largest_bytes = _largest_bytes(capacity)
        return largest_bytes is not None and largest_bytes >= self.size_bytes


def _largest_bytes(capacity: CSIStorageCapacity) -> int | None:
    largest = capacity.largest_volume
    return None if largest is None else largest.value()


class Candidates(ABC, Generic[S, T]):
    """The objects of one class that may do for a demand, numbered: the lower, the better, by name where that is equal.

    Demands differ in what they ask of an object, and pods may make any number of them. So objects are read once for all
    demands, and a demand is compared once with all objects that have the same traits.

    Attributes:
        class_name: the StorageClass.
        names: the keys of the objects, by number; some may do no more.
    """

    struct: ClassVar[type[Any]]

    def __init__(self, class_name: str) -> None:
        self.class_name = class_name
        self.names: Sequence[str] = ()
        self._objects: Objects | None = None  # what was followed
        self._seen = 0
        self._numbers: Mapping[str, int] = {}
        self._ranks: Sequence[int] = ()  # by number
        self._reaches: Sequence[Reach] = ()  # by number
        self._traits: InternedColumn[T | None] = InternedColumn(
            None
        )  # by number; None of what does for nobody
        self._places = Places()

    @abstractmethod
    def _all(self, objects: Objects) -> Mapping[str, S]:
        """Return, by key, the objects of the class of which some may do."""

    @abstractmethod
    def _is_one(self, obj: S) -> bool:
        """Say whether an object is one of them."""

    @abstractmethod
    def _traits_of(self, obj: S) -> T:
        """Return what demands look at."""

    @abstractmethod
    def _reach_of(self, obj: S) -> Reach:
        """Return the nodes that reach an object."""

    def _rank_of(self, obj: S) -> int:
        """Return a number that is lower for objects to be preferred."""
        return 0

    def follow(self, objects: Objects) -> None:
        """Look again at what changed since the last time."""
        changed = objects.changed_since(self._seen) if self._objects is objects else None
        self._objects, self._seen = objects, objects.changes
        if changed is None or not all(
            self._look_again(name, objects.typed(self.struct, name)) for name in changed
        ):
            self._look_at_all(objects)

    def fitting(self, admits: Callable[[T], bool]) -> Bools:
        """Return bool (n,), by number, which objects a demand admits."""
        traits = self._traits.shown(len(self.names))
        return traits.judge(lambda each: each is not None and admits(each))

    def at_least(self, rank: int) -> int:
        """Return the smallest number of an object of a rank, or of a higher one."""
        return bisect_left(self._ranks, rank)

    def first(self, snapshot: Snapshot, fitting: Bools, numbers: Int64s | int = 0) -> Int64s:
        """Return the best that each node reaches of some objects; see `Places.first`."""
        return self._places.first(snapshot, fitting, numbers)

    def _look_at_all(self, objects: Objects) -> None:
        found = self._all(objects)
        ranked = sorted((self._rank_of(obj), name) for name, obj in found.items())
        self._ranks = [rank for rank, _ in ranked]
        self.names = [name for _, name in ranked]
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._reaches = [self._reach_of(found[name]) for name in self.names]
        self._places, self._traits = Places(), InternedColumn(None)
        self._traits.codes.reserve(len(self.names))
        for number, name in enumerate(self.names):
            self._places.add(number, self._reaches[number])
            self._traits.set(number, self._traits_of(found[name]))

    def _look_again(self, name: str, obj: S | None) -> bool:
        """Take an object in as it is now; False where it takes new numbers."""
        number = self._numbers.get(name)
        if obj is None or not self._is_one(obj):
            if number is not None:
                self._traits.set(number, None)
            return True
        if number is None or self._ranks[number] != self._rank_of(obj):
            return False
        if self._reaches[number] != self._reach_of(obj):
            return False
        self._traits.set(number, self._traits_of(obj))
        return True


UNCLAIMED: Final = Index(
    PersistentVolume, lambda volume: (volume.class_name,) if volume.spec.claim_ref is None else ()
)
"""Class -> the volumes that no claim holds."""


class VolumeCandidates(Candidates[PersistentVolume, VolumeTraits]):
    """The volumes of a class that no claim holds."""

    struct = PersistentVolume

    def _all(self, objects: Objects) -> Mapping[str, PersistentVolume]:
        return objects.indexed(UNCLAIMED, self.class_name)

    def _is_one(self, volume: PersistentVolume) -> bool:
        return volume.spec.claim_ref is None and volume.class_name == self.class_name

    def _traits_of(self, volume: PersistentVolume) -> VolumeTraits:
        return traits_of(volume)

    def _reach_of(self, volume: PersistentVolume) -> Reach:
        return reach_of(volume)

    def _rank_of(self, volume: PersistentVolume) -> int:
        return volume.spec.capacity.quantity.nanos


CAPACITIES_OF_CLASS: Final = Index(CSIStorageCapacity, lambda capacity: (capacity.storage_class_name,))


class CapacityCandidates(Candidates[CSIStorageCapacity, "int | None"]):
    """What drivers report of the room for new volumes of a class; the traits are the size of the largest."""

    struct = CSIStorageCapacity

    def __init__(self, class_name: str) -> None:
        super().__init__(class_name)
        self._known: tuple[tuple[object, ...], Int64s] | None = (
            None  # of which reports and nodes, and the largest
        )

    def _all(self, objects: Objects) -> Mapping[str, CSIStorageCapacity]:
        return objects.indexed(CAPACITIES_OF_CLASS, self.class_name)

    def _is_one(self, capacity: CSIStorageCapacity) -> bool:
        return capacity.storage_class_name == self.class_name

    def _traits_of(self, capacity: CSIStorageCapacity) -> int | None:
        return _largest_bytes(capacity)

    def _reach_of(self, capacity: CSIStorageCapacity) -> Reach:
        return reach_of_capacity(capacity)

    def largest_bytes(self, snapshot: Snapshot) -> Int64s:
        """Return int64 (n_nodes,), the size of the largest volume that can be made for each node; -1 for none."""
        log = snapshot.node_changes
        seen = self._seen, log, None if log is None else log.end, snapshot.n_nodes
        if log is None or self._known is None or self._known[0] != seen:
            traits = self._traits.shown(len(self.names))
            sizes = traits.measure(lambda largest: -1 if largest is None else min(largest, _MOST_BYTES))
            self._known = seen, self._places.highest(snapshot, sizes)
        return self._known[1]


_MOST_BYTES: Final = (1 << 63) - 1


def reach_of_capacity(capacity: CSIStorageCapacity) -> Reach:
    """Return the nodes of a report's topology: none where it has none, or none that can be read."""
    try:
        rule = parse_label_selector(capacity.node_topology)
    except SelectorError:
        return ()
    return () if rule.requirements is None else (NodeRule(rule.requirements),)


class KeptCandidates:
    """The candidates of the classes that were asked about last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[type[Candidates[Any, Any]], str], Candidates[Any, Any]] = OrderedDict()

    def volumes(self, class_name: str, objects: Objects) -> VolumeCandidates:
        """Return the volumes of a class that no claim holds now; `objects` are all volumes."""
        return self._followed(VolumeCandidates, class_name, objects)

    def capacities(self, class_name: str, objects: Objects) -> CapacityCandidates:
        """Return the reports about a class as they are now; `objects` are all reports."""
        return self._followed(CapacityCandidates, class_name, objects)

    def _followed(self, kind: type[C], class_name: str, objects: Objects) -> C:
        key = kind, class_name
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = kind(class_name)
            if len(self._kept) > _MOST_CLASSES:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        found.follow(objects)
        assert isinstance(found, kind)
        return found
