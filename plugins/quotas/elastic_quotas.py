"""ElasticQuotas: the min and max of a namespace, comparisons with its usage, and the status of the objects.

Source:
    scheduler-plugins, pkg/capacityscheduling/elasticquota.go.
    scheduler-plugins, pkg/controllers/elasticquota_controller.go: what is used is that of running pods.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from plugins.preemption.protection import AnnotationFaults, min_run_times
from plugins.work_in_steps import SETTLED_A_STEP, ObjectsInSteps
from scheduler.errors import ObjectError
from scheduler.framework import WantedStatus
from scheduler.framework.status_sources import ACCEPTED, Acceptance, StatusSource, named_in, written
from scheduler.objects.decode import typed_object
from scheduler.objects.quantity import Amounts, amount_text, bounded_amount, check_count
from scheduler.objects.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from plugins.preemption.protection import Cause
    from scheduler.framework.status_sources import StatusAccess, StatusOf
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Objects, Snapshot
    from scheduler.snapshot.arrays import ChangeLog

    _Read = tuple[str, "Quota"] | str
    """When an ElasticQuota was created and its content, or its error."""
    _Age = tuple[str, str]
    """When an ElasticQuota was created, and its key."""
    Used = Mapping[str, Mapping[str, int]]

logger = logging.getLogger(__name__)


ELASTIC_QUOTAS: Final = "scheduling.x-k8s.io/v1alpha1/elasticquotas"
STATUS_RIGHT: Final = f"patch {ELASTIC_QUOTAS}/status"
"""The daemon writes the used amounts there."""

_ALWAYS_COMPARED: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str = ""
    name: str = ""
    creation_timestamp: str = ""
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, frozen=True):
    min: Amounts | None = None
    max: Amounts | None = None


class ElasticQuota(msgspec.Struct, frozen=True):
    """The fields of the object that are read."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of one namespace: resource -> milliCPU, bytes or a count.

    Attributes:
        min: what the namespace is guaranteed; a missing resource is 0.
        max: what it may use at most; None is no limit. A missing cpu, memory or ephemeral-storage is 0, any other missing
          resource has no limit.
      min_run_times: cause of a preemption -> how many seconds its pods run at least before it.
    """

    min: Mapping[str, int]
    max: Mapping[str, int] | None
    min_run_times: Mapping[Cause, float] = field(default_factory=dict)

    @property
    def limit(self) -> Mapping[str, int]:
        """The amounts that the namespace may use at most, as `over_max` compares it; a missing resource has no limit."""
        return {} if self.max is None else {**dict.fromkeys(_ALWAYS_COMPARED, 0), **self.max}

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
        self._annotations = AnnotationFaults("quota")

    def forget(self) -> None:
        self._read, self._by_age, self._wrong = {}, {}, {}
        self._touched = dict.fromkeys(self.by_namespace)

    def read(self, key: str) -> bool:
        before, found = self._read.pop(key, None), _read_one(self._objects, key)
        if found is not None:
            self._read[key] = found
        obj = self._objects.get(key) if isinstance(found, tuple) else None
        self._annotations.note(key, {} if obj is None else obj["metadata"].get("annotations") or {})
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
        times = min_run_times(found.metadata.annotations or {})
        quota = Quota(_amounts("min", found.spec.min or {}), most, times)
    except ObjectError as error:
        return f"{error.path or 'spec'}: {error.problem}"
    except ValueError as error:
        return str(error)
    return found.metadata.creation_timestamp, quota


def _amounts(field: str, given: Amounts) -> dict[str, int]:
    """Convert min or max; all namespaces share the sum, so negative amounts are rejected.

    Raises:
        ValueError: an amount is invalid, or there are too many; the message names the field.
    """
    found, path = {}, f"spec.{field}"
    try:
        check_count(given)
        for name, amount in given.items():
            path = f"spec.{field}.{name}"
            found[name] = bounded_amount(name, amount)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return found


def add(total: dict[str, int], amounts: Mapping[str, int], sign: int = 1) -> None:
    """Add amounts to a total, or subtract them with a sign of -1."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + sign * amount


