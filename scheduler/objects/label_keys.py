"""Index keys of labels and selectors: a selector that needs none of the labels' keys does not match them.

So selectors are indexed by the keys they need, and only those that some labels can affect are evaluated. A
key is a label with its value, or a label's name alone, for selectors that match any value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.objects.selectors import Operator

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scheduler.objects.selectors import LabelRule, Requirement

LabelKey = str | tuple[str, str]

_NEEDS_A_LABEL = frozenset({Operator.EXISTS, Operator.GT, Operator.LT})


def keys_of_labels(labels: Mapping[str, str]) -> Iterator[LabelKey]:
    """Yield all keys of labels."""
    yield from labels
    yield from labels.items()


def keys_of_changes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[LabelKey]:
    """Yield the keys that labels did not have before, and the names of removed labels."""
    for name in old.keys() | new.keys():
        if old.get(name) != new.get(name):
            yield name
            if name in new:
                yield name, new[name]


def keys_of_rule(rule: LabelRule) -> frozenset[LabelKey] | None:
    """Return keys of which labels need one to match the rule; None if the rule may match without any."""
    if rule.requirements is None:
        return frozenset()  # the rule never matches
    needed = [found for each in rule.requirements if (found := _needed(each)) is not None]
    return min(needed, key=len, default=None)


def keys_of_requirements(requirements: Iterable[Requirement]) -> Iterator[LabelKey]:
    """Yield keys of which a change of labels has one if it makes one of the requirements match."""
    for requirement in requirements:
        needed = _needed(requirement)
        if needed is None:
            yield requirement.key  # removing the label may make it match
        else:
            yield from needed


def _needed(requirement: Requirement) -> frozenset[LabelKey] | None:
    if requirement.operator is Operator.IN:
        return frozenset((requirement.key, value) for value in requirement.values)
    return frozenset({requirement.key}) if requirement.operator in _NEEDS_A_LABEL else None
