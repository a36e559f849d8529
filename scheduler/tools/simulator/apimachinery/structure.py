"""The structure of the built-in kinds, and decoding of request bodies to objects of a kind.

A real API server decodes bodies into Go structs: unknown fields are dropped (or rejected in strict mode), wrong types are
rejected, and zero values are mostly omitted when the object is encoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import field as dataclass_field
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

from scheduler.clock import rfc3339, rfc3339_micro
from scheduler.objects.api_types import META, api_type
from scheduler.objects.quantity import canonical_quantity
from scheduler.tools.simulator.apimachinery.disabled_fields import remove_unknown
from scheduler.tools.simulator.apimachinery.objects import clone
from scheduler.tools.simulator.apimachinery.status import bad_request, cannot_decode

if TYPE_CHECKING:
    from scheduler.objects.api_types import ApiField, ApiType
    from scheduler.tools.simulator.apimachinery.kinds import Kind
    from scheduler.tools.simulator.apimachinery.objects import Object

_LEFT_OUT: Final = object()


@dataclass(slots=True)
class Reading:
    """Options of decoding.

    Attributes:
        fills: whether to add the fields that Go encodes even if they are not set; except null lists, maps and pointers,
            which mean the same as absent ones.
        unknown: paths of unknown fields; grows.
    """

    fills: bool = True
    unknown: list[str] = dataclass_field(default_factory=list)


_Reader = Callable[[Any, Reading], Any]


class StructureError(ValueError):
    """A value of the wrong type; `path` is the path of the field."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        self.path = ""
        super().__init__(problem)

    def inside(self, step: str) -> StructureError:
        """Prepend a step to the path, and return the error."""
        self.path = _joined(step, self.path)
        return self

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem


def read_structure(type_: ApiType, value: Any, reading: Reading) -> Object:
    """Return a copy of an object without unknown fields, and without the fields that Go omits.

    Args:
        type_: type of the object.
        value: the object.
        reading: options; collects unknown fields.

    Raises:
        StructureError: a value has the wrong type.
    """
    if not isinstance(value, dict):
        raise StructureError(_mismatch(value, type_.name))
    readers, unknown = _readers_of(type_), reading.unknown
    found: Object = {}
    for name, content in value.items():
        reader, known = readers.get(name), len(unknown)
        if reader is None:
            unknown.append(name)
        elif content is not None:
            try:  # as `read_inside`, without its call
                taken = reader(content, reading)
            except StructureError as error:
                raise error.inside(name) from None
            if len(unknown) > known:
                unknown[known:] = [_joined(name, path) for path in unknown[known:]]
            if taken is not _LEFT_OUT:
                found[name] = taken
    if reading.fills:
        fill_in(type_, found)
    return found


def fill_in(type_: ApiType, obj: Object) -> None:
    """Add the missing fields of an object that Go always encodes; see `Reading`."""
    for name, zero in _filling_of(type_).items():
        if name not in obj:
            obj[name] = clone(zero)


@cache
def _readers_of(type_: ApiType) -> dict[str, _Reader]:
    return {name: _field_reader(field) for name, field in type_.by_name.items()}


@cache
def _filling_of(type_: ApiType) -> Object:
    return {
        name: field.zero if field.type is None else _filling_of(field.type)
        for name, field in type_.by_name.items()
        if field.in_json_at_zero and not (field.container or field.optional)
    }


def _field_reader(field: ApiField) -> _Reader:
    item = partial(read_structure, field.type) if field.type is not None else _SCALARS[field.scalar]
    if field.container:
        return partial(_read_list if field.container == "[]" else _read_map, item)
    if field.optional or field.in_json_at_zero:
        return item
    return partial(_read_but_zero, item)


def _read_but_zero(reader: _Reader, value: Any, reading: Reading) -> Any:
    return reader(value, reading) or _LEFT_OUT


def _read_list(item: _Reader, value: Any, reading: Reading) -> Any:
    if not isinstance(value, list):
        raise StructureError(_mismatch(value, "list"))
    found = [read_inside(f"[{index}]", item, element, reading) for index, element in enumerate(value)]
    return found or _LEFT_OUT


def _read_map(item: _Reader, value: Any, reading: Reading) -> Any:
    if not isinstance(value, dict):
        raise StructureError(_mismatch(value, "map"))
    found = {
        key: read_inside(key, item, "" if element is None else element, reading)
        for key, element in value.items()
    }
    return found or _LEFT_OUT


def read_inside(step: str, reader: _Reader, value: Any, reading: Reading) -> Any:
    """Read a nested value; `step` is prepended to its paths."""
    unknown = reading.unknown
    known = len(unknown)
    try:
        taken = reader(value, reading)
    except StructureError as error:
        raise error.inside(step) from None
    if len(unknown) > known:
        unknown[known:] = [_joined(step, path) for path in unknown[known:]]
    return taken


def _joined(step: str, path: str) -> str:
    return f"{step}{path}" if not path or path.startswith("[") else f"{step}.{path}"


def _read_text(value: Any, _: Reading, wanted: str = "string") -> str:
    if not isinstance(value, str):
        raise StructureError(_mismatch(value, wanted))
    return value


