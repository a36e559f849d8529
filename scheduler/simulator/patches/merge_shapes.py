"""Which lists and maps are owned item by item, and which only as a whole: what server-side apply must know.

Source:
    kube-apiserver v1.36: the list and map types at the fields of staging/src/k8s.io/api (listType, listMapKey,
    mapType), and of custom resources the extensions x-kubernetes-list-type and -map-type of their schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from scheduler.simulator.apimachinery.objects import names
from scheduler.simulator.apimachinery.structure import field_model
from scheduler.simulator.patches.strategic_merge import MERGED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.simulator.apimachinery.kinds import Kind

AS_SET: Final = ()
"""The keys of a list whose items are owned by their value."""

_SEVERAL_KEYS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("V1Container", "ports"): ("containerPort", "protocol"),
    ("V1EphemeralContainer", "ports"): ("containerPort", "protocol"),
    ("V1ServiceSpec", "ports"): ("port", "protocol"),
    ("V1PodSpec", "topologySpreadConstraints"): ("topologyKey", "whenUnsatisfiable"),
}
_WHOLE_LISTS: Final = frozenset({("V1PodStatus", "hostIPs"), ("V1NodeStatus", "addresses")})
_WHOLE_MODELS: Final = names(
    "V1ConfigMapKeySelector V1LabelSelector V1LocalObjectReference V1NodeSelector V1NodeSelectorTerm "
    "V1ObjectFieldSelector V1ObjectReference V1ResourceFieldSelector V1ScopeSelector "
    "V1SecretKeySelector V1SecretReference V1TypedLocalObjectReference"
)
_WHOLE_MAPS: Final = frozenset({("V1PodSpec", "nodeSelector"), ("V1ServiceSpec", "selector")})

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


class ModelShape:
    """The shape of a built-in type, by kubernetes_asyncio's name of it."""

    def __init__(self, model: str, place: tuple[str, str] = ("", "")) -> None:
        self._model = model
        self._place = place  # model, field it is in

    @property
    def is_whole(self) -> bool:
        return self._model in _WHOLE_MODELS or self._place in _WHOLE_MAPS

    @property
    def keys(self) -> tuple[str, ...] | None:
        several = _SEVERAL_KEYS.get(self._place)
        if several is not None:
            return several
        model, field = self._place
        key = MERGED.get(model, {}).get(field)
        if key is None or self._place in _WHOLE_LISTS:
            return None
        return (key,) if key else AS_SET

    def field(self, name: str) -> Shape:
        return ModelShape(field_model(self._model, name), (self._model, name))

    @property
    def item(self) -> Shape:
        return ModelShape(self._model)


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
            return ModelShape("V1ObjectMeta")
        inner = (self._schema.get("properties") or {}).get(name, self._schema.get("additionalProperties"))
        return SchemaShape(inner if isinstance(inner, dict) else {})

    @property
    def item(self) -> Shape:
        items = self._schema.get("items")
        return SchemaShape(items if isinstance(items, dict) else {})


def shape_of(kind: Kind) -> Shape:
    """Return the shape of a kind's objects."""
    return ModelShape(kind.model) if kind.model else SchemaShape(kind.strategy.schema, is_root=True)
