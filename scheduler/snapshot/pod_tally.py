"""Weights of the pods on nodes for a pod that has very many terms, or a few with very many requirements.

The terms become conditions (see `term_columns`), so that one look-up returns the terms that match the pods of a class.
Their total weight is cached by class: it depends only on the labels of the pods and of their namespace. It is computed in
steps, and again only for new classes and for classes whose namespace has new labels. Pods that are added to or removed
from a class only change how often its weight is added.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from scheduler.snapshot.arrays import Column
from scheduler.snapshot.term_columns import TermColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence

    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot.arrays import Bools, Int64s, Rows
    from scheduler.snapshot.pod_counts import Alike, PodClasses
    from scheduler.snapshot.term_columns import Conditions

    Labels = Mapping[str, str]
    Worth = tuple[Hashable, Rows, Int64s]

_WORK_A_STEP: Final = 2000
"""The approximate number of words that are indexed or looked up in one step; it takes about two milliseconds."""
_WORK_OF_TERM: Final = 16
_WORK_OF_CLASS: Final = 32
_BYTES_OF_WORD: Final = 256
_MOST_BYTES: Final = 64 * 1024 * 1024
"""The approximate memory limit of all tallies, in bytes; the least recently used one is removed first."""


@dataclass(frozen=True, slots=True)
class TalliedTerm:
    """A term, and the weight of a pod that matches it.

    Attributes:
        group: the key by which weights are added up, such as the topology key.
        weight: the weight of one pod.
        needs: the alternative conditions of a pod, of which it meets at most one; none if no pod can match.
    """

    group: Hashable
    weight: int
    needs: Sequence[Conditions]


class TallyTerms(Protocol):
    """The terms of a tally.

    Attributes:
        key: identifies the terms: two lists with the same key are equal.
        needs_all: whether a pod counts 1 if all terms match it, and else 0; then all terms have one group.
        counts_terminating: whether terminating pods count.
        groups_are_labels: whether groups are label keys of nodes: terms with a key that no node has are left out.
    """

    @property
    def key(self) -> Hashable: ...
    @property
    def needs_all(self) -> bool: ...
    @property
    def counts_terminating(self) -> bool: ...
    @property
    def groups_are_labels(self) -> bool: ...
    def __len__(self) -> int: ...
    def read(self, place: int) -> TalliedTerm:
        """Read one of the terms."""


class NamespaceLabels(Protocol):
    """The labels of namespaces; a new object each time that any namespace changes."""

    def of(self, namespace: str) -> Labels: ...


class Tally(Protocol):
    """The weights of the pods on nodes for one list of terms; see `Snapshot.tally`."""

    @property
    def counts_terminating(self) -> bool: ...
    def steps(self, namespaces: NamespaceLabels) -> Generator[None, None, None]:
        """Compute what is missing, in steps of a few milliseconds; pods may be added or removed between them."""

    def worth(self) -> Iterator[Worth]:
        """Yield group, rows, and the weights of pods there; only after all steps, and before any change.

        A row may occur several times, and its weights may add up to 0.
        """

    def worth_of(self, pods: Sequence[Alike], namespaces: NamespaceLabels) -> Iterator[Worth]:
        """Yield group, indexes of the pods, and their weights, on any node; terminating pods count too.

        Only pods that a term matches, each pod once for each group.
        """


class PodTally:
    """Implements `Tally`.

    Args:
        classes: the pods on nodes.
        terms: the list of terms.
        has_label: returns whether any node has a label key.

    Attributes:
        counts_terminating: whether terminating pods count.
        is_torn: whether an exception interrupted the work, so that its state is unknown.
    """

    def __init__(self, classes: PodClasses, terms: TallyTerms, has_label: Callable[[str], bool]) -> None:
        self._classes, self._terms, self._has_label = classes, terms, has_label
        self.counts_terminating = terms.counts_terminating
        self._read = 0  # terms
        self._columns = TermColumns()
        self._groups: dict[Hashable, int | None] = {}  # group -> its number; None if its terms are left out
        self._counted: list[Hashable] = []  # groups by number
        self._group: Column[np.int32] = Column(np.int32)  # by number of a condition
        self._weight: Column[np.int64] = Column(np.int64)  # by number of a condition
        self._words = 0
        # By number of a class.
        # The class version for which the weight was computed.
        self._version: Column[np.int64] = Column(np.int64)
        self._worth: Int64s = np.zeros((0, 0), dtype=np.int64)  # by group, too
        self._means: Bools = np.zeros((0, 0), dtype=np.bool_)  # by group, too
        self._namespace: Column[np.int32] = Column(np.int32)
        self._namespaces: NamespaceLabels | None = None
        self._labels_of: dict[str, tuple[int, Labels]] = {}  # namespace -> its number, its labels
        self.is_torn = False

    @property
    def nbytes(self) -> int:
        """The approximate memory, in bytes."""
        return _BYTES_OF_WORD * self._words + self._worth.nbytes + self._means.nbytes

    @property
    def is_current(self) -> bool:
        """Whether the topology keys of nodes are those for which the terms were read, and the reading succeeded."""
        return not self.is_torn and all(
            self._counts(group) == (number is not None) for group, number in self._groups.items()
        )

    def _counts(self, group: Hashable) -> bool:
        return not self._terms.groups_are_labels or self._has_label(str(group))

    def steps(self, namespaces: NamespaceLabels) -> Generator[None, None, None]:
        while self._read < len(self._terms):
            yield  # the caller's own work may have taken long
            self.is_torn = True
            work = 0
            while work <= _WORK_A_STEP and self._read < len(self._terms):
                work += self._file(self._terms.read(self._read))
                self._read += 1
            self.is_torn = False
        if len(self._worth) != len(self._counted):  # as long as nothing is looked up
            self._worth = np.zeros((len(self._counted), 0), dtype=np.int64)
            self._means = np.zeros((len(self._counted), 0), dtype=np.bool_)
        while self._counted:
            self.is_torn = True
            numbers = self._behind(namespaces).tolist()
            work = 0
            for number in numbers:
                work += self._look_up(number, namespaces)
                if work > _WORK_A_STEP:
                    break
            self.is_torn = False
            if work <= _WORK_A_STEP:
                return
            yield

    def _file(self, term: TalliedTerm) -> int:
        """Index a term, and return the amount of work."""
        if term.group not in self._groups:
            counts = self._counts(term.group)
            self._groups[term.group] = len(self._counted) if counts else None
            if counts:
                self._counted.append(term.group)
        group = self._groups[term.group]
        words = _WORK_OF_TERM
        if group is None:
            return words
        for needs in term.needs:
            number = self._columns.add(needs)
            self._group.reserve(number + 1)
            self._weight.reserve(number + 1)
            self._group.cells[number], self._weight.cells[number] = group, term.weight
            words += len(needs.places) + len(needs.forbidden) + len(needs.wanted)
        self._words += words
        return words

    def _behind(self, namespaces: NamespaceLabels) -> Rows:
        """Return the numbers of the classes whose weights have to be computed."""
        count = len(self._classes.by_number)
        self._version.reserve(count)
        self._namespace.reserve(count)
        missing = count - self._worth.shape[1]
        if missing > 0:
            more = (0, 0), (0, max(missing, self._worth.shape[1]))
            self._worth, self._means = np.pad(self._worth, more), np.pad(self._means, more)
        if namespaces is not self._namespaces:
            self._namespaces = namespaces
            self._forget_namespaces(namespaces)
        there = self._classes.version.cells[:count]
        behind: Rows = np.flatnonzero((there != self._version.cells[:count]) & (there > 0))
        return behind

    def _forget_namespaces(self, namespaces: NamespaceLabels) -> None:
        """Remove the weights of classes whose namespace has new labels."""
        changed = []
        for name, (number, labels) in list(self._labels_of.items()):
            newest = namespaces.of(name)
            if newest != labels:
                self._labels_of[name] = number, newest
                changed.append(number)
        if changed:
            self._version.cells[np.isin(self._namespace.cells, changed)] = 0

    def _look_up(self, number: int, namespaces: NamespaceLabels) -> int:
        """Compute the weight of a pod of a class, and return the amount of work."""
        pod = self._classes.by_number[number]
        assert pod is not None, "a class with a version has a pod"
        known = self._labels_of.get(pod.namespace)
        if known is None:
            known = self._labels_of[pod.namespace] = len(self._labels_of), namespaces.of(pod.namespace)
        worth, means = self._asked(pod, known[1])
        self._worth[:, number], self._means[:, number] = worth, means
        if pod.is_terminating and not self.counts_terminating:
            self._means[:, number] = False
        self._namespace.cells[number] = known[0]
        self._version.cells[number] = self._classes.version.cells[number]
        return _WORK_OF_CLASS + 2 * (len(pod.labels) + len(known[1]))

    def _asked(self, pod: Alike, namespace_labels: Labels) -> tuple[Int64s, Bools]:
        """Return by group the weight of a pod, and whether any term matches it."""
        few, many = self._columns.candidates(pod.namespace, pod.labels)
        candidates = np.concatenate([np.array(few, dtype=np.int32), *many])
        groups = len(self._counted)
        if not candidates.size:
            return np.zeros(groups, dtype=np.int64), np.zeros(groups, dtype=np.bool_)
        found = self._columns.meaning(candidates, pod.namespace, pod.labels, namespace_labels)
        if self._terms.needs_all:
            means = np.full(groups, len(found) == len(self._terms))
            return means.astype(np.int64), means
        group = self._group.cells[found]
        # Such sums are exact in 64-bit floating point.
        worth = np.bincount(group, weights=self._weight.cells[found], minlength=groups).astype(np.int64)
        return worth, np.bincount(group, minlength=groups) > 0

    def worth(self) -> Iterator[Worth]:
        rows, numbers, pods = self._classes.rows.shown()
        there = pods > 0
        for number, group in enumerate(self._counted):
            chosen = np.flatnonzero(self._means[number][numbers] & there)
            classes = numbers[chosen]
            yield group, rows[chosen], self._worth[number][classes] * pods[chosen]

    def worth_of(self, pods: Sequence[Alike], namespaces: NamespaceLabels) -> Iterator[Worth]:
        if not self._counted:
            return
        shape = len(self._counted), len(pods)
        worth, means = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.bool_)
        numbers = np.array([self._number_of(pod) for pod in pods], dtype=np.intp)
        known = np.flatnonzero(numbers >= 0)
        worth[:, known], means[:, known] = self._worth[:, numbers[known]], self._means[:, numbers[known]]
        for place in np.flatnonzero(numbers < 0).tolist():
            pod = pods[place]
            worth[:, place], means[:, place] = self._asked(pod, namespaces.of(pod.namespace))
        for number, group in enumerate(self._counted):
            places = np.flatnonzero(means[number])
            if places.size:
                yield group, places, worth[number, places]

    def _number_of(self, pod: Alike) -> int:
        """Return the number of a pod's class; -1 if its weight is not cached."""
        known = self._classes.of(pod)
        if known is None or (known.is_terminating and not self.counts_terminating):
            return -1
        number = known.number
        is_known = self._version.cells[number] == self._classes.version.cells[number]
        return number if is_known else -1


