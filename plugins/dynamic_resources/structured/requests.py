"""One request of a claim, and the devices that it selects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from plugins.dynamic_resources.cel import CELError, CelSelector
from plugins.dynamic_resources.structured.capacity import Consumption, consumption
from plugins.dynamic_resources.structured.evaluations import EVALUATIONS_OF_A_STEP, evaluations
from scheduler.objects.bounded_dict import BoundedDict

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from plugins.dynamic_resources.cel import DeviceInput
    from plugins.dynamic_resources.structured.pools import Pool, PoolDevice
    from scheduler.objects.dynamic_resources import (
        DeviceClass,
        DeviceSelector,
        DeviceSubRequest,
        DeviceToleration,
        ExactDeviceRequest,
    )

_KEPT_CONSUMPTIONS = 2000
_DEVICES_OF_A_STEP = 64

Compiled = Mapping[str, "CelSelector | CELError"]
"""Expression -> its compiled form, or the compilation error."""


class DeviceCandidate:
    """A device that a request selects, or whose evaluation failed.

    Attributes:
        pool: the device's pool.
        device: the device.
        consumed: what the request would consume of its capacities.
        failure: why the evaluation of selectors failed; it becomes an error once the device is considered.
        says_class: whether a selector of the class failed, not one of the claim.
    """

    __slots__ = ("consumed", "device", "failure", "pool", "says_class")

    def __init__(
        self,
        pool: Pool,
        device: PoolDevice,
        consumed: dict[str, Consumption],
        failure: str = "",
        *,
        says_class: bool = False,
    ) -> None:
        self.pool = pool
        self.device = device
        self.consumed = consumed
        self.failure = failure
        self.says_class = says_class


class DeviceCandidates:
    """The devices of a pool that a request selects, in the order of allocation; evaluated on demand.

    Attributes:
        found: the devices that were found so far.
        is_complete: whether all devices of the pool were evaluated.
    """

    __slots__ = ("_looked", "_pool", "_wanted", "found", "is_complete")

    def __init__(self, wanted: WantedDevices, pool: Pool) -> None:
        self.found: list[DeviceCandidate] = []
        self.is_complete = not pool.devices
        self._wanted = wanted
        self._pool = pool
        self._looked = 0  # the number of evaluated devices

    def look(self) -> int:
        """Evaluate more devices, for about a millisecond; return how many of them are selected."""
        wanted, pool, before = self._wanted, self._pool, len(self.found)
        most = evaluations.count + EVALUATIONS_OF_A_STEP
        for device in pool.devices[self._looked : self._looked + _DEVICES_OF_A_STEP]:
            self._looked += 1
            selects = wanted.selects(pool, device)
            if isinstance(selects, Failure):
                self.found.append(
                    DeviceCandidate(pool, device, {}, selects.words, says_class=selects.is_of_class)
                )
            elif selects:
                self.found.append(wanted.candidate(pool, device))
            if evaluations.count >= most:
                break
        self.is_complete = self._looked == len(pool.devices)
        return len(self.found) - before


class Failure(NamedTuple):
    """Why selectors fail for a device.

    Attributes:
        words: upstream's message.
        is_of_class: whether it is a selector of the class, not of the claim.
    """

    words: str
    is_of_class: bool


class WantedDevices:
    """A request, or one of its alternatives.

    Attributes:
        claim: the index of its claim.
        name: its name in results, `request` or `request/subrequest`.
        own_name: the last part of the name.
        base_name: the first part of the name.
        names: all names that constraints may use.
        device_class: its class; None if it does not exist, and then `problem` contains the reason.
        all_devices: whether it requests all matching devices.
        count: how many devices it requests otherwise.
        admin_access: whether it may get allocated devices, without allocating them itself.
        tolerations: the tolerated taints.
        problem: why it cannot be evaluated at all; "" if it can.
        facts: what its selectors read; None if that is unknown.

    Args:
        request: the request of the claim.
        compiled: its expressions and those of its class.
    """

    def __init__(
        self,
        claim: int,
        request: ExactDeviceRequest | DeviceSubRequest,
        names: tuple[str, ...],
        device_class: DeviceClass | None,
        compiled: Compiled,
    ) -> None:
        self.claim = claim
        self.name = "/".join(names)
        self.own_name = names[-1]
        self.base_name = names[0]
        self.names = frozenset({names[0], self.name})
        self.device_class = device_class
        self.all_devices = request.allocation_mode == "All"
        self.count = request.count
        self.admin_access = getattr(request, "admin_access", False)
        self.tolerations: tuple[DeviceToleration, ...] = request.tolerations
        self.problem = self._problem(request)
        self._capacity = request.capacity
        # capacities of a device -> what would be consumed of them
        self._consumptions: BoundedDict[Hashable, dict[str, Consumption] | None] = BoundedDict(
            _KEPT_CONSUMPTIONS
        )
        self._class_selectors = _expressions(device_class.spec.selectors, compiled) if device_class else ()
        self._selectors = _expressions(request.selectors, compiled)
        self.facts = _facts_of([compiled for _, compiled in (*self._class_selectors, *self._selectors)])

    @property
    def n_selectors(self) -> int:
        """How many expressions may have to be evaluated for a device."""
        return len(self._class_selectors) + len(self._selectors)

    def candidate(self, pool: Pool, device: PoolDevice) -> DeviceCandidate:
        """Return a selected device as a candidate."""
        return DeviceCandidate(pool, device, self.consumption_of(device) or {})

    def selects(self, pool: Pool, device: PoolDevice) -> bool | Failure:
        """Return whether the request may get a device of a pool, or the failure of a selector.

        Source:
            kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating,
            allocator_incubating.go, isSelectable.
        """
        for expressions, is_of_class in ((self._class_selectors, True), (self._selectors, False)):
            for number, (_, compiled) in enumerate(expressions):
                verdict = evaluations.verdict(device, compiled)
                if isinstance(verdict, CELError):
                    return Failure(f"selector #{number}: {verdict}", is_of_class)
                if not verdict:
                    return False
        if pool.usable is not None and device not in pool.usable:
            return False
        return self.consumption_of(device) is not None

    def why_not(self, pool: Pool, device: PoolDevice) -> str:
        """Return a readable reason why the request does not select a device of a pool; "" if it does."""
        for expressions, whose in ((self._class_selectors, "class"), (self._selectors, "request")):
            for expression, compiled in expressions:
                verdict = evaluations.verdict(device, compiled)
                if isinstance(verdict, CELError):
                    return f"of which a selector of the {whose} cannot tell ({verdict})"
                if not verdict:
                    return f"not selected by the {whose}, {expression.strip()}"
        if pool.usable is not None and device not in pool.usable:
            return "for other nodes"
        return "" if self.consumption_of(device) is not None else "without the capacity that is asked for"

    def consumption_of(self, device: PoolDevice) -> dict[str, Consumption] | None:
        """Return what the request would consume of a device; None if the device cannot satisfy it."""
        capacities = tuple(device.device.capacity.items())
        if capacities not in self._consumptions:
            self._consumptions[capacities] = consumption(device.device, self._capacity)
        return self._consumptions[capacities]

    def _problem(self, request: ExactDeviceRequest | DeviceSubRequest) -> str:
        """Return the error that makes a request invalid.

        Source:
            kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating,
            allocator_incubating.go, validateDeviceRequest.
        """
        for number, each in enumerate(request.selectors):
            if each.cel is None:
                return f"selector #{number}: CEL expression empty (unsupported selector type?)"
        name = request.device_class_name
        if not name:
            return "missing device class name (unsupported request type?)"
        if self.device_class is None:
            missing = f'deviceclass.resource.k8s.io "{name}" not found'
            return f"could not retrieve device class {name}: {missing}"
        if request.allocation_mode not in {"All", "ExactCount"}:
            return f"unsupported count mode {request.allocation_mode}"
        return ""


def _expressions(
    selectors: Sequence[DeviceSelector], compiled: Compiled
) -> tuple[tuple[str, CelSelector | CELError], ...]:
    """Return expressions as text and in compiled form."""
    written = [each.cel.expression for each in selectors if each.cel is not None]
    return tuple((expression, compiled[expression]) for expression in written)


def _facts_of(expressions: Iterable[CelSelector | CELError]) -> frozenset[DeviceInput] | None:
    found: set[DeviceInput] = set()
    for each in expressions:
        if isinstance(each, CELError):
            continue  # its result is the same for all devices
        if each.facts is None:
            return None
        found.update(each.facts)
    return frozenset(found)
