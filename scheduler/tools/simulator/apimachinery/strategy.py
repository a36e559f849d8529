"""Rules of a kind for writes: defaults, admission, validation, deletion; and those of metadata, for all kinds.

A kind without particular rules uses `Strategy` itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from scheduler.objects.selectors import label_value_problems
from scheduler.tools.simulator.apimachinery.causes import Cause, invalid_value, required
from scheduler.tools.simulator.apimachinery.objects import is_terminating, names, restore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from random import Random

    from scheduler.tools.simulator.apimachinery.objects import Object

NameRule = Callable[[str], str]
"""Returns the error of a name; "" if it is valid."""

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL, re.ASCII)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.ASCII)
_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_NAME_PART_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def dns_subdomain(name: str) -> str:
    """Return the error of a name that must be a DNS subdomain, as for most kinds; "" for none."""
    if len(name) > 253:
        return "must be no more than 253 characters"
    if _DNS_SUBDOMAIN.fullmatch(name):
        return ""
    return (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
        "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )


def dns_label(name: str) -> str:
    """Return the error of a name that must be a DNS label, as for namespaces and services; "" for none."""
    if len(name) > 63:
        return "must be no more than 63 characters"
    if _DNS_LABEL.fullmatch(name):
        return ""
    return (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
        "end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
    )


def validate_dns_label(name: str, path: str) -> Iterator[Cause]:
    """Yield the errors of a required DNS label, such as the name of a container or of a request for devices."""
    if not name:
        yield required(path)
    elif problem := dns_label(name):
        yield invalid_value(path, f'"{name}"', problem)


def validate_metadata(metadata: Object, name_rule: NameRule) -> Iterator[Cause]:
    """Yield the errors of a new object's metadata."""
    name = metadata.get("name", "")
    if not name:
        yield required("metadata.name", "name or generateName is required")
    else:
        problem = name_rule(name)
        if problem:
            yield invalid_value("metadata.name", f'"{name}"', problem)
    yield from validate_labels(metadata.get("labels", {}), "metadata.labels")


def validate_labels(labels: dict[str, str], field: str) -> Iterator[Cause]:
    """Yield the errors of labels."""
    for key, value in labels.items():
        yield from validate_label_name(key, field)
        yield from validate_label_value(value, field)


def validate_label_name(name: str, field: str) -> Iterator[Cause]:
    """Yield the errors of the key of a label, or of another qualified name."""
    for problem in qualified_name_problems(name):
        yield invalid_value(field, f'"{name}"', problem)


def qualified_name_problems(name: str) -> Iterator[str]:
    """Yield the errors of a name that may have a DNS subdomain and a slash before it.

    Source:
        kube-apiserver v1.36, staging/src/k8s.io/apimachinery/pkg/api/validate/content/kube.go, IsLabelKey.
    """
    prefix, slash, own = name.rpartition("/")
    if "/" in prefix:
        yield (
            f"a valid label key {_NAME_PART_RULE} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        )
        return
    if slash and not prefix:
        yield "prefix part must be non-empty"
    elif slash and (problem := dns_subdomain(prefix)):
        yield f"prefix part {problem}"
    if not own:
        yield "name part must be non-empty"
    elif len(own) > 63:
        yield "name part must be no more than 63 characters"
    if not _NAME_PART.fullmatch(own):
        yield f"name part {_NAME_PART_RULE}"


def validate_label_value(value: str, field: str) -> Iterator[Cause]:
    """Yield the errors of the value of a label."""
    for problem in label_value_problems(value):
        yield invalid_value(field, f'"{value}"', problem)


def new_uid(random: Random) -> str:
    """Return a random (version 4) UUID as text."""
    bits = random.getrandbits(128) & ~(0xF << 76) & ~(0x3 << 62) | 0x4 << 76 | 0x2 << 62
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def keep_system_fields(metadata: Object, old: Object) -> None:
    """Restore the fields of an updated object's metadata that only the server sets."""
    for field in names("uid creationTimestamp generation deletionTimestamp deletionGracePeriodSeconds"):
        restore(metadata, old, field)


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


class SeveralVersions(Strategy):
    """Kinds that are served in several versions with the same fields.

    Args:
        api_version: the apiVersion of this version's objects.
        stored: the apiVersion of stored objects.
    """

    def __init__(self, api_version: str, stored: str) -> None:
        self._api_version, self._stored = api_version, stored

    def to_storage(self, obj: Object) -> Object:
        return obj | {"apiVersion": self._stored}

    def from_storage(self, obj: Object) -> Object:
        return obj | {"apiVersion": self._api_version}


class Generic(Strategy):
    """Kinds with a status, a generation, and no other particular rules."""

    has_generation = True
    has_status = True
