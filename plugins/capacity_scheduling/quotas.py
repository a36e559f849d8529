"""ElasticQuotas: what a namespace is sure of, what it may have at most, and when an amount is more than that.

Source:
    scheduler-plugins, pkg/capacityscheduling/elasticquota.go.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from plugins.objects_in_steps import SETTLED_A_STEP, ObjectsInSteps
from scheduler.errors import ObjectError
from scheduler.objects.amounts import Amounts, bounded_amount
from scheduler.objects.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from scheduler.snapshot import Objects

logger = logging.getLogger(__name__)

ELASTIC_QUOTAS: Final = "scheduling.x-k8s.io/v1alpha1/elasticquotas"
STATUS_RIGHT: Final = f"patch {ELASTIC_QUOTAS}/status"
"""The daemon tells there what is used."""

_ALWAYS_COMPARED: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str = ""
    name: str = ""
    creation_timestamp: str = ""


class _Spec(msgspec.Struct, frozen=True):
    min: Amounts | None = None
    max: Amounts | None = None


class ElasticQuota(msgspec.Struct, frozen=True):
    """The object, as far as it is read."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


@dataclass(frozen=True, slots=True)
class Quota:
    """What one namespace may have: resource -> milliCPU, bytes or a count.

    Attributes:
        min: what it is sure of; a resource that is missing is 0.
        max: what it may have at most; None is no limit. Of cpu, memory and ephemeral-storage a missing one is 0, of
            any other no limit.
    """

    min: Mapping[str, int]
    max: Mapping[str, int] | None

    def over_max(self, used: Mapping[str, int], more: Mapping[str, int]) -> bool:
        """Whether that much in use, and more, is beyond max; other resources than cpu, memory and ephemeral-storage count if more of them is asked for."""
        if self.max is None:
            return False
        limit = self.max
        return any(
            more.get(name, 0) + used.get(name, 0) > limit.get(name, 0)
            for name in _compared(more)
            if name in _ALWAYS_COMPARED or name in limit
        )

    def over_min_with(self, used: Mapping[str, int], more: Mapping[str, int]) -> bool:
        """Whether that much in use, and more, is beyond min; as `over_max`, but what is missing is 0."""
        return any(more.get(name, 0) + used.get(name, 0) > self.min.get(name, 0) for name in _compared(more))

    def over_min(self, used: Mapping[str, int]) -> bool:
        """Whether that much in use is beyond min, in any resource: the namespace has borrowed."""
        return exceeds(used, self.min)


def exceeds(used: Mapping[str, int], limit: Mapping[str, int]) -> bool:
    """Whether an amount is beyond a limit, in which what is missing is 0."""
    return any(used.get(name, 0) > limit.get(name, 0) for name in _compared(used))


def _compared(amounts: Mapping[str, int]) -> Iterable[str]:
    return (*_ALWAYS_COMPARED, *(name for name in amounts if name not in _ALWAYS_COMPARED))


class Quotas(ObjectsInSteps):
    """The quota of each namespace that has one: of several ElasticQuotas the oldest holds.

    Attributes:
        by_namespace: namespace -> its quota; another mapping after every change.
        holders: namespace -> key of that ElasticQuota.
        wrong: key -> what is wrong with an ElasticQuota that does not count for it, with the field.
        guaranteed: resource -> what all together are sure of.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_namespace: Mapping[str, Quota] = {}
        self.holders: Mapping[str, str] = {}
        self.wrong: Mapping[str, str] = {}
        self.guaranteed: Mapping[str, int] = {}
        self._read: dict[str, tuple[str, Quota] | str] = {}

    def forget(self) -> None:
        self._read = {}

    def read(self, key: str) -> bool:
        found = _read_one(self._objects, key)
        if found == self._read.get(key):
            return False
        if found is None:
            del self._read[key]
        else:
            self._read[key] = found
        return True

    def settle(self) -> Generator[None, None, None]:
        oldest: dict[str, tuple[tuple[str, str], Quota]] = {}
        wrong: dict[str, str] = {}
        for place, (key, found) in enumerate(self._read.items()):
            if place % SETTLED_A_STEP == 0:
                yield
            if isinstance(found, str):
                wrong[key] = found
                if self.wrong.get(key) != found:
                    extra = {"quota": key, "error": found}
                    logger.warning("ElasticQuota cannot be understood", extra=extra)
                continue
            created, quota = found
            namespace, age = key.partition("/")[0], (created, key)
            known = oldest.get(namespace)
            if known is None or age < known[0]:
                oldest[namespace] = age, quota
        guaranteed: dict[str, int] = {}
        for place, (_, quota) in enumerate(oldest.values()):
            if place % SETTLED_A_STEP == 0:
                yield
            add(guaranteed, quota.min)
        self.wrong, self.guaranteed = wrong, guaranteed
        self.by_namespace = {namespace: quota for namespace, (_, quota) in oldest.items()}
        self.holders = {namespace: key for namespace, ((_, key), _) in oldest.items()}


def _read_one(objects: Objects, key: str) -> tuple[str, Quota] | str | None:
    """Return when an ElasticQuota was made and what it says, or what is wrong with it; None if there is none."""
    try:
        found = objects.typed(ElasticQuota, key)
        if found is None:
            return None
        most = None if found.spec.max is None else _amounts("max", found.spec.max)
        return found.metadata.creation_timestamp, Quota(_amounts("min", found.spec.min or {}), most)
    except ObjectError as error:
        return f"{error.path or 'spec'}: {error.problem}"
    except ValueError as error:
        return str(error)


def _amounts(field: str, given: Amounts) -> dict[str, int]:
    """Return min or max; all namespaces share the sum, so none may lower it.

    Raises:
        ValueError: an amount is wrong; it names the field.
    """
    found = {}
    for name, amount in given.items():
        try:
            found[name] = bounded_amount(name, amount)
        except ValueError as error:
            raise ValueError(f"spec.{field}.{name}: {error}") from error
    return found


def add(total: dict[str, int], amounts: Mapping[str, int], sign: int = 1) -> None:
    """Add amounts to a total, or take them off with a sign of -1."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + sign * amount
