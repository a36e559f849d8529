r"""Structural schemas: pruning, defaulting and validation of custom resources.

CEL rules (`x-kubernetes-validations`) are kept in the definition, but not evaluated.

Two differences occur in schemas: `\z` is the end of the text, and flags may be set in the middle, as in `^(?i)(on|off)$`;
they apply to the rest of their group.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/schema (pruning, defaulting)
    and pkg/apiserver/validation.
    Go's regexp/syntax package, documented syntax.
    kube-apiserver v1.36, staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/validation/validation.go, and
    k8s.io/kube-openapi/pkg/validation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from scheduler.tools.simulator.apimachinery.causes import Cause, invalid_value, required
from scheduler.tools.simulator.apimachinery.objects import clone, json_text

if TYPE_CHECKING:
    from collections.abc import Iterator

Schema = Mapping[str, Any]

_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_TYPE_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})


def prune(value: Any, schema: Schema, *, is_resource: bool = False, path: str = "") -> list[str]:
    """Remove fields that a schema does not have; return their paths.

    Args:
        value: the value; it is changed.
        schema: its schema.
        is_resource: whether apiVersion, kind and metadata are known although the schema does not have them.
        path: path of the value, for the result.
    """
    gone: list[str] = []
    if isinstance(value, dict):
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        is_resource = is_resource or bool(schema.get(_EMBEDDED))
        for key in list(value):
            where = f"{path}.{key}" if path else key
            if is_resource and key in _TYPE_FIELDS:
                continue
            if key in properties:
                gone += prune(value[key], properties[key], path=where)
            elif isinstance(additional, dict):
                gone += prune(value[key], additional, path=where)
            elif not schema.get(_PRESERVE) and additional is not True:
                del value[key]
                gone.append(where)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            gone += prune(item, schema["items"], path=f"{path}[{index}]")
    return gone


def fill_in(value: Any, schema: Schema) -> None:
    """Set missing fields that have a default; a null that is not allowed is replaced too."""
    if isinstance(value, dict):
        properties: Mapping[str, Schema] = schema.get("properties") or {}
        for key, inner in properties.items():
            if (
                value.get(key) is None
                and "default" in inner
                and (key not in value or not inner.get("nullable"))
            ):
                value[key] = clone(inner["default"])
        additional = schema.get("additionalProperties")
        for key, item in value.items():
            if key in properties:
                fill_in(item, properties[key])
            elif isinstance(additional, dict):
                fill_in(item, additional)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            fill_in(item, schema["items"])


_TOKEN: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?(?P<flags>[ims]+)\)|\(|\)|.", re.DOTALL)


@lru_cache(maxsize=1024)
def go_pattern(text: str) -> re.Pattern[str]:
    """Compile a Go expression.

    Raises:
        re.error: it is not an expression, or uses a feature that only Go has.
    """
    return re.compile(_for_python(text))


def _for_python(text: str) -> str:
    parts: list[str] = []
    open_flags = [0]  # for each open group, outermost first: number of flags set in it
    for token in _TOKEN.finditer(text):
        part = token[0]
        if token["flags"]:
            part = f"(?{token['flags']}:"
            open_flags[-1] += 1
        elif part == r"\z":
            part = r"\Z"
        elif part == "(":
            open_flags.append(0)
        elif part == ")" and len(open_flags) > 1:
            part = ")" * (1 + open_flags.pop())
        parts.append(part)
    return "".join(parts) + ")" * sum(open_flags)


_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_INT_BOUNDS: Final = {"int32": 1 << 31, "int64": 1 << 63}


def violations(value: Any, schema: Schema, path: str = "") -> Iterator[Cause]:
    """Yield the errors of a value.

    Args:
        value: a JSON value.
        schema: its schema.
        path: its field, for example `spec.minMember`; "" for the whole object.
    """
    if value is None and schema.get("nullable"):
        return
    problem = _type_problem(value, schema)
    if problem:
        yield _wrong_type(value, problem, path)
        return
    if schema.get("enum") and value not in schema["enum"]:
        listed = ", ".join(json_text(one) for one in schema["enum"])
        message = f"Unsupported value: {json_text(value)}: supported values: {listed}"
        yield Cause("FieldValueNotSupported", path, message)
    if isinstance(value, dict):
        yield from _of_map(value, schema, path)
    elif isinstance(value, list):
        yield from _of_list(value, schema, path)
    elif isinstance(value, str):
        yield from _of_text(value, schema, path)
    elif not isinstance(value, bool) and value is not None:
        yield from _of_number(value, schema, path)
    yield from _of_alternatives(value, schema, path)


def _type_problem(value: Any, schema: Schema) -> str:
    """Return the type that a value should have; "" if it has it."""
    if schema.get(_INT_OR_STRING):
        whole = isinstance(value, int) and not isinstance(value, bool)
        return "" if whole or isinstance(value, str) else "integer,string"
    wanted = schema.get("type")
    if not wanted:
        return ""
    found = _type_of(value)
    if found == wanted or (wanted == "number" and found == "integer"):
        return ""
    if wanted == "integer" and isinstance(value, float) and value.is_integer():
        return ""
    return str(wanted)


def _type_of(value: Any) -> str:
    kinds: tuple[tuple[type, str], ...] = (
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
        (dict, "object"),
    )
    return next((name for type_, name in kinds if isinstance(value, type_)), "null")


def _wrong_type(value: Any, wanted: str, path: str) -> Cause:
    found = _type_of(value)
    message = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
    return Cause("FieldValueTypeInvalid", path, message)


def _of_map(value: dict[str, Any], schema: Schema, path: str) -> Iterator[Cause]:
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    for name in schema.get("required") or ():
        if name not in value:
            yield required(_inside(path, name))
    for name, item in value.items():
        inner = properties.get(name, additional)
        if isinstance(inner, dict):
            yield from violations(item, inner, _inside(path, name))
    count = len(value)
    if count < schema.get("minProperties", 0):
        yield _bad(count, path, f"should have at least {schema['minProperties']} properties")
    if count > schema.get("maxProperties", count):
        yield _too_many(count, schema["maxProperties"], path)


def _of_list(value: list[Any], schema: Schema, path: str) -> Iterator[Cause]:
    if isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from violations(item, schema["items"], f"{path}[{index}]")
    count = len(value)
    if count < schema.get("minItems", 0):
        yield _bad(count, path, f"should have at least {schema['minItems']} items")
    if count > schema.get("maxItems", count):
        yield _too_many(count, schema["maxItems"], path)
    yield from _repeated(value, schema, path)


def _repeated(value: list[Any], schema: Schema, path: str) -> Iterator[Cause]:
    """Yield the duplicate items of a set, or of a list that is a map by keys."""
    list_type = schema.get("x-kubernetes-list-type")
    if list_type == "map":
        names = schema.get("x-kubernetes-list-map-keys") or ()
        maps = [item if isinstance(item, dict) else {} for item in value]
        # A missing key has its default or no value; either way it is equal to itself.
        value = [{name: item[name] for name in names if name in item} for item in maps]
    elif list_type != "set":
        return
    for index, key in enumerate(value):
        if key in value[:index]:
            yield Cause("FieldValueDuplicate", f"{path}[{index}]", f"Duplicate value: {json_text(key)}")


def _of_text(value: str, schema: Schema, path: str) -> Iterator[Cause]:
    if len(value) < schema.get("minLength", 0):
        yield _bad(value, path, f"should be at least {schema['minLength']} chars long")
    if len(value) > schema.get("maxLength", len(value)):
        message = f"Too long: may not be more than {schema['maxLength']} bytes"
        yield Cause("FieldValueTooLong", path, message)
    pattern = schema.get("pattern")
    if pattern and not go_pattern(pattern).search(value):
        yield _bad(value, path, f"should match '{pattern}'")
    if schema.get("format") == "date-time":
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            yield _bad(value, path, f"must be of type date-time: {json_text(value)}")


def _of_number(value: float, schema: Schema, path: str) -> Iterator[Cause]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and schema.get("exclusiveMinimum") and value <= least:
        yield _bad(value, path, f"should be greater than {_number(least)}")
    elif least is not None and value < least:
        yield _bad(value, path, f"should be greater than or equal to {_number(least)}")
    if most is not None and schema.get("exclusiveMaximum") and value >= most:
        yield _bad(value, path, f"should be less than {_number(most)}")
    elif most is not None and value > most:
        yield _bad(value, path, f"should be less than or equal to {_number(most)}")
    multiple = schema.get("multipleOf")
    if multiple and value % multiple:
        yield _bad(value, path, f"should be a multiple of {_number(multiple)}")
    bound = _INT_BOUNDS.get(schema.get("format", ""))
    if bound and schema.get("type") == "integer" and not -bound <= value < bound:
        yield _bad(value, path, f"should be a {schema['format']}")


def _of_alternatives(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    """Yield the errors from allOf, anyOf, oneOf and not."""
    for inner in schema.get("allOf") or ():
        yield from violations(value, inner, path)
    shown = json_text(path)
    if schema.get("anyOf") and not any(_fits(value, inner) for inner in schema["anyOf"]):
        yield invalid_value(path, json_text(value), f"{shown} must validate at least one schema (anyOf)")
    if schema.get("oneOf"):
        count = sum(_fits(value, inner) for inner in schema["oneOf"])
        if count != 1:
            found = "Found none valid" if not count else f"Found {count} valid alternatives"
            yield invalid_value(
                path, json_text(value), f"{shown} must validate one and only one schema (oneOf). {found}"
            )
    if schema.get("not") and _fits(value, schema["not"]):
        yield invalid_value(path, json_text(value), f"{shown} must not validate the schema (not)")


def _fits(value: Any, schema: Schema) -> bool:
    return next(violations(value, schema), None) is None


def is_pattern(text: str) -> bool:
    """Return whether a text is a supported regular expression."""
    try:
        go_pattern(text)
    except re.error:
        return False
    return True


def _bad(value: Any, path: str, problem: str) -> Cause:
    return invalid_value(path, json_text(value), f"{path} in body {problem}")


def _too_many(count: int, most: int, path: str) -> Cause:
    return Cause("FieldValueTooMany", path, f"Too many: {count}: must have at most {most} items")


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)
