"""One conversion of an old configuration: errors, losses, and the original paths of all values.

The steps between versions use plain values, which may have any shape: values of a wrong type are left for the
decoder of the current version. Its errors have paths in the converted document; `original` returns their
paths in the file.
"""

from __future__ import annotations

import re
from typing import Any

from scheduler.configuration.notes import ConfigurationNote
from scheduler.errors import FieldError
from scheduler.objects.wording import child, entry, was

_STEP = re.compile(
    r'\["(?P<quoted>(?:[^"\\]|\\.)*)"\]|\[(?P<index>\d+)\]|\.?(?P<key>[A-Za-z_][A-Za-z0-9_-]*)'
)


class Conversion:
    """The state of a conversion.

    Attributes:
        errors: settings that cannot be expressed in the current version, with paths in the file.
        notes: settings that have no effect any more, with paths in the file.
        result: a copy of the document, which the steps change in place.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.errors: list[FieldError] = []
        self.notes: list[ConfigurationNote] = []
        self._places: dict[int, str] = {}  # id of a mapping or list -> its path in the file
        self._alive: list[Any] = []  # an id is valid only while its object exists
        self.result: dict[str, Any] = self._copied(document, "")

    def fault(self, within: Any, relative: str, problem: str) -> None:
        """Record an error at a path below a mapping of the file."""
        self.errors.append(FieldError(self.place(within, relative), problem))

    def note(self, within: Any, relative: str, text: str) -> None:
        """Record a setting without an effect."""
        self.notes.append(ConfigurationNote(self.place(within, relative), text))

    def place(self, within: Any, relative: str) -> str:
        """Return the path in the file for a path below a mapping."""
        return _joined(self._places.get(id(within), ""), relative)

    def instead(self, old: Any, new: dict[str, Any]) -> dict[str, Any]:
        """Give a new mapping the path in the file of an old one."""
        if id(old) in self._places:
            self._alive.append(new)
            self._places[id(new)] = self._places[id(old)]
        return new

    def original(self, path: str) -> str:
        """Return the path in the file for a path in the converted document.

        Values that the conversion created keep their path in the converted document.
        """
        found, rest_from = "", None
        value: Any = self.result
        end = 0
        for step in _STEP.finditer(path):
            if id(value) in self._places:
                found, rest_from = self._places[id(value)], end
            value = _below(value, step)
            end = step.end()
        if id(value) in self._places:
            found, rest_from = self._places[id(value)], end
        return path if rest_from is None else _joined(found, path[rest_from:].removeprefix("."))

    def whole_number(self, within: Any, key: str, least: int, most: int) -> int | None:
        """Return an integer field; None if it is absent or invalid, and then the error is recorded."""
        value = mapping(within).get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.fault(within, key, f"must be an integer from {least} to {most}, {was(value)}")
            return None
        return value

    def _copied(self, value: Any, path: str) -> Any:
        copy: Any
        if isinstance(value, dict):
            copy = {key: self._copied(item, child(path, key)) for key, item in value.items()}
        elif isinstance(value, list):
            copy = [self._copied(item, entry(path, i)) for i, item in enumerate(value)]
        else:
            return value
        self._alive.append(copy)
        self._places[id(copy)] = path
        return copy


def mapping(value: Any) -> dict[str, Any]:
    """Return a mapping unchanged; an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def entries(value: Any) -> list[Any]:
    """Return a list unchanged; an empty one for any other value."""
    return value if isinstance(value, list) else []


def name_of(plugin: Any) -> str:
    """Return the name in an entry of a list of plugins; "" without one."""
    name = mapping(plugin).get("name")
    return name if isinstance(name, str) else ""


def _joined(path: str, relative: str) -> str:
    if not path or not relative:
        return path or relative
    return f"{path}{relative}" if relative.startswith("[") else f"{path}.{relative}"


def _below(value: Any, step: re.Match[str]) -> Any:
    if step["index"] is not None:
        number = int(step["index"])
        return value[number] if isinstance(value, list) and number < len(value) else None
    return mapping(value).get(step["key"] if step["key"] is not None else step["quoted"])
