"""Converts Kubernetes objects to protobuf and back, with exactly the bytes of Go's own marshaller.

Go always writes fields that are not pointers, also when they are zero, and readers with generated code may
rely on it: a WebAssembly guest dereferences them without a check. JSON has most of them only when they are
not zero. The fields and their types are data: `api_types`.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from scheduler.clock import rfc3339, rfc3339_micro
from scheduler.objects.api_types import META, ApiField, ApiType, api_type
from scheduler.objects.quantity import quantity_as_read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Write = Callable[[Any], bytes]
    Read = Callable[[Any], Any]
    Object = dict[str, Any]

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\x00"

_VARINT, _BYTES = 0, 2  # wire types
_LOW_64_BITS = 2**64 - 1
_GO_ZERO_TIME = datetime(1, 1, 1, tzinfo=UTC)


def encode(api_version: str, kind: str, obj: Mapping[str, Any]) -> bytes:
    """Encode an object, or a value of any type of the API, without an envelope.

    Args:
        api_version: apiVersion, as in `apps/v1`.
        kind: kind of the object, or name of its type.
        obj: the object as JSON values; null counts as absent, and fields unknown to v1.36 are left out.

    Raises:
        LookupError: a type is unknown.
        ValueError: a field has another type than in the API; the message has its path.
    """
    return _message(api_type(api_version, kind)).encode(obj)


def encode_list(items: Iterable[bytes], metadata: Mapping[str, Any] | None = None) -> bytes:
    """Encode a list, such as PodList, of encoded objects."""
    head = b"\x0a" + _sized(encode(META, "ListMeta", metadata or {}))
    return head + b"".join([b"\x12" + _sized(item) for item in items])


def decode(api_version: str, kind: str, data: bytes) -> Object:
    """Decode the result of `encode`, which has neither kind nor apiVersion.

    Raises:
        LookupError: a type or a field is unknown.
        ValueError: the data are malformed.
    """
    message = _message(api_type(api_version, kind))
    try:
        return message.decode(data)
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"broken protobuf: {error}") from error


def wrap(api_version: str, kind: str, content: bytes) -> bytes:
    """Put an encoded object into the envelope of request bodies (runtime.Unknown)."""
    type_meta = b"\x0a" + _text(api_version) + b"\x12" + _text(kind)
    return MAGIC + b"\x0a" + _sized(type_meta) + b"\x12" + _sized(content) + b"\x1a\x00\x22\x00"


def unwrap(body: bytes) -> tuple[str, str, bytes]:
    """Take an encoded object out of its envelope.

    Returns:
        Its apiVersion, its kind, and the encoded object.

    Raises:
        ValueError: the envelope is malformed.
    """
    if not body.startswith(MAGIC):
        raise ValueError(
            "the provided data does not appear to be a protobuf message, expected prefix 'k8s\\0'"
        )
    try:
        envelope = dict(_on_wire(body[len(MAGIC) :]))
        type_meta = dict(_on_wire(envelope.get(1, b"")))
        return type_meta.get(1, b"").decode(), type_meta.get(2, b"").decode(), envelope.get(2, b"")
    except (IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"broken protobuf: {error}") from error


class _Content(NamedTuple):
    """The encoding of a value.

    Attributes:
        wire: wire type, varint or bytes.
        write: value -> the bytes after the tag.
        read: number or bytes -> value; JSON omits None.
        zero: the value that Go writes for an unset field.
    """

    wire: int
    write: Write
    read: Read
    zero: Any


class _Field:
    """The encoding of a field.

    Attributes:
        name: name in JSON; "" if the fields of its type are fields of the parent's object.
        absent: encoding of the unset field.
    """

    def __init__(self, field: ApiField, content: _Content) -> None:
        self.name = field.name
        self._content = content
        self._tag = _varint(field.number << 3 | content.wire)
        self._stays = field.optional or field.in_json_at_zero
        nothing = field.container or field.optional or content.zero is None
        self.absent = b"" if nothing else self.write(content.zero)

    def write(self, value: Any) -> bytes:
        """Encode the field with its tag."""
        return self._tag + self._content.write(value)

    def read(self, found: Object, value: Any) -> None:
        """Decode a number or bytes into an object."""
        taken = self._content.read(value)
        if not self.name:
            found.update(taken)
        elif taken or (self._stays and taken is not None):
            found[self.name] = taken


class _ListField(_Field):
    def write(self, value: Any) -> bytes:
        if not isinstance(value, list):
            raise TypeError(f"a list is expected, was {value!r:.100}")
        return b"".join([self._tag + self._content.write(item) for item in value])

    def read(self, found: Object, value: Any) -> None:
        found.setdefault(self.name, []).append(self._content.read(value))


class _MapField(_Field):
    def write(self, value: Any) -> bytes:
        zero, write = self._content.zero, self._content.write
        # Go sorts the keys, so that equal objects are equal bytes.
        return b"".join(
            [
                self._tag + _sized(b"\x0a" + _text(key) + b"\x12" + write(zero if item is None else item))
                for key, item in sorted(value.items())
            ]
        )

    def read(self, found: Object, value: Any) -> None:
        entry = dict(_on_wire(value))
        found.setdefault(self.name, {})[entry[1].decode()] = self._content.read(entry[2])


_FIELDS: Final = {"": _Field, "[]": _ListField, "{}": _MapField}  # by container


class _FieldError(ValueError):
    """A value that cannot be encoded: the path to it, which each level extends, and the problem."""


class _Message:
    """One type; its fields are created on first use, because types refer to each other."""

    def __init__(self, type_: ApiType) -> None:
        self._type = type_

    @cached_property
    def _fields(self) -> Mapping[int, _Field]:
        return {field.number: _FIELDS[field.container](field, _content(field)) for field in self._type.fields}

    def encode(self, obj: Mapping[str, Any]) -> bytes:
        """Encode the fields in the order of their numbers."""
        if not isinstance(obj, dict):
            raise TypeError(f"a mapping is expected, was {obj!r:.100}")
        parts: list[bytes] = []
        for field in self._fields.values():
            name = field.name
            value = obj.get(name) if name else obj
            try:
                parts.append(field.absent if value is None else field.write(value))
            except _FieldError as error:
                raise _FieldError(f"{name}.{error}" if name else str(error)) from error
            except (TypeError, ValueError, AttributeError, OverflowError) as error:
                raise _FieldError(f"{name}: {error}") from error
        return b"".join(parts)

    def decode(self, data: bytes) -> Object:
        """Decode the fields that are present."""
        found: Object = {}
        for number, value in _on_wire(data):
            field = self._fields.get(number)
            if field is None:
                raise LookupError(f"no field {number} of {self._type.name}")
            field.read(found, value)
        return found


@cache
def _message(type_: ApiType) -> _Message:
    return _Message(type_)


def _content(field: ApiField) -> _Content:
    if field.type is None:
        return _SCALARS[field.scalar]
    message = _message(field.type)
    return _Content(_BYTES, lambda obj: _sized(message.encode(obj)), message.decode, {})


def _on_wire(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message: field number, and a number or bytes."""
    place = 0
    while place < len(data):
        tag, place = _read_varint(data, place)
        number, place = _read_varint(data, place)
        if tag & 7 == _VARINT:
            yield tag >> 3, number
        elif tag & 7 == _BYTES and place + number <= len(data):
            yield tag >> 3, data[place : place + number]
            place += number
        else:
            raise TypeError(f"wire type {tag & 7} with {len(data) - place} bytes left")


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    """Read a varint; return it and the position after it."""
    number = shift = 0
    while True:
        byte = data[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if not byte & 0x80:
            return number & _LOW_64_BITS, place


def _varint(number: int) -> bytes:
    if 0 <= number < 0x80:
        return _SMALL[number]
    number &= _LOW_64_BITS  # negative numbers take ten bytes, also for an int32
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_SMALL = [bytes((number,)) for number in range(0x80)]


def _sized(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"text is expected, was {value!r:.100}")
    return _sized(value.encode())


def _integer(value: Any) -> bytes:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"an integer is expected, was {value!r:.100}")
    return _varint(value)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _boolean(value: Any) -> bytes:
    if not isinstance(value, bool):
        raise TypeError(f"true or false is expected, was {value!r:.100}")
    return _SMALL[value]


