"""Results of nodes, cached until their view or the allocated devices change, and shared by equal claims."""

from __future__ import annotations

from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import numpy as np

from plugins.dynamic_resources.cel import derived_attribute, selector
from plugins.dynamic_resources.structured.constraints import DeviceRefusal
from plugins.dynamic_resources.structured.question import KEPT_POOLS, Numbers, Question
from plugins.dynamic_resources.structured.requests import Compiled
from scheduler.objects.caches import BoundedDict

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Generator,
        Hashable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from plugins.dynamic_resources.structured.constraints import Verdict
    from plugins.dynamic_resources.structured.device_features import DeviceFeatures
    from plugins.dynamic_resources.structured.pools import AllocatedDevices, AllViews, PoolID, Pools
    from plugins.dynamic_resources.structured.search import DeviceSearch
    from scheduler.objects.dynamic_resources import (
        DeviceClass,
        DeviceSubRequest,
        ExactDeviceRequest,
        ResourceClaim,
        ResourceClaimSpec,
    )
    from scheduler.snapshot import Rows, UInt16s

    Said = tuple[UInt16s, tuple[Verdict, ...]]


_MOST_PLACES = 30_000
_VIEWS_OF_A_STEP = 16
_WORK_OF_A_STEP = 256
_MOST_CHANGED = 8
"""If more than one in this number of nodes changes its view, all nodes are read again."""
_MOST_SAID = 1000
_NO_ROWS: Final[Rows] = np.zeros(0, dtype=np.intp)


class OutOfTime:
    """The result of nodes where a search took too long."""


OUT_OF_TIME = OutOfTime()


class Searching(Protocol):
    """Finds out whether devices of some relevant pools can be allocated to claims."""

    def known(self, pools: Pools) -> Verdict | OutOfTime:
        """Return the result for equivalent pools; OUT_OF_TIME if there is none."""
        ...

    def verdict(self, pools: Pools) -> Generator[None, None, Verdict | OutOfTime]:
        """Return the result of a search; OUT_OF_TIME if it takes too long."""
        ...


