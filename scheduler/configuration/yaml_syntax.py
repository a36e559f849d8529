"""PyYAML, set up so that it reads and writes by the same rules."""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.events import CollectionEndEvent, CollectionStartEvent
from yaml.resolver import BaseResolver

TAG = "tag:yaml.org,2002:"
"""What the names of YAML's own types begin with."""


def compose(text: str) -> list[yaml.Node]:
    """Read the documents of a text, without the empty ones.

    Raises:
        yaml.YAMLError: not YAML.
        RecursionError: nested too deeply.
        ValueError, OverflowError: an escape that stands for no character.
    """
    return _documents(text, _Loader)


def compose_quickly(text: str, deepest: int) -> list[yaml.Node]:
    """Read as `compose` does, in a tenth of the time but with poorer words for errors.

    The C library does it, where PyYAML has it. It would follow any nesting until the stack is full, so the depth is
    looked at first.

    Raises:
        yaml.YAMLError: not YAML.
        RecursionError: nested deeper than `deepest`.
        ValueError, OverflowError: an escape that stands for no character.
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
    """Write plain values so that they are read back as they were."""
    return yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=110
    )


def _documents(text: str, loader: Any) -> list[yaml.Node]:
    return [node for node in yaml.compose_all(text, Loader=loader) if node.tag != TAG + "null"]


class _Resolver(BaseResolver):
    """Which plain scalars are not text: the rules of YAML 1.1 that Kubernetes' own reader has."""


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
    """Text to nodes."""


def _quick_loader() -> type:
    # CBaseLoader is only there if PyYAML was built with the C library.
    return type("_QuickLoader", (_Resolver, yaml.CBaseLoader), {})


class _Dumper(_Resolver, yaml.SafeDumper):
    """Values to text; quotes exactly the text that `_Resolver` would take for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write what occurs twice twice: anchors confuse readers."""
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Escape line breaks of Unicode, which PyYAML would fold into spaces."""
        style = '"' if any(character in text for character in "\r\x85\u2028\u2029") else None
        return self.represent_scalar(TAG + "str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)
