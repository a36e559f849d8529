"""An index of the affinity terms of pods on nodes: which terms match a given pod, and which nodes have pods with them.

Pods with equal terms, such as the replicas of a workload, share one `HeldTerms`: it indexes the terms once and counts
the pods by row. So adding or removing a pod has a constant cost, except for the first and the last pod with these
terms. Their terms are inserted and removed in slices if they are many.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict, deque
from enum import Enum
from itertools import pairwise
from operator import is_
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from scheduler.objects.pod_affinity import NO_TERMS, LongTerms
from scheduler.snapshot.arrays import Column
from scheduler.snapshot.term_columns import TermColumns, conditions

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_affinity import AffinityTerms, WeightedTerm
    from scheduler.snapshot.arrays import Int32s, Int64s, Rows
    from scheduler.snapshot.interning import NamesInUse

MOST_TERMS_AT_ONCE: Final = 256
"""The terms of pods with more terms are indexed later, in slices between attempts."""
MOST_COST_AT_ONCE: Final = 8192
"""Terms that cost more than this (see `AffinityTerms.cost`) are indexed later too."""
SLICE_TERMS: Final = 500
"""Number of terms that are inserted or removed in one slice; it takes a few milliseconds."""
COST_OF_A_TERM: Final = 16
"""In a slice, a term counts once, and once more for each multiple of this cost."""
_FEW_ROWS: Final = 256
_FEW_TERMS: Final = 32
"""Up to this number of terms, each is matched separately."""
_MOST_COST_ASKED: Final = 256
"""Terms of pods whose terms cost more than this are never matched separately."""
_MANY_ROWS: Final = -2
_NO_ROW: Final = -1

_NO_TERMS: Final = np.empty(0, dtype=np.int32)

Who = tuple[str, "Mapping[str, str]", "Mapping[str, str]"]
"""A pod: its namespace, its labels, and those of its namespace."""
Amounts = tuple[str, "Rows", "Int64s"]
"""A topology key, rows, and the sum of the weights of the key's terms on each row."""


class TermKind(Enum):
    """The four lists of affinity terms of a pod; the values are attributes of AffinityTerms."""

    __hash__ = object.__hash__  # there is one object per member, and Enum's own is a Python call

    REQUIRED_AFFINITY = "required_affinity"
    REQUIRED_ANTI_AFFINITY = "required_anti_affinity"
    PREFERRED_AFFINITY = "preferred_affinity"
    PREFERRED_ANTI_AFFINITY = "preferred_anti_affinity"

    def of(self, terms: AffinityTerms) -> Sequence[WeightedTerm]:
        """Return a pod's terms of this kind."""
        of_kind: Sequence[WeightedTerm] = getattr(terms, self.value)
        return of_kind


class TermsThatMean(Protocol):
    """The terms of one kind, of pods on nodes, that match a given pod; valid as long as its snapshot."""

    def amounts(self) -> Iterable[Amounts]:
        """Yield the sum of the weights of the terms, by topology key and row.

        Terms with a topology key that no node has are left out. Keys and rows may repeat.
        """

    def weights_of(self, terms: AffinityTerms) -> Mapping[str, int]:
        """Return topology key -> the sum of the weights of those of `terms` that match the given pod.

        For terms of pods on nodes, only indexed terms count; for other terms, all. Keys that no node has are left out.
        """