class NodeResults:
    """The results of one question. They depend on the relevant pools that a node sees, and on the allocated devices.

    Computing results may take long, and may be interrupted and continued; returning them is fast. A search that took too
    long ends the attempt: other nodes are not searched then, and the failure is reported once.
    """

    def __init__(self) -> None:
        self._results: dict[Pools, Verdict] = {}
        self._depending: dict[PoolID, set[Pools]] = {}  # pool -> the cached results that involve it
        self._changes = 0
        self._out_of_time: Pools | None = None
        # The results of all nodes: see `find_all`.
        self._views: AllViews | None = None
        self._seen = 0  # changes of what nodes see
        self._copied: tuple[AllViews, int, list[Pools]] | None = None  # what nodes saw after so many changes
        self._number: dict[Pools, int] = {}  # the relevant pools that nodes see -> their number
        self._pools: list[Pools] = []  # number -> relevant pools; no node sees some of them any more
        self._numbers: Rows = _NO_ROWS  # row -> number
        self._n_rows: list[int] = []  # number -> how many nodes see the pools
        self._missing: set[Pools] = set()  # relevant pools without a result
        # number -> index of the result, and room for more
        self._place: UInt16s = np.zeros(0, dtype=np.uint16)
        self._places: dict[Verdict, int] = {}

    def find_all(
        self,
        views: AllViews,
        allocated: AllocatedDevices,
        question: Question,
        searching: Searching,
    ) -> Generator[None, None, None]:
        """Find out for all nodes whether devices can be allocated to claims there; only new pools are searched.

        Args:
            views: what nodes see.
            allocated: the allocated devices.
            question: determines the relevant pools.
            searching: runs the searches.
        """
        self._forget(allocated)
        yield from self._follow(views, question)
        if self._missing:
            yield from self._find(self._in_order(self._missing), allocated, searching)
            if not self._missing:
                self._missing.clear()  # a set that was large stays large, and slow to iterate, until it is cleared

    def all(self, node_name: Callable[[int], str]) -> Said:
        """Return the results of all nodes.

        Args:
            node_name: returns the name of the node in a row.

        Returns:
            index: (n_nodes,), an index in the table for each row.
            table: the results; the first is None.
        """
        place, table = self._place, tuple(self._places)
        if self._missing:
            assert self._out_of_time is not None, "else all was found out"
            place = place.copy()
            place[[self._number[pools] for pools in self._missing]] = len(table)
            first = int(np.argmax(self._numbers == self._number[self._out_of_time]))
            table = (*table, self._too_long(node_name(first)))
        return place[self._numbers], table

    def find_some(
        self,
        views: Mapping[Pools, Rows],
        allocated: AllocatedDevices,
        question: Question,
        searching: Searching,
    ) -> Generator[None, None, None]:
        """Find out the same for some nodes, as `find_all`."""
        self._forget(allocated)
        wanted: list[Pools] = []
        work = 0
        for seen in views:
            pools = question.known_matter(seen)
            if pools is None:
                pools = yield from question.matter(seen)
            work += _work(seen)
            if work > _WORK_OF_A_STEP:
                work = 0
                yield
            wanted.append(pools)
        missing = dict.fromkeys(pools for pools in wanted if pools not in self._results)
        if missing:
            yield from self._find(missing, allocated, searching)

    def some(
        self,
        views: Mapping[Pools, Rows],
        n_nodes: int,
        question: Question,
        node_name: Callable[[int], str],
    ) -> Said:
        """Return the results of some nodes, as `all`; other nodes have index 0."""
        index = np.zeros(n_nodes, dtype=np.uint16)
        places: dict[Verdict, int] = {None: 0}
        missing = []
        first = 0
        for seen, rows in views.items():
            pools = question.known_matter(seen)
            assert pools is not None, "it was asked"
            if pools in self._results:
                index[rows] = places.setdefault(self._results[pools], len(places))
                continue
            missing.append(rows)
            if pools == self._out_of_time:
                first = int(rows[0])
        for rows in missing:
            index[rows] = len(places)
        if missing:
            assert self._out_of_time is not None, "else all was found out"
            return index, (*places, self._too_long(node_name(first)))
        return index, tuple(places)

    def is_about(self, views: AllViews) -> bool:
        """Return whether all nodes were evaluated before, with the same views."""
        return self._views is views

    def _too_long(self, node_name: str) -> DeviceRefusal:
        """Report once that a search took too long: the next attempt may search again."""
        self._out_of_time = None
        return DeviceRefusal(f"node {node_name}: timed out trying to allocate devices", is_error=True)

    def _in_order(self, missing: set[Pools]) -> Sequence[Pools]:
        """Return pools by their first rows, so that the point where the time limit ends a search is deterministic."""
        if len(missing) == 1:
            return list(missing)
        first = np.zeros(len(self._pools), dtype=np.intp)
        first[self._numbers[::-1]] = np.arange(len(self._numbers))[::-1]  # the last assignment counts
        row_of: list[int] = first.tolist()
        return sorted(missing, key=lambda pools: row_of[self._number[pools]])

    def _find(
        self, missing: Iterable[Pools], allocated: AllocatedDevices, searching: Searching
    ) -> Generator[None, None, None]:
        if self._out_of_time is not None:
            return
        work = 0
        for pools in missing:
            if work >= _VIEWS_OF_A_STEP:
                work = 0
                yield
            if pools in self._results:
                continue
            verdict = searching.known(pools)
            work += 1
            if isinstance(verdict, OutOfTime):
                verdict = yield from searching.verdict(pools)
                # Other pods may have allocated devices meanwhile; the result is valid now.
                self._forget(allocated)
                if isinstance(verdict, OutOfTime):
                    self._out_of_time = pools
                    self._depend(pools)
                    return
                work = _VIEWS_OF_A_STEP
            self._remember(pools, verdict)

    def _follow(self, views: AllViews, question: Question) -> Generator[None, None, None]:
        """Update the views of nodes."""
        changes = views.changes
        if views is self._views and changes == self._seen and len(self._places) <= _MOST_PLACES:
            return
        if self._copied is None or self._copied[:2] != (views, changes):
            self._copied = views, changes, views.by_row.copy()
        by_row = self._copied[2]  # other attempts may change the original between two steps
        before = self._views, self._seen

        def is_done() -> bool:
            """Whether another attempt has updated as much or more meanwhile."""
            return views is self._views and self._seen >= changes and before != (self._views, self._seen)

        changed = views.changed_since(self._seen) if views is self._views else None
        is_much = (
            changed is None
            or _MOST_CHANGED * len(changed) > len(by_row)
            or len(self._places) > _MOST_PLACES
            or max(len(self._results), len(self._pools)) > 2 * len(self._number) + _MOST_SAID
        )
        read = by_row if is_much or changed is None else [by_row[row] for row in changed]
        matter = yield from _matter(read, question, is_done)
        if is_done():
            return
        if is_much or changed is None or views is not self._views:
            self._lay_out([matter[id(seen)] for seen in by_row])
        else:
            for row in changed:
                self._move(row, matter[id(by_row[row])])
        self._views, self._seen, self._copied = views, changes, None

    def _lay_out(self, by_row: list[Pools]) -> None:
        """Record the relevant pools of all rows."""
        self._number = {}
        by_id: dict[int, int] = {}  # looking up a view that consists of many pools is slow
        numbers: list[int] = []
        for pools in by_row:
            number = by_id.get(id(pools))
            if number is None:
                number = by_id[id(pools)] = self._number.setdefault(pools, len(self._number))
            numbers.append(number)
        self._pools = list(self._number)
        self._numbers = np.array(numbers, dtype=np.intp)
        self._n_rows = np.bincount(self._numbers, minlength=len(self._pools)).tolist()
        before, self._results, self._depending = self._results, {}, {}
        self._missing = set(self._pools)
        self._place = np.zeros(len(self._pools), dtype=np.uint16)
        self._places = {None: 0}
        for pools in self._pools if before else ():
            if pools in before:
                self._remember(pools, before[pools])
        if self._out_of_time in self._number:
            self._depend(self._out_of_time)
        else:
            self._out_of_time = None

    def _move(self, row: int, pools: Pools) -> None:
        """Record that the relevant pools of one row changed."""
        number = int(self._numbers[row])
        before = self._pools[number]
        if before == pools:
            return
        self._n_rows[number] -= 1
        if not self._n_rows[number]:
            del self._number[before]
            self._drop(before)
        self._numbers[row] = number = self._number.setdefault(pools, len(self._pools))
        if number < len(self._pools):
            self._n_rows[number] += 1
            return
        self._pools.append(pools)
        self._n_rows.append(1)
        if number >= len(self._place):
            self._place = np.concatenate(
                (self._place, np.zeros_like(self._place, shape=len(self._place) + 1))
            )
        if pools in self._results:
            self._place[number] = self._places.setdefault(self._results[pools], len(self._places))
        else:
            self._missing.add(pools)

    def _drop(self, pools: Pools) -> None:
        """Forget the result of pools."""
        self._results.pop(pools, None)
        self._missing.discard(pools)
        if pools == self._out_of_time:
            self._out_of_time = None
        for pool in pools:
            depending = self._depending.get(pool.id)
            if depending is not None:
                depending.discard(pools)
                if not depending:
                    del self._depending[pool.id]

    def _remember(self, pools: Pools, verdict: Verdict) -> None:
        self._results[pools] = verdict
        self._depend(pools)
        number = self._number.get(pools)
        if number is not None:
            self._missing.discard(pools)
            self._place[number] = self._places.setdefault(verdict, len(self._places))

    def _depend(self, pools: Pools) -> None:
        for pool in pools:
            self._depending.setdefault(pool.id, set()).add(pools)

    def _forget(self, allocated: AllocatedDevices) -> None:
        """Forget the results that depend on what was allocated or released since the last call."""
        if allocated.changes == self._changes:
            return
        changed = allocated.changed_since(self._changes)
        self._changes = allocated.changes
        for pool in tuple(self._depending) if changed is None else changed:
            for pools in self._depending.pop(pool, ()):
                self._results.pop(pools, None)
                if pools in self._number:
                    self._missing.add(pools)
                if pools == self._out_of_time:
                    self._out_of_time = None


