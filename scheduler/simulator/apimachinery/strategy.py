"""What is particular to a kind when its objects are written: defaults, admission, rules, deletion.

A kind without anything particular uses `Strategy` as it is.
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
    """What admission may look at."""

    def find(self, resource: str, name: str, namespace: str = "") -> Object | None:
        """Return an object, or None where there is none; it is not to be changed."""
        ...

    def each(self, resource: str) -> list[Object]:
        """Return all objects of a kind; they are not to be changed."""
        ...

    def timestamp(self) -> str:
        """Return the time as metav1.Time."""
        ...

    def random_bits(self, count: int) -> int:
        """Return a random number of so many bits."""
        ...


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where the scale subresource of a kind finds what it shows, as JSONPaths.

    Attributes:
        spec_replicas: as in `.spec.replicas`.
        status_replicas: as in `.status.replicas`.
        selector: a text in the status, as in `.status.selector`; "" for a LabelSelector at `.spec.selector`.
    """

    spec_replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    selector: str = ""


class Strategy:
    """The rules most kinds follow; subclasses change what is particular.

    Attributes:
        name_rule: what names must look like.
        has_generation: whether metadata.generation counts the changes of the spec.
        unconditional_update: whether PUT may leave out the resourceVersion.
        create_on_update: whether PUT creates what is not there.
        returns_deleted: whether DELETE answers with the object instead of a Status.
        has_status: whether the status is written through its own subresource only.
        schema: the structural schema of custom resources; built-in kinds have a type instead.
        scale_paths: of its scale subresource; None for the places built-in kinds have.
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
        """Fill in what the API's defaulting fills in, on every write."""

    def prune(self, obj: Object) -> list[str]:
        """Drop what is unknown from a decoded object without a model; returns the paths of what went."""
        return []

    def admit_create(self, obj: Object, cluster: Cluster) -> None:
        """Change a new object as admission does.

        Raises:
            StatusError: admission refuses it.
        """

    def admit_update(self, obj: Object, old: Object, cluster: Cluster) -> None:
        """Change an updated object as admission does."""

    def check_create(self, obj: Object, cluster: Cluster) -> None:
        """Refuse a new object that is valid, as admission does.

        Raises:
            StatusError: admission refuses it.
        """

    def check_update(self, obj: Object, old: Object, cluster: Cluster) -> None:
        """Refuse a change that is valid, as admission does.

        Raises:
            StatusError: admission refuses it.
        """

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        """Set what new objects start with, whatever the request says."""
        if self.has_status:
            obj.pop("status", None)
        if self.has_generation:
            obj["metadata"]["generation"] = 1

    def prepare_update(self, obj: Object, old: Object) -> None:
        """Put back what an update may not change, and count the generation."""
        if self.has_status:
            restore(obj, old, "status")
        if self.has_generation and self.spec_differs(obj, old):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def prepare_part_update(self, subresource: str, obj: Object, old: Object, cluster: Cluster) -> None:
        """Put back everything that is not the subresource's to change.

        Here that is the status: everything but it, and the metadata people own, is put back.
        """
        for field in {*obj, *old} - {"status", "metadata"}:
            restore(obj, old, field)
        restore(obj["metadata"], old["metadata"], "ownerReferences")

    def spec_differs(self, obj: Object, old: Object) -> bool:
        """Whether the change is one that the generation counts."""
        return bool(obj.get("spec") != old.get("spec"))

    def validate(self, obj: Object) -> Iterable[Cause]:
        """Return what is wrong with an object, new or changed."""
        return ()

    def validate_update(self, obj: Object, old: Object) -> Iterable[Cause]:
        """Return what is wrong with a changed object."""
        return self.validate(obj)

    def validate_part_update(self, obj: Object, old: Object) -> Iterable[Cause]:
        """Return what is wrong with a change of a subresource."""
        return ()

    def grace_period(self, obj: Object, requested: int | None) -> int | None:
        """Return the seconds an object gets to end; None for kinds that go at once.

        Args:
            obj: the object.
            requested: what the request asks for, if anything.
        """
        return None

    def check_delete(self, obj: Object) -> None:
        """Refuse a deletion that may never be.

        Raises:
            StatusError: it may not be deleted.
        """

    def begin_delete(self, obj: Object, cluster: Cluster) -> Object | None:
        """Return what a deletion first makes of an object; None where it makes nothing of it."""
        return None

    def is_released(self, obj: Object) -> bool:
        """Whether nothing keeps a terminating object any more: no finalizer, no grace period left."""
        metadata = obj["metadata"]
        if not is_terminating(obj) or metadata.get("finalizers"):
            return False
        return bool(metadata.get("deletionGracePeriodSeconds") == 0)

    def to_storage(self, obj: Object) -> Object:
        """Turn an object of this kind's version into the version that is stored."""
        return obj

    def from_storage(self, obj: Object) -> Object:
        """Turn a stored object into this kind's version."""
        return obj


class Generic(Strategy):
    """Kinds with a status of their own and a generation, and nothing else particular."""

    has_generation = True
    has_status = True