def _quantity(value: Any) -> bytes:
    return _sized(b"\x0a" + _text(quantity_as_read(value)))


def _time(value: Any, *, micro: bool = False) -> bytes:
    moment = datetime.fromisoformat(value)
    if moment == _GO_ZERO_TIME:
        return b"\x00"
    # Go omits the fraction of a second if JSON has none.
    nanos = _varint(moment.microsecond * 1000 if micro else 0)
    return _sized(b"\x08" + _varint(int(moment.timestamp() // 1)) + b"\x10" + nanos)


def _read_time(value: bytes, *, micro: bool = False) -> str | None:
    parts = dict(_on_wire(value))
    if not parts:
        return None
    moment = datetime.fromtimestamp(_signed(parts.get(1, 0)), UTC)
    return rfc3339_micro(moment.replace(microsecond=parts.get(2, 0) // 1000)) if micro else rfc3339(moment)


def _int_or_string(value: Any) -> bytes:
    if isinstance(value, str):
        return _sized(b"\x08\x01\x10\x00\x1a" + _text(value))
    return _sized(b"\x08\x00\x10" + _integer(value) + b"\x1a\x00")


def _read_int_or_string(value: bytes) -> int | str:
    parts = dict(_on_wire(value))
    return parts.get(3, b"").decode() if parts.get(1) else _signed(parts.get(2, 0))


def _raw(value: Any) -> bytes:
    raw = value if isinstance(value, bytes) else msgspec.json.encode(value)
    return _sized(b"\x0a" + _sized(raw) if raw else b"")


def _read_raw(value: bytes) -> Any:
    """Decode JSON; an object with its own envelope, as in a watch, is returned as bytes."""
    raw = dict(_on_wire(value)).get(1, b"null")
    return raw if raw.startswith(MAGIC) else msgspec.json.decode(raw)


def _texts(values: Any) -> bytes:
    return _sized(b"".join([b"\x0a" + _text(value) for value in values]))


def _not_known(_: Any) -> Any:
    raise LookupError("no value of this type")


_SCALARS: Final[Mapping[str, _Content]] = {
    "text": _Content(_BYTES, _text, bytes.decode, ""),
    "bytes": _Content(
        _BYTES,
        lambda value: _sized(base64.b64decode(value, validate=True)),
        lambda value: base64.b64encode(value).decode(),
        None,
    ),
    "int": _Content(_VARINT, _integer, _signed, 0),
    "bool": _Content(_VARINT, _boolean, bool, False),
    "quantity": _Content(_BYTES, _quantity, lambda value: dict(_on_wire(value)).get(1, b"0").decode(), "0"),
    "time": _Content(_BYTES, _time, _read_time, _GO_ZERO_TIME.isoformat()),
    "microtime": _Content(
        _BYTES, partial(_time, micro=True), partial(_read_time, micro=True), _GO_ZERO_TIME.isoformat()
    ),
    "intstr": _Content(_BYTES, _int_or_string, _read_int_or_string, 0),
    "raw": _Content(_BYTES, _raw, _read_raw, b""),
    "texts": _Content(_BYTES, _texts, lambda value: [text.decode() for _, text in _on_wire(value)], None),
    "float": _Content(_BYTES, _not_known, _not_known, None),
    "any": _Content(_BYTES, _not_known, _not_known, None),
}
