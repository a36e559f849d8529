"""The types of Kubernetes' API: which fields they have, and how Go writes and merges these.

One table, `api_types.json`, says it: apiVersion -> type -> its fields, apart by ", ", each a line of words:

    6 ports []ContainerPort patch=containerPort apply=containerPort+protocol

- The number in protobuf.
- The name in JSON; `.` where Go embeds a type, whose fields then stand in the parent's object.
- The type, `[]` before it for a list, `{}` for a map from text. One that begins with a capital letter is in this
  table: of the same apiVersion, else of meta.k8s.io/v1, else of v1. The others: text, bytes, int, float, bool, time,
  microtime, quantity, intstr, texts (a list that is a message of its own), raw (any JSON) and any (raw in JSON, in
  protobuf not known here). Behind it `?` for a pointer, which may be absent where others are zero, and `!` for what
  Go writes in JSON at zero too.
- `patch=`: strategic merge goes item by item, by this key; with none by the items themselves.
- `apply=`: the same of server-side apply, whose keys may be several. `whole`: it owns a map as a whole; at the
  beginning of a type, before `;`, wherever that stands.

Source:
    Kubernetes v1.36, staging/src/k8s.io/api, apimachinery/pkg/apis/meta/v1 and apiextensions-apiserver: the tags
    `json` and `protobuf` of the fields, and their comments `+listType`, `+mapType` and `+structType`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

META: Final = "meta.k8s.io/v1"
_ELSEWHERE: Final = (META, "v1")
_TABLE: Final = Path(__file__).with_suffix(".json")


class ApiField(NamedTuple):
    """One field of a type.

    Attributes:
        number: in protobuf.
        name: in JSON; "" where the fields of its type stand in the parent's object.
        container: "[]" for a list, "{}" for a map, "" for neither.
        scalar: as in `text`; "" for what has a type of its own.
        type_name: of that type; "" for a scalar.
        optional: whether it may be absent where others are zero.
        zero_stays: whether JSON has it also where it is zero.
        patch_key: what strategic merge knows the items of a list by; "" for themselves, None where it replaces the list.
        apply_keys: the same of server-side apply; () for themselves, None where a list is owned as a whole.
        whole: whether server-side apply owns a map as a whole.
    """

    number: int
    name: str
    container: str
    scalar: str
    type_name: str
    optional: bool
    zero_stays: bool
    patch_key: str | None
    apply_keys: tuple[str, ...] | None
    whole: bool


class ApiType(NamedTuple):
    """One type.

    Attributes:
        api_version: where it is defined.
        name: as in `PodSpec`.
        whole: whether server-side apply owns it as a whole, wherever it stands.
        fields: in order of their numbers.
    """

    api_version: str
    name: str
    whole: bool
    fields: tuple[ApiField, ...]

    def type_of(self, field: ApiField) -> ApiType:
        """Return the type of a field, or of its items, that is no scalar."""
        return api_type(self.api_version, field.type_name)


@cache
def api_type(api_version: str, name: str) -> ApiType:
    """Find a type by its name, as types and objects of an apiVersion use it.

    Raises:
        LookupError: there is none.
    """
    for place in (api_version, *_ELSEWHERE):
        text = _table().get(place, {}).get(name)
        if text is not None:
            whole, _, fields = text.rpartition(";")
            return ApiType(
                place, name, bool(whole), tuple(_field(one.split()) for one in fields.split(",") if one)
            )
    raise LookupError(f"no type {name} of {api_version}")


@cache
def _table() -> Mapping[str, Mapping[str, str]]:
    return msgspec.json.decode(_TABLE.read_bytes(), type=dict[str, dict[str, str]])


def _field(words: list[str]) -> ApiField:
    number, name, type_, *rest = words
    container = type_[:2] if type_[0] in "[{" else ""
    bare = type_.removeprefix(container).rstrip("?!")
    merges = dict(word.partition("=")[::2] for word in rest)
    return ApiField(
        number=int(number),
        name="" if name == "." else name,
        container=container,
        scalar="" if bare[0].isupper() else bare,
        type_name=bare if bare[0].isupper() else "",
        optional=type_.endswith("?"),
        zero_stays=type_.endswith("!"),
        patch_key=merges.get("patch"),
        apply_keys=tuple(filter(None, merges["apply"].split("+"))) if "apply" in merges else None,
        whole="whole" in merges,
    )
