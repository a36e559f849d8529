"""Rules of a kind for writes: defaults, admission, validation, deletion.

A kind without particular rules uses `Strategy` itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from scheduler.simulator.apimachinery.metadata import dns_subdomain
from scheduler.simulator.apimachinery.objects import is_terminating, restore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.simulator.apimachinery.causes import Cause
    from scheduler.simulator.apimachinery.objects import Object


class Cluster(Protocol):
    """The parts of the store that admission may read."""

    def find(self, resource: str, name: str, namespace: str = "") -> Object | None:
        """Return an object, or None if there is none; do not change it."""
        ...

    def each(self, resource: str) -> list[Object]:
        """Return all objects of a kind; do not change them."""
        ...

    def timestamp(self) -> str:
        """Return the current time as metav1.Time."""
        ...

    def random_bits(self, count: int) -> int:
        """Return a random number of `count` bits."""
        ...


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """JSONPaths of the scale subresource of a kind.

    Attributes:
        spec_replicas: for example `.spec.replicas`.
        status_replicas: for example `.status.replicas`.
        selector: a string in the status, for example `.status.selector`; "" for a LabelSelector at `.spec.selector`.
    """

    spec_replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    selector: str = ""


class Strategy:
    """The rules of most kinds; subclasses override them.

    Attributes:
        name_rule: rule for names.
        has_generation: whether metadata.generation counts changes of the spec.
        unconditional_update: whether PUT may omit the resourceVersion.
        create_on_update: whether PUT creates a missing object.
        returns_deleted: whether DELETE returns the object instead of a Status.
        has_status: whether the status can only be changed by its subresource.
        schema: structural schema of custom resources; built-in kinds have a type instead.
        scale_paths: paths of the scale subresource; None for those of built-in kinds.
    """

    name_rule = staticmethod(dns_subdomain)
    has_generation: ClassVar[bool] = False
    unconditional_update: ClassVar[bool] = True
    create_on_update: ClassVar[bool] = False
    returns_deleted: ClassVar[bool] = False
    has_status: ClassVar[bool] = False
    schema: Mapping[str, Any] = MappingProxyType({})
    scale_paths: ScalePaths | None = None

    def default(self, obj: Object) -> None:
        """Set default values, on every write."""

    def prune(self, obj: Object) -> list[str]:
        """Remove unknown fields from an object without a type; return their paths."""
        return []

    def admit_create(self, obj: Object, cluster: Cluster) -> None:
        """Change a new object as mutating admission does.

        Raises:
            StatusError: admission rejects it.
        """

    def admit_update(self, obj: Object, old: Object, cluster: Cluster) -> None:
        """Change an updated object as mutating admission does."""

    def check_create(self, obj: Object, cluster: Cluster) -> None:
        """Check a valid new object as validating admission does.

        Raises:
            StatusError: admission rejects it.
        """

    def check_update(self, obj: Object, old: Object, cluster: Cluster) -> None:
        """Check a valid change as validating admission does.

        Raises:
            StatusError: admission rejects it.
        """

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        """Set the initial values of a new object, regardless of the request."""
        if self.has_status:
            obj.pop("status", None)
        if self.has_generation:
            obj["metadata"]["generation"] = 1

    def prepare_update(self, obj: Object, old: Object) -> None:
        """Restore fields that an update may not change, and count the generation."""
        if self.has_status:
            restore(obj, old, "status")
        if self.has_generation and self.spec_differs(obj, old):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def prepare_part_update(self, subresource: str, obj: Object, old: Object, cluster: Cluster) -> None:
        """Restore all fields that the subresource may not change.

        By default, for the status: all other fields, and the user's metadata, are restored.
        """
        for field in {*obj, *old} - {"status", "metadata"}:
            restore(obj, old, field)
        restore(obj["metadata"], old["metadata"], "ownerReferences")

    def spec_differs(self, obj: Object, old: Object) -> bool:
        """Return whether the generation counts a change."""
        return bool(obj.get("spec") != old.get("spec"))

    def validate(self, obj: Object) -> Iterable[Cause]:
        """Return the errors of a new or changed object."""
        return ()

    def validate_update(self, obj: Object, old: Object) -> Iterable[Cause]:
        """Return the errors of a changed object."""
        return self.validate(obj)

    def validate_part_update(self, obj: Object, old: Object) -> Iterable[Cause]:
        """Return the errors of a change of a subresource."""
        return ()

    def grace_period(self, obj: Object, requested: int | None) -> int | None:
        """Return an object's grace period in seconds; None for kinds without one.

        Args:
            obj: the object.
            requested: grace period of the request; None if it has none.
        """
        return None

    def check_delete(self, obj: Object) -> None:
        """Reject a deletion that is never allowed.

        Raises:
            StatusError: it may not be deleted.
        """

    def begin_delete(self, obj: Object, cluster: Cluster) -> Object | None:
        """Return the object after the first step of its deletion; None if there is no such step."""
        return None

    def is_released(self, obj: Object) -> bool:
        """Return whether a terminating object can be removed: no finalizer, no grace period left."""
        metadata = obj["metadata"]
        if not is_terminating(obj) or metadata.get("finalizers"):
            return False
        return bool(metadata.get("deletionGracePeriodSeconds") == 0)

    def to_storage(self, obj: Object) -> Object:
        """Convert an object of this version to the stored version."""
        return obj

    def from_storage(self, obj: Object) -> Object:
        """Convert a stored object to this version."""
        return obj


class Generic(Strategy):
    """Kinds with a status, a generation, and no other particular rules."""

    has_generation = True
    has_status = True
