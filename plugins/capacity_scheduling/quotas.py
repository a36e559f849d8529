"""ElasticQuotas: the min and max of a namespace, and comparisons with them.

Source:
    scheduler-plugins, pkg/capacityscheduling/elasticquota.go.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from plugins.objects_in_steps import SETTLED_A_STEP, ObjectsInSteps
from scheduler.errors import ObjectError
from scheduler.objects.decode import typed_object
from scheduler.objects.quantity import Amounts, bounded_amount
from scheduler.objects.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from scheduler.snapshot import Objects

    _Read = tuple[str, "Quota"] | str
    """When an ElasticQuota was created and its content, or its error."""
    _Age = tuple[str, str]
    """When an ElasticQuota was created, and its key."""

logger = logging.getLogger(__name__)

ELASTIC_QUOTAS: Final = "scheduling.x-k8s.io/v1alpha1/elasticquotas"
STATUS_RIGHT: Final = f"patch {ELASTIC_QUOTAS}/status"
"""The daemon writes the used amounts there."""

_ALWAYS_COMPARED: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str = ""
    name: str = ""
    creation_timestamp: str = ""


class _Spec(msgspec.Struct, frozen=True):
    min: Amounts | None = None
    max: Amounts | None = None


class ElasticQuota(msgspec.Struct, frozen=True):
    """The fields of the object that are read."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


@dataclass(frozen=True, slots=True)
class Quota:
    """What one namespace may have: resource -> milliCPU, bytes or a count.

    Attributes:
        min: what the namespace is guaranteed; a missing resource is 0.
        max: what it may use at most; None is no limit. A missing cpu, memory or ephemeral-storage is 0, any other missing
          resource has no limit.
    """

    min: Mapping[str, int]
    max: Mapping[str, int] | None

    def over_max(self, used: Mapping[str, int], more: Mapping[str, int]) -> bool:
        """Return whether `used` and `more` together exceed max; extended resources count only if more of them is requested."""
        if self.max is None:
            return False
        limit = self.max
        return any(
            more.get(name, 0) + used.get(name, 0) > limit.get(name, 0)
            for name in _compared(more)
            if name in _ALWAYS_COMPARED or name in limit
        )

    def over_min_with(self, used: Mapping[str, int], more: Mapping[str, int]) -> bool:
        """Return whether `used` and `more` together exceed min; as `over_max`, but a missing resource is 0."""
        return any(more.get(name, 0) + used.get(name, 0) > self.min.get(name, 0) for name in _compared(more))

    def over_min(self, used: Mapping[str, int]) -> bool:
        """Return whether `used` exceeds min in any resource: the namespace has borrowed."""
        return exceeds(used, self.min)


def exceeds(used: Mapping[str, int], limit: Mapping[str, int]) -> bool:
    """Return whether an amount exceeds a limit, in which a missing resource is 0."""
    return any(used.get(name, 0) > limit.get(name, 0) for name in _compared(used))


def _compared(amounts: Mapping[str, int]) -> Iterable[str]:
    return (*_ALWAYS_COMPARED, *(name for name in amounts if name not in _ALWAYS_COMPARED))


