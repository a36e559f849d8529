"""The core names no plugin: a plugin in a file of a third party has the same possibilities as one of this repository."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plugins.registry import IN_TREE

if TYPE_CHECKING:
    from collections.abc import Iterator

CORE = Path(__file__).parents[2] / "scheduler"
MAY_NAME_PLUGINS = (
    "configuration",  # the default profile, and older versions of configurations
    "tools/simulator/node_agents",  # the kubelet's reasons have the names of plugins
    "tools/simulator/kinds/feature_fields.py",  # the feature gate of that name
    "engine/cycle/kubelet_rejections.py",  # as in the kubelet
)


def literals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield each string literal with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def named_in(text: str) -> list[tuple[int, str]]:
    if not any(name in text for name in IN_TREE):  # most files: the syntax of all takes seconds to read
        return []
    return [(line, value) for line, value in literals(ast.parse(text)) if value in IN_TREE]


def test_the_core_names_no_plugin():
    found = [
        f"{file.relative_to(CORE)}:{line} {name}"
        for file in sorted(CORE.rglob("*.py"))
        if not file.relative_to(CORE).as_posix().startswith(MAY_NAME_PLUGINS)
        for line, name in named_in(file.read_text())
    ]
    assert found == []


@pytest.mark.parametrize("path", MAY_NAME_PLUGINS)
def test_an_exception_of_this_rule_is_needed(path: str):
    files = [CORE / path] if path.endswith(".py") else (CORE / path).rglob("*.py")
    assert any(named_in(file.read_text()) for file in files)
