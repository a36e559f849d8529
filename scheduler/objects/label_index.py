"""Rules about labels: their keys, an index of rules, and matchers and descriptions for rules with many requirements.

Selectors are indexed by the keys they need, so that only those that some labels can affect are evaluated. A key is a
label with its value, or a label's name alone, for selectors that match any value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from scheduler.objects.selectors import LabelRule, Operator, merged

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from scheduler.objects.selectors import NodeRule, Requirement

LabelKey = str | tuple[str, str]

_NEEDS_A_LABEL = frozenset({Operator.EXISTS, Operator.GT, Operator.LT})


def keys_of_labels(labels: Mapping[str, str]) -> Iterator[LabelKey]:
    """Yield the keys under which rules about labels are indexed: each name, and each name with its value."""
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
    """Return keys of which labels need one to match the rule; None if it may match without any, or has too many."""
    if rule.expressions is None:
        return frozenset()  # the rule never matches
    if rule.labels:
        return frozenset(rule.labels[:1])
    fewest: Requirement | None = None
    for each in rule.expressions:
        if _needs_one(each) and (fewest is None or len(each.values) < len(fewest.values)):
            fewest = each
            if len(each.values) <= 1:
                break
    return None if fewest is None or len(fewest.values) > _MOST_KEYS else _needed(fewest)


_MOST_KEYS: Final = 1024


def keys_of_requirements(requirements: Iterable[Requirement]) -> Iterator[LabelKey]:
    """Yield keys of which a change of labels has one if it makes one of the requirements match."""
    for requirement in requirements:
        needed = _needed(requirement)
        if needed is None:
            yield requirement.key  # removing the label may make it match
        else:
            yield from needed


def _needs_one(requirement: Requirement) -> bool:
    return requirement.operator is Operator.IN or requirement.operator in _NEEDS_A_LABEL


def _needed(requirement: Requirement) -> frozenset[LabelKey] | None:
    if requirement.operator is Operator.IN:
        return frozenset((requirement.key, value) for value in requirement.values)
    return frozenset({requirement.key}) if requirement.operator in _NEEDS_A_LABEL else None


if TYPE_CHECKING:
    Matcher = Callable[[Mapping[str, str]], bool]

_FEW: Final = 8
"""Up to this number requirements are evaluated one by one."""


def matcher(rule: LabelRule) -> Matcher:
    """Return a function that matches labels as `LabelRule.matches` does.

    Its cost depends on the number of requirements or of labels, whichever is smaller.
    """
    return rule.matches if rule.expressions is None or rule.count <= _FEW else _Many(rule)


class _Many:
    """Requirements that must all match, by the keys of their labels."""

    __slots__ = ("_by_key", "_labels", "_needed")

    def __init__(self, rule: LabelRule) -> None:
        self._labels = frozenset(rule.labels)
        by_key: dict[str, list[Requirement]] = {}
        for requirement in merged(rule.expressions or (), every=True):
            by_key.setdefault(requirement.key, []).append(requirement)
        self._by_key = by_key
        # The keys that an object must have.
        self._needed = {
            key for key, some in by_key.items() if not all(requirement.admits(None) for requirement in some)
        }

    def __call__(self, labels: Mapping[str, str]) -> bool:
        by_key = self._by_key
        if len(self._labels) > len(labels) or not self._labels <= labels.items():
            return False
        if len(self._needed) > len(labels) or not self._needed <= labels.keys():
            return False
        keys = labels if len(labels) < len(by_key) else by_key
        for key in keys:
            value = labels.get(key)
            for requirement in by_key.get(key, ()) if value is not None else ():
                if not requirement.admits(value):
                    return False
        return True


_SHOWN: Final = 3


def some_of(items: Sequence[str], shown: int = _SHOWN) -> str:
    """Return the first of many items: `a, b, c and 7 more`."""
    rest = len(items) - shown
    return ", ".join(items[:shown]) + (f" and {rest} more" if rest > 0 else "")


def written(requirement: Requirement) -> str:
    """Return a requirement in the words of the API: `zone In [a, b]`, `zone=a` for one value, `Exists disk`."""
    operator, values = requirement.operator, sorted(requirement.values)
    if operator is Operator.IN and len(values) == 1:
        return f"{requirement.key}={values[0]}"
    if operator in {Operator.GT, Operator.LT}:
        return f"{requirement.key} {operator.value} {requirement.bound}"
    shown = f" [{some_of(values)}]" if values else ""
    return f"{requirement.key} {operator.value}{shown}"


def written_rule(rule: LabelRule) -> str:
    """Return a label selector in the words of the API: `app=web, tier In [a, b]`."""
    if rule.expressions is None:
        return "no pod"
    parts = [f"{key}={value}" for key, value in rule.labels]
    return some_of([*parts, *map(written, rule.expressions)]) or "any pod"


def value_of(key: str, labels: Mapping[str, str]) -> str:
    """Return the value of a label as `zone=a`, or `no label zone`."""
    return f"{key}={labels[key]}" if key in labels else f"no label {key}"


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


T = TypeVar("T", bound="Hashable")

_MOST_VALUES: Final = 32
"""A rule with more values is not indexed: an entry takes about 400 bytes, and a pod may have thousands of values."""


class RuleIndex(Generic[T]):
    """Items with a label rule each.

    Most rules require a label with one of a few values; these rules are indexed by their labels. All other rules are
    candidates every time.
    """

    __slots__ = ("_named", "_others")

    def __init__(self) -> None:
        self._named: dict[tuple[str, str], dict[T, None]] = {}  # label -> items whose rule requires it
        self._others: dict[T, None] = {}

    def add(self, rule: LabelRule, item: T) -> None:
        """Add an item, which `candidates` yields for labels that its rule may match."""
        for place in self._places(rule):
            (self._others if place is None else self._named.setdefault(place, {}))[item] = None

    def remove(self, rule: LabelRule, item: T) -> None:
        """Remove an item; the rule is that with which it was added."""
        for place in self._places(rule):
            if place is None:
                del self._others[item]
                continue
            items = self._named[place]
            del items[item]
            if not items:
                del self._named[place]

    def candidates(self, labels: Mapping[str, str]) -> Iterator[T]:
        """Yield each item whose rule may match the labels, once; some rules may not match."""
        named = self._named
        if named:
            for label in labels.items():
                yield from named.get(label, ())
        yield from self._others

    @staticmethod
    def _places(rule: LabelRule) -> Iterable[tuple[str, str] | None]:
        """Return the labels that index a rule, all with the same key; None for a rule that is not indexed."""
        if rule.expressions is None:
            return ()  # matches nothing
        if rule.labels:
            return rule.labels[:1]
        for requirement in rule.expressions:
            if requirement.operator is Operator.IN and len(requirement.values) <= _MOST_VALUES:
                return [(requirement.key, value) for value in requirement.values]
        return (None,)
