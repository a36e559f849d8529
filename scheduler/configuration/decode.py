"""Converts plain values to typed structs, and reports every error with its path.

msgspec's own conversion stops at the first error. This one uses the same types, so a struct is declared once,
as any msgspec.Struct. It continues after an error, so that a user sees all errors of a file at once.
"""

from __future__ import annotations

import base64
import binascii
import re
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import inspect

from scheduler.configuration.types import (
    Extender,
    ExtenderTLS,
    KubeSchedulerConfiguration,
    PluginConfig,
    Plugins,
    Profile,
)
from scheduler.errors import FieldError
from scheduler.objects.wording import child, did_you_mean, entry, quoted, was

if TYPE_CHECKING:
    from collections.abc import Iterable

_TO_EXTENDERS = "extenders, beside profiles: all profiles share them"
_OF_TLS = {key.lower(): f"tlsConfig.{key}" for key in ExtenderTLS.__struct_encode_fields__}
_OF_EXTENDERS = ("urlPrefix", "filterVerb", "prioritizeVerb", "bindVerb", "preemptVerb", "nodeCacheCapable")

_ELSEWHERE: dict[type, dict[str, str]] = {  # struct -> key in lower case -> its correct place
    KubeSchedulerConfiguration: {
        "schedulername": "profiles[].schedulerName",
        "plugins": "profiles[].plugins",
        "pluginconfig": "profiles[].pluginConfig",
        "extender": "extenders",
        "extenderconfig": "extenders",
        "extenderconfigs": "extenders",
        **{key.lower(): f"extenders[].{key}" for key in _OF_EXTENDERS},
    },
    Profile: {
        "name": "schedulerName",
        "extender": _TO_EXTENDERS,
        "extenders": _TO_EXTENDERS,
        "extenderconfig": _TO_EXTENDERS,
        "extenderconfigs": _TO_EXTENDERS,
        "args": "pluginConfig[].args",
    },
    PluginConfig: {"config": "args", "arguments": "args", "argument": "args", "plugin": "name"},
    Plugins: {
        "extenders": _TO_EXTENDERS,
        "unreserve": "reserve",
        "prescoring": "preScore",
        "normalizescore": "score",
    },
    Extender: {
        **_OF_TLS,
        "trustedcafile": "tlsConfig.caFile",
        "url": "urlPrefix",
        "address": "urlPrefix",
        "timeout": "httpTimeout",
        "timeoutseconds": "httpTimeout",
    },
    ExtenderTLS: {
        "trustedcafile": "caFile",
        "insecureskipverify": "insecure",
        "insecureskiptlsverify": "insecure",
    },
}

_REMOVED: dict[type, dict[str, str]] = {  # struct -> key in lower case -> its replacement
    KubeSchedulerConfiguration: {
        "algorithmsource": "was removed after v1alpha1; `check --convert` makes profiles of a file of that version",
        "bindtimeoutseconds": "was removed after v1alpha2, use bindTimeoutSeconds of VolumeBinding's arguments",
        "disablepreemption": "was removed after v1alpha2, disable DefaultPreemption at postFilter",
        "featuregates": "was never part of it, a feature is a setting of a profile here",
        "hardpodaffinitysymmetricweight": "was removed after v1alpha1, use hardPodAffinityWeight of "
        "InterPodAffinity's arguments",
        "healthzbindaddress": "was removed after v1beta2, use --bind-address and --secure-port or --http-port",
        "metricsbindaddress": "was removed after v1beta2, use --bind-address and --secure-port or --http-port",
        "policy": "is a document of its own: apiVersion v1, kind Policy",
        "predicates": "belongs to a Policy: apiVersion v1, kind Policy",
        "priorities": "belongs to a Policy: apiVersion v1, kind Policy",
    },
    Profile: {"algorithmsource": "was removed after v1alpha1, use plugins and pluginConfig"},
}


def unknown_field(struct: type, key: str, known: Iterable[str]) -> str:
    """Return the message for an unknown key of a struct, with a suggestion."""
    removed = _REMOVED.get(struct, {}).get(key.lower())
    if removed:
        return f"unknown field: {removed}"
    known = tuple(known)
    same = next((field for field in known if field.lower() == key.lower()), "")
    elsewhere = _ELSEWHERE.get(struct, {}).get(key.lower())
    if elsewhere and not same:
        name, comma, why = elsewhere.partition(",")
        return f"unknown field, did you mean {quoted(name)}{comma}{why}?"
    return f"unknown field{did_you_mean(key, known)}"


T = TypeVar("T", bound=msgspec.Struct)

_MAX_INT32 = 2**31 - 1
_MOST_FAULTS = 100  # more errors have a common cause, and a suggestion for each takes time
_FAULTY = object()  # stands for a value whose error is recorded

