"""The maximum cost of an expression, computed before its evaluation, since the library cannot be interrupted.

All input of an expression is bounded: the constants in its text, and a device, whose names and values the API server
limits. So the size of each value is bounded too, and with it the work of each call. The unit is about a nanosecond of
the library; a value's size is the cost to read all of it.

Upstream limits costs too, when an expression is created and while it runs:
    kube-scheduler v1.36, staging/src/k8s.io/api/resource/v1/types.go, CELSelectorExpressionMaxCost.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from plugins.dynamic_resources.cel.functions import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MAX_COST: Final = 40_000_000
MAX_LENGTH: Final = 10 * 1024  # bytes; as upstream's CELSelectorExpressionMaxLength
_TOO_EXPENSIVE: Final = "operation cancelled: actual cost limit exceeded: the expression is too expensive"  # in upstream's words, then ours
_MAX_OPERANDS: Final = MAX_LENGTH  # more than any text of this length has, without macros that copy

_NODE: Final = 30
_PLANNED_NODE: Final = 1_000  # once for each evaluation
_CALL: Final = 300
_PYTHON_CALL: Final = 5_000
_ADDRESS_CALL: Final = 10_000
_ELEMENT: Final = 32
_COPIED_ELEMENT: Final = 48
_SCALAR_SIZE: Final = 8
_OPAQUE_SIZE: Final = 200  # a quantity has up to 100 digits
_SEARCHED: Final = 0.02  # cost to search one text in another, for each pair of their characters


class RefusedError(Exception):
    """An expression may exceed the cost limit, or cannot be evaluated safely."""


class Value(NamedTuple):
    """A bound of all values that a part of an expression may have.

    Attributes:
        size: the cost to read all of it.
        entries: the number of entries of a list or map.
        item: a bound of its elements, or of a map's values; None without any.
        key: a bound of a map's keys.
        text: the text of a constant.
        has_optional: whether it may be an optional value, whose `item` is then its content, or contain one.
    """

    size: int
    entries: int = 0
    item: Value | None = None
    key: Value | None = None
    text: str | None = None
    has_optional: bool = False


_SCALAR: Final = Value(_SCALAR_SIZE)
_NAME: Final = Value(72)  # the longest are 63 and 64 characters
_MOST_ENTRIES: Final = 32  # attributes and capacities of a device, as upstream's limit


def _map_of(item: Value, count: int = _MOST_ENTRIES) -> Value:
    return Value(count * (_NAME.size + item.size + _ELEMENT), count, item, _NAME)


_ATTRIBUTES: Final = _map_of(_map_of(_NAME))
_CAPACITY: Final = _map_of(_map_of(Value(_OPAQUE_SIZE)))
_VARIABLES: Final = {
    "device": _map_of(_CAPACITY, 4),
    "device.driver": _NAME,
    "device.allowMultipleAllocations": _SCALAR,
    "device.attributes": _ATTRIBUTES,
    "device.attributes_": _ATTRIBUTES,
    "device.capacity": _CAPACITY,
    "device.capacity_": _CAPACITY,
}


def check_text(expression: str) -> None:
    """Reject a text that may take long to compile.

    Raises:
        RefusedError: it is too long, or its macros copy too much of it.
    """
    length = len(expression.encode())
    if length > MAX_LENGTH:
        raise RefusedError(f"{_TOO_EXPENSIVE}: it has {length} bytes, more than {MAX_LENGTH}")
    if any(name in expression for name in _COPYING) and _operands(expression) > _MAX_OPERANDS:
        raise RefusedError(
            f"{_TOO_EXPENSIVE}: optMap() and optFlatMap() are applied to too many results of each other"
        )


def check_cost(serialized: bytes) -> None:
    """Reject an expression that may cost more than `MAX_COST`.

    Args:
        serialized: the library's serialized form of the compiled expression: an `Any` with a `cel.expr.CheckedExpr`.

    Raises:
        RefusedError: it may cost more.
    """
    checked = dict(_fields(serialized))[2]
    root = dict(_fields(checked))[4]
    estimate = _Estimate()
    result = estimate.of(root, _VARIABLES)
    cost = estimate.cost + _PLANNED_NODE * estimate.nodes + 4 * result.size
    if cost > MAX_COST:
        raise RefusedError(f"{_TOO_EXPENSIVE}: it may cost {cost}, more than {MAX_COST}")


_TOKEN: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"""'
    r"|'''(?:\\.|[^\\])*?'''"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])*'"
    r"|[\"'].*|//[^\n]*|\.\s*\?|\w+|[^\s\w]",
    re.DOTALL,
)
_COPYING: Final = frozenset({"optMap", "optFlatMap"})


