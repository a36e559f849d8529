"""Explains which claim and request a node cannot satisfy, what its devices are used for, and what would help.

The allocator decides. For the explanation the devices that a node sees are checked again, request by request, and
counted by the reason against each.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from plugins.dynamic_resources.extended_resources import ExtendedResources, is_written
from plugins.dynamic_resources.pod_claims import DeviceBindingError, is_ready
from plugins.dynamic_resources.pod_devices import is_unready, places_of, skips_operations
from plugins.dynamic_resources.structured import (
    OPTIONAL_NODE_OPERATIONS,
    AllocationError,
    Allocator,
    DeviceID,
    InvalidPoolsError,
)
from plugins.dynamic_resources.structured.constraints import refusing_taint
from plugins.dynamic_resources.structured.requests import fits
from plugins.work_in_steps import PluginWork
from scheduler.framework.sliced_work import NeedsTime
from scheduler.objects.dynamic_resources import ResourceClaim
from scheduler.objects.label_index import only_for, some_of
from scheduler.snapshot import Index

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from plugins.dynamic_resources.devices import Devices
    from plugins.dynamic_resources.pod_claims import HeldClaim
    from plugins.dynamic_resources.structured import Inventory
    from plugins.dynamic_resources.structured.pools import Pool, PoolDevice, Pools
    from plugins.dynamic_resources.structured.question import Question
    from plugins.dynamic_resources.structured.requests import DeviceCandidate, WantedDevices
    from scheduler.framework import Clock
    from scheduler.objects.dynamic_resources import DeviceConstraint
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import NodeInfo


def _devices_of(claim: ResourceClaim) -> Iterator[DeviceID]:
    allocation = claim.status.allocation
    for result in () if allocation is None else allocation.devices.results:
        if not result.admin_access:
            yield DeviceID(result.driver, result.pool, result.device)


_BY_DEVICE: Final = Index(ResourceClaim, _devices_of)
"""Device -> the claims that hold the device or a share of it."""

_SECONDS: Final = 0.02
"""Time limit in seconds of a search for devices that only produces an explanation."""
TAKES_LONG: Final = "the search for devices on this node takes too long"


class Explaining:
    """Explains claims and devices in their current state.

    Args:
        devices: the devices of the cluster.
        inventory: the devices in its slices.
        clock: the clock.
        binding_seconds: how long devices may take to become ready.
    """

    def __init__(self, devices: Devices, inventory: Inventory, clock: Clock, binding_seconds: float) -> None:
        self._devices = devices
        self._inventory = inventory
        self._clock = clock
        self._binding_seconds = binding_seconds

    def why_not_on(
        self, node: NodeInfo, pod: PodInfo, held: Sequence[HeldClaim], special: HeldClaim | None
    ) -> Iterator[str]:
        """Yield the reasons for which `PodDevices.judge` rejects a node for a pod; nothing if the node passes.

        Args:
            node: the node.
            pod: the pod.
            held: the pod's claims, including the one for extended resources.
            special: the claim for extended resources.
        """
        claims, now = [], self._clock.utc_now()
        for each in held:
            if each.claim.status.allocation is not None:
                yield from _why_elsewhere(each.claim, node)
                if self._inventory.features.optional_node_operations and skips_operations(
                    each.claim.status.allocation
                ):
                    yield from _why_undeclared(each.claim, node)
                if self._inventory.features.binding_conditions and is_unready(
                    each.claim, self._binding_seconds, now
                ):
                    yield _why_unready(each.claim)
            elif each is not special:
                claims.append(each.claim)
        if special is not None and is_written(special.claim):
            yield f"claim {special.claim.metadata.name}, of an earlier attempt at the pod, has to be deleted first"
        elif special is not None:
            extended = ExtendedResources.of(pod, self._devices.classes)
            if names := extended.needed_on(node.allocatable):
                claims.append(extended.claim_for(names, special.claim).claim)
        if claims:
            yield from self._why_no_devices(claims, node)

    def clause_on(self, claims: Sequence[ResourceClaim], node: NodeInfo) -> str:
        """Return the clause after which a node could allocate devices for all claims; "" if the search takes too long."""
        work = PluginWork(ExplanationTimeSlice(self._clock))
        work.begin()
        inventory, device_class = self._inventory, self._devices.classes.get
        try:
            work.done(self._devices.following())
            work.done(inventory.refreshing())
            question = work.done(
                inventory.questions.asked(claims, device_class, inventory.dropped, inventory.size)
            )
            lacking = work.done(_lacking(claims, question, inventory.view_of(node), self._devices))
        except NeedsTime as error:
            error.steps.close()
            return ""
        names = (
            some_of([each.metadata.name for each in claims if is_written(each)]) or "its extended resources"
        )
        if not lacking:
            return f"the free devices of {node.name} met all requests of {names} together"
        return " and ".join(tallies[0].clause(node.name, names) for _, tallies in lacking)

    def _why_no_devices(self, claims: Sequence[ResourceClaim], node: NodeInfo) -> Iterator[str]:
        """Yield why a node cannot allocate devices for all claims together; nothing if it can."""
        sentences: list[str] = []
        try:
            for sentence in self._why_no_devices_at_once(
                claims, node, PluginWork(ExplanationTimeSlice(self._clock))
            ):
                sentences.append(sentence)
                yield sentence
        except NeedsTime as error:
            error.steps.close()
            if TAKES_LONG not in sentences:
                yield TAKES_LONG

    def _why_no_devices_at_once(
        self, claims: Sequence[ResourceClaim], node: NodeInfo, work: PluginWork
    ) -> Iterator[str]:
        devices = self._devices
        inventory, device_class = self._inventory, devices.classes.get
        work.begin()
        work.done(devices.following())
        work.done(inventory.refreshing())
        question = work.done(
            inventory.questions.asked(claims, device_class, inventory.dropped, inventory.size)
        )
        pools = inventory.view_of(node)
        allocator = Allocator(inventory, devices.allocated, device_class, work=work)
        try:
            if allocator.allocate(node, claims) is not None:
                return
        except AllocationError as error:
            yield str(error)
            yield from _undecided(question, pools, work)
            return
        except InvalidPoolsError as error:
            yield str(error)
        except NeedsTime as error:
            error.steps.close()
            yield TAKES_LONG
        yield from _broken(pools)
        work.begin()
        words = work.done(_too_few(claims, question, pools, devices))
        yield from words or _why_not_together(claims, question)


class ExplanationTimeSlice:
    """Implements `TimeSlice` for explanations, which may not block the event loop either."""

    slice_seconds = _SECONDS

    def __init__(self, clock: Clock) -> None:
        self.seconds = clock.monotonic

    def measured(self, is_so: bool, what: str = "") -> bool:
        return is_so


def _why_elsewhere(claim: ResourceClaim, node: NodeInfo) -> Iterator[str]:
    """Yield why an allocated claim excludes a node for the pod; nothing if it does not."""
    rules = places_of(claim.status.allocation)
    if rules is None or any(rule.matches(node.name, node.labels) for rule in rules):
        return
    devices = some_of([str(device) for device in _devices_of(claim)])
    yield (f"claim {claim.metadata.name} has devices already ({devices}), {only_for(rules, node.labels)}")
    users = some_of([consumer.name for consumer in claim.status.reserved_for])
    otherwise = f"the end of the pods that use the claim ({users})" if users else "releasing the devices"
    yield f"what would help: free capacity on such a node, or {otherwise}"


def _why_undeclared(claim: ResourceClaim, node: NodeInfo) -> Iterator[str]:
    """Yield why a node cannot skip the operations that an allocated claim skips; nothing if it can."""
    if OPTIONAL_NODE_OPERATIONS not in node.declared_features:
        yield (
            f"claim {claim.metadata.name} skips operations of its drivers, and the node does not declare "
            f"{OPTIONAL_NODE_OPERATIONS}"
        )


def _why_unready(claim: ResourceClaim) -> str:
    """Return why the devices of a claim are not usable."""
    try:
        is_ready(claim)
    except DeviceBindingError as error:
        return str(error)
    return f"claim {claim.metadata.name}: its devices did not become ready in time"


def _broken(pools: Pools) -> Iterator[str]:
    for pool in pools:
        if not pool.gives:
            why = "slices of it are missing" if pool.is_incomplete else "its slices contradict each other"
            yield f"pool {pool.id} provides no devices: {why}"


def _undecided(question: Question, pools: Pools, work: PluginWork) -> Iterator[str]:
    """Yield the devices for which the evaluation of a selector fails."""
    for wanted in question.wanted():
        failing = work.done(_failing(question, wanted, pools))
        if failing:
            names = some_of([str(each.device.id) for each in failing])
            yield f"  request {wanted.name} cannot be decided for {names}: {failing[0].failure}"
            yield "what would help: a selector that first checks whether a device has the attribute that it reads"


def _failing(
    question: Question, wanted: WantedDevices, pools: Pools
) -> Generator[None, None, list[DeviceCandidate]]:
    failing = []
    for pool in pools:
        candidates = question.candidates(wanted, pool)
        while not candidates.is_complete:
            question.n_candidates += candidates.look()
            yield
        failing += [each for each in candidates.found if each.failure]
    return failing


def _why_not_together(claims: Sequence[ResourceClaim], question: Question) -> Iterator[str]:
    names = some_of([claim.metadata.name for claim in claims])
    yield f"claim {names}: each request alone could be satisfied here, but not all of them together"
    for constraints in question.constraints:
        for constraint in constraints:
            yield f"  a constraint requires {_wanted_by(constraint)}"
    yield "what would help: more free devices on this node that meet the constraints together"


def _wanted_by(constraint: DeviceConstraint) -> str:
    of = f" of {', '.join(constraint.requests)}" if constraint.requests else ""
    if constraint.match_attribute is not None:
        return f"all devices{of} to have one value of {constraint.match_attribute}"
    return f"all devices{of} to have different values of {constraint.distinct_attribute}"


def _too_few(
    claims: Sequence[ResourceClaim], question: Question, pools: Pools, devices: Devices
) -> Generator[None, None, list[str]]:
    """Return the requests that alone need more than there is, with the state of the devices; nothing if none does."""
    words: list[str] = []
    for claim, tallies in (yield from _lacking(claims, question, pools, devices)):
        for each in tallies:
            words += each.sentences(claim.metadata.name)
    return words


def _lacking(
    claims: Sequence[ResourceClaim], question: Question, pools: Pools, devices: Devices
) -> Generator[None, None, list[tuple[ResourceClaim, list[_Tally]]]]:
    """Return the requests that alone need more than there is: their claims, and the devices of each alternative."""
    found = []
    for claim, requests in zip(claims, question.claims, strict=True):
        for alternatives in requests:
            tallies = [_Tally(wanted) for wanted in alternatives]
            for tally in tallies:
                yield from tally.counted(pools, devices)
            if not any(each.is_enough for each in tallies):
                found.append((claim, tallies))
    return found


class _Tally:
    """The devices that a node sees, by the reason against allocating them for one request.

    Attributes:
        wanted: the request.
        total: the number of devices.
        free: the number of devices without a reason against them.
        against: reason -> the devices that it excludes.
    """

    def __init__(self, wanted: WantedDevices) -> None:
        self.wanted = wanted
        self.total = self.free = 0
        self.against: defaultdict[str, list[PoolDevice]] = defaultdict(list)

    def counted(self, pools: Pools, devices: Devices) -> Generator[None, None, None]:
        """Count the devices of some pools."""
        for pool in pools:
            for device in pool.devices if pool.gives else ():
                self.total += 1
                why = self.wanted.why_not(pool, device) or _why_not_free(self.wanted, pool, device, devices)
                if why:
                    self.against[why].append(device)
                else:
                    self.free += 1
                yield

    @property
    def is_enough(self) -> bool:
        if self.wanted.all_devices:
            return bool(self.free) and not any(why.startswith(_USED) for why in self.against)
        return self.free >= self.wanted.count

    def clause(self, node: str, claims: str) -> str:
        """Return the clause after which there are enough devices for the request."""
        wanted = self.wanted
        of_class = "" if wanted.device_class is None else f" of class {wanted.device_class.metadata.name}"
        if wanted.all_devices:
            return f"all devices{of_class} on {node} were free, for {claims}"
        more = wanted.count - self.free
        return f"{more} more device{'' if more == 1 else 's'}{of_class} were free on {node}, for {claims}"

    def sentences(self, claim: str) -> Iterator[str]:
        wanted = self.wanted
        many = (
            "all devices"
            if wanted.all_devices
            else "a device"
            if wanted.count == 1
            else f"{wanted.count} devices"
        )
        of_class = "" if wanted.device_class is None else f" of class {wanted.device_class.metadata.name}"
        had = f"{self.free} of {self.total} here fit" if self.total else "there are no devices here"
        yield f"claim {claim}, request {wanted.name}: needs {many}{of_class}; {had}"
        for why, devices in sorted(self.against.items(), key=lambda item: -len(item[1])):
            yield f"  {len(devices)} {why}: {some_of([device.id.device for device in devices])}"
        if wanted.all_devices:
            yield "what would help: all of them free, and at least one"
        else:
            yield f"what would help: {wanted.count - self.free} more such devices free on this node"


_USED: Final = "in use"


def _why_not_free(wanted: WantedDevices, pool: Pool, device: PoolDevice, devices: Devices) -> str:
    """Return the reason against allocating a device that a request selects; "" if this request alone has none."""
    allocated = devices.allocated
    if not wanted.admin_access and device.id in allocated.exclusive(wanted.features):
        return f"{_USED} by claim {_holders(device.id, devices)}"
    taken = allocated.consumed.get(device.id, {})
    if device.device.allow_multiple_allocations and not fits(wanted.consumption_of(device) or {}, taken):
        return f"{_USED}, with too little left, by claim {_holders(device.id, devices)}"
    taint = refusing_taint(device.device, wanted.tolerations)
    if taint is not None:
        value = f"={taint.value}" if taint.value else ""
        return f"tainted, {taint.key}{value}:{taint.effect}"
    if device.takes and not _counters_left(pool, device, devices):
        return "without enough left of their shared counters"
    return ""


def _counters_left(pool: Pool, device: PoolDevice, devices: Devices) -> bool:
    taken = dict.fromkeys(device.takes, 0)
    for other in (*pool.devices, *pool.others):
        if other.takes and devices.allocated.is_allocated(other.id):
            for place in taken.keys() & other.takes.keys():
                taken[place] += other.takes[place]
    return all(taken[place] + amount <= pool.counters[place] for place, amount in device.takes.items())


def _holders(device: DeviceID, devices: Devices) -> str:
    keys = list(devices.claims.indexed(_BY_DEVICE, device))
    for uid, given in devices.in_flight.items():
        results = given.allocation.devices.results
        if any(device == (each.driver, each.pool, each.device) for each in results):
            keys += [key for key, known in devices.uids.items() if known == uid]
    return some_of(list(dict.fromkeys(keys))) or "that was deleted"
