"""Namespaces share a cluster by ElasticQuotas: each is guaranteed its min and may borrow up to its max.

A namespace takes its min back by preempting pods of namespaces that borrowed, whatever their priority; beyond its min it
preempts pods of its own namespace of lower priority only.

Source:
    scheduler-plugins, pkg/capacityscheduling/capacity_scheduling.go.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from plugins.preemption.candidates import (
    NO_VICTIMS,
    NOT_HELPFUL,
    PREEMPTION_CODES,
    why_not_eligible,
)
from plugins.preemption.preempting import NEEDS, Preempting
from plugins.preemption.protection import PROTECTED, Cause, PreemptingArgs, Protection
from plugins.preemption.ranking import VictimUnits, by_importance, priority_of
from plugins.quotas.elastic_quotas import (
    ELASTIC_QUOTAS,
    STATUS_RIGHT,
    NamespaceUsage,
    Quotas,
    QuotaStatuses,
    add,
    exceeds,
)
from plugins.quotas.remedies import fewest_ended, higher_limit, limit_clause
from scheduler.framework import (
    ActionType,
    Clock,
    ClusterEvent,
    ClusterObjects,
    EventResource,
    EventWithHint,
    Needs,
    NodesExplanation,
    PluginMetrics,
    PodGroupMembers,
    PodGroupObjects,
    PreFilterPlugin,
    QueuedPods,
    QueueingHint,
    QuotaUsage,
    Reason,
    Sleep,
    SlicedWork,
    Status,
)
from scheduler.framework.preemption import (
    NominatedPods,  # the constructor's types are read
    PreemptionDryRun,  # the constructor's types are read
    Preemptions,  # the constructor's types are read
    VictimLimit,  # the constructor's types are read
    VictimReview,  # the constructor's types are read
)
from scheduler.objects.quantity import readable_amounts

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
    from typing import Self

    from plugins.preemption.candidates import Choice
    from plugins.preemption.protection import ProtectionCheck
    from plugins.preemption.ranking import Unit
    from plugins.quotas.elastic_quotas import Quota
    from scheduler.framework import (
        CycleState,
        Diagnosis,
        GroupDryRuns,
        PodGroup,
        PostFilterResult,
        StatusAccess,
        StatusSource,
    )
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import NodeInfo, Rows, Snapshot

_NOTHING: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Accounts:
    """The quotas, what is in use, and what one pod requests; amounts are milliCPU, bytes or counts by resource.

    Attributes:
        quotas: namespace -> its quota.
        guaranteed: the sum of their min.
        used: namespace -> what its pods use.
        total: what the pods of all namespaces with a quota use.
        request: what the pod requests.
        in_quota: the request, and the requests of nominated pods of its namespace of no lower priority.
        in_all: the request, and the requests of nominated pods of other namespaces that are not over their min.
        rows_with: namespace -> the rows with pods of it.
        changed: row -> namespace -> what added pods use in addition, or removed pods use no longer.
    """

    quotas: Mapping[str, Quota]
    guaranteed: Mapping[str, int]
    used: Mapping[str, Mapping[str, int]]
    total: Mapping[str, int]
    request: Mapping[str, int]
    in_quota: dict[str, int]
    in_all: Mapping[str, int]
    rows_with: Mapping[str, Collection[int]]
    changed: dict[int, dict[str, dict[str, int]]] = field(default_factory=dict)

    def clone(self) -> Self:
        copied = {
            row: {namespace: dict(amounts) for namespace, amounts in its.items()}
            for row, its in self.changed.items()
        }
        return replace(self, changed=copied)

    def count(self, pods: Iterable[tuple[int, PodInfo]], sign: int) -> None:
        """Count (row, pod) pairs as added, or with a sign of -1 as removed; pods without a quota do not matter."""
        for row, pod in pods:
            if pod.namespace in self.quotas:
                its = self.changed.setdefault(row, {})
                add(its.setdefault(pod.namespace, {}), pod.resources.taken, sign)

    def used_by(self, namespace: str, row: int | None = None) -> Mapping[str, int]:
        """Return what a namespace uses, including the changes on one row."""
        used = self.used.get(namespace, _NOTHING)
        changed = None if row is None else self.changed.get(row, {}).get(namespace)
        return used if changed is None else _sum(used, changed)

    def over_max(self, namespace: str, more: Mapping[str, int], row: int | None = None) -> bool:
        """Return whether a namespace would exceed its max with more in use."""
        return self.quotas[namespace].over_max(self.used_by(namespace, row), more)

    def over_guaranteed(self, more: Mapping[str, int], row: int | None = None) -> bool:
        """Return whether all namespaces together would exceed the sum of min with more in use."""
        changed = [] if row is None else self.changed.get(row, {}).values()
        return exceeds(_sum(self.total, more, *changed), self.guaranteed)


def _sum(first: Mapping[str, int], *others: Mapping[str, int]) -> dict[str, int]:
    total = dict(first)
    for amounts in others:
        add(total, amounts)
    return total


def _amounts(
    resource: str, used: Mapping[str, int], more: Mapping[str, int], limit: Mapping[str, int]
) -> str:
    uses, asks, most = readable_amounts(
        resource, used.get(resource, 0), more.get(resource, 0), limit.get(resource, 0)
    )
    return f"{uses} {resource} used, {asks} requested, limit {most}"


_ACCOUNTS: Final = "CapacityScheduling"
MAX_EXCEEDED: Final = "QuotaMaxExceeded"
MIN_EXCEEDED: Final = "QuotaMinExceeded"
_MAX_EXCEEDED = Status.unschedulable("global quota max exceeded")


class CapacitySchedulingArgs(PreemptingArgs, frozen=True, kw_only=True):
    """The plugin's arguments."""

    CAUSES: ClassVar[tuple[Cause, ...]] = (Cause.PREEMPTION, Cause.QUOTA_RECLAIM)


