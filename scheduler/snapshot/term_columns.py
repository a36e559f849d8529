"""Finds the affinity terms that match a pod, among very many terms, with a few array operations.

A pod has words: its namespace, its labels and their keys, and the labels of its namespace and their keys. A term
consists of conditions on these words. The pod must have one word of each of several sets (`In`, `Exists`,
`namespaces`), and must not have other words (`NotIn`, `DoesNotExist`). One of the sets indexes the term, so that only
pods with such a word evaluate it. The other conditions are looked up from the pod's words, for all terms at once. So
each additional term costs a decision only nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product, repeat
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from scheduler.objects.selectors import Operator

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from scheduler.objects.pod_affinity import AffinityTerm
    from scheduler.objects.selectors import LabelRule
    from scheduler.snapshot.arrays import Int32s, Int64s

Word = str | tuple[object, ...]
_WordSet = tuple[tuple[object, ...], "Collection[str]"]
"""Words with a common prefix: the prefix, and the rest of each."""
Place = tuple[str | None, Word | None]
"""The namespace and the word of a pod's labels that index a term; None means any."""

_NAMESPACE, _NAMESPACE_KEY, _NAMESPACE_LABEL = range(3)
_MOST_PLACES: Final = 32
"""Maximum number of places that index a term; a longer list of words is looked up from the pod's words."""
_NEVER: Final = np.iinfo(np.int32).max
"""More conditions than any term has."""
_FEWEST_GONE: Final = 1024
_MOST_UNSORTED: Final = 4096
_MOST_MERGED: Final = 1 << 18
"""A run with this number of hashes is not merged with another one: it would take longer than ten milliseconds."""
_SMALLEST: Final = 16
_FEW_LABELS: Final = 256
_FEW_VALUES: Final = 8
"""More values of a requirement are hashed without a loop in Python."""


@dataclass(slots=True)
class Conditions:
    """The conditions of a term.

    Attributes:
        places: the places that index the term; a pod has at most one of them.
        sets: the number of sets of words of which a pod must have one word; it has at most one of each set.
        wanted: the hashes of the words of these sets.
        forbidden: the hashes of words that a pod must not have.
    """

    places: list[Place]
    sets: int
    wanted: list[int]
    forbidden: list[int]


def conditions(term: AffinityTerm) -> Iterator[Conditions]:
    """Yield one or two alternative conditions of a term; a pod meets at most one. A term without matches yields none."""
    own = _words_of(term.rule)
    if own is None:
        return
    if term.namespaces and not term.namespace_rule.is_empty:
        yield _filed(term.namespaces, own)
    more = _words_of(term.namespace_rule, of_namespace=True)
    if more is not None:
        named = () if term.namespace_rule.is_empty else term.namespaces
        forbidden = [*own.forbidden, *more.forbidden, *_hashes([((_NAMESPACE,), named)])]
        yield _filed(None, _Words([*own.single, *more.single], [*own.several, *more.several], forbidden))


def conditions_of(namespaces: frozenset[str] | None, rule: LabelRule) -> Conditions | None:
    """Return the conditions for pods in some or all namespaces that match a label rule; None if no pod can match."""
    words = _words_of(rule)
    return None if words is None or (namespaces is not None and not namespaces) else _filed(namespaces, words)


@dataclass(slots=True)
class _Words:
    """The words of a rule.

    Attributes:
        single: words that a pod must have.
        several: sets of words of each of which a pod must have one.
        forbidden: the hashes of words that a pod must not have.
    """

    single: list[Word]
    several: list[_WordSet]
    forbidden: list[int]


def _hashes(sets: Collection[_WordSet]) -> list[int]:
    """Return the hash of each word of some sets."""
    hashes = [
        hash((*prefix, value)) for prefix, values in sets if len(values) <= _FEW_VALUES for value in values
    ]
    for prefix, values in sets:
        if len(values) > _FEW_VALUES:
            hashes += map(hash, zip(*map(repeat, prefix), values, strict=False))
    return hashes