def _operands(expression: str) -> int:
    """Return an upper bound of the number of names, constants and brackets after macro expansion.

    `optMap` and `optFlatMap` duplicate the value on which they are called.
    """
    outer: list[tuple[int, int, bool]] = []  # of each open bracket: see below
    finished = chain = 0  # operands before, and of the names and calls that follow one another by dots
    previous = ""
    for found in _TOKEN.finditer(expression):
        word = found[0]
        if word in {"(", "[", "{"}:
            outer.append((finished, chain, previous in _COPYING))
            finished = chain = 0
        elif word in {")", "]", "}"} and outer:
            within = finished + chain
            finished, chain, copies = outer.pop()
            chain = chain * (2 if copies else 1) + within + 1
        elif word == "in":
            finished, chain = finished + chain, 0
        elif word[0] in "\"'_" or word.isalnum() or "_" in word:
            chain += 1
        elif word[0] != "." and not word.startswith("//"):  # an operator
            finished, chain = finished + chain, 0
        previous = word
    return finished + chain + sum(before + of_chain for before, of_chain, _ in outer)


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of a message of protocol buffers: number and content; numbers have no content."""
    place, end = 0, len(message)
    while place < end:
        tag = message[place]  # one byte: no message of a syntax tree has more than 15 fields
        kind = tag & 7
        number, place = _varint(message, place + 1) if kind in {0, 2} else (0, place + 1)
        if kind == 2:
            yield tag >> 3, message[place : place + number]
            place += number
        else:
            yield tag >> 3, b""
            place += {0: 0, 1: 8, 5: 4}[kind]


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Read a number; return it and the index after it."""
    number = shift = 0
    while True:
        byte = message[place]
        place += 1
        if byte < 0x80:
            return number | byte << shift, place
        number |= (byte & 0x7F) << shift
        shift += 7


