"""The objects that would do for a demand, kept and brought up to date: pods alike demand the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

import msgspec

from plugins.volume_binding.places import Places, reach_of
from plugins.volumes.storage import CSI_STORAGE_CAPACITIES, VOLUMES
from scheduler.objects.selectors import LabelRule, NodeRule, SelectorError, parse_label_selector
from scheduler.objects.storage import CSIStorageCapacity, PersistentVolume
from scheduler.snapshot import Index

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plugins.volume_binding.places import Reach
    from scheduler.objects.storage import PersistentVolumeClaim
    from scheduler.snapshot import Int64s, Objects, Snapshot

S = TypeVar("S", bound=msgspec.Struct)

AVAILABLE: Final = "Available"

_FILESYSTEM = "Filesystem"
_MOST_DEMANDS = 64
"""Demands whose candidates are kept; the one not made for the longest goes first."""


@dataclass(frozen=True)
class Demand(ABC, Generic[S]):
    """What is looked for, and who looks for the same."""

    kind: ClassVar[str]
    struct: ClassVar[type[Any]]

    @abstractmethod
    def candidates(self, objects: Objects) -> Mapping[str, S]:
        """Return, by key, the objects of which some may do; what is not among them does not."""

    @abstractmethod
    def is_met_by(self, obj: S) -> bool:
        """Say whether an object would do on a node that reaches it."""

    @abstractmethod
    def reach(self, obj: S) -> Reach:
        """Return the nodes that reach an object which would do."""

    def rank(self, obj: S) -> int:
        """Return a number that is lower for objects to be preferred."""
        return 0


UNCLAIMED: Final = Index(
    PersistentVolume, lambda volume: (volume.class_name,) if volume.spec.claim_ref is None else ()
)
"""Class -> the volumes that no claim holds."""


@dataclass(frozen=True)
class VolumeDemand(Demand[PersistentVolume]):
    """A volume for a claim, out of those that no claim holds; the smallest is the best.

    Source:
        kube-scheduler v1.36, component-helpers/storage/volume/pv_helpers.go, FindMatchingVolume.
    """

    kind = VOLUMES
    struct = PersistentVolume

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

    def candidates(self, objects: Objects) -> Mapping[str, PersistentVolume]:
        return objects.indexed(UNCLAIMED, self.class_name)

    def is_met_by(self, volume: PersistentVolume) -> bool:
        return (
            volume.spec.claim_ref is None
            and volume.status.phase == AVAILABLE
            and volume.class_name == self.class_name
            and self.has_room_in(volume)
            and self.access_modes.issubset(volume.spec.access_modes)
            and (self.labels is None or self.labels.matches(volume.metadata.labels))
        )

    def has_room_in(self, volume: PersistentVolume) -> bool:
        """Say whether a volume is large enough, of the right kind, and stays; all that is asked of one that waits for the claim."""
        spec = volume.spec
        return (
            self.rank(volume) >= self.nanos
            and (_FILESYSTEM if spec.volume_mode is None else spec.volume_mode) == self.volume_mode
            and (spec.volume_attributes_class_name or "") == self.attributes_class
            and not volume.metadata.deletion_timestamp
        )

    def reach(self, volume: PersistentVolume) -> Reach:
        return reach_of(volume)

    def rank(self, volume: PersistentVolume) -> int:
        return volume.spec.capacity.quantity.nanos


CAPACITIES_OF_CLASS: Final = Index(CSIStorageCapacity, lambda capacity: (capacity.storage_class_name,))


@dataclass(frozen=True)
class CapacityDemand(Demand[CSIStorageCapacity]):
    """Room for a new volume of a class.

    Source:
        kube-scheduler v1.36, plugins/volumebinding/binder.go, capacitySufficient and nodeHasAccess.
    """

    kind = CSI_STORAGE_CAPACITIES
    struct = CSIStorageCapacity

    class_name: str
    size_bytes: int

    def candidates(self, objects: Objects) -> Mapping[str, CSIStorageCapacity]:
        return objects.indexed(CAPACITIES_OF_CLASS, self.class_name)

    def is_met_by(self, capacity: CSIStorageCapacity) -> bool:
        largest = capacity.largest_volume
        return (
            capacity.storage_class_name == self.class_name
            and largest is not None
            and largest.value() >= self.size_bytes
        )

    def reach(self, capacity: CSIStorageCapacity) -> Reach:
        """Return the nodes of its topology: none where it has none, or none that can be read."""
        try:
            rule = parse_label_selector(capacity.node_topology)
        except SelectorError:
            return ()
        return () if rule.requirements is None else (NodeRule(rule.requirements),)


class Candidates(Generic[S]):
    """The objects that would do for one demand, numbered: the lower, the better, by name where that is equal.

    Attributes:
        names: the keys of the objects, by number; some may do no more.
    """

    def __init__(self, demand: Demand[S]) -> None:
        self._demand = demand
        self._objects: Objects | None = None  # what was followed
        self._seen = 0
        self.names: Sequence[str] = ()
        self._numbers: Mapping[str, tuple[int, int]] = {}  # name -> rank and number
        self._places = Places()
        self._filed: dict[str, Reach] = {}  # the names of those that would do

    def follow(self, objects: Objects) -> None:
        """Look again at what changed since the last time."""
        changed = objects.changed_since(self._seen) if self._objects is objects else None
        self._objects, self._seen = objects, objects.changes
        if changed is None or not all(
            self._look_again(name, objects.typed(self._demand.struct, name)) for name in changed
        ):
            self._look_at_all(objects)

    def first(self, snapshot: Snapshot, count: int = 1) -> Int64s:
        """Return the numbers of the best that each node reaches; see `Places.first`."""
        return self._places.first(snapshot, count)

    def _look_at_all(self, objects: Objects) -> None:
        demand, found = self._demand, self._demand.candidates(objects)
        ranked = sorted((demand.rank(obj), name) for name, obj in found.items())
        self.names = [name for _, name in ranked]
        self._numbers = {name: (rank, number) for number, (rank, name) in enumerate(ranked)}
        self._places, self._filed = Places(), {}
        for name, obj in found.items():
            if demand.is_met_by(obj):
                self._file(name, obj)

    def _look_again(self, name: str, obj: S | None) -> bool:
        """Take an object in as it is now; False where it takes new numbers."""
        if name in self._filed:
            self._places.remove(self._numbers[name][1], self._filed.pop(name))
        if obj is None or not self._demand.is_met_by(obj):
            return True
        if name not in self._numbers or self._numbers[name][0] != self._demand.rank(obj):
            return False
        self._file(name, obj)
        return True

    def _file(self, name: str, obj: S) -> None:
        reach = self._filed[name] = self._demand.reach(obj)
        self._places.add(self._numbers[name][1], reach)


class KeptCandidates:
    """The candidates of the demands that were made last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Demand[Any], Candidates[Any]] = OrderedDict()

    def of(self, demand: Demand[S], objects: Objects) -> Candidates[S]:
        """Return what would do now; `objects` are all of the demand's kind."""
        found = self._kept.get(demand)
        if found is None:
            found = self._kept[demand] = Candidates(demand)
            if len(self._kept) > _MOST_DEMANDS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(demand)
        found.follow(objects)
        return found
