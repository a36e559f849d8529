"""Allocates the devices that pods claim: rejects nodes without them, and writes the claims of bound pods.

Source:
    kube-scheduler v1.36, plugins/dynamicresources/dynamicresources.go, isSchedulableAfterClaimChange and
    isSchedulableAfterPodChange.
    kube-scheduler v1.36, plugins/dynamicresources, with the default feature gates.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from plugins.dynamic_resources.binding import ClaimBinding
from plugins.dynamic_resources.claim_writes import CLAIM_RIGHTS, ClaimMetrics, ClaimWrites
from plugins.dynamic_resources.devices import DEVICE_TAINT_RULES, NEEDS, Devices
from plugins.dynamic_resources.explaining import TAKES_LONG, Explaining, ExplanationTimeSlice
from plugins.dynamic_resources.extended_resources import (
    ExtendedResources,
    is_written,
    special_claim,
    wants_devices,
)
from plugins.dynamic_resources.pod_claims import (
    GroupClaimError,
    find_claims,
    group_consumers,
    is_reserved_for,
    is_reserved_for_group_of,
    reserved_group_claim,
)
from plugins.dynamic_resources.pod_devices import (
    PodDevices,
    has_alternatives,
    is_unready,
    places_of,
    skips_operations,
)
from plugins.dynamic_resources.pod_node_use import NodeUses
from plugins.dynamic_resources.reason_codes import (
    CLAIM_CHANGING,
    CLASS_NOT_FOUND,
    DEVICES_NOT_RELEASED,
    DEVICES_RELEASED,
    GROUP_NOT_FOUND,
    INVALID_CLAIM,
    REASON_CODES,
)
from plugins.dynamic_resources.remedies import (
    SmallerRequests,
    devices_elsewhere,
    missing_classes,
    without_resource_claims,
)
from plugins.dynamic_resources.structured import (
    AllocationError,
    Allocator,
    DeviceFeatures,
    InvalidPoolsError,
    OutOfTimeError,
)
from plugins.pod_groups.objects import PodGroupObject
from plugins.work_in_steps import PluginWork
from scheduler.errors import FieldError, SchedulerError
from scheduler.framework import (
    SKIP,
    ActionType,
    ApiGet,
    ApiWrite,
    AssumedPods,
    Background,
    Change,
    Clock,
    ClusterEvent,
    ClusterObjects,
    EventResource,
    EventWithHint,
    Features,
    FilterPlugin,
    KeyedLock,
    NodesExplanation,
    PluginArgs,
    PluginMetrics,
    PodActivator,
    PodEvents,
    PodGroupMembers,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    QueueingHint,
    Reason,
    Remedy,
    ReservePlugin,
    ScorePlugin,
    Sleep,
    Status,
    TimeSlice,
    WaitForEvent,
    default_normalize_score,
    no_event_keys,
    no_pod_key,
)
from scheduler.framework.sliced_work import NeedsTime
from scheduler.objects.pod_group import POD_GROUPS
from scheduler.objects.resources import PodRules
from scheduler.objects.selectors import SelectorError
from scheduler.objects.wording import Duration
from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator, Mapping, Sequence

    from plugins.dynamic_resources.pod_claims import HeldClaim
    from scheduler.framework import CycleState, Diagnosis, Features, Outcomes, PodGroup
    from scheduler.objects.dynamic_resources import (
        AllocationResult,
        DeviceRequest,
        ResourceClaim,
        ResourceClaimConsumerReference,
    )
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.selectors import NodeRule
    from scheduler.snapshot import Int64s, NodeInfo, Objects, Rows, Snapshot

_SECOND = 1_000_000_000


class DynamicResourcesArgs(PluginArgs, frozen=True):
    """Arguments of DynamicResources.

    Attributes:
        filter_timeout: time limit of the search for the devices of one pod over all nodes; 0 means no limit.
        binding_timeout: how long a pod waits until its devices are ready.

    Source:
        kube-scheduler v1.36, apis/config/validation/validation_pluginargs.go, ValidateDynamicResourcesArgs.
    """

    filter_timeout: Duration = Duration(10 * _SECOND)
    binding_timeout: Duration = Duration(600 * _SECOND)

    def faults(self) -> Iterator[FieldError]:
        if self.filter_timeout < Duration(0):
            yield FieldError("filterTimeout", f"must be zero or positive, was {self.filter_timeout}")
        if self.binding_timeout < Duration(_SECOND):
            yield FieldError("bindingTimeout", f"must be at least 1 second, was {self.binding_timeout}")


_MOST_CLAIMS: Final = 100
"""The maximum number of claims that a hint reads."""


def after_claim_change(
    claims: Objects,
    pod: PodInfo,
    old: Mapping[str, Any] | None,
    new: Mapping[str, Any],
    *,
    of_groups: bool = False,
) -> QueueingHint:
    """Requeue a pod whose claim appeared or changed status, and, when devices become free, any pod whose claims exist.

    Very many claims are not read for each event: such a pod is requeued too often, but no event is missed.
    """
    before, after = (_status(claim) for claim in (old, new))
    released = "allocation" in before and "allocation" not in after
    may_be_its_own = (old is None or before != after) and object_key(new) in pod.resource_claim_keys
    if not released and not may_be_its_own:
        return QueueingHint.SKIP
    if len(pod.pod.spec.resource_claims) > _MOST_CLAIMS:
        return QueueingHint.QUEUE
    found = find_claims(pod, claims, of_groups=of_groups)
    if isinstance(found, str):
        return QueueingHint.SKIP
    helps = released or any(held.claim.metadata.uid == new["metadata"].get("uid") for held in found)
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def keys_of_claim_change(
    old: Mapping[str, Any] | None, new: Mapping[str, Any]
) -> Collection[Hashable] | None:
    """Return the keys of the claims whose pods `after_claim_change` may requeue; None if it may requeue any pod."""
    before, after = (_status(claim) for claim in (old, new))
    if "allocation" in before and "allocation" not in after:
        return None
    return (object_key(new),) if old is None or before != after else ()


def claims_waited_for(pod: PodInfo) -> Collection[Hashable]:
    """Return the keys of the claims that a pod waits for."""
    return pod.resource_claim_keys


def reads_of_claims(pod: PodInfo) -> Hashable:
    """Return what `after_claim_change` reads of a pod."""
    names = tuple(wanted.resource_claim_name for wanted in pod.pod.spec.resource_claims)
    owner = pod.uid if None in names else ""  # claims of templates belong to one pod
    return pod.resource_claim_keys, names, owner


def after_pod_change(
    claims: Objects, pod: PodInfo, _old: PodInfo | None, new: PodInfo, *, of_groups: bool = False
) -> QueueingHint:
    """Requeue the pod itself once all its claims exist."""
    helps = new.uid == pod.uid and not isinstance(find_claims(new, claims, of_groups=of_groups), str)
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def after_rule_change(
    _pod: PodInfo, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None
) -> QueueingHint:
    """Requeue a pod after any change of the taints of devices.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/resourceslice/tracker/tracker.go, syncSlice:
        such a change counts as an update of ResourceSlices.
    """
    before, after = ((rule or {}).get("spec") for rule in (old, new))
    return QueueingHint.SKIP if before == after else QueueingHint.QUEUE


def after_pod_left(
    devices: Devices,
    extended: bool,
    _pod: PodInfo,
    gone: PodInfo,
    _new: None,
    *,
    of_groups: bool = False,
    frees_node: bool = False,
) -> QueueingHint:
    """Requeue pods when another pod was not bound: unwritten allocations of its claims are free again.

    kube-scheduler lets them wait until another event occurs.

    Args:
        devices: the devices of the cluster.
        extended: whether device classes provide extended resources.
        gone: the other pod.
        of_groups: whether claims may have been created for the pod's PodGroup.
        frees_node: whether devices take resources of the node: then each pod that leaves one may help.
    """
    if frees_node or len(gone.pod.spec.resource_claims) > _MOST_CLAIMS:
        return QueueingHint.QUEUE
    found = find_claims(gone, devices.claims, of_groups=of_groups)
    special = special_claim(gone, devices) if extended else None
    helps = isinstance(found, str) or any(
        held is not None and held.claim.status.allocation is None for held in (*found, special)
    )
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _status(claim: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a claim's status; empty fields count as absent."""
    status = (claim or {}).get("status") or {}
    return {
        name: value for name, value in status.items() if value or (name == "allocation" and value is not None)
    }


