"""An index that finds the rules that may match a set of labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from scheduler.objects.selectors import LabelRule, Operator

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

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
        """Add an item with its rule."""
        for place in self._places(rule):
            (self._others if place is None else self._named.setdefault(place, {}))[item] = None

    def remove(self, rule: LabelRule, item: T) -> None:
        """Remove an item."""
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
        if rule.requirements is None:
            return ()  # matches nothing
        for requirement in rule.requirements:
            if requirement.operator is Operator.IN and len(requirement.values) <= _MOST_VALUES:
                return [(requirement.key, value) for value in requirement.values]
        return (None,)
