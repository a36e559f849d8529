"""PyYAML, configured to read and write by the same rules."""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.events import CollectionEndEvent, CollectionStartEvent
from yaml.resolver import BaseResolver

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