class TermsInUse(Protocol):
    """The terms of one kind of all pods on nodes."""

    def matching(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> TermsThatMean:
        """Return the terms that match a pod with these labels, in a namespace with `namespace_labels`."""

    def prepared(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> Generator[None, None, None]:
        """Prepare `matching` in steps: it takes long for a pod with very many labels if there are many large terms."""


class RowCounts:
    """A number per row, most of them 0."""

    __slots__ = ("_few", "_many", "_shown")

    def __init__(self) -> None:
        self._shown: tuple[Rows, Int64s] | None = None  # until something is added
        self._few: dict[int, int] = {}
        self._many: Int64s | None = None  # used beyond _FEW_ROWS rows

    def add(self, row: int, amount: int) -> None:
        """Add an amount to a row's number."""
        self._shown = None
        if self._many is not None:
            if row >= len(self._many):
                self._many = np.concatenate([self._many, np.zeros(max(row, 64), dtype=np.int64)])
            self._many[row] += amount
            return
        count = self._few.get(row, 0) + amount
        if count:
            self._few[row] = count
        else:
            del self._few[row]
        if len(self._few) > _FEW_ROWS:
            self._many = np.zeros(max(self._few) + 1, dtype=np.int64)
            self._many[list(self._few)] = list(self._few.values())
            self._few = {}

    def only(self) -> tuple[int, int] | None:
        """Return the only row and its number, (_NO_ROW, 0) without rows, or None for several rows."""
        if self._many is None and len(self._few) <= 1:
            return next(iter(self._few.items()), (_NO_ROW, 0))
        return None

    def arrays(self) -> tuple[Rows, Int64s]:
        """Return the rows whose number is not 0, and their numbers; the caller must not modify them."""
        if self._shown is None:
            self._shown = self._arrays()
        return self._shown

    def _arrays(self) -> tuple[Rows, Int64s]:
        if self._many is not None:
            rows = np.flatnonzero(self._many)
            return rows, self._many[rows]
        length = len(self._few)
        return (
            np.fromiter(self._few.keys(), dtype=np.intp, count=length),
            np.fromiter(self._few.values(), dtype=np.int64, count=length),
        )


class HeldTerms:
    """The terms of all pods with equal terms, and the rows of these pods.

    Attributes:
        terms: the terms.
        count: the number of terms.
        number: the number of this entry among all entries.
        pods: the number of pods with these terms.
        rows: row -> the number of these pods.
        filed: the number of indexed terms; terms are indexed in the order of the kinds.
        numbers: kind -> the numbers of the indexed terms, in order; none, one or two for each term.
        is_pending: whether terms are being inserted or removed in slices.
        newcomer: the first pod with these terms, until the first terms are indexed.
    """

    __slots__ = ("count", "filed", "is_pending", "newcomer", "number", "numbers", "pods", "rows", "terms")

    def __init__(self, terms: AffinityTerms, number: int) -> None:
        self.terms = terms
        self.count = terms.count
        self.number = number
        self.pods = self.filed = 0
        self.rows = RowCounts()
        self.numbers = {kind: array("i") for kind in TermKind if kind.of(terms)}
        self.is_pending = False
        self.newcomer: PodInfo | None = None

    @property
    def wanted(self) -> int:
        """The number of terms that should be indexed."""
        return self.count if self.pods else 0

    def at(self, place: int) -> tuple[TermKind, int]:
        """Return the kind of a term, and its position in that kind."""
        for kind in self.numbers:
            length = len(kind.of(self.terms))
            if place < length:
                return kind, place
            place -= length
        raise IndexError("there are fewer terms")


class _AllHeld:
    """All entries, by terms and by number."""

    __slots__ = ("_free", "_pods", "_row", "by_terms", "held")

    def __init__(self) -> None:
        self.by_terms: dict[AffinityTerms, HeldTerms] = {}
        self.held: list[HeldTerms | None] = []
        self._free: list[int] = []
        self._row: Column[np.int64] = Column(np.int64)  # the row of the pods, _NO_ROW or _MANY_ROWS
        self._pods: Column[np.int64] = Column(np.int64)  # their number, if they are on one row

    def add(self, terms: AffinityTerms) -> HeldTerms:
        number = self._free.pop() if self._free else len(self.held)
        held = self.by_terms[terms] = HeldTerms(terms, number)
        if number == len(self.held):
            self.held.append(held)
            self._row.reserve(len(self.held))
            self._pods.reserve(len(self.held))
        else:
            self.held[number] = held
        return held

    def remove(self, held: HeldTerms) -> None:
        del self.by_terms[held.terms]
        self.held[held.number] = None
        self._free.append(held.number)

    def moved(self, held: HeldTerms) -> None:
        """Update the columns after a change of the pods."""
        only = held.rows.only()
        row, pods = (_MANY_ROWS, 0) if only is None else only
        self._row.cells[held.number], self._pods.cells[held.number] = row, pods

    def amounts(self, worth: Int64s) -> Iterator[tuple[Rows, Int64s]]:
        """Yield rows and amounts; `worth` is the weight of each pod's terms, by number of the entry."""
        numbers = np.flatnonzero(worth)
        each = worth[numbers]
        rows = self._row.cells[numbers]
        single = rows >= 0
        yield rows[single].astype(np.intp), each[single] * self._pods.cells[numbers[single]]
        for place in np.flatnonzero(rows == _MANY_ROWS).tolist():
            held = self.held[int(numbers[place])]
            assert held is not None, "pods on many rows have an entry"
            many, pods = held.rows.arrays()
            yield many, pods * each[place]


class _TopologyKeys:
    """The topology keys of terms by number, and whether any node has them.

    Args:
        of_nodes: the label keys of nodes; `show` reports changes.
    """

    __slots__ = ("_free", "_numbers", "_uses", "names", "of_nodes", "on_nodes")

    def __init__(self, of_nodes: NamesInUse) -> None:
        self.of_nodes = of_nodes
        self._numbers: dict[str, int] = {}
        self._uses: list[int] = []
        self._free: list[int] = []
        self.names: list[str] = []
        self.on_nodes: Column[np.bool_] = Column(np.bool_)

    def take(self, key: str) -> int:
        """Count one more term with a key, and return the key's number."""
        number = self._numbers.get(key)
        if number is None:
            if self._free:
                number = self._free.pop()
                self.names[number] = key
            else:
                number = len(self.names)
                self.names.append(key)
                self._uses.append(0)
                self.on_nodes.reserve(len(self.names))
            self._numbers[key] = number
            self.on_nodes.cells[number] = key in self.of_nodes
        self._uses[number] += 1
        return number

    def drop(self, number: int) -> None:
        """Count one term less with a key."""
        self._uses[number] -= 1
        if not self._uses[number]:
            del self._numbers[self.names[number]]
            self.names[number], self.on_nodes.cells[number] = "", False
            self._free.append(number)

    def show(self, key: str, *, is_there: bool) -> None:
        """Record that a first node has a label key, or that no node has it any more."""
        number = self._numbers.get(key)
        if number is not None:
            self.on_nodes.cells[number] = is_there


class TermIndex:
    """The terms of one kind; see `TermsInUse`.

    Attributes:
        kind: the kind of the terms.
        changes: the number of insertions and removals so far.
        all_held: the entries of all terms.
        keys: the topology keys by number.
        held_by: by term, the number of its entry.
        place: by term, its position among the entry's terms of this kind.
        key: by term, the number of its topology key.
        weight: by term, its weight.
    """

    __slots__ = (
        "_columns",
        "_prepared",
        "all_held",
        "changes",
        "held_by",
        "key",
        "keys",
        "kind",
        "place",
        "weight",
    )

    def __init__(self, kind: TermKind, all_held: _AllHeld, keys: _TopologyKeys) -> None:
        self.kind = kind
        self.all_held, self.keys = all_held, keys
        self._columns = TermColumns()
        self.held_by: Column[np.int32] = Column(np.int32)
        self.place: Column[np.int32] = Column(np.int32)
        self.key: Column[np.int32] = Column(np.int32)
        self.weight: Column[np.int64] = Column(np.int64)
        self.changes = 0
        # The changes at that time, the pod, and the terms that match it.
        self._prepared: tuple[int, Who, Int32s] = (-1, ("", {}, {}), _NO_TERMS)

    def file(self, held: HeldTerms, start: int, end: int) -> None:
        """Insert some of an entry's terms."""
        self.changes += 1
        columns: tuple[Column[Any], ...] = self.held_by, self.place, self.key, self.weight
        numbers = held.numbers[self.kind]
        for place, each in enumerate(self.kind.of(held.terms)[start:end], start):
            for needs in conditions(each.term):
                number = self._columns.add(needs)
                numbers.append(number)
                values = held.number, place, self.keys.take(each.term.topology_key), each.weight
                for column, value in zip(columns, values, strict=True):
                    column.reserve(number + 1)
                    column.cells[number] = value

    def take_out(self, held: HeldTerms, start: int, end: int) -> None:
        """Remove some of an entry's terms, the last indexed ones."""
        self.changes += 1
        numbers = held.numbers[self.kind]
        gone = []
        for each in reversed(self.kind.of(held.terms)[start:end]):
            for needs in reversed(list(conditions(each.term))):
                number = numbers.pop()
                self.keys.drop(int(self.key.cells[number]))
                gone.append((number, needs.places))
        self._columns.remove(gone)

    def matching(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> _Found:
        who = namespace, labels, namespace_labels
        if not self._columns.size:  # as in most clusters
            return _Found(self, _NO_TERMS, who)
        if self._is_prepared_for(who):
            return _Found(self, self._on_nodes(self._prepared[2]), who)
        few, many = self._columns.candidates(namespace, labels)
        if not (few or many):  # as for nearly every pod
            return _Found(self, _NO_TERMS, who)
        found = None if many or len(few) > _FEW_TERMS else self._asked(few, *who)
        if found is None:
            candidates = self._on_nodes(np.concatenate([np.array(few, dtype=np.int32), *many]))
            found = self._columns.meaning(candidates, *who)
        return _Found(self, found, who)

    def prepared(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> Generator[None, None, None]:
        who = namespace, labels, namespace_labels
        while self._columns.size and not self._is_prepared_for(who):
            changes, numbers = self.changes, _NO_TERMS
            few, many = self._columns.candidates(namespace, labels)
            candidates = np.concatenate([np.array(few, dtype=np.int32), *many])
            for found in self._columns.meaning_in_steps(candidates, *who):
                numbers = found
                yield
                if changes != self.changes:
                    break
            self._prepared = changes, who, numbers

    def _is_prepared_for(self, who: Who) -> bool:
        changes, pod, _ = self._prepared
        return changes == self.changes and all(map(is_, pod, who))

    def _on_nodes(self, terms: Int32s) -> Int32s:
        """Return those of some terms whose topology key a node has."""
        return terms[self.keys.on_nodes.cells[self.key.cells[terms]]]

    def _asked(
        self, few: list[int], namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> Int32s | None:
        """Return those of a few terms that match a pod; None if a term must not be matched separately."""
        found: dict[tuple[int, int], int] = {}  # a term is indexed twice if it has namespaces and a selector
        for number in few:
            if not self.keys.on_nodes.cells[self.key.cells[number]]:
                continue
            held_by, place = int(self.held_by.cells[number]), int(self.place.cells[number])
            held = self.all_held.held[held_by]
            assert held is not None, "an indexed term has an entry"
            terms = self.kind.of(held.terms)
            if isinstance(terms, LongTerms) or held.terms.cost > _MOST_COST_ASKED:
                return None
            if terms[place].term.matches(namespace, labels, namespace_labels):
                found[held_by, place] = number
        return np.array(list(found.values()), dtype=np.int32)


class _Found:
    """The terms of a kind that match a pod."""

    __slots__ = ("_changes", "_index", "_numbers", "_weights", "_who")

    def __init__(self, index: TermIndex, numbers: Int32s, who: Who) -> None:
        self._index, self._numbers, self._who = index, numbers, who
        self._changes = index.changes
        self._weights: dict[AffinityTerms, Mapping[str, int]] = {}

    def amounts(self) -> Iterable[Amounts]:
        return self._amounts() if len(self._numbers) else ()

    def _amounts(self) -> Iterator[Amounts]:
        index, numbers = self._index, self._numbers
        if len(numbers) <= _FEW_TERMS:
            for number in numbers.tolist():
                held = index.all_held.held[int(index.held_by.cells[number])]
                assert held is not None, "an indexed term has an entry"
                rows, pods = held.rows.arrays()
                yield index.keys.names[index.key.cells[number]], rows, pods * index.weight.cells[number]
            return
        for key, some in self._by_key():
            worth = np.bincount(index.held_by.cells[some], index.weight.cells[some]).astype(np.int64)
            for rows, amounts in index.all_held.amounts(worth):
                yield index.keys.names[key], rows, amounts

    def _by_key(self) -> Iterator[tuple[int, Int32s]]:
        """Yield (number of a topology key, terms with this key)."""
        keys = self._index.key.cells[self._numbers]
        counts = np.bincount(keys)
        used = np.flatnonzero(counts)
        if len(used) == 1:
            yield int(used[0]), self._numbers
            return
        # 16-bit numbers are sorted in linear time.
        rank = np.zeros(len(counts), dtype=np.min_scalar_type(len(used)))
        rank[used] = np.arange(len(used))
        numbers = self._numbers[np.argsort(rank[keys], kind="stable")]
        ends = np.cumsum(counts[used]).tolist()
        for key, (start, end) in zip(used.tolist(), pairwise([0, *ends]), strict=True):
            yield key, numbers[start:end]

    def weights_of(self, terms: AffinityTerms) -> Mapping[str, int]:
        weights = self._weights.get(terms)
        if weights is None:
            weights = self._weights[terms] = self._weights_of(terms)
        return weights

    def _weights_of(self, terms: AffinityTerms) -> Mapping[str, int]:
        index, kind = self._index, self._index.kind
        weights: Counter[str] = Counter()
        held = index.all_held.by_terms.get(terms)
        if held is None or index.changes != self._changes:
            # Matched separately, because the columns do not have them.
            for each in kind.of(terms):
                if each.term.topology_key in index.keys.of_nodes and each.term.matches(*self._who):
                    weights[each.term.topology_key] += each.weight
        elif kind in held.numbers:
            numbers = self._numbers[index.held_by.cells[self._numbers] == held.number]
            keys, amounts = index.key.cells[numbers].tolist(), index.weight.cells[numbers].tolist()
            for key, amount in zip(keys, amounts, strict=True):
                weights[index.keys.names[key]] += amount
        return weights


class AffinityIndex:
    """The terms of all kinds.

    Args:
        keys: the label keys of nodes; `show` and `hide` report changes.
        in_slices: whether terms of pods with very many or very large terms are left for `work`.
    """

    __slots__ = ("_all", "_in_slices", "_keys", "_of_kind", "_pending")

    def __init__(self, keys: NamesInUse, *, in_slices: bool = False) -> None:
        self._keys = _TopologyKeys(keys)
        self._all = _AllHeld()
        self._of_kind = {kind: TermIndex(kind, self._all, self._keys) for kind in TermKind}
        self._in_slices = in_slices
        self._pending: deque[HeldTerms] = deque()

    def of(self, kind: TermKind) -> TermIndex:
        return self._of_kind[kind]

    def show(self, key: str) -> None:
        """Record that a first node has a label key."""
        self._keys.show(key, is_there=True)

    def hide(self, key: str) -> None:
        """Record that no node has a label key any more."""
        self._keys.show(key, is_there=False)

    def rows(self) -> Iterator[tuple[AffinityTerms, tuple[Rows, Int64s]]]:
        """Yield terms, the rows of the pods with equal terms, and the number of these pods in each row."""
        for held in self._all.by_terms.values():
            if held.pods:
                yield held.terms, held.rows.arrays()

    def count(self, row: int, pod: PodInfo, sign: int) -> None:
        """Count a pod on a row, or stop counting it."""
        terms = pod.affinity_terms
        if terms is NO_TERMS:
            return
        held = self._all.by_terms.get(terms)
        if held is None:
            held = self._all.add(terms)
        held.rows.add(row, sign)
        held.pods += sign
        self._all.moved(held)
        if held.filed != held.wanted and not held.is_pending:
            if self._in_slices and (held.count > MOST_TERMS_AT_ONCE or terms.cost > MOST_COST_AT_ONCE):
                held.is_pending = True
                held.newcomer = pod if sign > 0 else None
                self._pending.append(held)
            else:
                self._advance(held, held.count)
        self._let_go(held)

    def move(self, pods: Iterable[PodInfo], *, start: int, end: int | None) -> None:
        """Move pods to another row, or remove them."""
        for pod in pods:
            if end is not None:
                self.count(end, pod, 1)  # first, so that no terms are removed in between
            self.count(start, pod, -1)

    @property
    def is_behind(self) -> bool:
        """Whether `work` has terms left."""
        return bool(self._pending)

    def work(self) -> Sequence[PodInfo]:
        """Insert or remove some of the remaining terms, alternating between pods.

        Returns:
            The pods whose terms this slice began to insert; only one of pods with equal terms.
        """
        left, begun = SLICE_TERMS, []
        while left > 0 and self._pending:
            held = self._pending.popleft()
            if held.newcomer is not None and held.wanted:
                begun.append(held.newcomer)
                held.newcomer = None
            each = 1 + held.terms.cost // held.count // COST_OF_A_TERM
            left -= each * self._advance(held, max(1, left // each))
            if held.filed != held.wanted:
                self._pending.append(held)
            else:
                held.is_pending, held.newcomer = False, None
                self._let_go(held)
        return begun

    def _advance(self, held: HeldTerms, most: int) -> int:
        """Insert or remove up to `most` terms; return their number, at least one."""
        worked = 0
        while held.filed != held.wanted and worked < most:
            is_filing = held.filed < held.wanted
            kind, place = held.at(held.filed if is_filing else held.filed - 1)
            if is_filing:
                some = min(most - worked, len(kind.of(held.terms)) - place)
                self._of_kind[kind].file(held, place, place + some)
                held.filed += some
            else:
                some = min(most - worked, place + 1)
                self._of_kind[kind].take_out(held, place + 1 - some, place + 1)
                held.filed -= some
            worked += some
        return max(worked, 1)

    def _let_go(self, held: HeldTerms) -> None:
        if not (held.pods or held.filed or held.is_pending):
            self._all.remove(held)


class _Changed:
    """The terms of a kind that match a pod, with some pods added and removed."""

    def __init__(
        self, base: TermsThatMean, kind: TermKind, changes: Sequence[tuple[int, PodInfo, int]]
    ) -> None:
        self._base, self._kind, self._changes = base, kind, changes
        self.weights_of = base.weights_of

    def amounts(self) -> Iterator[Amounts]:
        more: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for row, pod, sign in self._changes:
            terms = pod.affinity_terms
            if self._kind.of(terms):
                for key, weight in self.weights_of(terms).items():
                    more[key][row] += sign * weight
        changed: dict[str, list[tuple[Rows, Int64s]]] = {
            key: [(np.array(list(rows)), np.array(list(rows.values())))] for key, rows in more.items()
        }
        for key, rows, amounts in self._base.amounts():
            if key in changed:
                changed[key].append((rows, amounts))
            else:
                yield key, rows, amounts
        for key, parts in changed.items():
            rows, amounts = (np.concatenate(each) for each in zip(*parts, strict=True))
            total = np.bincount(rows, weights=amounts).astype(np.int64)
            left = np.flatnonzero(total)
            yield key, left, total[left]


class ChangedTerms:
    """Terms in use, with pods added and removed: (row, pod, 1 for an added pod and -1 for a removed one)."""

    def __init__(self, base: TermsInUse, kind: TermKind, changes: Sequence[tuple[int, PodInfo, int]]) -> None:
        self._base, self._kind, self._changes = base, kind, changes
        self.prepared = base.prepared

    def matching(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> TermsThatMean:
        base = self._base.matching(namespace, labels, namespace_labels)
        return _Changed(base, self._kind, self._changes)


class _Taken:
    """The terms of a kind that match a pod, on some rows only."""

    def __init__(self, base: TermsThatMean, new_row: Rows) -> None:
        self._base, self._new_row = base, new_row
        self.weights_of = base.weights_of

    def amounts(self) -> Iterator[Amounts]:
        for key, rows, amounts in self._base.amounts():
            taken = self._new_row[rows]
            here = taken >= 0
            yield key, taken[here], amounts[here]


class TakenTerms:
    """Terms in use on some rows only."""

    def __init__(self, base: TermsInUse, rows: Rows, n_base: int) -> None:
        self._base = base
        self._new_row = np.full(n_base, -1, dtype=np.intp)
        self._new_row[rows] = np.arange(len(rows), dtype=np.intp)
        self.prepared = base.prepared

    def matching(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> TermsThatMean:
        return _Taken(self._base.matching(namespace, labels, namespace_labels), self._new_row)
