"""One request of a claim, the devices that it selects, and the capacity that it consumes of each.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating,
    consumable_capacity.go.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from plugins.dynamic_resources.cel import (
    CelAttribute,
    CelDevice,
    CELError,
    CelExpression,
    CelSelector,
    values_of,
)
from plugins.dynamic_resources.structured.device_features import DEFAULTS
from plugins.dynamic_resources.structured.pools import amount_of
from scheduler.errors import SchedulerError
from scheduler.objects.caches import BoundedDict
from scheduler.objects.quantity import canonical_quantity, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from plugins.dynamic_resources.cel import DeviceInput
    from plugins.dynamic_resources.structured.device_features import DeviceFeatures
    from plugins.dynamic_resources.structured.pools import Pool, PoolDevice
    from scheduler.objects.dynamic_resources import (
        CapacityRequestPolicy,
        CapacityRequestPolicyRange,
        CapacityRequirements,
        Device,
        DeviceAttribute,
        DeviceCapacity,
        DeviceClass,
        DeviceSelector,
        DeviceSubRequest,
        DeviceToleration,
        ExactDeviceRequest,
    )

T = TypeVar("T")

_KEPT_VALUES = 3_000_000
"""The maximum number of devices with cached results; each is at least a pointer."""
EVALUATIONS_OF_A_STEP: Final = 16
"""The number of evaluations in one step of work, unless one device needs more."""


class Evaluations:
    """Caches the results of expressions, and clears them when they become too large.

    Attributes:
        count: how many evaluations there were.
    """

    def __init__(self) -> None:
        self.count = 0
        self._kept = 0
        self._filled: list[dict[Any, Any]] = []

    def verdict(self, device: PoolDevice, compiled: CelExpression[T] | CELError) -> T | CELError:
        """Return the result of an expression; it is evaluated once for all devices that it cannot distinguish."""
        if isinstance(compiled, CELError):
            return compiled
        if device.is_clear and compiled.facts is not None:
            values = values_of(compiled.facts, device.id.driver, device.device)
            if values is not None:
                verdict = compiled.results.get(values)
                if verdict is None:
                    verdict = self._evaluated(device, compiled, compiled.results, values, len(compiled.facts))
                return verdict
        verdict = device.verdicts.get(compiled)
        if verdict is None:
            verdict = self._evaluated(device, compiled, device.verdicts, compiled, 1)
        return verdict

    def _evaluated(
        self,
        device: PoolDevice,
        compiled: CelExpression[T],
        results: dict[Any, Any],
        key: Hashable,
        size: int,
    ) -> T | CELError:
        self.count += 1
        verdict: T | CELError
        try:
            verdict = compiled.evaluate(_subject(device))
        except CELError as error:
            verdict = error.with_traceback(None)
        if self._kept > _KEPT_VALUES:
            for each in self._filled:
                each.clear()
            self._filled.clear()
            self._kept = 0
        if not results:
            self._filled.append(results)
        results[key] = verdict
        self._kept += 8 + size
        return verdict


@lru_cache(maxsize=1)
def _subject(device: PoolDevice) -> CelDevice:
    """Return a device in the form for expressions; the next expression usually needs the same one."""
    return CelDevice(device.id.driver, device.device)


evaluations: Final = Evaluations()
"""The evaluations that all questions share."""


Written = str | int | float
"""A quantity as the object contains it."""


class Consumption(NamedTuple):
    """The amount that a request consumes of one capacity.

    Attributes:
        amount: the amount, see `amounts`.
        available: what the device has of the capacity, in the same unit.
        written: the amount, in the form of the allocation.
    """

    amount: int
    available: int
    written: str


class UnfitCapacityError(SchedulerError):
    """A request of capacity is invalid: the attempt fails."""


def consumption(
    device: Device, asked: CapacityRequirements | None, features: DeviceFeatures = DEFAULTS
) -> dict[str, Consumption] | None:
    """Return what a request would consume of each capacity of a device; None if the device cannot satisfy it.

    A device cannot satisfy a request for a capacity that it lacks, for more than it has, or against its policy.

    Raises:
        UnfitCapacityError: with `capacity_checks`, an amount is negative or does not fit in 64 bits.

    Source:
        as of this module, CmpRequestOverCapacity and GetConsumedCapacityFromRequest.
        https://github.com/kubernetes/kubernetes/pull/140442 and https://github.com/kubernetes/kubernetes/pull/140161
    """
    requests = asked.requests if asked is not None else {}
    if not requests.keys() <= device.capacity.keys():
        return None
    quantities = {}
    for name, capacity in device.capacity.items():  # an error is more important than a lack of capacity
        quantities[name] = quantity = _consumed(name, requests.get(name), capacity, features)
        if features.capacity_checks and amount_of(quantity) < 0:
            raise UnfitCapacityError(f'capacity "{name}": capacity value is negative')
    consumed: dict[str, Consumption] = {}
    for name, capacity in device.capacity.items():
        quantity = quantities[name]
        if _violates(quantity, capacity.request_policy, features):
            return None
        amount, available = amount_of(quantity), amount_of(capacity.value)
        if amount > available:
            return None
        consumed[name] = Consumption(amount, available, canonical_quantity(quantity))
    return consumed


def fits(consumed: Mapping[str, Consumption], *taken: Mapping[str, int]) -> bool:
    """Return whether a device has what a request would consume, in addition to `taken`: capacity -> amount."""
    return all(
        each.amount + sum(amounts.get(name, 0) for amounts in taken) <= each.available
        for name, each in consumed.items()
    )


def _consumed(
    name: str, asked: Written | None, capacity: DeviceCapacity, features: DeviceFeatures
) -> Written:
    policy = capacity.request_policy
    if asked is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return asked
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _rounded_up(name, asked, policy.valid_range, features)
    return next((valid for valid in policy.valid_values if amount_of(asked) <= amount_of(valid)), asked)


def _rounded_up(
    name: str, asked: Written, valid: CapacityRequestPolicyRange, features: DeviceFeatures
) -> Written:
    assert valid.min is not None
    if amount_of(asked) < amount_of(valid.min):
        return valid.min
    in_milli = _is_in_milli(valid, features)
    least, step = _units(valid.min, in_milli=in_milli), _step(valid, in_milli=in_milli)
    if not step:
        return asked
    if not features.capacity_checks:
        rounded = least + -(-(parse_quantity(asked).value() - least) // step) * step
        return rounded if rounded % 1024 else f"{rounded // 1024}Ki"
    problem, wanted = "", canonical_quantity(asked)
    if in_milli and _milli(asked) is None:
        problem = f"request {wanted} is not a representable milli value"
    elif not in_milli and amount_of(asked) > _MAX_INT64 * 10**9:
        problem = f"request {wanted} exceeds MaxInt64"
    else:
        rounded = least + -(-(_units(asked, in_milli=in_milli) - least) // step) * step
        if rounded <= _MAX_INT64:
            assert valid.step is not None, "it is not zero"
            return _in_format_of(valid.step, rounded, in_milli=in_milli)
        limit = "the milli-value range" if in_milli else "MaxInt64"
        problem = f"rounding request {wanted} up to the next step passes {limit}"
    raise UnfitCapacityError(
        f'capacity "{name}": capacity request cannot be represented in the device\'s range arithmetic: {problem}'
    )


def _in_format_of(step: Written, amount: int, *, in_milli: bool) -> Written:
    """Return an amount in the notation of a step: binary, decimal, or with an exponent."""
    text = str(step).strip()
    whole, rest = divmod(amount, 1000) if in_milli else (amount, 0)
    if "e" in text or ("E" in text and not text.endswith(("E", "Ei"))):
        return f"{amount}e-3" if rest else f"{whole}e0"
    if rest:
        return f"{amount}m"
    return f"{whole // 1024}Ki" if text.endswith("i") and not whole % 1024 else whole


def _violates(quantity: Written, policy: CapacityRequestPolicy | None, features: DeviceFeatures) -> bool:
    if policy is None or (policy.default is not None and amount_of(policy.default) == amount_of(quantity)):
        return False
    valid = policy.valid_range
    if valid is None:
        values = policy.valid_values
        return bool(values) and all(amount_of(value) != amount_of(quantity) for value in values)
    if valid.max is not None and amount_of(quantity) > amount_of(valid.max):
        return True
    in_milli = _is_in_milli(valid, features)
    step = _step(valid, in_milli=in_milli)
    if not step:
        return False
    if in_milli and _milli(quantity) is None:
        return True
    least = 0 if valid.min is None else _units(valid.min, in_milli=in_milli)
    return (_units(quantity, in_milli=in_milli) - least) % step != 0


_MAX_INT64: Final = 2**63 - 1


def _is_in_milli(valid: CapacityRequestPolicyRange, features: DeviceFeatures) -> bool:
    """Return whether a range is computed in thousandths: if they can express all of it."""
    if not features.fractional_ranges:
        return False
    given = [each for each in (valid.min, valid.max, valid.step) if each is not None]
    return None not in map(_milli, given) and (valid.step is None or amount_of(valid.step) > 0)


def _milli(quantity: Written) -> int | None:
    """Return a quantity in thousandths; None if it has a fraction of them, or does not fit in 64 bits."""
    milli, rest = divmod(amount_of(quantity), 10**6)
    return None if rest or abs(milli) > _MAX_INT64 else milli


def _units(quantity: Written, *, in_milli: bool) -> int:
    found = parse_quantity(quantity)
    return found.milli_value() if in_milli else found.value()


def _step(valid: CapacityRequestPolicyRange, *, in_milli: bool) -> int:
    return 0 if valid.step is None else _units(valid.step, in_milli=in_milli)


_OPTIONAL_ACCESS: Final = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() "
    "for optional fields"
)
_KEPT_CONSUMPTIONS = 2000
_DEVICES_OF_A_STEP = 64


class Compiled(NamedTuple):
    """Expression -> its compiled form, or the compilation error.

    Attributes:
        selectors: the expressions that select devices.
        attributes: the expressions of derived attributes.
    """

    selectors: dict[str, CelSelector | CELError]
    attributes: dict[str, CelAttribute | CELError]


class DerivedAttributeError(SchedulerError):
    """A derived attribute cannot be computed: the attempt fails."""


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
        features: what is on.
        facts: what its selectors read; None if that is unknown.
        derived: name -> the expression of an attribute that constraints compare instead of the device's own one.

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
        features: DeviceFeatures,
    ) -> None:
        self.features = features
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
        self._consumptions: BoundedDict[Hashable, dict[str, Consumption] | Failure | None] = BoundedDict(
            _KEPT_CONSUMPTIONS
        )
        self._class_selectors = _expressions(device_class.spec.selectors, compiled) if device_class else ()
        self._selectors = _expressions(request.selectors, compiled)
        self.facts = _facts_of([compiled for _, compiled in (*self._class_selectors, *self._selectors)])
        self.derived = {
            each.name: compiled.attributes[each.expression]
            for each in (request.derived_attributes if features.derived_attributes else ())
        }

    @property
    def n_selectors(self) -> int:
        """How many expressions may have to be evaluated for a device."""
        return len(self._class_selectors) + len(self._selectors)

    def derived_attribute(self, name: str, device: PoolDevice) -> DeviceAttribute:
        """Return a derived attribute of a device.

        Raises:
            DerivedAttributeError: the expression is invalid, or fails for the device.

        Source:
            KEP-6080, CEL Environment & Validation. The text of kube-scheduler's error is unknown.
        """
        found = evaluations.verdict(device, self.derived[name])
        if isinstance(found, CELError):
            raise DerivedAttributeError(f"derived attribute {name} on device {device.id}: {found}")
        return found

    def candidate(self, pool: Pool, device: PoolDevice) -> DeviceCandidate:
        """Return a selected device as a candidate."""
        return DeviceCandidate(pool, device, self.consumption_of(device) or {})

    def selects(self, pool: Pool, device: PoolDevice) -> bool | Failure:
        """Return whether the request may get a device of a pool, or the failure of a selector.

        Source:
            kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating,
            allocator_incubating.go, isSelectable.
        """
        if device.device.binding_conditions and not self.features.binding_conditions:
            return False
        for expressions, is_of_class in ((self._class_selectors, True), (self._selectors, False)):
            for number, (_, compiled) in enumerate(expressions):
                verdict = evaluations.verdict(device, compiled)
                if isinstance(verdict, CELError):
                    return self._failure(number, verdict, device, is_of_class=is_of_class)
                if not verdict:
                    return False
        if pool.usable is not None and device not in pool.usable:
            return False
        consumed = self._consumption(device)
        return consumed if isinstance(consumed, Failure) else consumed is not None

    def why_not(self, pool: Pool, device: PoolDevice) -> str:
        """Return a readable reason why the request does not select a device of a pool; "" if it does."""
        if device.device.binding_conditions and not self.features.binding_conditions:
            return "with binding conditions, which are off"
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
        found = self._consumption(device)
        return None if isinstance(found, Failure) else found

    def _consumption(self, device: PoolDevice) -> dict[str, Consumption] | Failure | None:
        if not self.features.consumable_capacity:
            return {}
        capacities = tuple(device.device.capacity.items())
        if capacities not in self._consumptions:
            try:
                self._consumptions[capacities] = consumption(device.device, self._capacity, self.features)
            except UnfitCapacityError as error:
                self._consumptions[capacities] = Failure(str(error), is_of_class=False)
        return self._consumptions[capacities]

    def _failure(self, number: int, error: CELError, device: PoolDevice, *, is_of_class: bool) -> Failure:
        """Return the failure of a selector.

        Source:
            https://github.com/kubernetes/kubernetes/pull/136709
        """
        if not self.features.errors_name_devices:
            return Failure(f"selector #{number}: {error}", is_of_class)
        advice = _OPTIONAL_ACCESS if "no such key:" in str(error) else ""
        on = "" if str(error).startswith("CEL compile error") else f" on device {device.id}"
        return Failure(f"selector #{number}{on}: {error}{advice}", is_of_class)

    def _problem(self, request: ExactDeviceRequest | DeviceSubRequest) -> str:
        """Return the error that makes a request invalid.

        Source:
            kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating,
            allocator_incubating.go, validateDeviceRequest.
        """
        for number, each in enumerate(request.selectors):
            if each.cel is None:
                return f"selector #{number}: CEL expression empty (unsupported selector type?)"
        if self.admin_access and not self.features.admin_access:
            return "admin access is requested, but the feature is disabled"
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
    return tuple((expression, compiled.selectors[expression]) for expression in written)


def _facts_of(expressions: Iterable[CelSelector | CELError]) -> frozenset[DeviceInput] | None:
    found: set[DeviceInput] = set()
    for each in expressions:
        if isinstance(each, CELError):
            continue  # its result is the same for all devices
        if each.facts is None:
            return None
        found.update(each.facts)
    return frozenset(found)
