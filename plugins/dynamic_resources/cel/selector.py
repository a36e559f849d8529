"""A compiled expression: the fields of a device that it reads, its evaluation for devices, and its errors.

Every device has its own serial number, but hardly any expression reads it. So thousands of devices belong to a few
kinds, and an expression is evaluated once for each kind.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from contextlib import suppress
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from plugins.dynamic_resources.cel.cost import RefusedError, check_cost, check_text
from plugins.dynamic_resources.cel.functions import FUNCTIONS
from plugins.dynamic_resources.cel.values import (
    Version,
    from_bytes,
    parse_version,
    quantity_to_bytes,
    to_bytes,
)
from scheduler.errors import SchedulerError
from scheduler.objects.caches import Remembered
from scheduler.objects.decode import typed_object
from scheduler.objects.dynamic_resources import DeviceAttribute

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from scheduler.objects.dynamic_resources import Device

T = TypeVar("T")

_TEXT = r"""(?:"[^"\\\n]*"|'[^'\\\n]*')"""
_DOMAIN = rf"\[\s*(?:(?P<domain>{_TEXT})|(?P<own>device\s*\.\s*driver))\s*\]"
_NAME = rf"(?:\s*\.\s*(?:\?\s*)?(?P<name>\w+)\b(?!\s*\()|\s*\[\s*(?:\?\s*)?(?P<quoted>{_TEXT})\s*\])"
_MAP = r"(?<![.\w])device\s*\.\s*(?P<field>attributes|capacity)\s*"
_LOOK_UP = re.compile(rf"{_MAP}{_DOMAIN}{_NAME}")
_CONTAINS = re.compile(rf"(?<![\w\"'])(?P<quoted>{_TEXT})\s+in\s+{_MAP}{_DOMAIN}(?P<name>(?!\s*[.\[]))")
_PLAIN = re.compile(r"(?<![.\w])device\s*\.\s*(?:driver|allowMultipleAllocations)\b(?!\s*[.\[(])")
_START = re.compile(r"[\"'\\]|//|\bdevice\b")
_REST = re.compile(rf"{_TEXT}|(?P<device>\bdevice\b)|(?P<unclear>[\"'\\]|//)")


class DeviceInput(NamedTuple):
    """One field of a device.

    Attributes:
        is_capacity: whether it is a capacity, not an attribute.
        domain: its domain; None is the domain of the device's driver.
        name: its name.
    """

    is_capacity: bool
    domain: str | None
    name: str


def inputs_of(expression: str) -> tuple[DeviceInput, ...] | None:
    """Return the fields that an expression reads, besides the driver and whether a device is shared; None if unknown."""
    if '"""' in expression or "'''" in expression:
        return None
    facts: dict[DeviceInput, None] = {}
    position = 0
    while start := _START.search(expression, position):
        position = start.start()
        found = next(
            (
                each
                for pattern in (_CONTAINS, _LOOK_UP, _PLAIN, _REST)
                if (each := pattern.match(expression, position))
            ),
            None,
        )
        if found is None:
            position += 1
            continue
        position = found.end()
        if found.re is _REST and (found["device"] or found["unclear"]):
            return None  # the whole device, all of a map, or a text that is not simple
        if found.re in {_LOOK_UP, _CONTAINS}:
            domain = None if found["own"] else found["domain"][1:-1]
            name = found["name"] or found["quoted"][1:-1]
            facts[DeviceInput(found["field"] == "capacity", domain, name)] = None
    return tuple(facts)


def values_of(facts: Iterable[DeviceInput], driver: str, device: Device) -> Hashable | None:
    """Return a key of the values of these fields, equal for devices with equal results; None if unknown.

    The device must be `is_clear`.
    """
    values: list[Hashable] = [driver, device.allow_multiple_allocations]
    for is_capacity, domain, name in facts:
        held: Mapping[str, Any] = device.capacity if is_capacity else device.attributes
        full = f"{driver if domain is None else domain}/{name}"
        value = held.get(full)
        if domain is None or domain == driver:
            short = held.get(name)
            if value is not None and short is not None:
                return None  # one name occurs twice, and which one counts depends on the order
            value = short if value is None else value
        if is_capacity and value is not None:
            written = value.value
            values.append(written if isinstance(written, str) else (type(written), repr(written)))
        else:
            values.append(value)
    return tuple(values)


def is_clear(device: Device) -> bool:
    """Return whether expressions can read all attributes of a device, so that none fails because of an unrelated one."""
    return all(map(_is_known, device.attributes.values()))


def _is_known(attribute: DeviceAttribute) -> bool:
    if attribute.version_value is None:
        return (
            attribute.string_value is not None
            or attribute.int_value is not None
            or attribute.bool_value is not None
        )
    return _is_version(attribute.version_value)


