"""Finds rules that may match a set of labels without asking each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from scheduler.objects.selectors import LabelRule, Operator

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

T = TypeVar("T", bound="Hashable")

_MOST_VALUES: Final = 32
"""A rule that allows more values is asked every time: an entry for each takes some 400 bytes, and one pod may name thousands."""


class RuleIndex(Generic[T]):
    """Things that each have a label rule.

    Most rules name a label and the few values it may have; such a rule is looked up by these. All others are asked
    every time.
    """

    __slots__ = ("_named", "_others")

    def __init__(self) -> None:
        self._named: dict[tuple[str, str], dict[T, None]] = {}  # label -> things whose rule demands it
        self._others: dict[T, None] = {}

    def add(self, rule: LabelRule, item: T) -> None:
        """Take in a thing with its rule."""
        for place in self._places(rule):
            (self._others if place is None else self._named.setdefault(place, {}))[item] = None

    def remove(self, rule: LabelRule, item: T) -> None:
        """Take a thing out."""
        for place in self._places(rule):
            if place is None:
                del self._others[item]
                continue
            items = self._named[place]
            del items[item]
            if not items:
                del self._named[place]

    def candidates(self, labels: Mapping[str, str]) -> Iterator[T]:
        """Yield once each thing whose rule may match the labels, and maybe does not."""
        named = self._named
        if named:
            for label in labels.items():
                yield from named.get(label, ())
        yield from self._others

    @staticmethod
    def _places(rule: LabelRule) -> Iterable[tuple[str, str] | None]:
        """Return where a rule is kept: labels of one key, of which a pod has at most one; None among the others."""
        if rule.requirements is None:
            return ()  # matches nothing
        for requirement in rule.requirements:
            if requirement.operator is Operator.IN and len(requirement.values) <= _MOST_VALUES:
                return [(requirement.key, value) for value in requirement.values]
        return (None,)
