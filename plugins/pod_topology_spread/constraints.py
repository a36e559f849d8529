"""Parsed topology spread constraints, of pods or from the configuration, and the counted pods of each domain.

Source:
    kube-scheduler v1.36, plugins/podtopologyspread/common.go.
    kube-scheduler v1.36, plugins/podtopologyspread/filtering.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from plugins.node_affinity import nodes_demanded
from scheduler.loop_work import run_to_end
from scheduler.objects.caches import BoundedDict, Remembered
from scheduler.objects.selectors import LabelRule, SelectorError, read_label_selector
from scheduler.objects.v1 import HONOR, NO_EXECUTE, NO_SCHEDULE
from scheduler.snapshot import PodQuery, PodsIn, TalliedTerm

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection, Generator, Hashable, Iterable, Mapping, Sequence

    from plugins.work_in_steps import PluginWork
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import Taint, TopologySpreadConstraint
    from scheduler.snapshot import Bools, Int64s, Interned, Rows, Snapshot, Tally, UInt16s

_MOST_WORDS: Final = 256
"""Constraints whose requirements, values and label keys exceed this number are read in steps."""
_WORDS_A_STEP: Final = 256
"""The number that is read in one step; it takes about a millisecond."""
_MOST_READINGS: Final = 8
"""The number of cached long lists of constraints; the least recently used one is removed first."""
_ENCODER = msgspec.msgpack.Encoder()
MOST_REQUIREMENTS: Final = 128
"""Above this cost the pods of all constraints are counted together."""
_REQUIREMENTS_A_CONSTRAINT: Final = 4
"""The cost of a constraint besides its requirements, in requirements."""


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """A constraint with its selector parsed.

    Attributes:
        max_skew: the maximum difference between the pods of a domain and those of the domain with the fewest.
        topology_key: nodes with the same value of this label form a domain.
        rule: selects the pods by their labels.
        query: the same pods, as counted on nodes: of the pod's namespace, and not being deleted. A selector without
          requirements counts none, though it matches every added or removed pod.
        min_domains: with fewer domains than this the minimum number of pods is taken to be 0.
        honors_affinity: whether nodes outside the pod's node selector and affinity are ignored.
        honors_taints: whether nodes with taints that the pod does not tolerate are ignored.
    """

    max_skew: int
    topology_key: str
    rule: LabelRule
    query: PodQuery
    min_domains: int
    honors_affinity: bool
    honors_taints: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the constraint matches a pod with these labels, in any namespace."""
        return all(matches(labels) for _, matches in self.query.matchers)


class ConstraintReader:
    """Reads the constraints of pods; pods with equal constraints share one result.

    Args:
        merges_keys: whether `matchLabelKeys` count.
    """

    def __init__(self, *, merges_keys: bool) -> None:
        self._merges_keys = merges_keys
        self._read: Remembered[tuple[object, ...], tuple[SpreadConstraint, ...]] = Remembered()
        self._long: BoundedDict[tuple[object, ...], _Reading] = BoundedDict(_MOST_READINGS)
        self._long_defaults: BoundedDict[tuple[object, ...], tuple[SpreadConstraint, ...]] = BoundedDict(
            _MOST_READINGS
        )
        # Long lists by identity -> the list, its digest.
        self._digests: BoundedDict[int, tuple[Sequence[TopologySpreadConstraint], bytes]] = BoundedDict(
            _MOST_READINGS
        )

    def of_pod(self, pod: PodInfo, action: str, work: PluginWork) -> tuple[SpreadConstraint, ...]:
        """Return the pod's own constraints with an action, DO_NOT_SCHEDULE or SCHEDULE_ANYWAY.

        Raises:
            NeedsTime: reading them takes longer than one time slice.
            SelectorError: a selector is invalid.
        """
        written, labels = pod.pod.spec.topology_spread_constraints, pod.labels
        if are_long(pod):
            named = frozenset(labels.items() if any(each.match_label_keys for each in written) else ())
            if id(written) not in self._digests:
                self._digests[id(written)] = written, sha256(_ENCODER.encode(written)).digest()
            digest = action, pod.namespace, self._digests[id(written)][1], named
            reading = self._long.get(digest)
            if reading is None:
                reading = self._long[digest] = _Reading(pod, action, self._merges_keys)
            self._long.move_to_end(digest)
            work.begin()
            work.done(reading.steps())
            return reading.result()
        content = _ENCODER.encode(written)
        place = (
            action,
            pod.namespace,
            content,
            tuple((key, labels.get(key)) for each in written for key in each.match_label_keys),
        )
        found = self._read.get(place)
        if found is None:
            found = run_to_end(_in_steps(pod, action, self._merges_keys))
            self._read.keep(place, found, len(content))
        return found

    def defaults(
        self, written: Sequence[TopologySpreadConstraint], rule: LabelRule, pod: PodInfo, action: str
    ) -> tuple[SpreadConstraint, ...]:
        """Return the configuration's constraints with an action, for the pods of a rule in the pod's namespace."""
        place, is_long = (action, pod.namespace, rule), rule.count > _MOST_WORDS
        found = self._long_defaults.get(place) if is_long else self._read.get(place)
        if found is None:
            found = tuple(_read(each, rule, pod) for each in written if each.when_unsatisfiable == action)
            if is_long:
                self._long_defaults[place] = found
            else:
                self._read.keep(place, found, rule.length)
        return found