@lru_cache(maxsize=1024)
def _is_version(text: str) -> bool:
    try:
        parse_version(text)
    except ValueError:
        return False
    return True


@cache
def environment() -> Any:
    """Return the environment; the library is imported with the first call."""
    from cel_expr_python import cel
    from cel_expr_python.ext.ext_bindings import ExtBindings
    from cel_expr_python.ext.ext_optional import ExtOptional
    from cel_expr_python.ext.ext_strings import ExtStrings

    kind = cel.Type
    types = {
        "bool": kind.BOOL,
        "double": kind.DOUBLE,
        "dyn": kind.DYN,
        "int": kind.INT,
        "list": kind.List(kind.DYN),
        "opaque": kind.BYTES,
        "string": kind.STRING,
    }
    overloads: dict[str, list[Any]] = {}
    for function in FUNCTIONS:
        overload = cel.Overload(
            "_".join((function.name, "member" if function.is_member else "global", *function.parameters)),
            return_type=types[function.result],
            parameters=[types[parameter] for parameter in function.parameters],
            is_member=function.is_member,
            impl=function.call,
        )
        overloads.setdefault(function.name, []).append(overload)
    attributes = kind.Map(kind.STRING, kind.Map(kind.STRING, kind.DYN))
    capacity = kind.Map(kind.STRING, kind.Map(kind.STRING, kind.BYTES))
    return cel.NewEnv(
        variables={
            "device": kind.Map(kind.STRING, kind.DYN),
            "device.driver": kind.STRING,
            "device.allowMultipleAllocations": kind.BOOL,
            "device.attributes": attributes,
            "device.attributes_": attributes,
            "device.capacity": capacity,
            "device.capacity_": capacity,
        },
        extensions=[
            ExtBindings(),
            ExtOptional(),
            ExtStrings(),
            cel.CelExtension(
                "kubernetes", [cel.FunctionDecl(name, alike) for name, alike in overloads.items()]
            ),
        ],
    )


_CODE = re.compile(r"^[A-Z_]+: |(?: \[[A-Z_]+\])$")
_SAID = (
    (re.compile(r'Key not found in map : "?(.*?)"?'), r"no such key: \1"),
    (re.compile(r"No matching overloads found : .*"), "no such overload"),
    (re.compile(r"Index error: index=(-?\d+) size=\d+"), r"index out of bounds: \1"),
    (re.compile("divide by zero"), "division by zero"),
    (re.compile("Iteration budget exceeded"), "operation cancelled: actual cost limit exceeded"),
)


_LONGEST = 4096  # characters; some messages repeat the text for each error in it


def _error_text(error: Any) -> str:
    """Return a message without its code, shortened."""
    text = str(error)
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}...{text[-len(' [INVALID_ARGUMENT]') :]}"
    return _CODE.sub("", text)


def compile_error(error: Exception) -> str:
    """Return why an expression could not be compiled."""
    return f"compilation failed: {_error_text(error)}"


def evaluation_error(error: Any) -> str:
    """Return why an evaluation failed."""
    text = _error_text(error)
    for pattern, words in _SAID:
        found = pattern.fullmatch(text)
        if found:
            return found.expand(words)
    return text


def conversion_error(kind: str) -> str:
    """Return the message for a result that is not a bool."""
    name = kind.lower()
    problem = {
        "INT": "unsupported type conversion from 'int' to bool",
        "STRING": "unsupported native conversion from string to 'bool'",
    }.get(kind, f"type conversion error from '{name}' to 'bool'")
    return f"CEL result of type {name} could not be converted to bool: {problem}"


_KEPT = 256
_COMPILED_SIZE = 24  # times the length of the text, which is written and parsed elsewhere
_COMPILED: Remembered[str, Any] = Remembered(64 * 1024 * 1024)
_DEVICE = re.compile(
    r"""(?P<text>r?(?:\"\"\"(?:.|\n)*?\"\"\"|'''(?:.|\n)*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))"""
    r"""|(?P<comment>//[^\n]*)"""
    r"""|(?<![.\w])device\b(?:\s*\.\s*(?P<field>driver|allowMultipleAllocations|attributes|capacity)\b)?"""
    r"""(?P<looks_up>(?=\s*\[)|\s*\.\s*\??(?P<domain>\w+)\b(?!\s*\())?"""
)


class CELError(SchedulerError):
    """An invalid expression, or one that fails for a device; the message is upstream's text after `selector #0: `."""


