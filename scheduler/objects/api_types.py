"""The types of the Kubernetes API: their fields, and how Go encodes and merges them.

The table `api_types.json` has them: apiVersion -> type -> its fields, separated by ", ", each a line of
words:

    6 ports []ContainerPort patch=containerPort apply=containerPort+protocol

- The number in protobuf.
- The name in JSON; `.` if Go embeds a type, whose fields are then fields of the parent's object.
- The type, after `[]` for a list, or `{}` for a map with string keys. A name that begins with a capital
  letter is in this
  table: of the same apiVersion, else of meta.k8s.io/v1, else of v1. The others: text, bytes, int, float,
  bool, time, microtime, quantity, intstr, texts (a list that is a message of its own), raw (any JSON) and any
  (raw in JSON, in protobuf not known here). A `?` after it marks a pointer, which protobuf omits where others
  are zero, and `!` a field that Go writes in JSON also when it is zero.
- `patch=`: a strategic merge merges items by this key; without a key, by the items themselves.
- `apply=`: the same for server-side apply, with one or several keys. `whole`: a map has one owner as a whole.

Before all fields, up to a `;`, the line may have `whole` for a type with one owner as a whole, and `typed`
for a type with kind and apiVersion in JSON.

Source:
    Kubernetes v1.36, staging/src/k8s.io/api, apimachinery/pkg/apis/meta/v1 and apiextensions-apiserver: the tags
    `json` and `protobuf` of the fields, and their comments `+listType`, `+mapType` and `+structType`.
    Kubernetes v1.35, staging/src/k8s.io/api/scheduling/v1alpha1/types.go and core/v1/types.go, WorkloadReference.
    Kubernetes v1.37 (01d0b727), staging/src/k8s.io/api/scheduling/v1beta1/generated.proto, and core/v1/generated.proto,
    NodePodPreemptionPolicy; composite groups by scheduling/v1alpha3/types.go, where the numbers of their `disruptionMode`
    and `preemptionPolicy` are assumed; KEP-5945 and KEP-5963 for skipNodeOperations and compatibilityGroups.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

META: Final = "meta.k8s.io/v1"
_ZEROS: Final = {"text": "", "int": 0, "float": 0.0, "bool": False, "quantity": "0", "intstr": 0}
_TABLE: Final = Path(__file__).with_suffix(".json")


class ApiField(NamedTuple):
    """One field of a type.

    Attributes:
        number: number in protobuf.
        name: name in JSON; "" if the fields of its type are fields of the parent's object.
        container: "[]" for a list, "{}" for a map, "" for neither.
        scalar: name of a scalar type, as in `text`; "" for a type of the table.
        type_name: apiVersion and name of a type of the table; None for a scalar.
        optional: whether protobuf omits it where others are zero.
        in_json_at_zero: whether JSON has it also when it is zero, as null if it is a list, a map, a pointer
            or a time.
        patch_key: key of list items in a strategic merge; "" for the items themselves, None if it replaces
            the list.
        apply_keys: keys of list items in server-side apply; () for the items themselves, None if a list has
            one owner.
        whole: whether a map has one owner in server-side apply.
    """

    number: int
    name: str
    container: str
    scalar: str
    type_name: tuple[str, str] | None
    optional: bool
    in_json_at_zero: bool
    patch_key: str | None
    apply_keys: tuple[str, ...] | None
    whole: bool

    @property
    def type(self) -> ApiType | None:
        """The type of the field, or of the items of a list or map; None for a scalar."""
        return None if self.type_name is None else api_type(*self.type_name)

    @property
    def zero(self) -> Any:
        """The value that Go writes in JSON for an unset field, if it writes one."""
        if self.container or self.optional:
            return None
        return _ZEROS.get(self.scalar) if self.type is None else self.type.zero


@dataclass(frozen=True, eq=False)
class ApiType:
    """One type.

    Attributes:
        name: name, as in `PodSpec`.
        has_type_meta: whether JSON has its kind and apiVersion, which are not in `fields`.
        whole: whether it has one owner in server-side apply.
        fields: the fields, by number.
    """

    name: str
    has_type_meta: bool
    whole: bool
    fields: tuple[ApiField, ...]

    @cached_property
    def by_name(self) -> Mapping[str, ApiField]:
        """All fields in JSON, including kind and apiVersion, and those of embedded types."""
        type_meta = ("kind", "apiVersion") if self.has_type_meta else ()
        found = {name: _field(META, ["0", name, "text"]) for name in type_meta}
        for field in self.fields:
            found |= {field.name: field} if field.name or field.type is None else field.type.by_name
        return found

    @cached_property
    def zero(self) -> Mapping[str, Any]:
        """The JSON that Go writes for an empty value; do not change it."""
        return {name: field.zero for name, field in self.by_name.items() if field.in_json_at_zero}


@cache
def api_type(api_version: str, name: str) -> ApiType:
    """Return a type of an apiVersion, or one of the common types, such as DeleteOptions.

    Raises:
        LookupError: the type does not exist.
    """
    for place in (api_version, META):
        text = _table().get(place, {}).get(name)
        if text is not None:
            head, _, fields = text.rpartition(";")
            known = tuple(_field(place, field.split()) for field in fields.split(",") if field)
            return ApiType(name, "typed" in head, "whole" in head, known)
    raise LookupError(f"no type {name} of {api_version}")


@cache
def _table() -> Mapping[str, Mapping[str, str]]:
    return msgspec.json.decode(_TABLE.read_bytes(), type=dict[str, dict[str, str]])


def _field(api_version: str, words: list[str]) -> ApiField:
    number, name, type_, *rest = words
    container = type_[:2] if type_[0] in "[{" else ""
    bare = type_.removeprefix(container).rstrip("?!")
    merges = dict(word.partition("=")[::2] for word in rest)
    place = next((place for place in (api_version, META) if bare in _table()[place]), "v1")
    scalar = bare if bare[0].islower() else ""
    return ApiField(
        number=int(number),
        name="" if name == "." else name,
        container=container,
        scalar=scalar,
        type_name=None if scalar else (place, bare),
        optional="?" in type_,
        in_json_at_zero="!" in type_,
        patch_key=merges.get("patch"),
        apply_keys=tuple(filter(None, merges["apply"].split("+"))) if "apply" in merges else None,
        whole="whole" in merges,
    )