_UNTIL_GONE_SECONDS = 30.0
"""How long to wait, in seconds, until the watch shows that a claim was deleted."""
_AFTER_FAILURE_SECONDS = 10.0
"""How long a pod waits, in seconds, after an attempt to help it failed: as the longest backoff."""


class ClaimRelease:
    """Releases claims. While a release is in flight, the pod does not use the claim."""

    def __init__(
        self,
        devices: Devices,
        writes: ClaimWrites,
        *,
        background: Background,
        activator: PodActivator,
        happenings: WaitForEvent,
        sleep: Sleep,
    ) -> None:
        self._devices = devices
        self._writes = writes
        self._background = background
        self._activator = activator
        self._happenings = happenings
        self._sleep = sleep

    def unreserve(self, claim: ResourceClaim, pod: PodInfo, consumer_uid: str) -> None:
        """Remove a pod, or its PodGroup, from a claim's `reservedFor`; the pod has its own backoff."""
        work = partial(self._writes.unreserve, claim, consumer_uid)
        self._start("unreserve", claim, pod, work, user_uid=consumer_uid)

    def deallocate(self, held: HeldClaim, pod: PodInfo) -> None:
        """Release all devices of a claim; its watch event requeues the pod, which can then get other devices."""
        work = partial(self._writes.deallocate, held)
        self._start("deallocate", held.claim, pod, work, wake_after_failure=True)

    def delete(self, held: HeldClaim, pod: PodInfo, *, is_waiting: bool) -> None:
        """Delete the claim for a pod's extended resources; no event requeues a pod that waits for the deletion."""
        work = partial(self._delete, held)
        self._start(
            "delete", held.claim, pod, work, wake_after_success=is_waiting, wake_after_failure=is_waiting
        )

    async def _delete(self, held: HeldClaim) -> None:
        await self._writes.delete(held)
        # An attempt that still saw the claim would delete it again.
        key, is_told = held.claim.key, True
        while is_told and key in self._devices.claims:
            is_told = await self._happenings.wait_for_change_of(
                [(EventResource.RESOURCE_CLAIM, key)], timeout_seconds=_UNTIL_GONE_SECONDS
            )

    def _start(
        self,
        doing: str,
        claim: ResourceClaim,
        pod: PodInfo,
        work: Callable[[], Awaitable[None]],
        *,
        user_uid: str = "",
        wake_after_success: bool = False,
        wake_after_failure: bool = False,
    ) -> None:
        both = (claim.metadata.uid, user_uid or pod.uid)
        if both in self._devices.given_up:
            return

        async def carry_out() -> None:
            wake = False
            try:
                await work()
                wake = wake_after_success
            except SchedulerError:
                if wake_after_failure:
                    await self._sleep.sleep(_AFTER_FAILURE_SECONDS)
                    wake = True
                raise
            finally:
                if self._devices.given_up.pop(both) or wake:
                    self._activator.activate([pod.uid])

        self._devices.given_up[both] = False
        self._background.start(carry_out(), f"{doing} {claim.key}")


