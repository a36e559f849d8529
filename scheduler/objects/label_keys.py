"""What labels bring and what selectors await, as keys: a selector that awaits none of what labels bring does not hold.

So selectors are filed by what they await, and only those are asked that some labels can touch. A key is a label with its
value, or a label's name alone, for selectors to which any value will do.
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
    """Yield all that labels bring."""
    yield from labels
    yield from labels.items()


def keys_of_changes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[LabelKey]:
    """Yield what labels bring that they did not bring before, and the names of those that went."""
    for name in old.keys() | new.keys():
        if old.get(name) != new.get(name):
            yield name
            if name in new:
                yield name, new[name]


def keys_of_rule(rule: LabelRule) -> frozenset[LabelKey] | None:
    """Return keys of which labels bring one if the rule holds for them; None where it may hold without any."""
    if rule.requirements is None:
        return frozenset()  # it never holds
    needed = [found for each in rule.requirements if (found := _needed(each)) is not None]
    return min(needed, key=len, default=None)


def keys_of_requirements(requirements: Iterable[Requirement]) -> Iterator[LabelKey]:
    """Yield keys of which a change of labels brings one if it makes one of the requirements hold that did not."""
    for requirement in requirements:
        needed = _needed(requirement)
        if needed is None:
            yield requirement.key  # it may have been in the way
        else:
            yield from needed


def _needed(requirement: Requirement) -> frozenset[LabelKey] | None:
    if requirement.operator is Operator.IN:
        return frozenset((requirement.key, value) for value in requirement.values)
    return frozenset({requirement.key}) if requirement.operator in _NEEDS_A_LABEL else None
