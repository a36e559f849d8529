"""Ownership of lists and maps for server-side apply: item by item, or only as a whole.

Source:
    kube-apiserver v1.36: the list and map types at the fields of staging/src/k8s.io/api, and of custom resources the
    extensions x-kubernetes-list-type and -map-type of their schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scheduler.objects.api_types import META, api_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.objects.api_types import ApiField, ApiType
    from scheduler.simulator.apimachinery.kinds import Kind

AS_SET: Final = ()
"""The keys of a list whose items are owned by their value."""

KEY_DEFAULTS: Final = {"protocol": "TCP"}
"""Default values of keys that an item omits."""


class Shape(NamedTuple):
    """Ownership of one value.

    Attributes:
        is_whole: whether a map is owned as a whole.
        keys: what identifies the items of a list; `AS_SET` for their values, None for a list owned as a whole.
        field: a field's name -> the shape of that field of a map.
        item: gives the shape of the items of a list.
    """

    is_whole: bool
    keys: tuple[str, ...] | None
    field: Callable[[str], Shape]
    item: Callable[[], Shape]


def type_shape(type_: ApiType | None, place: ApiField | None = None) -> Shape:
    """Return the shape of an object or an item of a built-in type, or of the given field of it."""

    def item() -> Shape:
        return type_shape(type_)

    def field(name: str) -> Shape:
        if place is not None and place.container:
            return item()
        found = type_.by_name.get(name) if type_ is not None else None
        return type_shape(found.type if found is not None else None, found)

    is_whole = any(one is not None and one.whole for one in (type_, place))
    return Shape(is_whole, place.apply_keys if place is not None else None, field, item)


def schema_shape(schema: Any, *, is_root: bool = False) -> Shape:
    """Return the shape of a value of a custom resource; a schema that is not a mapping says nothing."""
    said: Mapping[str, Any] = schema if isinstance(schema, dict) else {}

    def field(name: str) -> Shape:
        if is_root and name == "metadata":
            return type_shape(api_type(META, "ObjectMeta"))
        return schema_shape((said.get("properties") or {}).get(name, said.get("additionalProperties")))

    list_type, keys = said.get("x-kubernetes-list-type"), said.get("x-kubernetes-list-map-keys")
    return Shape(
        said.get("x-kubernetes-map-type") == "atomic",
        AS_SET if list_type == "set" else tuple(keys) if list_type == "map" and keys else None,
        field,
        lambda: schema_shape(said.get("items")),
    )


def shape_of(kind: Kind) -> Shape:
    """Return the shape of a kind's objects."""
    return type_shape(kind.type) if kind.type else schema_shape(kind.strategy.schema, is_root=True)