_STATE = "DynamicResources"
_NO_DEVICES = PodDevices()


class DynamicResources(
    PreEnqueuePlugin,
    PreFilterPlugin,
    FilterPlugin,
    PostFilterPlugin,
    ScorePlugin,
    ReservePlugin,
    PreBindPlugin,
):
    """Allocates the devices that pods claim."""

    name = "DynamicResources"
    api_version = 1
    reason_codes = REASON_CODES
    Args = DynamicResourcesArgs
    needs = replace(
        NEEDS, rights=CLAIM_RIGHTS | {f"{verb} {DEVICE_TAINT_RULES}" for verb in ("list", "watch")}
    )
    reads_pods = False
    keeps_rows_apart = True  # the devices of a deleted pod stay allocated until their claim is released

    def __init__(
        self,
        *,
        args: DynamicResourcesArgs,
        objects: ClusterObjects,
        writes: ApiWrite,
        reads: ApiGet,
        sleep: Sleep,
        clock: Clock,
        background: Background,
        activator: PodActivator,
        assumed: AssumedPods,
        events: PodEvents,
        happenings: WaitForEvent,
        locks: KeyedLock,
        time_slice: TimeSlice,
        metrics: PluginMetrics,
        features: Features,
        members: PodGroupMembers,
    ) -> None:
        self._objects = objects
        self._assumed = assumed
        self._background = background
        self._members = members
        self._devices = Devices.of(objects)
        self._features = DeviceFeatures.of(features)
        self._has_extended = features.enabled("DRAExtendedResource")
        self._of_groups = features.enabled("DRAWorkloadResourceClaims")
        # The last attempt at a group: its pods.
        self._reserved: tuple[PodGroup | None, set[str]] = (None, set())
        self._inventory = self._devices.inventory(self._features)
        self._node_uses = (
            NodeUses(self._devices, self._inventory, PodRules.of(features.enabled))
            if self._features.node_allocatable
            else None
        )
        self.reads_pods = self._features.node_allocatable  # type: ignore[misc]  # per instance
        kinds = {DEVICE_TAINT_RULES} if self._features.taint_rules else set()
        kinds |= {POD_GROUPS} if self._of_groups else set()
        if kinds:
            needed = self.needs
            self.needs = replace(needed, kinds=needed.kinds | kinds)  # type: ignore[misc]  # per instance
        self._clock = clock
        self._turn_limit = time_slice
        has_timeout = features.enabled("DRASchedulerFilterTimeout")
        self._filter_seconds = args.filter_timeout.seconds if has_timeout else 0.0
        self._work = PluginWork(time_slice, is_unlimited=not self._filter_seconds)
        self._binding_seconds = args.binding_timeout.seconds
        self._writes = ClaimWrites(
            api=writes,
            reads=reads,
            objects=objects,
            sleep=sleep,
            clock=clock,
            has_times=self._features.binding_conditions,
        )
        self._release = ClaimRelease(
            self._devices,
            self._writes,
            background=background,
            activator=activator,
            happenings=happenings,
            sleep=sleep,
        )
        self._binding = ClaimBinding(
            self._devices,
            self._writes,
            background=background,
            activator=activator,
            events=events,
            happenings=happenings,
            locks=locks,
            metrics=ClaimMetrics(metrics, features),
            clock=clock,
            timeout_seconds=self._binding_seconds,
            waits=self._features.binding_conditions,
        )

    def signature(self, pod: PodInfo) -> Hashable | None:
        needs_devices = pod.pod.spec.resource_claims or (
            self._has_extended and wants_devices(pod, self._devices.classes)
        )
        return None if needs_devices else ()

    def events(self) -> Sequence[EventWithHint]:
        node = ActionType.ADD | ActionType.UPDATE_NODE_LABEL | ActionType.UPDATE_NODE_ALLOCATABLE
        if self._features.optional_node_operations:
            node |= ActionType.UPDATE_NODE_DECLARED_FEATURE
        changed = ActionType.ADD | ActionType.UPDATE
        generated = ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM
        claims, of_groups = self._devices.claims, self._of_groups
        return (
            EventWithHint(ClusterEvent(EventResource.NODE, node)),
            EventWithHint(
                ClusterEvent(EventResource.RESOURCE_CLAIM, changed),
                partial(after_claim_change, claims, of_groups=of_groups),
                reads_of_claims,
                keys_of_claim_change,
                claims_waited_for,
            ),
            EventWithHint(
                ClusterEvent(EventResource.POD, generated),
                partial(after_pod_change, claims, of_groups=of_groups),
                no_pod_key,
                no_event_keys,
            ),
            EventWithHint(
                ClusterEvent(EventResource.ASSIGNED_POD, ActionType.DELETE),
                partial(
                    after_pod_left,
                    self._devices,
                    self._has_extended,
                    of_groups=of_groups,
                    frees_node=self._features.node_allocatable,
                ),
                no_pod_key,
            ),
            EventWithHint(ClusterEvent(EventResource.DEVICE_CLASS, changed)),
            EventWithHint(ClusterEvent(EventResource.RESOURCE_SLICE, changed)),
            *self._rule_events(),
        )

    def _rule_events(self) -> Iterator[EventWithHint]:
        if self._features.taint_rules:
            changed = ActionType.ADD | ActionType.UPDATE | ActionType.DELETE
            event = ClusterEvent(EventResource.DEVICE_TAINT_RULE, changed)
            yield EventWithHint(event, after_rule_change, no_pod_key)

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        if pod.pod.spec.resource_claims:
            # After a start, or when a driver republishes all slices, this takes longer than one time slice.
            self._work.begin()
            self._work.some(self._inventory.refreshing())
        found = find_claims(pod, self._devices.claims, of_groups=self._of_groups)
        return _refused(found) if isinstance(found, str) else None

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str] | None:
        found = self._held_by(pod)
        if isinstance(found, str):
            return None  # PreEnqueue's message names the claim
        held, special = found
        if node is None:
            refusals = (
                self._why_no_node(each, pod, each.claim.status.allocation, is_special=each is special)
                for each in held
            )
            return [refusal.message for refusal in refusals if isinstance(refusal, Status)]
        asked = Explaining(self._devices, self._inventory, self._clock, self._binding_seconds)
        return list(asked.why_not_on(node, pod, held, special)) or self._why_full(
            pod, held, special, snapshot, node
        )

    def why_nodes(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> NodesExplanation | None:
        found = self._held_by(pod)
        if isinstance(found, str):
            return None
        held, special = found
        own = [each for each in held if each is not special]
        if missing := list(missing_classes(pod, own, self._missing_class)):
            return NodesExplanation("", missing)
        remedies = list(devices_elsewhere(pod, own, snapshot))
        unallocated = [each for each in own if each.claim.status.allocation is None]
        extended = ExtendedResources.of(pod, self._devices.classes)
        if unallocated or special is not None:
            others = {n: amount for n, amount in pod.resources.requests.items() if n not in extended.amounts}
            relaxed = without_resource_claims(pod, unallocated, own)
            relaxed = relaxed if special is None else relaxed.with_requests(others)
            change = partial(self._smaller_request, pod, snapshot, unallocated, special, relaxed)
            remedies.append(Remedy(relaxed, change))
        return NodesExplanation("", remedies)

    def _smaller_request(
        self,
        pod: PodInfo,
        snapshot: Snapshot,
        unallocated: Sequence[HeldClaim],
        special: HeldClaim | None,
        relaxed: PodInfo,
        fitting: Rows,
    ) -> Change | None:
        """Return the change after which one of some nodes could allocate the devices of a pod."""
        own, extended = [each.claim for each in unallocated], ExtendedResources.of(pod, self._devices.classes)

        def claims_on(node: NodeInfo) -> Sequence[ResourceClaim]:
            names = frozenset() if special is None else extended.needed_on(node.allocatable)
            if special is None or not names:
                return own
            return [*own, extended.claim_for(names, special.claim).claim]

        work = PluginWork(ExplanationTimeSlice(self._clock))
        if special is None:
            found = SmallerRequests(self._devices, self._inventory, work).first(claims_on, snapshot, fitting)
            if found is not None:
                return Change(*found, relaxed)
        row = int(fitting[0])
        asked = Explaining(self._devices, self._inventory, self._clock, self._binding_seconds)
        node = snapshot.node_info(row)
        text = asked.clause_on(claims_on(node), node)
        return Change(row, text, relaxed) if text else None

    def _missing_class(self, claim: ResourceClaim) -> str:
        """Return a DeviceClass that a claim names and that does not exist; "" if there is none."""
        if claim.status.allocation is not None:
            return ""
        names = (name for request in claim.spec.devices.requests for _, name in _classes_of(request))
        return next((name for name in names if name and self._devices.classes.get(name) is None), "")

    def _why_full(
        self,
        pod: PodInfo,
        held: list[HeldClaim],
        special: HeldClaim | None,
        snapshot: Snapshot,
        node: NodeInfo,
    ) -> list[str]:
        """Return why a node lacks what the devices of the pod take of it; empty if it does not."""
        row = snapshot.row_of(node.name)
        if self._node_uses is None or row is None:
            return []
        its = self._pod_devices(pod, held, special, {}, {})
        work = PluginWork(ExplanationTimeSlice(self._clock))
        if its.allocator is not None:
            its.allocator = Allocator(
                self._inventory, self._devices.allocated, self._devices.classes.get, work=work
            )
        work.begin()
        try:
            work.done(self._inventory.refreshing())
            self._add_node_use(its, pod)
            reasons = its.judge(snapshot, np.array([row], dtype=np.intp)).of(row).reasons
        except NeedsTime as error:
            error.steps.close()
            return [TAKES_LONG]
        lacking = [reason.removeprefix("Insufficient ") for reason in reasons]
        return [
            reason
            if resource == reason
            else f"the pod and the devices of its claims together need more {resource} than is free"
            for reason, resource in zip(reasons, lacking, strict=True)
        ]

    def _held_by(self, pod: PodInfo) -> tuple[list[HeldClaim], HeldClaim | None] | str:
        """Return the claims of a pod, the last of which may be one for extended resources; or why the pod has to wait."""
        found = find_claims(pod, self._devices.claims, of_groups=self._of_groups)
        if isinstance(found, str):
            return found
        special = special_claim(pod, self._devices) if self._has_extended else None
        return found if special is None else [*found, special], special

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status | None:
        state.write(_STATE, _NO_DEVICES)
        found = self._held_by(pod)
        if isinstance(found, str):
            return _refused(found)
        held, special = found
        consumers = self._consumers(pod) if self._of_groups else {}
        if isinstance(consumers, str):
            return _refused(consumers)
        if not held:
            return SKIP
        self._work.begin()
        self._work.done(self._devices.following())
        places: dict[int, tuple[NodeRule, ...]] = {}
        shared = self._shared(state, held)
        for place, each in enumerate(held):
            allocation = shared.get(place, each.claim.status.allocation)
            why_not = self._why_no_node(each, pod, allocation, is_special=each is special)
            if why_not is not None:
                for both in self._given_up(each, pod):
                    self._devices.given_up[both] = True
                return why_not
            try:
                rules = places_of(allocation)
            except SelectorError as error:
                return Status.failed(str(error), error)
            if rules is not None:
                places[place] = rules
        its = self._pod_devices(pod, held, special, places, shared)
        its.consumers, its.of_groups = consumers, self._of_groups
        if self._node_uses is not None:
            self._work.done(self._inventory.refreshing())
            self._add_node_use(its, pod)
        state.write(_STATE, its)
        return None

    def _add_node_use(self, its: PodDevices, pod: PodInfo) -> None:
        """Add what a pod's devices take of its node, if the feature is on."""
        if self._node_uses is not None:
            its.node_use = self._node_uses.of(pod, its.held, its.shared)
            is_reserved = partial(its.is_reserved, pod=pod)
            its.other_users = dict(self._node_uses.other_users(pod, its.held, its.shared, is_reserved))

    def _consumers(self, pod: PodInfo) -> Mapping[int, ResourceClaimConsumerReference] | str:
        """Return which claims are reserved for a pod's PodGroup, by their indexes; or why the pod has to wait."""
        key = pod.group
        if key is None or key.kind != POD_GROUPS:
            return {}
        group = self._objects.objects(POD_GROUPS).typed(PodGroupObject, key.key)
        if group is None:
            return Reason(key.not_found, GROUP_NOT_FOUND)
        return group_consumers(pod, group)

    def _given_up(self, held: HeldClaim, pod: PodInfo) -> list[tuple[str, str]]:
        """Return the releases of a claim by a pod, or by its PodGroup, that are in flight."""
        given_up = self._devices.given_up
        if not given_up:
            return []
        users = [pod.uid]
        if self._of_groups and is_reserved_for_group_of(held.claim, pod):
            users += [each.uid for each in held.claim.status.reserved_for]
        return [(held.claim.metadata.uid, uid) for uid in users if (held.claim.metadata.uid, uid) in given_up]

    def _shared(self, state: CycleState, held: Sequence[HeldClaim]) -> Mapping[int, AllocationResult]:
        """Return the allocations that claims received in the same attempt at the pod's group, by their indexes."""
        found = {
            place: self._devices.shared(each.claim.metadata.uid, state.group)
            for place, each in enumerate(held)
            if state.group is not None and each.claim.status.allocation is None
        }
        return {place: allocation for place, allocation in found.items() if allocation is not None}

    def _why_no_node(
        self, held: HeldClaim, pod: PodInfo, allocation: AllocationResult | None, *, is_special: bool
    ) -> Status | None:
        """Return why a claim, with or without an allocation, excludes all nodes for now."""
        claim = held.claim
        if self._given_up(held, pod):
            return _refused(
                f"resource claim {claim.key} is in the process of being given back", CLAIM_CHANGING
            )
        return None if allocation is not None else self._why_not(claim, is_special=is_special)

    def _why_not(self, claim: ResourceClaim, *, is_special: bool) -> Status | None:
        """Return why devices cannot be allocated to a claim now on any node."""
        if claim.metadata.uid in self._devices.in_flight:
            return _refused(
                f"resource claim {claim.key} is in the process of being allocated", CLAIM_CHANGING
            )
        for request in () if is_special else claim.spec.devices.requests:
            wanted = _classes_of(request)
            if not wanted:
                return _refused(
                    f"resource claim {claim.key}, request {request.name}: unknown request type", INVALID_CLAIM
                )
            if request.first_available and not self._features.prioritized_list:
                problem = "has subrequests, but the DRAPrioritizedList feature is disabled"
                return _refused(
                    f"resource claim {claim.key}, request {request.name}: {problem}", INVALID_CLAIM
                )
            for name, device_class in wanted:
                if not device_class:
                    return Status.failed(f"request {name}: unsupported request type")
                if self._devices.classes.get(device_class) is None:
                    return _refused(
                        f"request {name}: device class {device_class} does not exist", CLASS_NOT_FOUND
                    )
        return None

    def _pod_devices(
        self,
        pod: PodInfo,
        held: list[HeldClaim],
        special: HeldClaim | None,
        places: Mapping[int, tuple[NodeRule, ...]],
        shared: Mapping[int, AllocationResult],
    ) -> PodDevices:
        now = self._clock.utc_now()
        allocator = None
        if any(
            each.claim.status.allocation is None and place not in shared for place, each in enumerate(held)
        ):
            devices = self._devices
            allocator = Allocator(
                self._inventory,
                devices.allocated,
                devices.classes.get,
                work=self._work,
                limit=self._turn_limit,
                seconds=self._filter_seconds,
            )
        return PodDevices(
            held=held,
            special=special and special.claim,
            extended=special and ExtendedResources.of(pod, self._devices.classes),
            places=places,
            shared=shared,
            needs_declared=self._features.optional_node_operations
            and any(
                skips_operations(shared.get(place, each.claim.status.allocation))
                for place, each in enumerate(held)
            ),
            unready=frozenset(
                place
                for place, each in enumerate(held)
                if each.claim.status.allocation is not None
                and self._features.binding_conditions
                and is_unready(each.claim, self._binding_seconds, now)
            ),
            allocator=allocator,
        )

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        self._work.begin()
        return _of(state).judge(snapshot, rows)

    def post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> PostFilterResult:
        """Release devices that keep the pod from all nodes; the pod is retried afterwards."""
        if _STATE not in state:
            # An earlier plugin rejected the pod. Upstream fails here with this message, which ends PostFilter.
            return PostFilterResult(Status.failed("not found"))
        its = _of(state)
        if not its.held:
            return _nothing("no new claims to deallocate")
        for place in sorted(its.unavailable.difference(its.shared)):
            held = its.held[place]
            if all(consumer.uid == pod.uid for consumer in held.claim.status.reserved_for[:2]):
                self._release.deallocate(held, pod)
                return _nothing(Reason("deallocation of ResourceClaim completed", DEVICES_RELEASED))
        if its.special is not None and is_written(its.special):
            self._release.delete(its.held[-1], pod, is_waiting=True)
            return _nothing(Reason("deletion of ResourceClaim completed", DEVICES_RELEASED))
        released = self._unreserve_group(state, pod) if self._of_groups else None
        return released or _nothing(Reason("still not schedulable", DEVICES_NOT_RELEASED))

    def _unreserve_group(self, state: CycleState, pod: PodInfo) -> PostFilterResult | None:
        """Remove a pod's PodGroup from a claim, so that the claim can get other devices; not while a member is placed.

        Source:
            kube-scheduler v1.36, plugins/dynamicresources/dynamicresources.go, unreservePodGroupClaims, which does not
            count the members that were placed in the same attempt.
        """
        key = pod.group
        if key is None or key.kind != POD_GROUPS:
            return None
        tried = self._reserved[1] if state.group is not None and self._reserved[0] is state.group else ()
        if any(member.uid not in tried for member in self._members.placed(key)):
            return None
        group = self._objects.objects(POD_GROUPS).typed(PodGroupObject, key.key)
        if group is None:
            return PostFilterResult(Status.failed(key.not_found))
        try:
            claim = reserved_group_claim(pod, group, self._devices.claims)
        except GroupClaimError as error:
            return PostFilterResult(Status.failed(str(error), error))
        if claim is None:
            return None
        self._release.unreserve(claim, pod, group.metadata.uid)
        return PostFilterResult(_refused("ResourceClaim unreserved for PodGroup", DEVICES_RELEASED))

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s | int:
        its = _of(state)
        if (
            its.allocator is None
            or not self._features.prioritized_list
            or not any(has_alternatives(held.claim) for held in its.held)
        ):
            return 0
        self._work.begin()
        return default_normalize_score(its.points(snapshot, feasible), feasible)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        its = _of(state)
        if self._of_groups and state.group is not None:
            if self._reserved[0] is not state.group:
                self._reserved = state.group, set()
            self._reserved[1].add(pod.uid)
        given: Mapping[int, AllocationResult] = {}
        if its.allocator is not None:
            snapshot = self._objects.snapshot()
            row = snapshot.row_of(node_name)
            self._work.begin()
            try:
                found = None if row is None else its.reserve(snapshot.nodes[row])
            except (AllocationError, InvalidPoolsError, OutOfTimeError) as error:
                return Status.failed(str(error), error)
            if found is None:
                return Status.failed("claim allocation not found for node")
            given = found
        its.given = {**its.shared, **given}
        if self._node_uses is not None and its.node_use is not None:
            its.statuses = self._node_uses.statuses(its.node_use, given)
            if its.statuses or pod.pod.status.node_allocatable_resource_claim_statuses:
                self._assumed.replace(pod.with_claims(its.statuses, self._node_uses.rules))
        for place, allocation in its.shared.items():
            self._devices.begin(its.held[place].claim.metadata.uid, allocation, pod)
        for place, allocation in given.items():
            self._devices.begin(its.held[place].claim.metadata.uid, allocation, pod, state.group)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        its = _of(state)
        for place in its.given:
            claim = its.reserved_claim(place)
            if (claim.metadata.uid, pod.uid) not in self._devices.given_up:
                self._devices.end(claim, pod)
        for held in its.own:
            if held.claim.status.allocation is not None and is_reserved_for(held.claim, pod.uid):
                self._release.unreserve(held.claim, pod, pod.uid)
        if its.special is not None and is_written(its.held[-1].claim):
            self._release.delete(its.held[-1], pod, is_waiting=False)
        if its.is_told:
            self._background.start(self._binding.forget_node_use(pod), f"status of {pod.key}")

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return None if _of(state).held else SKIP

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        try:
            await self._binding.bind(_of(state), pod, node_name)
        except SchedulerError as error:
            return Status.failed(str(error), error)
        return None


def _of(state: CycleState) -> PodDevices:
    return state.find(_STATE, PodDevices) or _NO_DEVICES


def _refused(why: str, code: str = "") -> Status:
    return Status.unschedulable(Reason(why, code) if code else why, resolvable=False)


def _nothing(why: str) -> PostFilterResult:
    return PostFilterResult(Status.unschedulable(why))


def _classes_of(request: DeviceRequest) -> list[tuple[str, str]]:
    """Return (name, class) of a request, or of its alternatives."""
    if request.exactly is not None:
        return [(request.name, request.exactly.device_class_name)]
    return [(f"{request.name}/{each.name}", each.device_class_name) for each in request.first_available]
