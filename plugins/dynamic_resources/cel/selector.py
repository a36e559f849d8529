"""A compiled expression, its environment, its evaluation for devices, and its errors."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from plugins.dynamic_resources.cel.cost import RefusedError, check_cost, check_text
from plugins.dynamic_resources.cel.functions import FUNCTIONS
from plugins.dynamic_resources.cel.inputs import inputs_of
from plugins.dynamic_resources.cel.values import parse_version, quantity_to_bytes, to_bytes
from scheduler.errors import SchedulerError
from scheduler.objects.remembered import Remembered

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from scheduler.objects.dynamic_resources import Device, DeviceAttribute


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


class CelSelector:
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

    def __init__(self, expression: str) -> None:
        try:
            check_text(expression)
            rewritten, self._reads, self._domains = _with_defaults(expression)
            compiled = _compiled(rewritten, expression)
            check_cost(compiled.serialize())
        except RefusedError as error:
            raise CELError(f"CEL runtime error: {error}") from error
        result = compiled.return_type().name()
        if result not in {"BOOL", "DYN"}:
            raise CELError(
                f"CEL compile error: must evaluate to bool or the unknown type, not {result.lower()}"
            )
        self._rewritten = rewritten
        self.facts = inputs_of(expression)
        self.results: dict[Hashable, bool | CELError] = {}

    def matches(self, subject: CelDevice) -> bool:
        """Return whether the expression selects a device.

        Raises:
            CELError: the evaluation fails, or the result is not a bool.

        Source:
            kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go, DeviceMatches.
        """
        variables = {name: _VARIABLES[name](subject, self._domains) for name in self._reads}
        try:
            compiled = _COMPILED.get(self._rewritten) or _compiled(self._rewritten)
            found = compiled.eval(data=variables)
        except RuntimeError as error:
            raise CELError(f"CEL runtime error: {evaluation_error(str(error))}") from error
        try:
            value = found.value()
        except TypeError as error:  # Python has no type for it
            raise CELError(f"CEL runtime error: {conversion_error('optional_type')}") from error
        if value is True or value is False:
            return bool(value)
        kind = found.type().name()
        message = evaluation_error(value) if kind == "ERROR" else conversion_error(kind)
        raise CELError(f"CEL runtime error: {message}")


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
    if attribute.version_value is None:
        raise CELError(f"CEL runtime error: attribute {name}: unsupported attribute value")
    try:
        return to_bytes(parse_version(attribute.version_value))
    except ValueError as error:
        raise CELError(f"CEL runtime error: attribute {name}: parse semantic version: {error}") from error


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