_NOTHING: Mapping[str, int] = {}


class NamespaceUsage:
    """The requests of the pods on nodes, including assumed pods, by namespace and for all namespaces with a quota.

    Finished pods are on no node any more, so they do not count.

    Args:
        account_of: returns the account of a pod, if that is not its namespace.

    Attributes:
        by_namespace: namespace -> resource -> milliCPU, bytes or a count; namespaces without pods may be missing.
        total: the sum over all named namespaces.
        changed: the accounts recounted since a reader last cleared the set.
        rows_with: namespace -> the rows with pods of it; a namespace without pods may have an empty set.
    """

    def __init__(self, account_of: Callable[[PodInfo], str] | None = None) -> None:
        self._account_of = account_of or _namespace
        self.by_namespace: dict[str, dict[str, int]] = {}
        self.total: dict[str, int] = {}
        self.changed: set[str] = set()
        self._with_quota: Mapping[str, object] = {}
        self._on_row: list[Used] = []
        self.rows_with: dict[str, set[int]] = {}
        self._changes: ChangeLog | None = None
        self._seen = 0

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        with_quota: Mapping[str, object],
        account_of: Callable[[PodInfo], str] | None = None,
    ) -> NamespaceUsage:
        """Count the pods of a hypothetical snapshot, which is not the live cluster."""
        usage = cls(account_of)
        # A loop over all nodes, outside of scheduling cycles.
        usage._follow_rows(snapshot, range(snapshot.n_nodes))
        usage._name(with_quota)
        return usage

    def follow(self, snapshot: Snapshot, changes: ChangeLog, with_quota: Mapping[str, object]) -> None:
        """Recount what changed since the last call.

        Args:
            snapshot: the live cluster.
            changes: the change log of that snapshot.
            with_quota: the namespaces of `total`; the same object as long as they do not change.
        """
        rows = changes.since(self._seen) if changes is self._changes else None
        if rows is None:
            self.changed.update(self.by_namespace)
            self.by_namespace, self.total, self._on_row, self.rows_with = {}, {}, [], {}
            rows = range(snapshot.n_nodes)  # all nodes: at first, and after more changes than the log holds
        self._changes, self._seen = changes, changes.end
        self._follow_rows(snapshot, {*rows, *range(snapshot.n_nodes, len(self._on_row))})
        if with_quota is not self._with_quota:
            self._name(with_quota)

    def _name(self, with_quota: Mapping[str, object]) -> None:
        self._with_quota, self.total = with_quota, {}
        for namespace in with_quota:
            add(self.total, self.by_namespace.get(namespace, _NOTHING))

    def _follow_rows(self, snapshot: Snapshot, rows: Iterable[int]) -> None:
        """Recount rows; removed rows hold nothing."""
        missing = snapshot.n_nodes - len(self._on_row)
        self._on_row.extend({} for _ in range(missing))
        for row in rows:
            if row < len(self._on_row):
                found = self._found_on(snapshot, row) if row < snapshot.n_nodes else {}
                before = self._on_row[row]
                self._count(before, -1)
                self._count(found, 1)
                if found.keys() != before.keys():
                    for namespace in before:
                        self.rows_with[namespace].discard(row)
                    for namespace in found:
                        self.rows_with.setdefault(namespace, set()).add(row)
                self._on_row[row] = found
        del self._on_row[snapshot.n_nodes :]

    def _found_on(self, snapshot: Snapshot, row: int) -> Used:
        used: dict[str, dict[str, int]] = {}
        for pod in snapshot.pods_on(row):
            add(used.setdefault(self._account_of(pod), {}), pod.resources.taken)
        return used

    def _count(self, used: Used, sign: int) -> None:
        self.changed.update(used)
        for namespace, amounts in used.items():
            add(self.by_namespace.setdefault(namespace, {}), amounts, sign)
            if namespace in self._with_quota:
                add(self.total, amounts, sign)


def _namespace(pod: PodInfo) -> str:
    return pod.namespace


_NONE: Mapping[str, int] = {}