class _Estimate:
    """Adds up the cost of a syntax tree, as in cel.expr.Expr.

    Attributes:
        cost: the cost so far.
        nodes: the number of nodes so far.
    """

    def __init__(self) -> None:
        self.cost = 0
        self.nodes = 0

    def of(self, expr: bytes, known: dict[str, Value]) -> Value:
        """Add the cost of evaluating an expression, and return a bound of its values."""
        self.cost += _NODE
        self.nodes += 1
        for number, content in _fields(expr):
            if number in self._KINDS:
                return self._KINDS[number](self, content, known)
        return _SCALAR

    def _constant(self, constant: bytes, known: dict[str, Value]) -> Value:
        for number, content in _fields(constant):
            if number == 6:
                return Value(_SCALAR_SIZE + len(content), text=content.decode())
            if number == 7:
                return Value(_SCALAR_SIZE + len(content))
        return _SCALAR

    def _name(self, ident: bytes, known: dict[str, Value]) -> Value:
        (name,) = _texts(ident, 1)
        return known.get(name, _SCALAR)  # an unknown name is the name of a type

    def _select(self, select: bytes, known: dict[str, Value]) -> Value:
        of = _SCALAR
        for number, content in _fields(select):
            if number == 1:
                of = self.of(content, known)
        self.cost += _CALL
        return _optional(_item(_held(of))) if of.has_optional else _item(of)

    def _call(self, call: bytes, known: dict[str, Value]) -> Value:
        arguments: list[Value] = []
        function = ""
        for number, content in _fields(call):
            if number == 2:
                function = content.decode()
            else:
                arguments.append(self.of(content, known))
        price = _PRICES.get(function)
        if price is None:
            raise RefusedError(f"{_TOO_EXPENSIVE}: it calls {function}(), of which no bound is known")
        if function in _IN_PYTHON and any(argument.has_optional for argument in arguments):
            # The library terminates the process when it converts a list with an optional value.
            raise RefusedError(f"{function}() cannot be called with optional values")
        cost, value = price(arguments)
        self.cost += int(cost)
        return value

    def _list(self, written: bytes, known: dict[str, Value]) -> Value:
        items = [self.of(content, known) for number, content in _fields(written) if number == 1]
        self.cost += _ELEMENT * len(items)
        return _list_of(items)

    def _struct(self, struct: bytes, known: dict[str, Value]) -> Value:
        keys: list[Value] = []
        values: list[Value] = []
        for number, entry in _fields(struct):
            if number == 2:
                for part, content in _fields(entry):
                    if part in {3, 4}:
                        (keys if part == 3 else values).append(self.of(content, known))
        self.cost += _CALL * (1 + len(keys))
        found, of_keys = _list_of(values), _list_of(keys)
        size, has_optional = found.size + of_keys.size, found.has_optional or of_keys.has_optional
        return found._replace(size=size, key=of_keys.item, has_optional=has_optional)

    def _comprehension(self, written: bytes, known: dict[str, Value]) -> Value:
        """Add the cost of a macro over a list or a map.

        The macros make three kinds of it: those that iterate over nothing, to name a value; those that compute a bool or
        a number; and those that append to a list, which is copied each time.
        """
        parts = dict(_fields(written))
        iterator, accumulator = parts[1].decode(), parts[3].decode()
        over, start = self.of(parts[2], known), self.of(parts[4], known)
        if over.entries:
            outside, self.cost = self.cost, 0
            each = over.key or _item(over)
            steps = self.of(parts[6], {**known, iterator: each, accumulator: start})
            self.of(parts[5], {**known, accumulator: start})
            if steps.entries:  # a list of up to one more element
                start = steps._replace(size=over.entries * steps.size, entries=over.entries)
                self.cost += _COPIED_ELEMENT * over.entries // 2
            self.cost = outside + over.entries * (self.cost + _NODE)
        return self.of(parts[7], {**known, accumulator: start})

    _KINDS: Final = {
        3: _constant,
        4: _name,
        5: _select,
        6: _call,
        7: _list,
        8: _struct,
        9: _comprehension,
    }


def _texts(message: bytes, wanted: int) -> list[str]:
    return [content.decode() for number, content in _fields(message) if number == wanted]


def _item(value: Value) -> Value:
    return value if value.item is None else value.item


def _optional(held: Value) -> Value:
    return Value(_SCALAR_SIZE + held.size, item=held, has_optional=True)


def _held(value: Value) -> Value:
    """Return the content of an optional value, or the value if it is not optional."""
    return _item(value) if value.has_optional and not value.entries else value


def _either(one: Value | None, other: Value | None) -> Value | None:
    if one is None or other is None or one is other:
        return one or other
    return Value(
        max(one.size, other.size),
        max(one.entries, other.entries),
        _either(one.item, other.item),
        _either(one.key, other.key),
        has_optional=one.has_optional or other.has_optional,
    )


def _any_of(values: Sequence[Value]) -> Value:
    found: Value | None = None
    for value in values:
        found = _either(found, value)
    return found or _SCALAR


def _list_of(items: Sequence[Value]) -> Value:
    size = _SCALAR_SIZE + sum([item.size + _ELEMENT for item in items])
    item = _any_of(items) if items else None
    return Value(size, len(items), item, has_optional=item is not None and item.has_optional)


# The costs of calls, and bounds of their results.

_Price = tuple[float, Value]


def _size(arguments: Sequence[Value]) -> int:
    return sum([argument.size for argument in arguments])


def _costs(base: int, per_size: int = 0) -> Callable[[Sequence[Value]], _Price]:
    """Return the price of a function that returns a number or a bool."""
    return lambda arguments: (base + per_size * _size(arguments), _SCALAR)


