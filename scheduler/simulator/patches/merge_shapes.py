"""Which lists and maps are owned item by item, and which only as a whole: what server-side apply must know.

Source:
    kube-apiserver v1.36: the list and map types at the fields of staging/src/k8s.io/api, and of custom resources the
    extensions x-kubernetes-list-type and -map-type of their schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from scheduler.objects.api_types import META, api_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.objects.api_types import ApiField, ApiType
    from scheduler.simulator.apimachinery.kinds import Kind

AS_SET: Final = ()
"""The keys of a list whose items are owned by their value."""

KEY_DEFAULTS: Final = {"protocol": "TCP"}
"""What a key stands for where an item leaves it out."""


class Shape(Protocol):
    """How one value is owned."""

    @property
    def is_whole(self) -> bool:
        """Whether a map is owned as a whole."""
        ...

    @property
    def keys(self) -> tuple[str, ...] | None:
        """What identifies the items of a list; `AS_SET` for their values, None for a list owned as a whole."""
        ...

    def field(self, name: str) -> Shape:
        """Return the shape of a field of a map."""
        ...

    @property
    def item(self) -> Shape:
        """The shape of the items of a list."""
        ...


class TypeShape:
    """The shape of a field of a built-in type, or of an object or an item of that type.

    Attributes:
        keys: as in `Shape`.
    """

    def __init__(self, type_: ApiType | None, field: ApiField | None = None) -> None:
        self._type = type_
        self._field = field
        self.keys = field.apply_keys if field is not None else None

    @property
    def is_whole(self) -> bool:
        return any(one is not None and one.whole for one in (self._type, self._field))

    def field(self, name: str) -> Shape:
        if self._field is not None and self._field.container:
            return self.item
        found = self._type.by_name.get(name) if self._type is not None else None
        return TypeShape(found.type if found is not None else None, found)

    @property
    def item(self) -> Shape:
        return TypeShape(self._type)


class SchemaShape:
    """The shape of a value of a custom resource."""

    def __init__(self, schema: Mapping[str, Any], *, is_root: bool = False) -> None:
        self._schema = schema
        self._is_root = is_root

    @property
    def is_whole(self) -> bool:
        return self._schema.get("x-kubernetes-map-type") == "atomic"

    @property
    def keys(self) -> tuple[str, ...] | None:
        type_ = self._schema.get("x-kubernetes-list-type")
        if type_ == "set":
            return AS_SET
        keys: Sequence[str] = self._schema.get("x-kubernetes-list-map-keys") or ()
        return tuple(keys) if type_ == "map" and keys else None

    def field(self, name: str) -> Shape:
        if self._is_root and name == "metadata":
            return TypeShape(api_type(META, "ObjectMeta"))
        inner = (self._schema.get("properties") or {}).get(name, self._schema.get("additionalProperties"))
        return SchemaShape(inner if isinstance(inner, dict) else {})

    @property
    def item(self) -> Shape:
        items = self._schema.get("items")
        return SchemaShape(items if isinstance(items, dict) else {})


def shape_of(kind: Kind) -> Shape:
    """Return the shape of a kind's objects."""
    return TypeShape(kind.type) if kind.type else SchemaShape(kind.strategy.schema, is_root=True)