class _Reading:
    """Reads long constraints of a pod, in steps that may be interrupted; arguments as of `ConstraintReader`."""

    def __init__(self, pod: PodInfo, action: str, merges_keys: bool) -> None:
        self._pod, self._action, self._merges_keys = pod, action, merges_keys
        self._found: tuple[SpreadConstraint, ...] | SelectorError | None = None
        self._reading: Generator[None, None, tuple[SpreadConstraint, ...]] | None = None

    def steps(self) -> Generator[None, None, None]:
        """Continue reading."""
        while self._found is None:
            reading = self._reading or _in_steps(self._pod, self._action, self._merges_keys)
            self._reading = None  # an error ends it
            try:
                next(reading)
            except StopIteration as end:
                self._found = end.value
            except SelectorError as error:
                self._found = error
            else:
                self._reading = reading
            yield

    def result(self) -> tuple[SpreadConstraint, ...]:
        """Return the constraints; only after all steps.

        Raises:
            SelectorError: a selector is invalid.
        """
        assert self._found is not None, "asked before all steps"
        if isinstance(self._found, SelectorError):
            raise self._found
        return self._found


def are_long(pod: PodInfo) -> bool:
    """Return whether reading the constraints of a pod may take longer than one time slice."""
    words = 0
    for each in pod.pod.spec.topology_spread_constraints:
        words += 1 + len(each.match_label_keys)
        if each.label_selector is not None:
            words += len(each.label_selector.match_labels)
            for requirement in each.label_selector.match_expressions:
                words += 1 + len(requirement.values)
                if words > _MOST_WORDS:
                    break
        if words > _MOST_WORDS:
            return True
    return False


def _in_steps(
    pod: PodInfo, action: str, merges_keys: bool
) -> Generator[None, None, tuple[SpreadConstraint, ...]]:
    """Read the constraints of a pod with an action, in steps."""
    found: list[SpreadConstraint] = []
    own: dict[str, tuple[str, str]] = {}  # labels of matchLabelKeys, which are the same in all constraints
    words = 0
    for each in pod.pod.spec.topology_spread_constraints:
        if each.when_unsatisfiable != action:
            continue
        rule = LabelRule(None)
        if each.label_selector is not None:
            rule = yield from read_label_selector(each.label_selector)
            words += rule.count
        if merges_keys:
            for key in {*each.match_label_keys}.intersection(pod.labels).difference(own):
                own[key] = key, pod.labels[key]
            rule = _merged(each.match_label_keys, own, rule)
        found.append(_read(each, rule, pod))
        words += 1 + len(each.match_label_keys)
        if words > _WORDS_A_STEP:
            words = 0
            yield
    return tuple(found)


def _read(written: TopologySpreadConstraint, rule: LabelRule, pod: PodInfo) -> SpreadConstraint:
    parts = (PodsIn(frozenset({pod.namespace}), rule),) if not rule.is_empty else ()
    return SpreadConstraint(
        max_skew=written.max_skew,
        topology_key=written.topology_key,
        rule=rule,
        query=PodQuery(parts, counts_terminating=False),
        min_domains=1 if written.min_domains is None else written.min_domains,
        honors_affinity=written.node_affinity_policy in {None, HONOR},
        honors_taints=written.node_taints_policy == HONOR,
    )