def _filed(namespaces: frozenset[str] | None, words: _Words) -> Conditions:
    several = list(words.several)
    under: Sequence[str | None] = (None,)
    if namespaces is not None:
        if len(namespaces) <= _MOST_PLACES:
            under = list(namespaces)
        else:
            several.append(((_NAMESPACE,), namespaces))
    # A label is rarer than a label key; only the pod's own labels index terms, not those of its namespace.
    single = list(words.single)
    labels = (word for word in single if isinstance(word, tuple) and isinstance(word[0], str))
    index: Word | None = next(labels, None)
    found: Sequence[Word | None] = [index]
    if index is None:
        most = _MOST_PLACES // len(under)
        few = next((each for each in several if len(each[1]) <= most and isinstance(each[0][0], str)), None)
        if few is None:
            index = next((word for word in single if isinstance(word, str)), None)
            found = [index]
        else:
            several.remove(few)
            found = [(*few[0], value) for value in few[1]]
    if index is not None:
        single.remove(index)
    wanted = [*map(hash, single), *_hashes(several)]
    return Conditions(list(product(under, found)), len(single) + len(several), wanted, words.forbidden)


def _words_of(rule: LabelRule, *, of_namespace: bool = False) -> _Words | None:
    """Return the words of a rule for the labels of a pod or of its namespace; None if no labels can match.

    Requirements about one label need not be joined: each is a set of its own, and a forbidden word outweighs all sets.
    """
    if rule.expressions is None:
        return None
    exists, not_exists, within, not_in = [
        [each for each in rule.expressions if each.operator is operator]
        for operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST, Operator.IN, Operator.NOT_IN)
    ]
    label_of: tuple[object, ...] = (_NAMESPACE_LABEL,) if of_namespace else ()
    labels, present = rule.labels, [each.key for each in exists]
    return _Words(
        [
            *([(_NAMESPACE_LABEL, *each) for each in labels] if of_namespace else labels),
            *[(*label_of, each.key, *each.values) for each in within if len(each.values) == 1],
            *([(_NAMESPACE_KEY, key) for key in present] if of_namespace else present),
        ],
        [((*label_of, each.key), each.values) for each in within if len(each.values) != 1],
        [
            *[hash((_NAMESPACE_KEY, each.key) if of_namespace else each.key) for each in not_exists],
            *_hashes([((*label_of, each.key), each.values) for each in not_in]),
        ],
    )