def _matter(
    read: Iterable[Pools], question: Question, is_done: Callable[[], bool]
) -> Generator[None, None, dict[int, Pools]]:
    """Return the relevant pools by the id of what nodes see, which may be many pools; end early if `is_done`."""
    matter: dict[int, Pools] = {}
    work = 0
    for seen in read:
        if id(seen) in matter:
            continue
        pools = question.known_matter(seen)
        if pools is None:
            pools = yield from question.matter(seen)
        matter[id(seen)] = pools
        work += _work(seen)
        if work > _WORK_OF_A_STEP:
            work = 0
            yield
            if is_done():
                break
    return matter


def _work(seen: Pools) -> int:
    """Return an upper bound of the work to read some pools, in devices."""
    return 4 + (len(seen[0].devices) if len(seen) == 1 else sum(len(pool.devices) for pool in seen))


_KEPT_CANDIDATES = 300_000
"""The limit of results of all questions except the last one."""
_KEPT_SEARCHES = 64
_CLAIMS_OF_A_STEP = 4
_LARGE_SPEC = 16_384
_KEPT_DIGESTS = 4096


class KnownQuestion(Question):
    """A question with the results of its searches.

    Attributes:
        verdicts: results of nodes.
        found: results of searches in equivalent pools; see `likeness`.
        searches: by their keys: unfinished searches, long ones that have ended, and short ones that found devices and
            are valid for equivalent pools; the last one used is the last.
    """

    def __init__(
        self,
        specs: Sequence[ResourceClaimSpec],
        classes: Sequence[DeviceClass | None],
        shapes: Numbers,
        compiled: Compiled,
        features: DeviceFeatures,
    ) -> None:
        super().__init__(specs, classes, shapes, compiled, features)
        self.verdicts = NodeResults()
        self.found: dict[Hashable, Verdict] = {}
        self.searches: dict[Hashable, DeviceSearch] = {}

    def begun(self, key: Hashable, pools: Pools, *, is_alike: bool) -> DeviceSearch | None:
        """Return a search that was begun, or ended; None if there is none, or if its input has changed.

        Args:
            key: the key of the search.
            pools: the pools to search.
            is_alike: whether the key is complete, so that results of equivalent pools are valid.
        """
        search = self.searches.get(key)
        if search is None:
            return None
        is_current = (is_alike and search.has_ended) or search.is_current()
        if is_current and (search.pools == pools or self.has_selected(search.pools)):
            return search
        del self.searches[key]
        return None

    def keep_search(self, key: Hashable, search: DeviceSearch) -> None:
        """Keep a search as the last to be dropped; short searches are dropped first."""
        searches = self.searches
        searches.pop(key, None)
        if len(searches) >= _KEPT_SEARCHES:
            short = (key for key, each in searches.items() if not each.is_long)
            del searches[next(short, None) or next(iter(searches))]
        searches[key] = search

    def forget(self, dropped: int, size: int) -> None:
        super().forget(dropped, size)
        if len(self.found) >= KEPT_POOLS + size:
            self.found.clear()