class CelDevice:
    """A device of a driver in the form for expressions.

    Raises:
        CELError: expressions cannot read the value of an attribute.
    """

    __slots__ = ("allow_multiple_allocations", "attributes", "capacity", "driver")

    def __init__(self, driver: str, device: Device) -> None:
        self.driver = driver
        self.allow_multiple_allocations = device.allow_multiple_allocations
        self.attributes: dict[str, dict[str, Any]] = {}  # domain -> name -> value
        for name, attribute in device.attributes.items():
            domain, key = _domain(name, driver)
            self.attributes.setdefault(domain, {})[key] = _value(name, attribute)
        self.capacity: dict[str, dict[str, Any]] = {}  # domain -> name -> quantity
        for name, amount in device.capacity.items():
            domain, key = _domain(name, driver)
            self.capacity.setdefault(domain, {})[key] = quantity_to_bytes(amount.value)


class CelExpression(ABC, Generic[T]):
    """An expression about devices.

    Attributes:
        facts: which fields of a device it reads; None if unknown.
        results: values of these fields -> the result for such devices, or its error.

    Raises:
        CELError: it cannot be compiled.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go, CompileCELExpression.
    """

    __slots__ = ("_domains", "_reads", "_rewritten", "facts", "results")
    _results: ClassVar[re.Pattern[str]]
    _wanted: ClassVar[str]

    def __init__(self, expression: str) -> None:
        try:
            check_text(expression)
            rewritten, self._reads, self._domains = _with_defaults(expression)
            compiled = _compiled(rewritten, expression)
            check_cost(compiled.serialize())
        except RefusedError as error:
            raise CELError(f"CEL runtime error: {error}") from error
        result = compiled.return_type().name()
        if not self._results.fullmatch(result):
            raise CELError(f"CEL compile error: must evaluate to {self._wanted}, not {result.lower()}")
        self._rewritten = rewritten
        self.facts = inputs_of(expression)
        self.results: dict[Hashable, T | CELError] = {}

    @abstractmethod
    def evaluate(self, subject: CelDevice) -> T:
        """Return the result for a device.

        Raises:
            CELError: the evaluation fails, or the result has another type.
        """

    def _evaluated(self, subject: CelDevice) -> Any:
        """Return the result as a value of the library."""
        variables = {name: _VARIABLES[name](subject, self._domains) for name in self._reads}
        try:
            compiled = _COMPILED.get(self._rewritten) or _compiled(self._rewritten)
            return compiled.eval(data=variables)
        except RuntimeError as error:
            raise CELError(f"CEL runtime error: {evaluation_error(str(error))}") from error


class CelSelector(CelExpression[bool]):
    """Selects devices."""

    __slots__ = ()
    _results = re.compile("BOOL|DYN")
    _wanted = "bool or the unknown type"

    def evaluate(self, subject: CelDevice) -> bool:
        """Return whether the expression selects a device.

        Source:
            kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go, DeviceMatches.
        """
        found = self._evaluated(subject)
        try:
            value = found.value()
        except TypeError as error:  # Python has no type for it
            raise CELError(f"CEL runtime error: {conversion_error('optional_type')}") from error
        if value is True or value is False:
            return bool(value)
        kind = found.type().name()
        message = evaluation_error(value) if kind == "ERROR" else conversion_error(kind)
        raise CELError(f"CEL runtime error: {message}")


class CelAttribute(CelExpression[DeviceAttribute]):
    """Computes an attribute of devices.

    Source:
        kube-scheduler v1.37, staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go, validateOutputType.
    """

    __slots__ = ()
    _results = re.compile("(LIST<)?(BOOL|INT|STRING|DYN|BYTES)>?")  # BYTES carry versions, see `values`
    _wanted = "a primitive scalar (string, integer, boolean, semver) or a list of these scalars"

    def evaluate(self, subject: CelDevice) -> DeviceAttribute:
        """Return the attribute of a device.

        Source:
            kube-scheduler v1.37, as of this class, EvaluateDerivedAttribute.
        """
        found = self._evaluated(subject)
        try:
            value = found.value()
        except TypeError as error:  # Python has no type for it
            raise CELError("CEL runtime error: unsupported CEL return type: optional_type") from error
        kind = found.type().name()
        if kind == "ERROR":
            raise CELError(f"CEL runtime error: {evaluation_error(value)}")
        if not isinstance(value, list):
            field, scalar = _scalar(kind, value, "unsupported CEL return type")
            return typed_object({field: scalar}, DeviceAttribute)
        items = [_scalar(each.type().name(), each.value(), "unsupported list element type") for each in value]
        for place, (field, _) in enumerate(items):
            if field != items[0][0]:
                problem = f"expected list element at index {place} to be {items[0][0]}, got {field}"
                raise CELError(f"CEL runtime error: {problem}")
        if not items:
            return DeviceAttribute()
        return typed_object({f"{items[0][0]}s": [scalar for _, scalar in items]}, DeviceAttribute)


