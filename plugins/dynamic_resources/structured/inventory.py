"""All devices, by the nodes that can use them, with the taints of DeviceTaintRules; kept between pods.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/resourceslice/tracker/tracker.go, applyPatches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import numpy as np

from plugins.dynamic_resources.structured.device_features import (
    DEFAULTS,
    OPTIONAL_NODE_OPERATIONS,
    DeviceFeatures,
)
from plugins.dynamic_resources.structured.node_results import Questions
from plugins.dynamic_resources.structured.pools import (
    AllViews,
    DeviceID,
    Pool,
    PoolDevice,
    PoolID,
    PublishedSlice,
    Seen,
    gather_pool,
)
from scheduler.errors import ObjectError
from scheduler.loop_work import run_to_end
from scheduler.objects.dynamic_resources import DeviceTaintRule, DeviceTaintSelector, ResourceSlice
from scheduler.objects.label_index import RuleIndex
from scheduler.objects.selectors import LabelRule, NodeRule, SelectorError, parse_node_term

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping

    from plugins.dynamic_resources.structured.pools import InventoryNode, Pools
    from scheduler.objects.dynamic_resources import Device, DeviceTaint, ResourceSliceSpec
    from scheduler.objects.selectors import NodeSelector
    from scheduler.snapshot import Objects, Rows, Snapshot

    Place = tuple[str | None, str | None]
    """Driver and pool; None for any."""

_ALL: Final = DeviceTaintSelector()


class TaintRules:
    """All DeviceTaintRules, by the drivers and pools that they select.

    Args:
        rules: the result of `objects("resource.k8s.io/v1/devicetaintrules")`.
        need_selectors: whether a rule without a selector selects no device, not all.

    Source:
        kube-scheduler v1.37.1, https://github.com/kubernetes/kubernetes/pull/141648, for rules without a selector.
    """

    def __init__(self, rules: Objects, *, need_selectors: bool) -> None:
        self._objects = rules
        self._without_selector = None if need_selectors else _ALL
        self._seen = 0
        self._known: dict[str, tuple[DeviceTaintSelector, DeviceTaint]] = {}  # by the names of rules
        self._at: dict[Place, dict[str, None]] = {}  # -> the names of the rules

    @property
    def is_current(self) -> bool:
        """Whether all changes of the store are read."""
        return self._objects.changes == self._seen

    def read(self) -> set[Place]:
        """Read the changes of the store; return the drivers and pools that changed rules select or selected."""
        objects, places = self._objects, set()
        changed: Iterable[str] | None = objects.changed_since(self._seen)
        self._seen = objects.changes
        for name in {*self._known, *objects} if changed is None else changed:
            before, now = self._known.pop(name, None), self._rule(name)
            if now is not None:
                self._known[name] = now
            if before == now:
                continue
            if before is not None:
                place = _place(before[0])
                places.add(place)
                del self._at[place][name]
                if not self._at[place]:
                    del self._at[place]
            if now is not None:
                place = _place(now[0])
                places.add(place)
                self._at.setdefault(place, {})[name] = None
        return places

    def applied(self, spec: ResourceSliceSpec) -> ResourceSliceSpec:
        """Return a slice with the taints of its devices, each device's own taints first, then by the names of rules."""
        names = sorted(
            name for place in places_of(spec.driver, spec.pool.name) for name in self._at.get(place, ())
        )
        if not names:
            return spec
        rules = [self._known[name] for name in names]
        devices = []
        for device in spec.devices:
            more = tuple(taint for selector, taint in rules if selector.device in {None, device.name})
            devices.append(msgspec.structs.replace(device, taints=device.taints + more) if more else device)
        return msgspec.structs.replace(spec, devices=tuple(devices))

    def _rule(self, name: str) -> tuple[DeviceTaintSelector, DeviceTaint] | None:
        try:
            found = self._objects.typed(DeviceTaintRule, name)
        except ObjectError:
            return None
        selector = None if found is None else found.spec.device_selector or self._without_selector
        return None if found is None or selector is None else (selector, found.spec.taint)


def affected(places: set[Place], pools: Mapping[PoolID, Iterable[str]]) -> Iterable[str]:
    """Yield the names of the slices of pools that are at some drivers and pools."""
    for pool, names in pools.items():
        if not places.isdisjoint(places_of(pool.driver, pool.pool)):
            yield from names