_COLLECTIONS: dict[type[inspect.Type], Any] = {
    inspect.ListType: list,
    inspect.VarTupleType: tuple,
    inspect.SetType: set,
    inspect.FrozenSetType: frozenset,
}
_DESCRIPTIONS: dict[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.IntType: "an integer",
    inspect.FloatType: "a number",
    inspect.StrType: "text",
    inspect.BytesType: "base64 text",
    inspect.StructType: "a mapping",
    inspect.DictType: "a mapping",
    **dict.fromkeys(_COLLECTIONS, "a list"),
}


def decode(value: Any, cls: type[T], path: str = "") -> tuple[T | None, list[FieldError]]:
    """Convert a mapping into a struct, as strictly as the struct's types require.

    Null stands for an absent field. Unknown fields are errors. Fields may have any type of JSON, enums,
    literals, bytes (base64), other structs, and classes with a `parse(value)` that raises ValueError with the
    message of the error. `msgspec.Meta` limits the range.

    Returns:
        The struct and the errors. An invalid field has its default in the struct, so that rules across fields
        can still be checked; None if the struct is impossible without the invalid field.

    Raises:
        TypeError: the struct has a field of another type than those above.
    """
    decoder = _Decoder()
    result = decoder.convert(value, _type_of(cls), path)
    return (None if result is _FAULTY else result), decoder.errors