def _merged(keys: Collection[str], own: Mapping[str, tuple[str, str]], rule: LabelRule) -> LabelRule:
    """Return a rule that also requires the pod's own values of some labels; a rule that matches nothing stays so."""
    if rule.expressions is None:
        return rule
    named = [own[key] for key in sorted({*keys}.intersection(own))]
    return LabelRule(rule.expressions, (*named, *rule.labels)) if named else rule


def has_keys(labels: Mapping[str, str], constraints: Iterable[SpreadConstraint]) -> bool:
    """Return whether labels of a node have a value for every constraint."""
    return all(constraint.topology_key in labels for constraint in constraints)


def lacking(label: Interned[str | None]) -> Bools:
    """Return bool (n_nodes,), where a node lacks a label."""
    absent: Bools = label.codes == label.values.index(None)
    return absent


class CountedNodes:
    """The nodes that each constraint of a pod counts.

    Args:
        snapshot: the cluster.
        pod: the pod whose node affinity and tolerations apply.
        within: bool (n_nodes,), the nodes to which all constraints are limited; None is all.
        work: runs slow steps; so every method may raise NeedsTime.
        compares: whether tolerations compare the values of taints, see `Tolerations.cover`.
    """

    def __init__(
        self, snapshot: Snapshot, pod: PodInfo, within: Bools | None, work: PluginWork, *, compares: bool
    ) -> None:
        self._compares = compares
        self._work = work
        self._snapshot = snapshot
        self._pod = pod
        self._within = within
        self._found: dict[tuple[bool, bool], Bools | None] = {}

    def of(self, constraint: SpreadConstraint) -> Bools | None:
        """Return bool (n_nodes,), the nodes that count; None is all."""
        policies = constraint.honors_affinity, constraint.honors_taints
        if policies not in self._found:
            masks = (
                self._within,
                self._required if constraint.honors_affinity else None,
                self._open if constraint.honors_taints else None,
            )
            chosen = [mask for mask in masks if mask is not None]
            self._found[policies] = np.logical_and.reduce(chosen) if chosen else None
        return self._found[policies]

    @cached_property
    def _required(self) -> Bools | None:
        if not self._pod.pod.spec.node_selector and self._pod.node_affinity is None:
            return None
        self._work.begin()
        return nodes_demanded(self._snapshot, self._pod, self._work)

    @cached_property
    def _open(self) -> Bools:
        """Return where the pod tolerates all NoSchedule and NoExecute taints."""
        tolerated, compares = self._pod.tolerated, self._compares

        def is_open(taints: tuple[Taint, ...]) -> bool:
            return all(
                taint.effect not in {NO_SCHEDULE, NO_EXECUTE} or tolerated.cover(taint, compares=compares)
                for taint in taints
            )

        return self._snapshot.taints.judge(is_open)


class CountedPods:
    """The pods that each constraint of a pod counts on nodes.

    Args:
        snapshot: the cluster.
        constraints: all constraints that are counted.
        work: runs slow steps.

    Raises:
            NeedsTime: counting the constraints takes longer than one time slice.
    """

    def __init__(self, snapshot: Snapshot, constraints: Sequence[SpreadConstraint], work: PluginWork) -> None:
        self._snapshot = snapshot
        self._tally: Tally | None = None
        self._counts: dict[Hashable, Int64s] = {}
        if _weight(constraints) > MOST_REQUIREMENTS:
            self._tally = snapshot.tally(_Queries(tuple(dict.fromkeys(each.query for each in constraints))))
            work.begin()
            work.done(self._tally.steps(_NO_NAMESPACES))
            for query, rows, pods in self._tally.worth():
                counted = np.bincount(rows, weights=pods, minlength=snapshot.n_nodes).astype(np.int64)
                known = self._counts.get(query)
                self._counts[query] = counted if known is None else known + counted

    def of(self, constraint: SpreadConstraint) -> Int64s:
        """Return (n_nodes,), how many pods a constraint counts on each node."""
        if self._tally is None:
            return self._snapshot.pods_matching(constraint.query)
        found = self._counts.get(constraint.query)
        return np.zeros(self._snapshot.n_nodes, dtype=np.int64) if found is None else found

    def matching(
        self, constraints: Sequence[SpreadConstraint], pods: Sequence[PodInfo]
    ) -> list[Sequence[int]]:
        """Return for each constraint the indexes of matching pods of the same namespace, terminating or not."""
        if self._tally is not None:
            found = {query: places for query, places, _ in self._tally.worth_of(pods, _NO_NAMESPACES)}
            everybody, nobody = range(len(pods)), np.zeros(0, dtype=np.intp)
            return [
                everybody if each.rule.is_empty else found.get(each.query, nobody).tolist()
                for each in constraints
            ]
        by_rule: dict[LabelRule, list[int]] = {}  # the constraints of a pod usually share one rule
        for each in constraints:
            if each.rule not in by_rule:
                by_rule[each.rule] = [place for place, pod in enumerate(pods) if each.matches(pod.labels)]
        return [by_rule[each.rule] for each in constraints]