def _read_quantity(value: Any, _: Reading) -> str:
    try:
        return canonical_quantity(value)
    except ValueError as error:
        raise StructureError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from error


def _read_number(value: Any, _: Reading) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise StructureError(_mismatch(value, "number"))
    return value


def _read_integer(value: Any, reading: Reading) -> int:
    number = _read_number(value, reading)
    if number != int(number):
        raise StructureError(f"json: cannot unmarshal number {value} into Go value of type int64")
    return int(number)


def _read_truth(value: Any, _: Reading) -> bool:
    if not isinstance(value, bool):
        raise StructureError(_mismatch(value, "bool"))
    return value


def _read_time(value: Any, reading: Reading) -> str:
    return rfc3339(_moment(_read_text(value, reading, "Time")))


def _read_micro_time(value: Any, reading: Reading) -> str:
    return rfc3339_micro(_moment(_read_text(value, reading, "MicroTime")))


def _as_it_is(value: Any, _: Reading) -> Any:
    return value


_SCALARS: Final[dict[str, _Reader]] = {
    "text": _read_text,
    "bytes": _read_text,
    "int": _read_integer,
    "float": _read_number,
    "bool": _read_truth,
    "time": _read_time,
    "microtime": _read_micro_time,
    "quantity": _read_quantity,
    "intstr": _as_it_is,
    "texts": partial(_read_list, _read_text),
    "raw": _as_it_is,
    "any": _as_it_is,
}

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[-+]\d\d:\d\d)")


@lru_cache(maxsize=4096)
def _moment(text: str) -> datetime:
    if not _RFC3339.fullmatch(text):
        raise StructureError(f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse "{text}"')
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise StructureError(f'parsing time "{text}": {error}') from error


def _mismatch(value: Any, wanted: str) -> str:
    kinds = ((bool, "bool"), ((int, float), "number"), (str, "string"), (list, "array"), (dict, "object"))
    found = next((name for type_, name in kinds if isinstance(value, type_)), "null")
    return f"json: cannot unmarshal {found} into Go value of type {wanted}"


@dataclass(slots=True)
class WriteOptions:
    """Options of a write.

    Attributes:
        dry_run: do not store the result.
        field_validation: handling of unknown fields: `Strict` rejects, `Warn` warns, `Ignore` ignores; the last two drop
            them.
        manager: field manager of the write, for example `kubectl`.
        force: whether an apply takes fields from other managers.
        warnings: warnings for the response; grows while the request is handled.
    """

    dry_run: bool = False
    field_validation: str = "Warn"
    manager: str = "simulator"
    force: bool = False
    warnings: list[str] = field(default_factory=list)


def read_object(kind: Kind, body: Any, options: WriteOptions, *, fills: bool = True) -> Object:
    """Return a copy of an object with the structure of its kind, kind and apiVersion first; see `Reading`.

    Raises:
        StatusError: 400, it is not such an object.
    """
    if not isinstance(body, dict):
        raise cannot_decode(kind, "json: cannot unmarshal into Go value: an object was expected")
    _check_type(kind, body)
    reading = Reading(fills)
    try:
        obj = read_structure(kind.type, body, reading) if kind.type else _read_custom(kind, body, reading)
    except StructureError as error:
        problem = error.problem if error.problem.startswith("quantities") else str(error)
        raise cannot_decode(kind, problem) from error
    reading.unknown += remove_unknown(obj, kind.disabled)
    if reading.unknown:
        _tell_unknown(kind, reading.unknown, options)
    if not isinstance(obj.get("metadata", {}), dict):
        raise cannot_decode(
            kind, "json: cannot unmarshal into Go struct field metadata of type v1.ObjectMeta"
        )
    metadata = obj.pop("metadata", {})
    metadata.pop("managedFields", None)
    return {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata} | {
        name: value for name, value in obj.items() if name not in {"kind", "apiVersion"}
    }


def _read_custom(kind: Kind, body: Object, reading: Reading) -> Object:
    """Return a copy of a custom resource; its strategy handles the structure, except that of the metadata."""
    obj: Object = clone(body)
    if "metadata" in obj:
        read = partial(read_structure, api_type(META, "ObjectMeta"))
        obj["metadata"] = read_inside("metadata", read, obj["metadata"], reading)
    reading.unknown += kind.strategy.prune(obj)
    return obj


def _check_type(kind: Kind, body: Object) -> None:
    """Reject an object with another kind; an object without a kind is accepted."""
    name, version = body.get("kind") or kind.kind, body.get("apiVersion") or kind.api_version
    if name != kind.kind:
        short = version.rpartition("/")[2]
        group = kind.group.partition(".")[0] or "core"
        raise bad_request(
            f'{name} in version "{short}" cannot be handled as a {kind.kind}: converting ({short}.{name}) to '
            f"({group}.{kind.kind}): unknown conversion"
        )
    if version != kind.api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
        )


def _tell_unknown(kind: Kind, unknown: list[str], options: WriteOptions) -> None:
    problems = [f'unknown field "{path}"' for path in unknown]
    if options.field_validation == "Strict":
        raise cannot_decode(kind, f"strict decoding error: {', '.join(problems)}")
    if options.field_validation == "Warn":
        options.warnings.extend(problems)