def places_of(driver: str, pool: str) -> tuple[Place, ...]:
    """Return the selections that contain a pool."""
    return (driver, pool), (driver, None), (None, pool), (None, None)


def _place(selector: DeviceTaintSelector) -> Place:
    return selector.driver, selector.pool


_GONE_NODES = 20_000
"""The approximate maximum number of deleted nodes whose views are kept."""
_DEVICES_OF_A_STEP = 32
_NODES_OF_A_STEP = 8

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """A rule by which nodes see a slice, or one device of a slice that selects nodes per device.

    Attributes:
        published: the slice.
        device: the device; None for all devices of the slice.
        rule: the rule.
        node_name: the only node that sees it; "" for all nodes by the rule.
    """

    published: PublishedSlice
    device: PoolDevice | None
    rule: NodeRule
    node_name: str = ""


class Inventory:
    """The devices of all ResourceSlices. The plugin keeps one for its store and detects changes there.

    A slice that cannot be decoded is left out, so that its pool is incomplete.

    Args:
        slices: the result of `objects("resource.k8s.io/v1/resourceslices")`.
        rules: the result of `objects("resource.k8s.io/v1/devicetaintrules")`; read if the feature is on.
        features: what is on.

    Attributes:
        features: what is on.
        questions: the questions about these devices, with their cached results.
        dropped: how many pools were replaced or removed.
    """

    def __init__(
        self, slices: Objects, rules: Objects | None = None, features: DeviceFeatures = DEFAULTS
    ) -> None:
        self.features = features
        self.questions = Questions(features)
        self.dropped = 0
        self._objects = slices
        has_rules = rules is not None and features.taint_rules and features.taints
        self._rules = (
            TaintRules(rules, need_selectors=features.rules_need_selectors)
            if rules is not None and has_rules
            else None
        )
        self._seen = -1
        # By the names of slices, like all mappings below that hold slices.
        self._published: dict[str, PublishedSlice] = {}
        self._by_pool: dict[PoolID, dict[str, PublishedSlice]] = {}
        self._everywhere: dict[PoolID, dict[str, PublishedSlice]] = {}
        self._local: dict[str, dict[str, PublishedSlice]] = {}  # node name -> slices for it alone
        self._choices: dict[str, list[_Choice]] = {}
        self._by_label: RuleIndex[_Choice] = RuleIndex()
        self._by_name: dict[str, dict[_Choice, None]] = {}  # node name -> choices for it alone
        self._optional: set[str] = set()  # slices for nodes that declare the feature
        self._faults: dict[str, str] = {}

        self._shared: dict[PoolID, Pool] = {}  # pools for nodes that see only what is available everywhere
        self._built: dict[PoolID, dict[frozenset[Seen], Pool | None]] = {}
        self._alike: dict[frozenset[_Choice], Pools] = {}
        # node name -> its labels when the view was built, whether it sees optional slices, and the view
        self._views: dict[str, tuple[Mapping[str, str], bool, Pools]] = {}
        self._n_nodes = 0  # of the cluster whose nodes were read last
        self._forgotten = 0  # the number of times that views were dropped
        # The rows whose views are built now: `_forgotten` and the number of nodes, and the rows that are left.
        self._looking: tuple[tuple[int, int], Iterator[int]] | None = None
        self._all: AllViews | None = None
        self._all_but: set[str] = set()  # names of nodes whose view may differ from `views_of_all`
        # Of changes that are not read completely:
        self._unread: dict[str, None] = {}
        self._touched: dict[PoolID, None] = {}
        self._changed_nodes: set[str] = set()
        self._changed_everywhere = False

    @property
    def fault(self) -> str | None:
        """Why the pools of nodes cannot be determined; None if they can."""
        return next(iter(self._faults.values()), None)

    @property
    def is_current(self) -> bool:
        """Whether all changes of the store are read."""
        return (
            self._objects.changes == self._seen
            and not (self._unread or self._touched)
            and (self._rules is None or self._rules.is_current)
        )

    @property
    def size(self) -> int:
        """An upper bound of the number of pools, and of what nodes see of them."""
        return len(self._by_pool) + len(self._views)

    def refresh(self) -> None:
        """Read all changes of the store."""
        run_to_end(self.refreshing())

    def refreshing(self) -> Generator[None, None, None]:
        """Read the changes of the store, slice by slice; an interrupted update is continued."""
        while not self.is_current:
            self._note_changes()
            work = 0
            while self._unread:
                key, _ = self._unread.popitem()
                work += self._take_in(key)
                if work > _DEVICES_OF_A_STEP:
                    work = 0
                    yield
            while self._touched:
                pool, _ = self._touched.popitem()
                self._changed_everywhere |= self._rebuild(pool)
                self._changed_nodes.update(
                    each.spec.node_name for each in self._by_pool.get(pool, {}).values()
                )
                work += len(self._by_pool.get(pool, ()))
                if work > _DEVICES_OF_A_STEP and self._touched:
                    work = 0
                    yield
            self._forget_views()

    def _note_changes(self) -> None:
        """Record what has to be read."""
        objects = self._objects
        if self._rules is not None and not self._rules.is_current:
            names = affected(self._rules.read(), self._by_pool)
            self._unread |= dict.fromkeys(sorted(names, reverse=True))
        if objects.changes == self._seen:
            return
        changed = None if self._seen < 0 else objects.changed_since(self._seen)
        self._seen = objects.changes
        # Sorted, so that the order in which nodes are searched is deterministic.
        names = {*self._published, *objects} if changed is None else changed
        self._unread |= dict.fromkeys(sorted(names, reverse=True))  # the last is read first

    def _take_in(self, key: str) -> int:
        """Read a slice; return the amount of work, in devices."""
        self._changed_everywhere |= key in self._choices
        work = 4
        for published in (self._remove(key), self._add(key)):
            if published is not None:
                self._touched[published.pool] = None
                self._changed_nodes.add(published.spec.node_name)
                work += len(published.devices)
        self._changed_everywhere |= key in self._choices
        return work

    def _forget_views(self) -> None:
        """Forget the views that contain something that changed."""
        if self._changed_everywhere or len(self._views) > _GONE_NODES + self._n_nodes:
            self._views.clear()
            self._alike.clear()
            self._all = None
        else:
            for name in self._changed_nodes:
                self._views.pop(name, None)
        self._forgotten += self._changed_everywhere or bool(self._changed_nodes)
        if self._all is not None:
            self._all_but |= self._changed_nodes
        self._changed_everywhere = False
        self._changed_nodes.clear()

    def device(self, wanted: DeviceID) -> Device | None:
        """Return a device in the newest slices of its pool; None if it is not published."""
        slices = self._by_pool.get(PoolID(wanted.driver, wanted.pool), {}).values()
        newest = max((each.spec.pool.generation for each in slices), default=0)
        return next(
            (
                device.device
                for each in slices
                if each.spec.pool.generation == newest
                for device in each.devices
                if device.id == wanted
            ),
            None,
        )

    def looks(self, snapshot: Snapshot, rows: Rows) -> Generator[None, None, None]:
        """Build the missing views of nodes, so that `views` and `views_of_all` return quickly.

        Attempts that do so at the same time share the work.
        """
        nodes, known, self._n_nodes = snapshot.nodes, self._all, snapshot.n_nodes
        state = self._forgotten, snapshot.n_nodes
        if known is None and self._choices:
            unseen = iter([row for row in rows.tolist() if nodes[row].name not in self._views])
        elif self._looking is not None and self._looking[0] == state:
            unseen = self._looking[1]
        else:
            names = self._local if known is None else self._all_but
            found = (snapshot.row_of(name) for name in names if name not in self._views)
            unseen = iter([row for row in found if row is not None])
            self._looking = state, unseen
        is_live = known is not None and known.has_rows_of(snapshot)
        for number, row in enumerate(unseen):
            view = self.view_of(nodes[row])
            if known is not None and is_live:
                known.put(row, view)  # in steps too: freeing the devices before takes as long
            if number % _NODES_OF_A_STEP == 0:
                yield
                # With another number of nodes, the rows of the snapshot are not those of the cluster any more.
                if not self.is_current or snapshot.n_nodes != len(snapshot.nodes):
                    return
        if self._looking is not None and self._looking[1] is unseen:
            self._looking = None

    def view_of(self, node: InventoryNode) -> Pools:
        """Return the pools that a node sees."""
        name, labels = node.name, node.labels
        declares = bool(self._optional) and OPTIONAL_NODE_OPERATIONS in node.declared_features
        known = self._views.get(name)
        if known is not None and known[0] is labels and known[1] is declares:
            return known[2]
        choices = frozenset(self._choices_for(node, declares=declares)) if self._choices else frozenset()
        local = self._local.get(name)
        view = self._view(local.values(), choices) if local else self._shared_view(choices)
        self._views[name] = (labels, declares, view)
        return view

    def views_of_all(self, snapshot: Snapshot) -> AllViews | None:
        """Return the current views of all nodes; None for a snapshot that is not the live cluster."""
        log = snapshot.node_changes
        if log is None:
            return None
        if self._all is None or not self._all.follow(snapshot, self._all_but, self.view_of):
            self._all = AllViews(self._views_by_row(snapshot), log)
        self._all_but.clear()
        return self._all

    def _views_by_row(self, snapshot: Snapshot) -> list[Pools]:
        """Return the view of each node."""
        nodes, rows = snapshot.nodes, snapshot.all_rows
        by_row = [self._shared_view(frozenset())] * len(rows)
        for row in rows.tolist() if self._choices else self._rows_with_slices(snapshot, rows):
            by_row[row] = self.view_of(nodes[row])
        return by_row

    def views(self, snapshot: Snapshot, rows: Rows) -> Mapping[Pools, Rows]:
        """Return the pools that some nodes see, each with the rows of the nodes that see exactly these."""
        alike: dict[Pools, list[int]] = {}
        nodes = snapshot.nodes
        others = np.zeros(snapshot.n_nodes, dtype=np.bool_)
        others[rows] = True
        # Nodes without slices of their own have the same view if no slice selects nodes. Every other node is read; its
        # view is cached by its name.
        for row in rows.tolist() if self._choices else self._rows_with_slices(snapshot, rows):
            alike.setdefault(self.view_of(nodes[row]), []).append(row)
            others[row] = False
        if others.any():
            alike.setdefault(self._shared_view(frozenset()), []).extend(np.flatnonzero(others).tolist())
        return {view: np.array(same, dtype=np.intp) for view, same in alike.items()}

    def _rows_with_slices(self, snapshot: Snapshot, rows: Rows) -> Iterator[int]:
        if len(rows) < len(self._local):
            names = snapshot.nodes
            yield from (row for row in rows.tolist() if names[row].name in self._local)
            return
        wanted = None if len(rows) == snapshot.n_nodes else set(rows.tolist())
        for name in self._local:
            row = snapshot.row_of(name)
            if row is not None and (wanted is None or row in wanted):
                yield row

    def _choices_for(self, node: InventoryNode, *, declares: bool) -> Iterator[_Choice]:
        name, labels = node.name, node.labels
        for choice in self._by_name.get(name, ()):
            if declares or not choice.published.is_optional:
                yield choice
        for choice in self._by_label.candidates(labels):
            if choice.rule.matches(name, labels) and (declares or not choice.published.is_optional):
                yield choice

    def _shared_view(self, choices: frozenset[_Choice]) -> Pools:
        view = self._alike.get(choices)
        if view is None:
            view = self._alike[choices] = self._view((), choices)
        return view

    def _view(self, local: Iterable[PublishedSlice], choices: frozenset[_Choice]) -> Pools:
        own: dict[PoolID, list[Seen]] = {}
        for published in local:
            own.setdefault(published.pool, []).append((published, None))
        usable: dict[PublishedSlice, set[PoolDevice] | None] = {}
        for choice in choices:
            if choice.device is None:
                usable[choice.published] = None
            else:
                devices = usable.setdefault(choice.published, set())
                assert devices is not None, "the devices of a slice are chosen one by one, or all together"
                devices.add(choice.device)
        for published, some in usable.items():
            own.setdefault(published.pool, []).append((published, None if some is None else frozenset(some)))
        pools = [pool for name, pool in self._shared.items() if name not in own]
        for name, seen in own.items():
            seen.extend(self._seen_everywhere(name))
            pool = self._pool(name, frozenset(seen))
            if pool is not None:
                pools.append(pool)
        return tuple(sorted(pools, key=lambda pool: pool.order) if len(pools) > 1 else pools)

    def _pool(self, name: PoolID, seen: frozenset[Seen]) -> Pool | None:
        """Return a pool as nodes see it, None if they see nothing of it; nodes with equal views share it."""
        built = self._built.setdefault(name, {})
        if seen not in built:
            # Upstream takes the number of slices from the first one, and reads those for one node first.
            relevant = list(seen)
            if len(relevant) > 1:
                relevant.sort(key=lambda each: (not each[0].is_local, each[0].name))
            pool = gather_pool(name, relevant, self._by_pool[name])
            matters = pool is not None and (pool.devices or not pool.gives)
            built[seen] = pool if matters else None
        return built[seen]

    def _seen_everywhere(self, name: PoolID) -> list[Seen]:
        return [(published, None) for published in self._everywhere.get(name, {}).values()]

    def _rebuild(self, name: PoolID) -> bool:
        """Rebuild a pool; return whether nodes without a slice of their own may see it."""
        for gone in self._built.pop(name, {}).values():
            if gone is not None:
                gone.is_gone = True
                self.dropped += 1
        before = self._shared.pop(name, None)
        everywhere = self._seen_everywhere(name)
        now = self._pool(name, frozenset(everywhere)) if everywhere else None
        if now is not None:
            self._shared[name] = now
        chosen = not self._choices.keys().isdisjoint(self._by_pool.get(name, ()))
        return chosen or before is not None or now is not None

    def _add(self, key: str) -> PublishedSlice | None:
        try:
            found = self._objects.typed(ResourceSlice, key)
        except ObjectError:
            return None
        if found is None:
            return None
        rules, features = self._rules, self.features
        spec = found.spec if rules is None else rules.applied(found.spec)
        published = self._published[key] = PublishedSlice(found.metadata.name, spec, features)
        self._by_pool.setdefault(published.pool, {})[key] = published
        if published.is_ignored:
            pass  # it only counts as one of the slices of its pool
        elif published.is_optional:
            self._optional.add(key)
            self._choose(key, published)
        elif published.is_local:
            self._local.setdefault(spec.node_name, {})[key] = published
        elif published.is_everywhere:
            self._everywhere.setdefault(published.pool, {})[key] = published
        else:
            self._choose(key, published)
        return published

    def _choose(self, key: str, published: PublishedSlice) -> None:
        """Record the rules by which nodes see a slice; a slice of an unknown kind has none and stays invisible."""
        try:
            choices = list(_choices(published))
        except SelectorError as error:
            self._faults[key] = f"failed to perform node selection for slice {published.name}: {error}"
            return
        if choices:
            self._choices[key] = choices
        for choice in choices:
            self._find(choice)

    def _find(self, choice: _Choice) -> None:
        if choice.node_name:
            self._by_name.setdefault(choice.node_name, {})[choice] = None
        else:
            self._by_label.add(LabelRule(choice.rule.labels), choice)

    def _remove(self, key: str) -> PublishedSlice | None:
        published = self._published.pop(key, None)
        self._faults.pop(key, None)
        self._optional.discard(key)
        if published is None:
            return None
        _drop(self._by_pool, published.pool, key)
        _drop(self._everywhere, published.pool, key)
        _drop(self._local, published.spec.node_name, key)
        for choice in self._choices.pop(key, ()):
            if choice.node_name:
                _drop(self._by_name, choice.node_name, choice)
            else:
                self._by_label.remove(LabelRule(choice.rule.labels), choice)
        return published


def _choices(published: PublishedSlice) -> Iterator[_Choice]:
    spec = published.spec
    if spec.node_selector is not None:
        for rule in _rules(spec.node_selector):
            yield _Choice(published, None, rule)
    elif spec.per_device_node_selection:
        for each in published.devices:
            device = each.device
            if device.node_name or device.all_nodes:
                yield _Choice(published, each, NodeRule(), device.node_name)
            elif device.node_selector is not None:
                for rule in _rules(device.node_selector):
                    yield _Choice(published, each, rule)
    elif published.is_local or published.is_everywhere:
        yield _Choice(published, None, NodeRule(), spec.node_name if published.is_local else "")


def _rules(selector: NodeSelector) -> Iterator[NodeRule]:
    """Yield the rules of a selector's terms, any of which may match; empty terms match nothing.

    Raises:
        SelectorError: a term is invalid.
    """
    for term in selector.node_selector_terms:
        if not term.is_empty:
            yield parse_node_term(term)


def _drop(places: dict[K, dict[V, W]], place: K, item: V) -> None:
    """Remove an item from a place, and the place if it is then empty."""
    items = places.get(place)
    if items is not None and item in items:
        del items[item]
        if not items:
            del places[place]