class Quotas(ObjectsInSteps):
    """The quota of each namespace: of several ElasticQuotas the oldest is active.

    Attributes:
        by_namespace: namespace -> its quota; another mapping after every change.
        holders: namespace -> key of the active ElasticQuota.
        wrong: key -> the error of an invalid ElasticQuota, with the field.
        guaranteed: resource -> the sum of all min.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_namespace: Mapping[str, Quota] = {}
        self.holders: Mapping[str, str] = {}
        self.wrong: Mapping[str, str] = {}
        self.guaranteed: Mapping[str, int] = {}
        self._read: dict[str, _Read] = {}
        self._by_age: dict[str, list[_Age]] = {}  # namespace -> its valid quotas, the oldest first
        self._touched: dict[str, None] = {}  # namespaces whose quota may have changed
        self._wrong: dict[str, str] = {}

    def forget(self) -> None:
        self._read, self._by_age, self._wrong = {}, {}, {}
        self._touched = dict.fromkeys(self.by_namespace)

    def read(self, key: str) -> bool:
        before, found = self._read.pop(key, None), _read_one(self._objects, key)
        if found is not None:
            self._read[key] = found
        if found == before:
            return False
        namespace = key.partition("/")[0]
        self._count(namespace, key, before, is_there=False)
        self._count(namespace, key, found, is_there=True)
        if isinstance(before, str) or isinstance(found, str):
            self._touched[namespace] = None
        return namespace in self._touched

    def _count(self, namespace: str, key: str, found: _Read | None, *, is_there: bool) -> None:
        """Count an added or removed quota; only the oldest of its namespace matters to others."""
        if isinstance(found, tuple):
            ages, age = self._by_age.setdefault(namespace, []), (found[0], key)
            place = bisect_left(ages, age)
            if place == 0:
                self._touched[namespace] = None
            if is_there:
                ages.insert(place, age)
            else:
                del ages[place]
                if not ages:
                    del self._by_age[namespace]
        elif found is not None and is_there:
            self._wrong[key] = found
            if self.wrong.get(key) != found:
                logger.warning("ElasticQuota is invalid", extra={"quota": key, "error": found})
        elif found is not None:
            del self._wrong[key]

    @property
    def settles_at_once(self) -> bool:
        return len(self._touched) <= SETTLED_A_STEP

    def settle(self) -> Generator[None, None, None]:
        by_namespace, holders = dict(self.by_namespace), dict(self.holders)
        guaranteed = dict(self.guaranteed)
        for place, namespace in enumerate(self._touched):
            if place and place % SETTLED_A_STEP == 0:
                yield
            before = by_namespace.pop(namespace, None)
            if before is not None:
                add(guaranteed, before.min, -1)
                del holders[namespace]
            ages = self._by_age.get(namespace)
            if ages:
                _, key = ages[0]
                found = self._read[key]
                assert isinstance(found, tuple), "it can be understood"
                by_namespace[namespace], holders[namespace] = found[1], key
                add(guaranteed, found[1].min)
        self._touched = {}
        self.by_namespace, self.holders, self.guaranteed = by_namespace, holders, guaranteed
        self.wrong = dict(self._wrong)

    def may_count(self, namespace: str, name: str, created: str) -> bool:
        """Return whether an ElasticQuota is, or may become, the active one of its namespace, as far as they were read."""
        ages = self._by_age.get(namespace)
        return not ages or (created, f"{namespace}/{name}") <= ages[0]


def _read_one(objects: Objects, key: str) -> _Read | None:
    """Return the creation time and content of an ElasticQuota, or its error; None if it does not exist."""
    try:
        obj = objects.get(key)
        if obj is None:
            return None
        found = typed_object(obj, ElasticQuota)  # it is read once, so `objects.typed` need not keep it
        most = None if found.spec.max is None else _amounts("max", found.spec.max)
        return found.metadata.creation_timestamp, Quota(_amounts("min", found.spec.min or {}), most)
    except ObjectError as error:
        return f"{error.path or 'spec'}: {error.problem}"
    except ValueError as error:
        return str(error)


def _amounts(field: str, given: Amounts) -> dict[str, int]:
    """Convert min or max; all namespaces share the sum, so negative amounts are rejected.

    Raises:
        ValueError: an amount is invalid; the message names the field.
    """
    found = {}
    for name, amount in given.items():
        try:
            found[name] = bounded_amount(name, amount)
        except ValueError as error:
            raise ValueError(f"spec.{field}.{name}: {error}") from error
    return found


def add(total: dict[str, int], amounts: Mapping[str, int], sign: int = 1) -> None:
    """Add amounts to a total, or subtract them with a sign of -1."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + sign * amount
