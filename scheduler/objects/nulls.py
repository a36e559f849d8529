"""Removes JSON nulls as Go does: a null is an absent field with its zero value."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec import inspect


def without_nulls(found: Any, kind: type[msgspec.Struct]) -> Any:
    """Return untyped JSON without its nulls, in the fields of a type.

    A null field is left out. A null in a list or map becomes a zero value: an empty object, an empty string,
    a quantity of 0.
    """
    return _cleaned(found, _type_info(kind))


_type_info = cache(inspect.type_info)  # takes milliseconds


def _cleaned(found: Any, kind: inspect.Type) -> Any:
    if isinstance(kind, inspect.UnionType):
        # Unions here are quantities, and optional structs.
        kind = next((each for each in kind.types if isinstance(each, inspect.StructType)), kind)
    if isinstance(kind, inspect.StructType) and isinstance(found, dict):
        known = {field.encode_name: field.type for field in kind.fields}
        return {
            name: _cleaned(value, known[name]) if name in known else value
            for name, value in found.items()
            if value is not None
        }
    if isinstance(kind, inspect.DictType) and isinstance(found, dict):
        return {name: _in_its_place(value, kind.value_type) for name, value in found.items()}
    if isinstance(kind, inspect.VarTupleType) and isinstance(found, list):
        return [_in_its_place(value, kind.item_type) for value in found]
    return found


def _in_its_place(value: Any, kind: inspect.Type) -> Any:
    if value is not None:
        return _cleaned(value, kind)
    if isinstance(kind, inspect.StructType):
        return {}
    return "0" if isinstance(kind, inspect.UnionType) else ""
