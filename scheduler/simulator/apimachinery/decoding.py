"""Decodes a request's body to an object of a kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from scheduler.objects.api_types import META, api_type
from scheduler.simulator.apimachinery.objects import clone
from scheduler.simulator.apimachinery.status import bad_request, cannot_decode
from scheduler.simulator.apimachinery.structure import Reading, StructureError, read_inside, read_structure

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.kinds import Kind
    from scheduler.simulator.apimachinery.objects import Object


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
    told = [f'unknown field "{path}"' for path in unknown]
    if options.field_validation == "Strict":
        raise cannot_decode(kind, f"strict decoding error: {', '.join(told)}")
    if options.field_validation == "Warn":
        options.warnings.extend(told)