class _NoNamespaces:
    """Implements `NamespaceLabels` without namespace selectors."""

    def of(self, namespace: str) -> Mapping[str, str]:
        return _NO_LABELS


_NO_LABELS: Final[Mapping[str, str]] = {}
_NO_NAMESPACES: Final = _NoNamespaces()


@dataclass(frozen=True, slots=True)
class _Queries:
    """Implements `TallyTerms` with the queries of constraints, one by one."""

    queries: tuple[PodQuery, ...]
    needs_all: bool = False
    counts_terminating: bool = False
    groups_are_labels: bool = False

    @property
    def key(self) -> Hashable:
        return self

    def __len__(self) -> int:
        return len(self.queries)

    def read(self, place: int) -> TalliedTerm:
        query = self.queries[place]
        needs = query.conditions()
        return TalliedTerm(query, 1, () if needs is None else (needs,))


def _weight(constraints: Iterable[SpreadConstraint]) -> int:
    """Return the cost to match one pod, in requirements; at least `MOST_REQUIREMENTS` if that is too much."""
    return sum(
        [
            _REQUIREMENTS_A_CONSTRAINT
            + (rule.count if (rule := each.rule).count > MOST_REQUIREMENTS else rule.cost)
            for each in constraints
        ]
    )


def nodes_with_keys(snapshot: Snapshot, constraints: Iterable[SpreadConstraint]) -> Bools | None:
    """Return bool (n_nodes,), where a node has a value for every constraint; None is everywhere."""
    chosen: Bools | None = None
    keys = {constraint.topology_key: None for constraint in constraints}
    if not all(map(snapshot.has_label, keys)):
        return np.zeros(snapshot.n_nodes, dtype=np.bool_)
    for key in keys:
        absent = lacking(snapshot.label(key))
        if absent.any():
            chosen = ~absent if chosen is None else chosen & ~absent
    return chosen


def pods_by_domain(label: Interned[str | None], pods: Int64s, counted: Bools | None) -> Int64s:
    """Add up pods of nodes with the same value of a label.

    Args:
        label: the topology key's.
        pods: (n_nodes,).
        counted: bool (n_nodes,), the nodes whose pods are added; None is all.

    Returns:
        By the label's code; 0 for a value that no counted node has.
    """
    codes = label.codes
    rows = np.flatnonzero(pods != 0)
    if _FEW_PODS * len(rows) < len(pods):  # as those of one workload: the other nodes add nothing
        if counted is not None:
            rows = rows[counted[rows]]
        codes, pods = codes[rows], pods[rows]
    elif counted is not None:
        pods = pods * counted
    return np.bincount(codes, weights=pods, minlength=len(label.values)).astype(np.int64)


_FEW_PODS: Final = 4
"""If fewer than one of this number of nodes has pods, these nodes are selected before their pods are added."""


def domains_of(label: Interned[str | None], rows: Rows | Bools | None) -> Bools:
    """Return bool by the label's code, the values that some of the nodes have; None is all nodes."""
    codes = label.codes if rows is None else label.codes[rows]
    present: Bools = np.bincount(codes, minlength=len(label.values)) > 0
    return present