def _makes_text(per_size: int, growth: int = 1) -> Callable[[Sequence[Value]], _Price]:
    """Return the price of a function that returns a text of at most `growth` times the length of its arguments."""

    def price(arguments: Sequence[Value]) -> _Price:
        size = _size(arguments)
        return _CALL + per_size * size, Value(32 + growth * size)

    return price


def _passes(arguments: Sequence[Value]) -> _Price:
    """Return the price of a function that returns one of its arguments."""
    return _CALL, _any_of(arguments)


def _chooses(arguments: Sequence[Value]) -> _Price:
    return _NODE, _any_of(arguments[1:])


def _looks_up(arguments: Sequence[Value]) -> _Price:
    of = arguments[0]
    found = _optional(_item(_held(of))) if of.has_optional else _item(of)
    return _CALL + arguments[-1].size, found


def _looks_up_optionally(arguments: Sequence[Value]) -> _Price:
    return _CALL + arguments[-1].size, _optional(_item(_held(arguments[0])))


def _wraps(arguments: Sequence[Value]) -> _Price:
    return _CALL, _optional(_any_of(arguments))


def _unwraps(arguments: Sequence[Value]) -> _Price:
    return _CALL, _any_of([_held(arguments[0]), *arguments[1:]])


def _unwraps_all(arguments: Sequence[Value]) -> _Price:
    (values,) = arguments
    item = _held(_item(values))
    return _CALL + _COPIED_ELEMENT * values.entries, values._replace(
        item=item, has_optional=item.has_optional
    )


def _adds(arguments: Sequence[Value]) -> _Price:
    one, other = arguments
    if one == other == _SCALAR:
        return _NODE, _SCALAR
    count = one.entries + other.entries
    value = Value(
        one.size + other.size,
        count,
        _either(one.item, other.item),
        has_optional=one.has_optional or other.has_optional,
    )
    return _CALL + value.size + _COPIED_ELEMENT * count, value


def _measures(arguments: Sequence[Value]) -> _Price:
    (measured,) = arguments
    return _CALL + (0 if measured.entries else measured.size), _SCALAR


def _searches(arguments: Sequence[Value]) -> _Price:
    text, wanted = arguments[:2]
    base = _PYTHON_CALL if text.entries else _CALL
    return base + 8 * _size(arguments) + _SEARCHED * text.size * wanted.size, _SCALAR