@cache
def _type_of(cls: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(cls)


class _Decoder:
    """One traversal of a value; collects the errors."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []

    def convert(self, value: Any, kind: inspect.Type, path: str) -> Any:  # noqa: PLR0911 - one return per type
        match kind:
            case inspect.Metadata():
                return self.convert(value, kind.type, path)
            case inspect.AnyType():
                return value
            case inspect.StructType():
                return self._struct(value, kind, path)
            case inspect.UnionType():
                return self._union(value, kind, path)
            case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
                return self._list(value, kind, path)
            case inspect.DictType():
                return self._mapping(value, kind, path)
        try:
            return _leaf(value, kind)
        except ValueError as error:
            return self._fault(path, str(error))

    def _fault(self, path: str, problem: str) -> object:
        if len(self.errors) < _MOST_FAULTS:
            self.errors.append(FieldError(path, problem))
        return _FAULTY

    def _struct(self, value: Any, kind: inspect.StructType, path: str) -> Any:
        if isinstance(value, kind.cls):
            return value
        if not isinstance(value, dict):
            self._fault(path, f"must be a mapping, {was(value)}")
            return _without(kind, {})
        faults_before = len(self.errors)
        found = self._fields(value, kind, path)
        if len(self.errors) > faults_before:
            return _without(kind, found)
        try:
            return kind.cls(**found)
        except (ValueError, TypeError) as error:  # raised by a __post_init__
            return self._fault(path, str(error))

    def _fields(self, value: dict[str, Any], kind: inspect.StructType, path: str) -> dict[str, Any]:
        fields = {field.encode_name: field for field in kind.fields}
        for key in value:
            if key not in fields and len(self.errors) < _MOST_FAULTS:
                self._fault(child(path, key), unknown_field(kind.cls, key, fields))
        found: dict[str, Any] = {}
        for key, field in fields.items():
            if value.get(key) is not None:
                result = self.convert(value[key], field.type, child(path, key))
                if result is not _FAULTY:
                    found[field.name] = result
            elif field.required:
                self._fault(child(path, key), "is missing")
        return found

    def _union(self, value: Any, kind: inspect.UnionType, path: str) -> Any:
        members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
        if value is None and len(members) < len(kind.types):
            return None
        if len(members) == 1:
            return self.convert(value, members[0], path)
        for member in members:
            attempt = _Decoder()
            result = attempt.convert(value, member, path)
            if not attempt.errors:
                return result
        choices = " or ".join(_described(member) for member in members)
        return self._fault(path, f"must be {choices}, {was(value)}")

    def _list(self, value: Any, kind: Any, path: str) -> Any:
        if not isinstance(value, list | tuple):
            return self._fault(path, f"must be a list, {was(value)}")
        if kind.min_length is not None and len(value) < kind.min_length:
            return self._fault(path, f"must have at least {kind.min_length} entries, has {len(value)}")
        if kind.max_length is not None and len(value) > kind.max_length:
            return self._fault(path, f"must have at most {kind.max_length} entries, has {len(value)}")
        items = (self.convert(item, kind.item_type, entry(path, i)) for i, item in enumerate(value))
        make = _COLLECTIONS[type(kind)]
        return make(item for item in items if item is not _FAULTY)

    def _mapping(self, value: Any, kind: inspect.DictType, path: str) -> Any:
        if not isinstance(value, dict):
            return self._fault(path, f"must be a mapping, {was(value)}")
        result = {}
        for key, item in value.items():
            found_key = self.convert(key, kind.key_type, child(path, key))
            found_item = self.convert(item, kind.value_type, child(path, key))
            if found_key is not _FAULTY and found_item is not _FAULTY:
                result[found_key] = found_item
        return result


def _without(kind: inspect.StructType, found: dict[str, Any]) -> Any:
    """Return the struct with defaults in place of invalid fields, if that is possible."""
    missing = any(field.required and field.name not in found for field in kind.fields)
    if missing or hasattr(kind.cls, "__post_init__"):
        return _FAULTY
    return kind.cls(**found)


def _leaf(value: Any, kind: inspect.Type) -> Any:  # noqa: PLR0911 - one return per type
    """Convert a value without nested values.

    Raises:
        ValueError: the value has another type, or is out of range; the message describes the error.
        TypeError: configuration structs cannot have this type.
    """
    match kind:
        case inspect.BoolType() if isinstance(value, bool):
            return value
        case inspect.IntType() if _is_whole(value):
            _check_range(value, kind)
            return int(value)
        case inspect.FloatType() if isinstance(value, int | float) and not isinstance(value, bool):
            _check_range(value, kind)
            return float(value)
        case inspect.StrType() if isinstance(value, str):
            _check_text(value, kind)
            return value
        case inspect.BytesType() if isinstance(value, str):
            return _base64(value)
        case inspect.EnumType():
            return kind.cls(_one_of(value, [member.value for member in kind.cls]))
        case inspect.LiteralType():
            return _one_of(value, kind.values)
        case inspect.DataclassType() | inspect.CustomType() if hasattr(kind.cls, "parse"):
            return kind.cls.parse(value)
    raise ValueError(f"must be {_described(kind)}, {was(value)}")


def _is_whole(value: Any) -> bool:
    """Return whether a value is an integer, also in the form 5.0; booleans are not, unlike in Python."""
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and value.is_integer()
    )


def _described(kind: inspect.Type) -> str:
    match kind:
        case inspect.EnumType():
            return _choices(member.value for member in kind.cls)
        case inspect.LiteralType():
            return _choices(kind.values)
        case inspect.DataclassType() | inspect.CustomType() if hasattr(kind.cls, "parse"):
            return f"a {kind.cls.__name__.lower()}"
    if type(kind) not in _DESCRIPTIONS:
        raise TypeError(f"fields of {kind} cannot be read from a configuration")
    return _DESCRIPTIONS[type(kind)]


def _choices(values: Iterable[Any]) -> str:
    return "one of " + ", ".join(quoted(value) if isinstance(value, str) else str(value) for value in values)


def _one_of(value: Any, allowed: Iterable[Any]) -> Any:
    allowed = list(allowed)
    # True == 1 in Python, but not in a configuration.
    if any(type(value) is type(choice) and value == choice for choice in allowed):
        return value
    hint = did_you_mean(value, [c for c in allowed if isinstance(c, str)]) if isinstance(value, str) else ""
    raise ValueError(f"must be {_choices(allowed)}, {was(value)}{hint}")


def _check_range(value: float, kind: inspect.IntType | inspect.FloatType) -> None:
    low_open = kind.gt is not None and not value > kind.gt
    low_closed = kind.ge is not None and not value >= kind.ge
    high_open = kind.lt is not None and not value < kind.lt
    high_closed = kind.le is not None and not value <= kind.le
    if not (low_open or low_closed or high_open or high_closed):
        return
    # A limit of 32 or 64 bits does not help a user who wrote a negative number.
    if kind.ge is not None and kind.le is not None and kind.le < _MAX_INT32:
        wanted = f"{kind.ge} to {kind.le}"
    elif low_open:
        wanted = f"greater than {kind.gt}"
    elif low_closed:
        wanted = f"at least {kind.ge}"
    elif high_open:
        wanted = f"less than {kind.lt}"
    else:
        wanted = f"at most {kind.le}"
    raise ValueError(f"must be {wanted}, was {value}")


def _check_text(value: str, kind: inspect.StrType) -> None:
    if kind.min_length is not None and len(value) < kind.min_length:
        if not value:
            raise ValueError("must not be empty")
        raise ValueError(f"must have at least {kind.min_length} characters, {was(value)}")
    if kind.max_length is not None and len(value) > kind.max_length:
        raise ValueError(f"must have at most {kind.max_length} characters, {was(value)}")
    if kind.pattern is not None and not re.search(kind.pattern, value):
        raise ValueError(f"must match {kind.pattern}, {was(value)}")


def _base64(value: str) -> bytes:
    try:
        return base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError):
        # The value may be a key, so the message does not contain it.
        raise ValueError("must be base64 text") from None