def _hashes_of_pod(namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> Int64s:
    """Return the sorted hashes of a pod's words; a pod may have 100,000 labels."""
    hashes = [hash((_NAMESPACE, namespace)), *map(hash, labels), *map(hash, labels.items())]
    for key, value in namespace_labels.items():
        hashes += (hash((_NAMESPACE_KEY, key)), hash((_NAMESPACE_LABEL, key, value)))
    found = np.array(hashes, dtype=np.int64)
    found.sort()  # many of them are looked up three times as fast
    return found


class _LastHashes:
    """The hashes of the last pod with many labels: the terms of several kinds are looked up for one pod."""

    def __init__(self) -> None:
        self._of: tuple[str, Mapping[str, str], Mapping[str, str]] = ("", {}, {})
        self._hashes: Int64s = np.empty(0, dtype=np.int64)

    def of(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> Int64s:
        """Return the hashes of `_hashes_of_pod`; the caller must not modify them."""
        if len(labels) <= _FEW_LABELS:
            return _hashes_of_pod(namespace, labels, namespace_labels)
        last = self._of
        if not (labels is last[1] and namespace_labels is last[2] and namespace == last[0]):
            self._hashes = _hashes_of_pod(namespace, labels, namespace_labels)
            self._of = namespace, labels, namespace_labels
        return self._hashes


_LAST_HASHES: Final = _LastHashes()


class TermColumns:
    """Terms by number, with an index of words.

    Numbers of removed terms are reused only after all references to them are removed.
    """

    __slots__ = ("_forbidden", "_free", "_gone", "_need", "_places", "_taken", "_wanted", "size")

    def __init__(self) -> None:
        self._places: dict[str | None, dict[Word | None, int | _Numbers]] = {}
        self._wanted = _WordIndex()  # the words of `Conditions.wanted`
        self._forbidden = _WordIndex()
        self._need: Int32s = np.full(_SMALLEST, _NEVER, dtype=np.int32)  # `Conditions.sets`
        self._taken = 0  # the count of assigned numbers
        self._free: list[int] = []
        self._gone: list[int] = []  # numbers of removed terms that word indexes may still contain
        self.size = 0  # the number of terms

    @property
    def room(self) -> int:
        """The upper bound of all numbers."""
        return len(self._need)

    def add(self, needs: Conditions) -> int:
        """Add a term, and return its number."""
        if self._free:
            number = self._free.pop()
        else:
            number = self._taken
            self._taken += 1
            if number == len(self._need):
                self._need = np.concatenate([self._need, np.full(number, _NEVER, dtype=np.int32)])
        self._need[number] = needs.sets
        self._wanted.add(needs.wanted, number)
        self._forbidden.add(needs.forbidden, number)
        for namespace, word in needs.places:
            there = self._places.setdefault(namespace, {})
            known = there.get(word)
            if known is None:
                there[word] = number
            elif isinstance(known, int):
                there[word] = _Numbers(known, number)
            else:
                known.append(number)
        self.size += 1
        return number

    def remove(self, terms: Sequence[tuple[int, Sequence[Place]]]) -> None:
        """Remove terms, given by their numbers and their places."""
        touched: dict[Place, int] = {}
        for number, places in terms:
            self._need[number] = _NEVER
            for place in places:
                touched[place] = number
        for (namespace, word), number in touched.items():
            there = self._places[namespace]
            known = there[word]
            if isinstance(known, int):
                assert known == number, "the only term of the place is removed"
                del there[word]
            else:
                left = known.drop(self._need)
                if not left:
                    del there[word]
            if not there:
                del self._places[namespace]
        self._gone += [number for number, _ in terms]
        self.size -= len(terms)
        if len(self._gone) > max(_FEWEST_GONE, self.size):
            self._wanted.keep(self._need)
            self._forbidden.keep(self._need)
            self._free += self._gone
            self._gone = []

    def candidates(self, namespace: str, labels: Mapping[str, str]) -> tuple[list[int], list[Int32s]]:
        """Return the terms whose places match a pod: single numbers, and arrays of numbers."""
        few: list[int] = []
        many: list[Int32s] = []
        if not self._places:
            return few, many
        for name in (namespace, None):
            there = self._places.get(name)
            if there is None:
                continue
            for each in _found_by(labels, there):
                if each is None:
                    continue
                if isinstance(each, int):
                    few.append(each)
                elif each.length <= _SMALLEST:
                    few += each.shown().tolist()
                else:
                    many.append(each.shown())
        return few, many

    def meaning(
        self,
        candidates: Int32s,
        namespace: str,
        labels: Mapping[str, str],
        namespace_labels: Mapping[str, str],
    ) -> Int32s:
        """Return the candidates that match a pod."""
        for found in self.meaning_in_steps(candidates, namespace, labels, namespace_labels):
            meaning = found
        return meaning

    def meaning_in_steps(
        self,
        candidates: Int32s,
        namespace: str,
        labels: Mapping[str, str],
        namespace_labels: Mapping[str, str],
    ) -> Iterator[Int32s]:
        """Yield the candidates that match a pod; the last result is complete. Nothing must change in between."""
        hashes = _LAST_HASHES.of(namespace, labels, namespace_labels)
        # A pod has at most one word of each set, so the count is the number of sets that match.
        found = np.zeros(self.room, dtype=np.int32)
        for numbers in self._wanted.find(hashes):
            found += np.bincount(numbers, minlength=self.room).astype(np.int32)
            yield candidates[:0]
        for numbers in self._forbidden.find(hashes):
            found[numbers] = -_NEVER
            yield candidates[:0]
        yield candidates[found[candidates] == self._need[candidates]]


def _found_by(
    labels: Mapping[str, str], there: Mapping[Word | None, int | _Numbers]
) -> Iterator[int | _Numbers | None]:
    """Yield what is indexed by a pod's labels and their keys, and by no word."""
    if len(there) < len(labels):  # a pod may have 100,000 labels
        for word, numbers in there.items():
            if word is None or word in (labels if isinstance(word, str) else labels.items()):
                yield numbers
        return
    yield there.get(None)
    for label in labels.items():
        yield there.get(label)
        yield there.get(label[0])


class _Numbers:
    """Numbers in an array that grows."""

    __slots__ = ("_cells", "length")

    def __init__(self, *numbers: int) -> None:
        self._cells: Int32s = np.array(numbers, dtype=np.int32)
        self.length = len(numbers)

    def append(self, number: int) -> None:
        if self.length == len(self._cells):
            self._cells = np.concatenate([self._cells, np.zeros(self.length, dtype=np.int32)])
        self._cells[self.length] = number
        self.length += 1

    def shown(self) -> Int32s:
        return self._cells[: self.length]

    def drop(self, need: Int32s) -> int:
        """Drop the numbers of removed terms, and return the number of remaining ones."""
        shown = self.shown()
        self._cells = shown[need[shown] != _NEVER]
        self.length = len(self._cells)
        return self.length


class _Run(NamedTuple):
    """Pairs of (hash of a word, number of a term), sorted by hash.

    Attributes:
        hashes: the hashes, each once.
        starts: for each hash, the position of its first number; then the count of all numbers.
        numbers: the numbers of the terms.
    """

    hashes: Int64s
    starts: Int64s
    numbers: Int32s

    @classmethod
    def of(cls, hashes: Int64s, numbers: Int32s) -> Self:
        """Return a run of sorted pairs; there is at least one."""
        firsts = np.flatnonzero(hashes[1:] != hashes[:-1]) + 1
        starts = np.concatenate([[0], firsts, [len(hashes)]])
        return cls(hashes[starts[:-1]], starts, numbers)

    def pairs(self) -> tuple[Int64s, Int32s]:
        return np.repeat(self.hashes, np.diff(self.starts)), self.numbers

    def merged(self, other: Self) -> Self:
        (one, numbers), (more, further) = self.pairs(), other.pairs()
        places = np.searchsorted(one, more)
        return self.of(np.insert(one, places, more), np.insert(numbers, places, further))

    def find(self, hashes: Int64s) -> Int32s:
        """Return the numbers of the terms that have the hashes, once for each hash."""
        places = np.searchsorted(self.hashes, hashes)
        there = places[self.hashes.take(places, mode="clip") == hashes]
        starts = self.starts[there]
        if there.size == 1:  # as for most pods
            only: Int32s = self.numbers[starts[0] : self.starts[there[0] + 1]]
            return only
        lengths = self.starts[there + 1] - starts
        before = np.cumsum(lengths) - lengths
        found: Int32s = self.numbers[np.arange(lengths.sum()) + np.repeat(starts - before, lengths)]
        return found


class _WordIndex:
    """An index of words: pairs of (hash of a word, number of a term), in a few runs.

    Hashes have 64 bits, and the hash key of strings differs in each process, so collisions between a term's and a
    pod's words do not occur in practice.
    """

    __slots__ = ("_new", "_new_numbers", "_runs")

    def __init__(self) -> None:
        self._runs: list[_Run] = []  # in descending order of length
        self._new: list[int] = []  # hashes that are not sorted yet
        self._new_numbers: list[int] = []

    def add(self, hashes: Sequence[int], number: int) -> None:
        self._new += hashes
        self._new_numbers += [number] * len(hashes)
        if len(self._new) > _MOST_UNSORTED:
            self._sort_new()

    def find(self, hashes: Int64s) -> Iterator[Int32s]:
        """Yield, for each run, the numbers of the terms that have the hashes, once for each hash."""
        self._sort_new()
        return (run.find(hashes) for run in self._runs)

    def keep(self, need: Int32s) -> None:
        """Drop the removed terms."""
        self._sort_new()
        runs = []
        for run in self._runs:
            hashes, numbers = run.pairs()
            there = need[numbers] != _NEVER
            if there.any():
                runs.append(_Run.of(hashes[there], numbers[there]))
        self._runs = runs

    def _sort_new(self) -> None:
        if not self._new:
            return
        hashes: Int64s = np.array(self._new, dtype=np.int64)
        numbers: Int32s = np.array(self._new_numbers, dtype=np.int32)
        self._new, self._new_numbers = [], []
        order = np.argsort(hashes)
        run = _Run.of(hashes[order], numbers[order])
        while self._runs and len(self._runs[-1].numbers) < min(2 * len(run.numbers), _MOST_MERGED):
            run = self._runs.pop().merged(run)
        self._runs.append(run)