class QuotaStatuses(StatusSource):
    """Computes the statuses of quotas, and shows the share of each quota that is used.

    Args:
        access: reads pods, and counts them in another thread.
    """

    kind = ELASTIC_QUOTAS
    object_kind = "ElasticQuota"
    condition_types = frozenset({ACCEPTED})

    def __init__(self, access: StatusAccess) -> None:
        self._access = access
        self._quotas = Quotas()
        self._used_ratio = access.metrics.gauge(
            "custom_scheduler_quota_used_ratio",
            "The greatest part of its quota's max that a namespace uses of any resource.",
            "namespace",
        )

    def ended(self) -> None:
        self._used_ratio.replace({})

    async def status_of(self, objects: Objects) -> StatusOf:
        await self._access.in_slices(self._quotas.reading(objects))
        quotas, holders, wrong = self._quotas.by_namespace, self._quotas.holders, self._quotas.wrong
        namespaces = set(objects.versions)
        # A copy for the other thread, so that pods need not wait for it.
        pods = list(self._access.pods.values())
        used = await self._access.aside(
            partial(used_by_running, pods, namespaces), "counting what quotas' pods use"
        )
        parts = await self._access.in_slices(parts_of_max(quotas, used))
        self._used_ratio.replace({(namespace,): part for namespace, part in parts.items()})

        def status_of(key: str, obj: Mapping[str, Any]) -> WantedStatus | None:
            namespace = key.partition("/")[0]
            if namespace not in quotas and key not in wrong:
                return None  # it was added meanwhile, and is not read yet
            amounts = written(used.get(namespace, _NONE), named_in(obj.get("spec") or {}))
            verdict = acceptance_of(
                key, holders.get(namespace, ""), quotas.get(namespace), wrong.get(key, "")
            )
            return WantedStatus({"used": amounts}, (verdict.condition(),))

        return status_of


def used_by_running(pods: Iterable[PodInfo], namespaces: set[str]) -> dict[str, dict[str, int]]:
    """Return what running pods request: namespace -> resource -> milliCPU, bytes or a count."""
    used: dict[str, dict[str, int]] = {}
    for pod in pods:
        if pod.namespace in namespaces and pod.pod.status.phase == "Running":
            add(used.setdefault(pod.namespace, {}), pod.resources.requests)
    return used


def parts_of_max(
    quotas: Mapping[str, Quota], used: Mapping[str, Mapping[str, int]]
) -> Generator[None, None, Mapping[str, float]]:
    """Return namespace -> `part_of_max`, without namespaces that have no max; one namespace in each step."""
    found = {}
    for namespace, quota in quotas.items():
        yield
        if quota.max is not None:
            found[namespace] = part_of_max(used.get(namespace, _NONE), quota)
    return found


def part_of_max(used: Mapping[str, int], quota: Quota) -> float:
    """Return the highest share of a quota's max that is used of any resource; resources with max 0 are ignored."""
    most = quota.max or {}
    return max((used.get(name, 0) / amount for name, amount in most.items() if amount), default=0.0)


def acceptance_of(key: str, holder: str, quota: Quota | None, wrong: str = "") -> Acceptance:
    """Return whether a quota is accepted.

    Args:
        key: `namespace/name`.
        holder: key of the accepted quota of the namespace; "" if there is none.
        quota: the accepted quota, decoded.
        wrong: why the quota with the key is invalid, with the field; "" if it is valid.
    """
    if wrong or quota is None:
        return Acceptance("Invalid", f"{wrong}; it does not count")
    if holder and key != holder:
        name = holder.partition("/")[2]
        return Acceptance(
            "Ignored", f"metadata.namespace: ElasticQuota {name} is older, and the first one counts"
        )
    faults = [
        f"spec.min.{name}: must be at most spec.max.{name} ({amount_text(name, most)}), was {amount_text(name, amount)}; max holds"
        for name, amount in sorted(quota.min.items())
        if quota.max is not None and name in quota.max and amount > (most := quota.max[name])
    ]
    return Acceptance("MinAboveMax", "; ".join(faults)) if faults else Acceptance("Valid")
