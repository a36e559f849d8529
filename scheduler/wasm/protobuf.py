"""Kubernetes objects as protobuf, byte for byte as Go's own marshaller writes them.

A guest decodes with generated code that hands out pointers, and guests dereference them without a look: so what Go
always writes is written here too, also where it is zero. Which fields those are is data, `core_v1_fields.json`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from scheduler.objects.canonical_quantity import quantity_as_read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Write = Callable[[Any], bytes]

_PACKAGE = ".k8s.io.api.core.v1."
_FIELDS = Path(__file__).with_name("core_v1_fields.json")
_VARINT, _BYTES = 0, 2  # wire types
_LOW_64_BITS = 2**64 - 1
_GO_ZERO_TIME = datetime(1, 1, 1, tzinfo=UTC)
_EMPTY_LIST_META = bytes.fromhex("0a060a0012001a00")


def encode(kind: str, obj: Mapping[str, Any]) -> bytes:
    """Write an object of core/v1 as protobuf, without the `k8s` envelope.

    Args:
        kind: "Pod" or "Node", or another message of core/v1 that these two hold.
        obj: as JSON has it; null is as good as absent, and what v1.36 does not know is left out.

    Raises:
        LookupError: no such message.
        ValueError: a field is of another type than the API has; the message names its path.
    """
    return _message(_PACKAGE + kind).encode(obj)


def node_list(nodes: Iterable[bytes]) -> bytes:
    """Write a NodeList of encoded Nodes."""
    return _EMPTY_LIST_META + b"".join(_delimited(_tag(2, _BYTES), node) for node in nodes)


class _Field(NamedTuple):
    """One field of a message.

    Attributes:
        name: in JSON; "" where the fields of the message stand in the parent's object.
        write: a value -> the whole field.
        absent: what is written where there is no value.
    """

    name: str
    write: Write
    absent: bytes


class _FieldError(ValueError):
    """A value that cannot be written; the path grows on its way out."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}")


class _Message:
    """One message; its fields are looked up when it is first written, since messages hold each other."""

    def __init__(self, name: str) -> None:
        self._rows = _rows()[name]
        self._fields: list[_Field] | None = None

    def encode(self, obj: Mapping[str, Any]) -> bytes:
        """Write the fields in order of their numbers."""
        if self._fields is None:
            self._fields = [_field(*row) for row in self._rows]
        if not isinstance(obj, dict):
            raise TypeError(f"a mapping is expected, was {obj!r:.100}")
        parts: list[bytes] = []
        for name, write, absent in self._fields:
            value = obj.get(name) if name else obj
            if value is None:
                if absent:
                    parts.append(absent)
                continue
            try:
                parts.append(write(value))
            except _FieldError as error:
                path = f"{name}.{error.path}" if name else error.path
                raise _FieldError(path, error.problem) from error
            except (TypeError, ValueError, AttributeError, OverflowError) as error:
                raise _FieldError(name, str(error)) from error
        return b"".join(parts)


@cache
def _rows() -> dict[str, list[Any]]:
    """Message -> its fields, as `[JSON name, number, kind, reference, repeated, inline, always]`."""
    rows: dict[str, list[Any]] = msgspec.json.decode(_FIELDS.read_bytes())
    return rows


@cache
def _message(name: str) -> _Message:
    try:
        return _Message(name)
    except KeyError:
        raise LookupError(f"{name.removeprefix(_PACKAGE)} is no message that a Pod or a Node holds") from None


def _field(
    name: str, number: int, kind: str, reference: str, repeated: bool, inline: bool, always: bool
) -> _Field:
    wire = _VARINT if kind in {"bool", "int"} else _BYTES
    tag = _tag(number, wire)
    if kind == "map":
        return _Field(name, _map_writer(tag, _text if reference == "string" else _quantity), b"")
    content = _message(reference).encode if kind == "msg" else _CONTENTS[kind]
    write = _plain_writer(tag, content) if wire == _VARINT else _delimited_writer(tag, content)
    if repeated:
        return _Field(name, _repeated_writer(write), b"")
    zero = _ZEROS.get(kind, b"") if kind != "msg" else None
    if not always or inline:
        return _Field("" if inline else name, write, b"")
    return _Field(name, write, write({}) if zero is None else tag + zero)


def _plain_writer(tag: bytes, content: Write) -> Write:
    return lambda value: tag + content(value)


def _delimited_writer(tag: bytes, content: Write) -> Write:
    return lambda value: _delimited(tag, content(value))


def _repeated_writer(write: Write) -> Write:
    return lambda values: b"".join([write(value) for value in _a_list(values)])


def _map_writer(tag: bytes, content: Write) -> Write:
    """Go sorts the keys, so that equal objects are equal bytes."""

    def write(values: Mapping[str, Any]) -> bytes:
        return b"".join(
            _delimited(tag, _delimited(b"\x0a", _text(key)) + _delimited(b"\x12", content(value)))
            for key, value in sorted(values.items())
        )

    return write


def _a_list(values: object) -> list[Any]:
    if not isinstance(values, list):
        raise TypeError(f"a list is expected, was {values!r:.100}")
    return values


def _tag(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _varint(number: int) -> bytes:
    if 0 <= number < 0x80:
        return _SMALL[number]
    number &= _LOW_64_BITS  # negative ones take ten bytes, also of an int32
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_SMALL = [bytes((number,)) for number in range(0x80)]


def _delimited(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


def _text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"text is expected, was {value!r:.100}")
    return value.encode()


def _integer(value: Any) -> bytes:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"an integer is expected, was {value!r:.100}")
    return _varint(value)


def _boolean(value: Any) -> bytes:
    if not isinstance(value, bool):
        raise TypeError(f"true or false is expected, was {value!r:.100}")
    return b"\x01" if value else b"\x00"


def _quantity(value: Any) -> bytes:
    return _delimited(b"\x0a", quantity_as_read(value).encode())


def _time(value: Any) -> bytes:
    """Whole seconds: Go leaves the rest out, since JSON has none either."""
    moment = datetime.fromisoformat(_text(value).decode())
    if moment == _GO_ZERO_TIME:
        return b""
    return b"\x08" + _varint(int(moment.timestamp() // 1)) + b"\x10\x00"


def _int_or_string(value: Any) -> bytes:
    if isinstance(value, str):
        return b"\x08\x01\x10\x00" + _delimited(b"\x1a", value.encode())
    return b"\x08\x00\x10" + _integer(value) + b"\x1a\x00"


def _raw(value: Any) -> bytes:
    return _delimited(b"\x0a", msgspec.json.encode(value))


_CONTENTS: Mapping[str, Write] = {
    "string": _text,
    "int": _integer,
    "bool": _boolean,
    "quantity": _quantity,
    "time": _time,
    "intstr": _int_or_string,
    "raw": _raw,
}
_ZEROS: Mapping[str, bytes] = {
    "string": b"\x00",
    "int": b"\x00",
    "bool": b"\x00",
    "time": b"\x00",
    "quantity": _delimited(b"", _quantity("0")),
    "intstr": _delimited(b"", _int_or_string(0)),
}