class Questions:
    """The last questions, so that pods with equal claims share their results.

    Args:
        features: what is on.
    """

    _KEPT = 16

    def __init__(self, features: DeviceFeatures) -> None:
        self._features = features
        self._keys: dict[KnownQuestion, tuple[bytes, ...]] = {}  # the keys of the cached questions
        self._known: BoundedDict[tuple[bytes, ...], tuple[Sequence[DeviceClass | None], KnownQuestion]] = (
            BoundedDict(self._KEPT, lambda _, oldest: self._keys.pop(oldest[1]))
        )
        self._shapes = Numbers()
        # Id of a large spec -> it, and its digest.
        self._digests: BoundedDict[int, tuple[ResourceClaimSpec, bytes]] = BoundedDict(_KEPT_DIGESTS)

    def asked(
        self,
        claims: Sequence[ResourceClaim],
        device_class: Callable[[str], DeviceClass | None],
        dropped: int,
        size: int,
    ) -> Generator[None, None, KnownQuestion]:
        """Return the question of some claims.

        Args:
            claims: the claims.
            device_class: returns a class by its name, None if it does not exist.
            dropped: how many pools the inventory has dropped so far.
            size: its size.
        """
        specs = [claim.spec for claim in claims]
        classes = [device_class(name) for name in _class_names(specs)]
        digests = []
        for spec in specs:
            digests.append(self._digest(spec))
            if len(digests) % _CLAIMS_OF_A_STEP == 0:
                yield
        key = tuple(digests)
        known = self._known.get(key)
        if known is None or known[0] != classes:
            compiled = Compiled({}, {})
            for expression in _written(specs, classes):
                if expression not in compiled.selectors:
                    compiled.selectors[expression] = selector(expression)
                    yield
            for expression in _derived(specs) if self._features.derived_attributes else ():
                if expression not in compiled.attributes:
                    compiled.attributes[expression] = derived_attribute(expression)
                    yield
            known = classes, KnownQuestion(specs, classes, self._shapes, compiled, self._features)
            self._keep(key, known)
        else:
            self._known.move_to_end(key)
        known[1].forget(dropped, size)
        return known[1]

    def keep(self, question: KnownQuestion) -> None:
        """Keep a question that is in use, whatever other questions were created meanwhile."""
        key = self._keys.get(question)
        if key is not None:
            self._known.move_to_end(key)

    def _keep(
        self, key: tuple[bytes, ...], known: tuple[Sequence[DeviceClass | None], KnownQuestion]
    ) -> None:
        if key in self._known:
            del self._keys[self._known[key][1]]
        self._known[key] = known
        self._keys[known[1]] = key
        n_candidates = sum(question.n_candidates for question in self._keys)
        for question in self._keys if n_candidates > _KEPT_CANDIDATES else ():
            n_candidates -= question.n_candidates
            question.forget_candidates()
            if n_candidates <= _KEPT_CANDIDATES:
                break

    def _digest(self, spec: ResourceClaimSpec) -> bytes:
        """Return the identity of a spec: its content, or a digest of it if that is long."""
        known = self._digests.get(id(spec))
        if known is not None and known[0] is spec:
            return known[1]
        written = msgspec.json.encode(spec)
        if len(written) > _LARGE_SPEC:
            written = sha256(written).digest()
            self._digests[id(spec)] = spec, written
        return written


def _class_names(specs: Sequence[ResourceClaimSpec]) -> Iterator[str]:
    for spec in specs:
        for request in spec.devices.requests:
            for each in request.first_available or (request.exactly,):
                yield each.device_class_name if each is not None else ""


def _requests(specs: Sequence[ResourceClaimSpec]) -> Iterator[ExactDeviceRequest | DeviceSubRequest]:
    """Yield the requests of claims, and their alternatives."""
    for spec in specs:
        for request in spec.devices.requests:
            if request.first_available:
                yield from request.first_available
            elif request.exactly is not None:
                yield request.exactly


def _derived(specs: Sequence[ResourceClaimSpec]) -> Iterator[str]:
    """Yield the expressions of derived attributes."""
    for request in _requests(specs):
        for each in request.derived_attributes:
            yield each.expression


def _written(specs: Sequence[ResourceClaimSpec], classes: Sequence[DeviceClass | None]) -> Iterator[str]:
    """Yield the expressions of requests and their classes."""
    for one in chain(
        *(each.spec.selectors for each in classes if each is not None),
        *(each.selectors for each in _requests(specs)),
    ):
        if one.cel is not None:
            yield one.cel.expression