class CapacityScheduling(PreFilterPlugin, Preempting):
    """Keeps namespaces within their quotas, and preempts by them, instead of DefaultPreemption.

    An assumed pod is on its node in every later snapshot, so Reserve records nothing.
    """

    name = "CapacityScheduling"
    api_version = 1
    Args = CapacitySchedulingArgs
    reason_codes = MappingProxyType(
        {
            **PREEMPTION_CODES,
            MAX_EXCEEDED: "the ElasticQuota of the namespace would exceed its `max`",
            MIN_EXCEEDED: "all ElasticQuotas together would exceed the sum of their `min`",
        }
    )
    keeps_rows_apart = True
    takes_whole_groups = True
    needs = Needs(kinds=NEEDS.kinds | {ELASTIC_QUOTAS}, rights=NEEDS.rights | {STATUS_RIGHT})
    refresh_seconds = 1.0

    def __init__(
        self,
        *,
        args: CapacitySchedulingArgs,
        dry_run: PreemptionDryRun,
        review: VictimReview,
        preemptions: Preemptions,
        nominated: NominatedPods,
        work: SlicedWork,
        members: PodGroupMembers,
        groups: PodGroupObjects,
        cluster: ClusterObjects,
        sleep: Sleep,
        clock: Clock,
        queued: QueuedPods,
        metrics: PluginMetrics,
    ) -> None:
        protection = Protection.of(args, clock, queued, preemptions, metrics)
        super().__init__(dry_run, review, preemptions, work, VictimUnits(members, groups), protection)
        self._cluster, self._sleep = cluster, sleep
        self._nominated = nominated
        self._quotas = Quotas()
        self._usage = NamespaceUsage()

    def statuses(self, plugins: Sequence[Self], access: StatusAccess) -> Sequence[StatusSource]:
        return [QuotaStatuses(access)]

    def events(self) -> Sequence[EventWithHint]:
        deleted = ClusterEvent(EventResource.POD, ActionType.DELETE)
        quota = ClusterEvent(EventResource.of(ELASTIC_QUOTAS), ActionType.ALL)
        return (EventWithHint(deleted), EventWithHint(quota, self._after_quota_change))

    def _after_quota_change(
        self, pod: PodInfo, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None
    ) -> QueueingHint:
        """Ignore changes that affect no quota: a field outside the spec, or an ElasticQuota that is not active."""
        if old is not None and new is not None and old.get("spec") == new.get("spec"):
            return QueueingHint.SKIP
        for found in (old, new):
            if found is not None:
                metadata = found["metadata"]
                created = str(metadata.get("creationTimestamp", ""))
                if self._quotas.may_count(metadata["namespace"], metadata["name"], created):
                    return QueueingHint.QUEUE
        return QueueingHint.SKIP

    async def refresh(self) -> None:
        """Read the quotas that have changed, so that no attempt waits for many of them."""
        for _ in self._quotas.reading(self._cluster.objects(ELASTIC_QUOTAS)):
            await self._sleep.sleep(0.0)

    # PreFilter.

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status | None:
        objects = snapshot.objects(ELASTIC_QUOTAS)
        has_objects = bool(objects.in_namespace(pod.namespace))
        if has_objects:
            self._quotas.be_read_for(pod.uid, objects)
        accounts = self._accounts(pod, snapshot)
        state.write(_ACCOUNTS, accounts, by_row=True)
        if not has_objects or pod.namespace not in accounts.quotas:
            return None
        rejected = f"Pod {pod.key} is rejected in PreFilter because"
        if accounts.over_max(pod.namespace, accounts.in_quota):
            return Status.unschedulable(
                Reason(f"{rejected} ElasticQuota {pod.namespace} is more than Max", MAX_EXCEEDED)
            )
        if accounts.over_guaranteed(accounts.in_all):
            return Status.unschedulable(
                Reason(f"{rejected} total ElasticQuota used is more than min", MIN_EXCEEDED)
            )
        return None

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str] | None:
        """Return the quota's numbers: what is used, what is requested with nominated pods, and the limit."""
        if node is not None:
            return None
        accounts = self._accounts(pod, snapshot)
        quota = accounts.quotas.get(pod.namespace)
        if quota is None:
            return []
        used = accounts.used_by(pod.namespace)
        details = [
            f"ElasticQuota of namespace {pod.namespace}: {_amounts(name, used, accounts.in_quota, quota.max or {})}"
            for name in sorted(accounts.in_quota.keys() | used.keys())
            if quota.over_max({name: used.get(name, 0)}, {name: accounts.in_quota.get(name, 0)})
        ]
        return details + [
            f"all ElasticQuotas together: {_amounts(name, accounts.total, accounts.in_all, accounts.guaranteed)}"
            for name in sorted(accounts.in_all)
            if not details
            and accounts.total.get(name, 0) + accounts.in_all[name] > accounts.guaranteed.get(name, 0)
        ]

    def why_nodes(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> NodesExplanation | None:
        """Propose higher limits, and the end of the fewest pods that use the quota."""
        accounts = self._accounts(pod, snapshot)
        quota = accounts.quotas.get(pod.namespace)
        if quota is None:
            return None
        used, limit = accounts.used_by(pod.namespace), quota.max or {}
        over_max = {
            name: used.get(name, 0) + accounts.in_quota.get(name, 0)
            for name in sorted(accounts.in_quota.keys() | used.keys())
            if quota.over_max({name: used.get(name, 0)}, {name: accounts.in_quota.get(name, 0)})
        }
        over_all = {
            name: needed
            for name, amount in sorted(accounts.in_all.items())
            if (needed := accounts.total.get(name, 0) + amount) > accounts.guaranteed.get(name, 0)
        }
        holder = self._quotas.holders.get(pod.namespace, pod.namespace)
        clauses = [
            limit_clause(name, f"max.{name} of ElasticQuota {holder}", needed, limit.get(name, 0))
            for name, needed in over_max.items()
        ]
        clauses += [
            limit_clause(
                name, f"min.{name} of all ElasticQuotas together", needed, accounts.guaranteed.get(name, 0)
            )
            for name, needed in over_all.items()
        ]
        if not clauses:
            return None
        lacking = {name: needed - accounts.guaranteed.get(name, 0) for name, needed in over_all.items()}
        for name, needed in over_max.items():
            lacking[name] = max(lacking.get(name, 0), needed - limit.get(name, 0))
        namespaces = [pod.namespace] if over_max else sorted(accounts.quotas)
        whose = f"of namespace {pod.namespace}" if over_max else "of namespaces with an ElasticQuota"
        users = (
            (row, other)
            for namespace in namespaces
            for row in sorted(accounts.rows_with.get(namespace, ()))
            for other in snapshot.pods_on(row)
            if other.namespace == namespace
        )
        ended = fewest_ended(pod, users, lacking, whose)
        return NodesExplanation("", [higher_limit(pod, clauses, self.name), *([ended] if ended else [])])

    def _accounts(self, pod: PodInfo, snapshot: Snapshot) -> Accounts:
        self._quotas.look_at(snapshot.objects(ELASTIC_QUOTAS))
        quotas = self._quotas.by_namespace
        usage = self._usage_in(snapshot)
        request = pod.resources.requests
        in_quota, in_all = dict(request), dict(request)
        if pod.namespace in quotas:
            for other in self._nominated.pods():
                quota = quotas.get(other.namespace)
                if quota is None or other.uid == pod.uid:
                    continue
                if other.namespace != pod.namespace:
                    if not quota.over_min(usage.by_namespace.get(other.namespace, {})):
                        add(in_all, other.resources.requests)
                elif other.priority >= pod.priority:
                    add(in_quota, other.resources.requests)
                    add(in_all, other.resources.requests)
        guaranteed, used, total = self._quotas.guaranteed, usage.by_namespace, usage.total
        return Accounts(quotas, guaranteed, used, total, request, in_quota, in_all, usage.rows_with)

    def _usage_in(self, snapshot: Snapshot) -> NamespaceUsage:
        """Return what the namespaces use, for the quotas that were read last."""
        quotas = self._quotas.by_namespace
        if snapshot.changes is None:
            return NamespaceUsage.of(snapshot, quotas)
        self._usage.follow(snapshot, snapshot.changes, quotas)
        return self._usage

    def quota_usages(
        self, plugins: Sequence[Self], pending: Sequence[PodInfo]
    ) -> Generator[None, None, Sequence[QuotaUsage]]:
        """Return the use of each ElasticQuota, as read last; a namespace has borrowed what it uses beyond its min."""
        snapshot = self._cluster.snapshot()
        self._quotas.look_at(snapshot.objects(ELASTIC_QUOTAS))
        quotas, holders, wrong = self._quotas.by_namespace, self._quotas.holders, self._quotas.wrong
        used = self._usage_in(snapshot).by_namespace
        waiting: dict[str, dict[str, int]] = {}
        numbers: Counter[str] = Counter()
        for pod in pending:
            yield
            numbers[pod.namespace] += 1
            add(waiting.setdefault(pod.namespace, {}), pod.resources.requests)
        found = []
        for namespace, quota in quotas.items():
            yield
            its = {name: amount for name, amount in used.get(namespace, _NOTHING).items() if amount}
            beyond = {name: amount - quota.min.get(name, 0) for name, amount in its.items()}
            found.append(
                QuotaUsage(
                    ELASTIC_QUOTAS,
                    holders[namespace],
                    used=its,
                    guaranteed=quota.min,
                    borrowed={name: amount for name, amount in beyond.items() if amount > 0},
                    limit=quota.limit,
                    waiting=waiting.get(namespace, {}),
                    pending=numbers[namespace],
                )
            )
        return found + [QuotaUsage(ELASTIC_QUOTAS, key, fault=problem) for key, problem in wrong.items()]

    def quota_of(self, pod: PodInfo) -> str:
        return self._quotas.holders.get(pod.namespace, "")

    def add_pods(
        self, state: CycleState, pod: PodInfo, added: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        state.mutable(_ACCOUNTS, Accounts).count(added, 1)

    def remove_pods(
        self, state: CycleState, pod: PodInfo, removed: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        state.mutable(_ACCOUNTS, Accounts).count(removed, -1)

    # PostFilter.

    async def post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> PostFilterResult:
        objects = snapshot.objects(ELASTIC_QUOTAS)
        if not objects.in_namespace(pod.namespace):  # other pods have waited in PreFilter
            self._quotas.be_read_for(pod.uid, objects)
        return await super().post_filter(state, pod, snapshot, diagnosis)

    async def post_filter_group(
        self, group: PodGroup, members: Sequence[PodInfo], dry_runs: GroupDryRuns
    ) -> Sequence[PodInfo] | Status:
        await dry_runs.done(self._quotas.reading(dry_runs.snapshot().objects(ELASTIC_QUOTAS)))
        return await super().post_filter_group(group, members, dry_runs)

    def why_not_eligible(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> Reason | None:
        if _ACCOUNTS not in state:  # PreFilter of an earlier plugin rejected the pod
            return Reason("not eligible due to failed to read from cycleState", NOT_HELPFUL)
        accounts = state.read(_ACCOUNTS, Accounts)
        borrows = _borrows(accounts, pod)

        def waits_for(other: PodInfo) -> bool:
            return other.is_terminating and _may_leave(accounts, pod, other, borrows=borrows)

        return why_not_eligible(pod, snapshot, diagnosis, waits_for)

    def removable(
        self,
        units: Iterable[Unit],
        group: PodGroup,
        members: Sequence[PodInfo],
        snapshot: Snapshot,
        check: ProtectionCheck | None,
    ) -> Generator[None, None, Sequence[Unit]]:
        """Return the units that the group may preempt: from a namespace at most what it has borrowed."""
        preemptor, accounts = members[0], self._accounts(members[0], snapshot)
        for member in members[1:]:
            add(accounts.in_quota, member.resources.requests)
        borrows, priority = _borrows(accounts, preemptor), priority_of(group, members)
        gone: dict[str, dict[str, int]] = {}
        found = []
        # Members on nodes may have a lower priority than their group.
        others = (unit for unit in units if unit.pods[0].group != group.key)
        for unit in sorted(others, key=lambda unit: unit.importance, reverse=True):
            yield
            its = gone.setdefault(unit.pods[0].namespace, {})  # a group is of one namespace
            if all(
                _may_leave(accounts, preemptor, pod, borrows=borrows, priority=priority, gone=its)
                for pod in unit.pods
            ) and not (check and check.protects(unit.pods, _cause(accounts, preemptor, unit.pods[0]))):
                found.append(unit)
                for pod in unit.pods:
                    add(its, pod.resources.taken)
        return found

    def rows_with_victims(self, state: CycleState, pod: PodInfo, rows: list[int]) -> list[int]:
        accounts = state.read(_ACCOUNTS, Accounts)
        found: set[int] = set()
        for namespace in _losing(accounts, pod):
            found.update(accounts.rows_with.get(namespace, ()))
        return sorted(found.intersection(rows))

    def choice(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, check: ProtectionCheck | None
    ) -> Choice:
        return _choice(state.read(_ACCOUNTS, Accounts), pod, snapshot, self._units, check)

    def time_of_queue(self, pod: PodInfo, cause: Cause) -> tuple[float, str] | None:
        quota = self._quotas.by_namespace.get(pod.namespace)
        if quota is None or cause not in quota.min_run_times:
            return None
        return quota.min_run_times[cause], f"ElasticQuota {self._quotas.holders[pod.namespace]}"

    def limit(self, pod: PodInfo) -> VictimLimit:
        return _WithinQuotas(pod.namespace)


def _borrows(accounts: Accounts, pod: PodInfo) -> bool:
    """Return whether the pod takes its namespace beyond its min; a pod without a quota never does."""
    quota = accounts.quotas.get(pod.namespace)
    return quota is not None and quota.over_min_with(accounts.used_by(pod.namespace), accounts.in_quota)


def _losing(accounts: Accounts, pod: PodInfo) -> Iterable[str]:
    """Return the namespaces that may have pods that `_may_leave` for a pod."""
    quotas = accounts.quotas
    if pod.namespace not in quotas:
        return (namespace for namespace in accounts.rows_with if namespace not in quotas)
    if _borrows(accounts, pod):
        return (pod.namespace,)
    return (
        namespace
        for namespace in accounts.rows_with
        if namespace != pod.namespace
        and namespace in quotas
        and quotas[namespace].over_min(accounts.used_by(namespace))
    )


def _may_leave(
    accounts: Accounts,
    pod: PodInfo,
    other: PodInfo,
    *,
    borrows: bool,
    priority: int | None = None,
    gone: Mapping[str, int] | None = None,
) -> bool:
    """Return whether another pod may become a victim of a pod.

    Args:
        accounts: the current accounts.
        pod: the preemptor.
        other: the possible victim.
        borrows: whether the preemptor takes its namespace beyond its min.
        priority: the preemptor's priority; its own if not given.
        gone: what earlier victims of the other's namespace use.
    """
    priority = pod.priority if priority is None else priority
    quota = accounts.quotas.get(other.namespace)
    if pod.namespace not in accounts.quotas:
        return quota is None and other.priority < priority
    if quota is None:
        return False
    if other.namespace == pod.namespace:
        return borrows and other.priority < priority
    if borrows:
        return False
    used = dict(accounts.used_by(other.namespace))
    add(used, gone or {}, -1)
    return quota.over_min(used)


def _cause(accounts: Accounts, pod: PodInfo, other: PodInfo) -> Cause:
    """Return why a pod would preempt another, which may leave for it."""
    is_own = other.namespace == pod.namespace or pod.namespace not in accounts.quotas
    return Cause.PREEMPTION if is_own else Cause.QUOTA_RECLAIM


def _choice(
    accounts: Accounts,
    pod: PodInfo,
    snapshot: Snapshot,
    units: VictimUnits,
    check: ProtectionCheck | None,
) -> Choice:
    """Return the choice of possible victims, least important first: from a namespace at most what it has borrowed.

    Pods that leave with them on other nodes are counted, and not returned.
    """
    borrows = _borrows(accounts, pod)

    def choose(row: int) -> Sequence[PodInfo] | Status:
        gone: dict[str, dict[str, int]] = {}
        victims: list[PodInfo] = []
        refusal = NO_VICTIMS
        there = snapshot.pods_on(row)
        uids = {other.uid for other in there}
        for unit in units.together(reversed(by_importance(there))):
            its = gone.setdefault(unit[0].namespace, {})  # a group is of one namespace
            if all(_may_leave(accounts, pod, other, borrows=borrows, gone=its) for other in unit):
                if check is not None and check.protects(unit, _cause(accounts, pod, unit[0]), row):
                    refusal = PROTECTED
                    continue
                victims.extend(other for other in unit if other.uid in uids)
                for other in unit:
                    add(its, other.resources.taken)
        return victims or refusal

    return choose


class _WithinQuotas(VictimLimit):
    """Preempting keeps the pod's namespace within its max, and all within the sum of min."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def refusal(self, state: CycleState, row: int) -> Status | None:
        accounts = state.read(_ACCOUNTS, Accounts)
        return None if self._holds(accounts, row, accounts.request, accounts.request) else _MAX_EXCEEDED

    def allows(self, state: CycleState, row: int) -> bool:
        accounts = state.read(_ACCOUNTS, Accounts)
        return self._holds(accounts, row, accounts.in_quota, accounts.in_all)

    def _holds(
        self, accounts: Accounts, row: int, in_quota: Mapping[str, int], in_all: Mapping[str, int]
    ) -> bool:
        if self._namespace not in accounts.quotas:
            return True
        return not (
            accounts.over_max(self._namespace, in_quota, row) or accounts.over_guaranteed(in_all, row)
        )
