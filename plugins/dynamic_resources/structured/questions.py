"""The questions of the last pods, with their results, so that pods with equal claims share them."""

from __future__ import annotations

from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from plugins.dynamic_resources.cel import CELError, CelSelector, selector
from plugins.dynamic_resources.structured.node_results import NodeResults
from plugins.dynamic_resources.structured.pool_equivalence import Numbers
from plugins.dynamic_resources.structured.question import KEPT_POOLS, Question
from scheduler.objects.bounded_dict import BoundedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterator, Sequence

    from plugins.dynamic_resources.structured.constraints import Verdict
    from plugins.dynamic_resources.structured.pools import Pools
    from plugins.dynamic_resources.structured.requests import Compiled
    from plugins.dynamic_resources.structured.search import DeviceSearch
    from scheduler.objects.dynamic_resources import DeviceClass, ResourceClaim, ResourceClaimSpec

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
    ) -> None:
        super().__init__(specs, classes, shapes, compiled)
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

    def forget(self, dropped: int) -> None:
        super().forget(dropped)
        if len(self.found) >= KEPT_POOLS:
            self.found.clear()


class Questions:
    """The last questions, so that pods with equal claims share their results."""

    _KEPT = 16

    def __init__(self) -> None:
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
    ) -> Generator[None, None, KnownQuestion]:
        """Return the question of some claims.

        Args:
            claims: the claims.
            device_class: returns a class by its name, None if it does not exist.
            dropped: how many pools the inventory has dropped so far.
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
            compiled: dict[str, CelSelector | CELError] = {}
            for expression in _written(specs, classes):
                if expression not in compiled:
                    compiled[expression] = selector(expression)
                    yield
            known = classes, KnownQuestion(specs, classes, self._shapes, compiled)
            self._keep(key, known)
        else:
            self._known.move_to_end(key)
        known[1].forget(dropped)
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


def _written(specs: Sequence[ResourceClaimSpec], classes: Sequence[DeviceClass | None]) -> Iterator[str]:
    """Yield the expressions of requests and their classes."""
    requests = (
        each
        for spec in specs
        for request in spec.devices.requests
        for each in request.first_available or (request.exactly,)
    )
    for one in chain(
        *(each.spec.selectors for each in classes if each is not None),
        *(each.selectors for each in requests if each is not None),
    ):
        if one.cel is not None:
            yield one.cel.expression
