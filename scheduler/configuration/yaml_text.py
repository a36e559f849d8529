"""Parses YAML text to plain values, strictly; PyYAML, configured to read and write by the same rules.

PyYAML's own loaders silently take the last of two equal keys, parse `2024-01-01` as a date and `1:30` as 90,
and follow an alias into itself. Here values are JSON values (mappings with string keys, lists, strings,
numbers, booleans, null), and every error has its path or its line.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import yaml
from yaml.events import CollectionEndEvent, CollectionStartEvent
from yaml.reader import ReaderError
from yaml.resolver import BaseResolver

from scheduler.errors import FieldError
from scheduler.objects.wording import child, entry, quoted

if TYPE_CHECKING:
    from collections.abc import Callable

TAG = "tag:yaml.org,2002:"
"""Prefix of the tags of YAML's own types."""


def compose(text: str) -> list[yaml.Node]:
    """Parse the documents of a text, without the empty ones.

    Raises:
        yaml.YAMLError: the text is not YAML.
        RecursionError: the nesting is too deep. ValueError, OverflowError: an escape sequence has no
            character.
    """
    return _documents(text, _Loader)


def compose_quickly(text: str, deepest: int) -> list[yaml.Node]:
    """Parse as `compose` does, in a tenth of the time but with less precise error messages.

    This uses the C library, if PyYAML has it. The library would recurse until the stack overflows, so the
    depth is checked first.

    Raises:
        yaml.YAMLError: the text is not YAML.
        RecursionError: the nesting is deeper than `deepest`. ValueError, OverflowError: an escape sequence
            has no character.
    """
    if not yaml.__with_libyaml__:
        return compose(text)
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CLoader):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > deepest:
            raise RecursionError
    return _documents(text, _quick_loader())


def write(value: Any) -> str:
    """Write plain values so that parsing returns equal ones."""
    return yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=110
    )


def _documents(text: str, loader: Any) -> list[yaml.Node]:
    return [node for node in yaml.compose_all(text, Loader=loader) if node.tag != TAG + "null"]


class _Resolver(BaseResolver):
    """The types of plain scalars: the rules of YAML 1.1 in Kubernetes' own parser."""


for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", [*"~nN", ""]),
    ("bool", r"true|True|TRUE|yes|Yes|YES|on|On|ON|false|False|FALSE|no|No|NO|off|Off|OFF", [*"tTyYoOfFnN"]),
    ("int", r"[-+]?(?:0|[1-9][0-9_]*|0o?[0-7_]+|0x[0-9a-fA-F_]+|0b[01_]+)", [*"-+0123456789"]),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", [*"-+.0123456789"]),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", [*"-+."]),
    ("merge", r"<<", ["<"]),
):
    _Resolver.add_implicit_resolver(TAG + _name, re.compile(rf"(?:{_pattern})\Z"), _first)


class _Loader(_Resolver, yaml.BaseLoader):
    """Parses text to nodes."""


def _quick_loader() -> type:
    # CBaseLoader exists only if PyYAML was built with the C library.
    return type("_QuickLoader", (_Resolver, yaml.CBaseLoader), {})