_UNLABELLED: Final = 2
"""The index, in the table of outcomes, of a node that lacks the topology key; 1 is that of a skew that is too large."""

_NO_DOMAIN: Final = (1 << 31) - 1
"""The minimum number of pods without any domain, as upstream."""


class DomainCounts:
    """The counts of one constraint, before any change.

    Args:
        constraint: the constraint.
        snapshot: the cluster.
        pods: (n_nodes,), the counted pods.
        counted: bool (n_nodes,), the counted nodes; None is all.
        itself: whether the pod to place counts too.

    Attributes:
        constraint: the constraint.
    """

    def __init__(
        self,
        constraint: SpreadConstraint,
        snapshot: Snapshot,
        pods: Int64s,
        counted: Bools | None,
        *,
        itself: bool,
    ) -> None:
        self.constraint = constraint
        self._itself = int(itself)
        self._label = snapshot.label(constraint.topology_key)
        self._counted = counted
        self._pods = pods_by_domain(self._label, pods, counted)
        self._domains = np.flatnonzero(domains_of(self._label, counted))
        self._lacking = self._label.values.index(None)

    def counts(self, row: int) -> bool:
        """Return whether pods on a node are counted."""
        return self._counted is None or bool(self._counted[row])

    def verdicts(self, changes: Counter[int]) -> UInt16s:
        """Return uint16 (n_nodes,), indexes in the table of outcomes.

        `changes` is row -> the difference of the number of pods, visible from that row only.
        """
        of_domain = self._too_many(self._pods, self._fewest(self._smallest[0])).astype(np.uint16)
        of_domain[self._lacking] = _UNLABELLED
        verdicts: UInt16s = of_domain.take(self._label.codes)  # a third of the time of an index
        if changes:
            rows = np.fromiter(changes, dtype=np.intp, count=len(changes))
            # Only the row's own domain changes, so the minimum of the others is one of the two smallest of all.
            domains = self._label.codes[rows]
            lowest, second, where = self._smallest
            others = np.where(domains == where, second, lowest)
            own = self._pods[domains] + np.fromiter(changes.values(), dtype=np.int64, count=len(changes))
            verdicts[rows] = self._too_many(own, self._fewest(np.minimum(own, others)))
        return verdicts

    # For explanations.

    @property
    def fewest(self) -> int:
        """The minimum number of pods of a domain; 0 with fewer domains than minDomains."""
        return int(self._fewest(self._smallest[0]))

    def domain_of(self, row: int) -> str | None:
        """Return the domain of a node; None if it has none."""
        return self._label.values[int(self._label.codes[row])]

    def pods_of(self, row: int) -> int:
        """Return the number of counted pods in the domain of a node."""
        return int(self._pods[self._label.codes[row]])

    def skews(self, rows: Rows) -> Int64s:
        """Return the skew with the pod on each of some nodes."""
        skews: Int64s = self._pods[self._label.codes[rows]] + self._itself - self.fewest
        return skews

    def skew_of(self, row: int) -> int:
        """Return the skew with the pod on a node."""
        return self.pods_of(row) + self._itself - self.fewest

    def by_domain(self) -> list[tuple[str, int]]:
        """Return the number of pods of each domain, the fewest first."""
        found = [(str(self._label.values[code]), int(self._pods[code])) for code in self._domains.tolist()]
        return sorted(found, key=lambda domain: (domain[1], domain[0]))

    def _too_many(self, matching: Int64s, fewest: Int64s | int) -> Bools:
        skewed: Bools = matching + self._itself - fewest > self.constraint.max_skew
        return skewed

    def _fewest(self, fewest: Int64s | int) -> Int64s | int:
        return 0 if len(self._domains) < self.constraint.min_domains else fewest

    @cached_property
    def _smallest(self) -> tuple[int, int, int]:
        """The minimum number of pods of a domain, the minimum of the other domains, and the code of the first."""
        pods = self._pods[self._domains]
        if not pods.size:
            return _NO_DOMAIN, _NO_DOMAIN, -1
        place = int(pods.argmin())
        others = np.delete(pods, place)
        return int(pods[place]), int(others.min(initial=_NO_DOMAIN)), int(self._domains[place])