def _replaces(arguments: Sequence[Value]) -> _Price:
    text, old, new = arguments[:3]
    least = max(1, len(old.text or ""))
    size = text.size + (text.size // least + 1) * new.size
    return _CALL + 3 * size + _SEARCHED * text.size * old.size, Value(size)


def _splits(arguments: Sequence[Value]) -> _Price:
    text, separator = arguments[:2]
    count = text.size + 1
    cost = _CALL + 2 * _ELEMENT * count + _SEARCHED * text.size * separator.size
    return cost, Value(text.size + _ELEMENT * count, count, Value(text.size))


def _joins(arguments: Sequence[Value]) -> _Price:
    items, *separators = arguments
    size = items.size + items.entries * _size(separators)
    return _CALL + 2 * size, Value(size)


def _formats(arguments: Sequence[Value]) -> _Price:
    text, values = arguments
    verbs = text.size if text.text is None else text.text.count("%")
    size = text.size + 1_400 * verbs + 4 * values.size  # a number may be written with 1000 decimals
    return _CALL + 2 * size, Value(size)


def _matches(arguments: Sequence[Value]) -> _Price:
    text, pattern = arguments
    if pattern.text is None:
        raise RefusedError(f"{_TOO_EXPENSIVE}: it calls matches() with a pattern that is no constant")
    instructions = _instructions(pattern.text)
    return 10_000 + 300 * instructions + 16 * text.size * instructions, _SCALAR


def _tells_time(arguments: Sequence[Value]) -> _Price:
    if len(arguments) > 1 and arguments[1].size > _NAME.size:
        # Each is kept for good.
        raise RefusedError(f"{_TOO_EXPENSIVE}: it names a time zone in more than 64 characters")
    return 2 * _CALL, _SCALAR


def _in_python(base: int, result: str) -> Callable[[Sequence[Value]], _Price]:
    def price(arguments: Sequence[Value]) -> _Price:
        size = _size(arguments)
        value = _SCALAR
        if result == "opaque":
            value = Value(size + _OPAQUE_SIZE)
        elif result == "dyn":
            value = _item(arguments[0])
        return base + 8 * size, value

    return price


_PATTERN: Final = re.compile(
    r"(?P<unicode>\\[pP](?:\{[^}]*\}|.))|(?P<quoted>\\.)"
    r"|(?P<class>\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\])"
    r"|\{(?P<least>\d+)(?:,(?P<most>\d*))?\}|(?P<other>.)",
    re.DOTALL,
)
_UNICODE: Final = 1_500  # instructions of a class of letters
_MOST_REPEATED: Final = 1_000  # more is refused


def _instructions(pattern: str) -> int:
    """Return an upper bound of the number of instructions of a compiled pattern."""
    outer: list[int] = []
    total = last = 0  # of all before, and of what a repetition would repeat
    for found in _PATTERN.finditer(pattern):
        kind, word = found.lastgroup, found[0]
        if kind in {"least", "most"}:
            times = [int(number[:5]) for number in (found["least"], found["most"]) if number]
            last *= min(_MOST_REPEATED, max(times)) + 1
            continue
        if word == "(":
            outer.append(total + last)
            total = last = 0
        elif word == ")" and outer:
            last = total + last + 2
            total = outer.pop()
        elif word in {"*", "+", "?"}:
            last += 2
        else:
            total += last
            last = 1 if kind in {"other", "quoted"} else _UNICODE
            if kind == "class":
                last = 40 + 2 * len(word) + _UNICODE * len(re.findall(r"\\[pP]", word))
            elif word in {".", "\\w", "\\W", "\\D", "\\S", "\\d", "\\s"} or ord(word[-1]) > 127:
                last = 20
    total += last + sum(outer) + 2
    return 4 * total if "(?" in pattern else total  # with flags, cases are folded


_IN_PYTHON: Final = frozenset(function.name for function in FUNCTIONS)
_PRICES: Final[dict[str, Callable[[Sequence[Value]], _Price]]] = {
    **{
        function.name: _in_python(
            _ADDRESS_CALL if function.name in {"ip", "cidr", "isIP", "isCIDR"} else _PYTHON_CALL,
            function.result,
        )
        for function in FUNCTIONS
    },
    **dict.fromkeys(("_&&_", "_||_", "!_", "-_", "@not_strictly_false"), _costs(_NODE)),
    **dict.fromkeys(("_-_", "_*_", "_/_", "_%_"), _costs(_CALL)),
    **dict.fromkeys(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in"), _costs(_NODE, 2)),
    **dict.fromkeys(("int", "uint", "double", "bool", "timestamp", "duration"), _costs(_CALL, 5)),
    **dict.fromkeys(("type", "hasValue"), _costs(_CALL)),
    **dict.fromkeys(("dyn", "or"), _passes),
    **dict.fromkeys(("optional.of", "optional.ofNonZeroValue", "optional.none"), _wraps),
    **dict.fromkeys(("value", "orValue"), _unwraps),
    **dict.fromkeys(("optional.unwrap", "unwrapOpt"), _unwraps_all),
    "_[_]": _looks_up,
    **dict.fromkeys(("_[?_]", "_?._", "first", "last"), _looks_up_optionally),
    **dict.fromkeys(("string", "bytes"), _makes_text(5)),
    **dict.fromkeys(("lowerAscii", "upperAscii", "trim", "reverse", "substring", "charAt"), _makes_text(3)),
    **dict.fromkeys(("contains", "startsWith", "endsWith", "indexOf", "lastIndexOf"), _searches),
    **dict.fromkeys(
        (
            *("getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours"),
            *("getMilliseconds", "getMinutes", "getMonth", "getSeconds"),
        ),
        _tells_time,
    ),
    "size": _measures,
    "strings.quote": _makes_text(10, 3),
    "_?_:_": _chooses,
    "_+_": _adds,
    "replace": _replaces,
    "split": _splits,
    "join": _joins,
    "format": _formats,
    "matches": _matches,
}