class PodTallies:
    """The recently used tallies.

    Args:
        classes: the pods on nodes.
        has_label: returns whether any node has a label key.
    """

    __slots__ = ("_classes", "_has_label", "_kept")

    def __init__(self, classes: PodClasses, has_label: Callable[[str], bool]) -> None:
        self._classes, self._has_label = classes, has_label
        self._kept: OrderedDict[Hashable, PodTally] = OrderedDict()

    def of(self, terms: TallyTerms) -> PodTally:
        """Return the tally of a list of terms."""
        tally = self._kept.get(terms.key)
        if tally is None or not tally.is_current:
            tally = self._kept[terms.key] = PodTally(self._classes, terms, self._has_label)
        self._kept.move_to_end(terms.key)
        total = sum([each.nbytes for each in self._kept.values()])
        while total > _MOST_BYTES and len(self._kept) > 1:
            _, gone = self._kept.popitem(last=False)
            total -= gone.nbytes
        return tally


class ChangedTally:
    """Implements `Tally` with some pods added and removed.

    Args:
        base: the tally of the pods in the cache.
        changes: row, pod, 1 if it was added and -1 if it was removed.
    """

    def __init__(self, base: Tally, changes: Sequence[tuple[int, PodInfo, int]]) -> None:
        self._base, self._changes = base, changes
        self._namespaces: NamespaceLabels | None = None
        self.counts_terminating, self.worth_of = base.counts_terminating, base.worth_of

    def steps(self, namespaces: NamespaceLabels) -> Generator[None, None, None]:
        self._namespaces = namespaces
        yield from self._base.steps(namespaces)

    def worth(self) -> Iterator[Worth]:
        assert self._namespaces is not None, "worth() requires steps()"
        yield from self._base.worth()
        counted = [each for each in self._changes if self.counts_terminating or not each[1].is_terminating]
        rows = np.array([row for row, _, _ in counted], dtype=np.intp)
        signs = np.array([sign for _, _, sign in counted], dtype=np.int64)
        for group, places, amounts in self.worth_of([pod for _, pod, _ in counted], self._namespaces):
            yield group, rows[places], signs[places] * amounts


class TakenTally:
    """Implements `Tally` for some of the rows."""

    def __init__(self, base: Tally, rows: Rows, n_nodes: int) -> None:
        self._base = base
        self._row_of: Int64s = np.full(n_nodes, -1, dtype=np.int64)
        self._row_of[rows] = np.arange(len(rows))
        self.counts_terminating = base.counts_terminating
        self.steps, self.worth_of = base.steps, base.worth_of

    def worth(self) -> Iterator[Worth]:
        for group, rows, amounts in self._base.worth():
            taken = self._row_of[rows]
            there = taken >= 0
            yield group, taken[there].astype(np.intp), amounts[there]
