"""Describes selectors for people: their requirements, and the node's labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.selectors import Operator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.objects.selectors import NodeRule, Requirement

_SHOWN: Final = 3


def some_of(items: Sequence[str], shown: int = _SHOWN) -> str:
    """Return the first of many items: `a, b, c and 7 more`."""
    rest = len(items) - shown
    return ", ".join(items[:shown]) + (f" and {rest} more" if rest > 0 else "")


def only_for(rules: Sequence[NodeRule], labels: Mapping[str, str]) -> str:
    """Describe the required nodes, and one node's labels: `only for nodes with disk; this node has no disk`."""
    keys = dict.fromkeys(requirement.key for rule in rules for requirement in rule.labels)
    had = some_of([f"{key}={labels[key]}" if key in labels else f"no {key}" for key in keys])
    return f"only for nodes with {asked_of(rules)}" + (f"; this node has {had}" if had else "")


def asked_of(rules: Sequence[NodeRule]) -> str:
    """Describe alternative rules for a node: `zone in (a, b), or disk`."""
    if not rules:
        return "labels that no node can have"
    asked = [
        " and ".join(map(_asked, (*rule.labels, *rule.fields))) or "any labels" for rule in rules[:_SHOWN]
    ]
    rest = len(rules) - len(asked)
    return ", or ".join(asked) + (f", or {rest} more" if rest else "")


def _asked(requirement: Requirement) -> str:
    key, values = requirement.key, some_of(sorted(requirement.values))
    words = {
        Operator.IN: f"{key} in ({values})",
        Operator.NOT_IN: f"{key} not in ({values})",
        Operator.EXISTS: key,
        Operator.DOES_NOT_EXIST: f"no {key}",
        Operator.GT: f"{key} > {requirement.bound}",
        Operator.LT: f"{key} < {requirement.bound}",
    }
    return words[requirement.operator]