class _Dumper(_Resolver, yaml.SafeDumper):
    """Writes values as text; quotes exactly the strings that `_Resolver` would parse as another type."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write repeated values repeatedly: anchors confuse readers."""
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Escape Unicode line breaks, which PyYAML would fold into spaces."""
        style = '"' if any(character in text for character in "\r\x85\u2028\u2029") else None
        return self.represent_scalar(TAG + "str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)


_MAX_DEPTH = 64
_MAX_VALUES = 100_000  # aliases within aliases would otherwise expand without end
_MAX_VALUES_OF_MANY = 20_000_000  # a cluster of 5000 nodes has about 5 million
# Of all scalars, with aliases expanded: limits a long text with a hundred thousand aliases.
_MAX_CHARACTERS = 4 * 2**20
_MAX_CHARACTERS_OF_MANY = 2**31
_MAX_TEXT = 2**20  # characters; what a ConfigMap can hold
# Above it, the messages of the quick parser are enough: the other one takes ten seconds for a megabyte.
_LONG_TEXT = 2**16
_MOST_ERRORS = 100  # more errors have a common cause


@dataclass(slots=True)
class Document:
    """The result of parsing a text.

    Attributes:
        value: plain values, without invalid ones; None for an empty text.
        errors: the errors of the text itself.
    """

    value: Any = None
    errors: list[FieldError] = field(default_factory=list)


def read(text: str) -> Document:
    """Parse a text with one YAML document; never raises."""
    if len(text) > _MAX_TEXT:
        return Document(errors=[FieldError("", f"has {len(text)} characters, at most {_MAX_TEXT} are read")])
    nodes, error = _composed(text, partial(compose_quickly, deepest=_MAX_DEPTH))
    if error is not None and len(text) <= _LONG_TEXT:
        nodes, error = _composed(text, compose)
    if error is not None:
        return Document(errors=[error])
    if len(nodes) > 1:
        line = nodes[1].start_mark.line + 1
        return Document(
            errors=[FieldError(f"line {line}", "a second document begins, one configuration is one document")]
        )
    return _ValueReader(_MAX_VALUES, _MAX_CHARACTERS).document(nodes[0]) if nodes else Document()


def read_all(text: str) -> list[Document]:
    """Parse a text with any number of YAML documents, including large ones; never raises.

    Returns:
        The documents that are not empty, in order; a single one with only errors if the text is not YAML.
    """
    nodes, error = _composed(text, partial(compose_quickly, deepest=_MAX_DEPTH))
    if error is not None:
        return [Document(errors=[error])]
    return [_ValueReader(_MAX_VALUES_OF_MANY, _MAX_CHARACTERS_OF_MANY).document(node) for node in nodes]


def _composed(
    text: str, composing: Callable[[str], list[yaml.Node]]
) -> tuple[list[yaml.Node], FieldError | None]:
    try:
        return composing(text), None
    except yaml.YAMLError as error:
        return [], _syntax_error(text, error)
    except RecursionError:
        return [], _TOO_DEEP
    except (ValueError, OverflowError):  # chr() in PyYAML raises on "\U00110000"
        return [], FieldError("", "not YAML: an escape sequence has no character")


def _syntax_error(text: str, error: yaml.YAMLError) -> FieldError:
    if isinstance(error, ReaderError):
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        return FieldError(f"line {line}, column {column}", "not YAML: a control character")
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "context", None) or "cannot be read"
    place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return FieldError(place, f"not YAML: {problem}")


_FAULTY = object()  # stands for a value whose error is recorded
_TOO_DEEP = FieldError("", f"nested deeper than {_MAX_DEPTH} levels")


class _OutOfBoundsError(Exception):
    """The document is too deep or too large."""

    def __init__(self, problem: FieldError) -> None:
        self.problem = problem
        super().__init__(str(problem))


class _ValueReader:
    """Converts nodes to values; records errors and continues without the invalid values."""

    def __init__(self, most_values: int, most_characters: int) -> None:
        self.errors: list[FieldError] = []
        self._most_values = most_values
        self._most_characters = most_characters
        self._count = 0
        self._characters = 0

    def document(self, root: yaml.Node) -> Document:
        try:
            value = self.value(root, "", 0)
        except _OutOfBoundsError as error:
            return Document(errors=[*self.errors, error.problem])
        return Document(None if value is _FAULTY else value, self.errors)

    def value(self, node: yaml.Node, path: str, depth: int) -> Any:
        self._count += 1
        if depth > _MAX_DEPTH:
            raise _OutOfBoundsError(_TOO_DEEP)
        if self._count > self._most_values:
            raise _OutOfBoundsError(FieldError("", f"holds more than {self._most_values} values"))
        if isinstance(node, yaml.MappingNode) and node.tag == TAG + "map":
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode) and node.tag == TAG + "seq":
            values = [self.value(item, entry(path, i), depth + 1) for i, item in enumerate(node.value)]
            # null keeps the indices of the entries after an invalid one, and so their paths.
            return [None if value is _FAULTY else value for value in values]
        if isinstance(node, yaml.ScalarNode):
            self._characters += len(node.value)
            if self._characters > self._most_characters:
                raise _OutOfBoundsError(FieldError("", f"holds more than {self._most_characters} characters"))
            try:
                return _scalar(node)
            except ValueError as error:
                return self._fault(path, node, str(error))
        return self._fault(path, node, f"the tag {quoted(node.tag)} is not supported")

    def _mapping(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        lines: dict[str, int] = {}  # key -> line of its first occurrence
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if key_node.tag == TAG + "merge":
                merged.append(value_node)
                continue
            key = self._key(key_node, path)
            if key is None:
                continue
            line = key_node.start_mark.line + 1
            if key in lines:
                where = f"on line {line}" if lines[key] == line else f"on lines {lines[key]} and {line}"
                self._note(FieldError(child(path, key), f"given twice, {where}"))
                continue
            lines[key] = line
            value = self.value(value_node, child(path, key), depth + 1)
            if value is not _FAULTY:
                result[key] = value
        for merged_node in merged:
            for key, value in self._merged(merged_node, path, depth).items():
                result.setdefault(key, value)
        return result

    def _key(self, node: yaml.Node, path: str) -> str | None:
        if not isinstance(node, yaml.ScalarNode) or node.tag != TAG + "str":
            shown = quoted(node.value) if isinstance(node, yaml.ScalarNode) else "that is no text"
            self._fault(path, node, f"the key {shown} must be text: put it in quotes")
            return None
        try:
            return _text(node.value)
        except ValueError as error:
            self._fault(path, node, str(error))
            return None

    def _merged(self, node: yaml.Node, path: str, depth: int) -> dict[str, Any]:
        """Return the mapping of `<<: *anchor` or `<<: [*one, *other]`; the first of several wins."""
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        result: dict[str, Any] = {}
        for source in sources:
            if not isinstance(source, yaml.MappingNode):
                self._fault(path, node, "<< must name a mapping or a list of mappings")
                continue
            for key, value in self.value(source, path, depth + 1).items():
                result.setdefault(key, value)
        return result

    def _fault(self, path: str, node: yaml.Node, problem: str) -> object:
        self._note(FieldError(path or f"line {node.start_mark.line + 1}", problem))
        return _FAULTY

    def _note(self, error: FieldError) -> None:
        if len(self.errors) == _MOST_ERRORS:
            raise _OutOfBoundsError(FieldError("", "and more"))
        self.errors.append(error)


def _scalar(node: yaml.ScalarNode) -> Any:
    """Parse one scalar.

    Raises:
        ValueError: the text does not match its tag, or is not a JSON value.
    """
    text: str = node.value
    match node.tag.removeprefix(TAG):
        case "str":
            return _text(text)
        case "null":
            return None
        case "bool":
            if text.lower() not in _BOOLEANS:
                raise ValueError(f"must be true or false, was {quoted(text)}")
            return _BOOLEANS[text.lower()]
        case "int":
            return _integer(text)
        case "float":
            return _number(text)
    raise ValueError(f"the tag {quoted(node.tag)} is not supported")


_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _text(text: str) -> str:
    """Join the surrogate pair of a character that JSON escapes as two."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError("contains half a character (a lone surrogate)") from None


def _integer(text: str) -> int:
    digits = text.replace("_", "").lower()
    unsigned = digits.lstrip("+-")
    # A leading 0 is octal, as in Go and YAML 1.1.
    base = 0 if not unsigned.isdigit() else 8 if len(unsigned) > 1 and unsigned[0] == "0" else 10
    try:
        number = int(digits, base)
    except ValueError:
        raise ValueError(f"must be an integer, was {quoted(text)}") from None
    if not -(2**63) <= number < 2**64:
        raise ValueError(f"must fit in 64 bits, was {quoted(text)}")
    return number


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"must be a finite number, was {quoted(text)}")
    return number