def _scalar(kind: str, value: Any, problem: str) -> tuple[str, str | int | bool]:
    """Return a value as (kind of attribute, value).

    Raises:
        CELError: attributes do not have this type; the message begins with the problem.
    """
    if kind in {"BOOL", "INT", "STRING"}:
        return kind.lower(), value
    if kind == "BYTES":
        with suppress(ValueError):
            return "version", str(from_bytes(value, Version))
    raise CELError(f"CEL runtime error: {problem}: {kind.lower()}")


_VARIABLES: dict[str, Callable[[CelDevice, Mapping[str, Any]], Any]] = {
    "device": lambda subject, _: {
        "driver": subject.driver,
        "allowMultipleAllocations": subject.allow_multiple_allocations,
        "attributes": subject.attributes,
        "capacity": subject.capacity,
    },
    "device.driver": lambda subject, _: subject.driver,
    "device.allowMultipleAllocations": lambda subject, _: subject.allow_multiple_allocations,
    "device.attributes": lambda subject, _: subject.attributes,
    "device.attributes_": lambda subject, domains: {subject.driver: {}, **domains, **subject.attributes},
    "device.capacity": lambda subject, _: subject.capacity,
    "device.capacity_": lambda subject, domains: {subject.driver: {}, **domains, **subject.capacity},
}


@lru_cache(maxsize=_KEPT)
def selector(expression: str) -> CelSelector | CELError:
    """Return an expression, compiled once, or its compilation error."""
    try:
        return CelSelector(expression)
    except CELError as error:
        return error


@lru_cache(maxsize=_KEPT)
def derived_attribute(expression: str) -> CelAttribute | CELError:
    """Return an expression for a derived attribute, compiled once, or its compilation error."""
    try:
        return CelAttribute(expression)
    except CELError as error:
        return error


def _compiled(expression: str, written: str | None = None) -> Any:
    """Return a compiled expression; the cache is limited, since one may take two megabytes.

    Args:
        expression: the expression.
        written: the original text, for error messages.

    Raises:
        CELError: it cannot be compiled.
    """
    compiled = _COMPILED.get(expression)
    if compiled is None:
        known = environment()
        try:
            compiled = known.compile(expression)
        except RuntimeError as error:
            raise CELError(f"CEL compile error: {_why(written or expression, error)}") from error
        _COMPILED.keep(expression, compiled, _COMPILED_SIZE * len(expression))
    return compiled


def _why(expression: str, error: RuntimeError) -> str:
    try:
        environment().compile(expression)
    except RuntimeError as of_written:
        error = of_written
    return compile_error(error)


def _domain(name: str, driver: str) -> tuple[str, str]:
    """Split a name; without a domain it is in that of the driver."""
    domain, slash, key = name.partition("/")
    return (domain, key) if slash else (driver, name)


def _value(name: str, attribute: DeviceAttribute) -> Any:
    """Return an attribute as a value of the language.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go, getAttributeValue.
    """
    if attribute.int_value is not None:
        return attribute.int_value
    if attribute.bool_value is not None:
        return attribute.bool_value
    if attribute.string_value is not None:
        return attribute.string_value
    several = attribute.int_values or attribute.bool_values or attribute.string_values
    if several:
        return list(several)
    versions = attribute.version_values or (attribute.version_value,)
    try:
        found = [to_bytes(parse_version(version)) for version in versions if version is not None]
        if found:
            return found if attribute.version_values else found[0]
    except ValueError as error:
        raise CELError(f"CEL runtime error: attribute {name}: parse semantic version: {error}") from error
    raise CELError(f"CEL runtime error: attribute {name}: unsupported attribute value")


def _with_defaults(expression: str) -> tuple[str, frozenset[str], dict[str, dict[str, Any]]]:
    """Rewrite an expression for maps that contain a domain wherever one is looked up.

    Upstream's maps return an empty map for a missing domain, but do not contain it. So lookups use another variable, which
    contains such domains; `in` and iterations use the original one.

    Returns:
        expression: the expression with these variables.
        reads: the names of the variables that it may read.
        domains: the domains that it may look up, each without values.
    """
    reads: set[str] = set()
    domains: dict[str, dict[str, Any]] = {}

    def renamed(found: re.Match[str]) -> str:
        text, field, looks_up = found["text"], found["field"], found["looks_up"]
        if text:
            domains[text.lstrip("r").strip("\"'")] = {}
        if text or found["comment"]:
            return found[0]
        name = "device" if field is None else f"device.{field}"
        if field in {"attributes", "capacity"} and looks_up is not None:
            name += "_"
            if found["domain"]:
                domains[found["domain"]] = {}
        reads.add(name)
        return f"{name}{looks_up or ''}"

    return _DEVICE.sub(renamed, expression), frozenset(reads), domains
