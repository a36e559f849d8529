"""Node preferences as operators and users write them, and the limits of their node sets.

A limit concerns the pods of one controller, such as a ReplicaSet, and may be a percentage of its replicas.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec
import numpy as np

from scheduler.errors import FieldError
from scheduler.framework import PluginArgs
from scheduler.objects.caches import Remembered
from scheduler.objects.selectors import (
    LabelRule,
    LabelSelector,
    SelectorError,
    SelectorRequirement,
    is_label_value,
    parse_label_selector,
)
from scheduler.objects.wording import entry, was
from scheduler.snapshot import Rows, Snapshot, nodes_with_labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ANNOTATION: Final = "custom-scheduler.io/node-preference"
"""The annotation of a pod or of its controller, with the JSON of `PreferenceArgs`."""
MOST_SETS: Final = 16
_LONGEST: Final = 8 * 1024
"""The longest text of an annotation, in characters."""
_LONGEST_ERROR: Final = 200
_MOST_REPLICAS: Final = (1 << 31) - 1
_PERCENTAGE: Final = re.compile(r"[0-9]{1,3}%")
_WHOLE: Final = 100


class NodeRequirement(SelectorRequirement, frozen=True, forbid_unknown_fields=True):
    """A requirement for a label of nodes, as in a label selector."""


class NodeSetArgs(PluginArgs, frozen=True, kw_only=True):
    """Nodes with some labels, and how many replicas of a controller they run.

    Attributes:
        name: the name in messages; "" for the number of the set, as in `2`.
        match_labels, match_expressions: as in a label selector; without them, all nodes.
        min_replicas: how many replicas are kept for the set at least: a number, or a percentage of the replicas, rounded up.
        max_replicas: how many replicas it runs at most: a number, or a percentage, rounded down; None for no limit.
    """

    name: str = ""
    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[NodeRequirement, ...] = ()
    min_replicas: int | str = 0
    max_replicas: int | str | None = None

    def rule(self, path: str = "") -> LabelRule:
        """Return the rule for the labels of its nodes.

        Raises:
            SelectorError: a key, operator or value is invalid.
        """
        return parse_label_selector(LabelSelector(self.match_labels, self.match_expressions), path)

    def faults_at(self, path: str) -> Iterator[FieldError]:
        """Yield the errors of the set."""
        if not is_label_value(self.name):
            yield FieldError(f"{path}.name", f"a text as the value of a label is expected, {was(self.name)}")
        try:
            self.rule(path)
        except SelectorError as error:
            yield from error.faults
        for name, given in (("minReplicas", self.min_replicas), ("maxReplicas", self.max_replicas)):
            if given is not None and _read(given) is None:
                wanted = "a number of replicas from 0, or a percentage from 0% to 100%, is expected"
                yield FieldError(f"{path}.{name}", f"{wanted}, {was(given)}")
        least, most = _read(self.min_replicas), _read(self.max_replicas)
        if least and most and least.is_share == most.is_share and least.number > most.number:
            problem = f"at most the maxReplicas {most} is expected, was {least}"
            yield FieldError(f"{path}.minReplicas", problem)


class PreferenceArgs(PluginArgs, frozen=True, kw_only=True):
    """An ordered list of node sets; a node is in the first set that it matches.

    Attributes:
        sets: the sets, the preferred one first.
        when_unsatisfiable: whether the limits of the sets reject nodes, or only lower their scores.
    """

    sets: tuple[NodeSetArgs, ...] = ()
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "DoNotSchedule"

    def faults(self) -> Iterable[FieldError]:
        return self.faults_at("")

    def faults_at(self, path: str) -> Iterator[FieldError]:
        """Yield the errors of the preference."""
        where = f"{path}.sets" if path else "sets"
        if not 1 <= len(self.sets) <= MOST_SETS:
            yield FieldError(where, f"1 to {MOST_SETS} sets are expected, was {len(self.sets)}")
        names: set[str] = set()
        everything = ""
        for index, each in enumerate(self.sets):
            place = entry(where, index)
            yield from each.faults_at(place)
            name = each.name or str(index + 1)
            if name in names:
                yield FieldError(f"{place}.name", f"another name is expected, {was(name)} before")
            names.add(name)
            if everything:
                yield FieldError(place, f"no node is in this set, because {everything} matches all nodes")
            elif not (each.match_labels or each.match_expressions):
                everything = place
        shares = [
            limit.number for each in self.sets if (limit := _read(each.min_replicas)) and limit.is_share
        ]
        if sum(shares) > _WHOLE:
            yield FieldError(where, f"a sum of minReplicas up to 100% is expected, was {sum(shares)}%")


class ProfilePreferenceArgs(PreferenceArgs, frozen=True, kw_only=True):
    """The preference of the pods that a selector matches.

    Attributes:
        pod_selector: selects pods by their labels; by default all pods.
    """

    pod_selector: LabelSelector = LabelSelector()

    def faults_at(self, path: str) -> Iterator[FieldError]:
        try:
            parse_label_selector(self.pod_selector, f"{path}.podSelector")
        except SelectorError as error:
            yield from error.faults
        yield from super().faults_at(path)


class Limit(NamedTuple):
    """A number of replicas, or a percentage of them if `is_share`."""

    number: int
    is_share: bool = False

    def least(self, replicas: int) -> int:
        """Return the limit as a minimum: percentages are rounded up."""
        return -(-self.number * replicas // _WHOLE) if self.is_share else self.number

    def most(self, replicas: int) -> int:
        """Return the limit as a maximum: percentages are rounded down."""
        return self.number * replicas // _WHOLE if self.is_share else self.number

    def __str__(self) -> str:
        return f"{self.number}%" if self.is_share else str(self.number)


def _read(given: int | str | None) -> Limit | None:
    """Return a limit; None if there is none, or if it is invalid."""
    if given is None:
        return None
    if isinstance(given, str):
        if _PERCENTAGE.fullmatch(given) is None or int(given[:-1]) > _WHOLE:
            return None
        return Limit(int(given[:-1]), is_share=True)
    return Limit(given) if 0 <= given <= _MOST_REPLICAS else None


class NodeSet(NamedTuple):
    """A set whose rule and limits are read; `most` is None without a limit."""

    name: str
    rule: LabelRule
    least: Limit
    most: Limit | None

    def pods(self, replicas: int) -> tuple[int, int | None]:
        """Return the least and the most pods of a number of replicas.

        The minimum outweighs the maximum: of few replicas, rounded percentages may contradict each other.
        """
        least = self.least.least(replicas)
        return least, None if self.most is None else max(least, self.most.most(replicas))

    @property
    def is_closed(self) -> bool:
        """Whether it takes no pods of any controller."""
        return self.most is not None and not (self.most.number or self.least.number)


@dataclass(frozen=True)
class Preference:
    """A valid preference.

    The nodes in no set are numbered like one more set after all others.

    Attributes:
        sets: the sets, the preferred one first.
        is_hard: whether the limits of the sets reject nodes.
    """

    sets: tuple[NodeSet, ...]
    is_hard: bool

    @cached_property
    def _hash(self) -> int:
        return hash((self.sets, self.is_hard))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def has_limits(self) -> bool:
        """Whether any set has a limit."""
        return any(each.least.number or each.most is not None for each in self.sets)

    def set_of(self, labels: Mapping[str, str]) -> int:
        """Return the number of the set of a node with these labels."""
        found = (number for number, each in enumerate(self.sets) if each.rule.matches(labels))
        return next(found, len(self.sets))

    def sets_of(self, snapshot: Snapshot) -> Rows:
        """Return intp (n_nodes,), the number of each node's set."""
        numbers = np.full(snapshot.n_nodes, len(self.sets), dtype=np.intp)
        for number in range(len(self.sets) - 1, -1, -1):
            numbers[nodes_with_labels(snapshot, self.sets[number].rule.requirements)] = number
        numbers.flags.writeable = False
        return numbers

    def name_of(self, number: int) -> str:
        """Return the name of a set in sentences."""
        return f"node set {self.sets[number].name}" if number < len(self.sets) else "other nodes"


def read_preference(args: PreferenceArgs) -> Preference:
    """Return the preference of valid arguments."""
    sets = []
    for number, each in enumerate(args.sets, 1):
        least, most = _read(each.min_replicas), _read(each.max_replicas)
        assert least is not None, "the arguments are checked"
        sets.append(NodeSet(each.name or str(number), each.rule(), least, most))
    return Preference(tuple(sets), args.when_unsatisfiable == "DoNotSchedule")


_READ: Final[Remembered[str, Preference | str]] = Remembered()


def read_annotation(text: str) -> Preference | str:
    """Return the preference in an annotation, or the error in it; equal texts share one result."""
    if len(text) > _LONGEST:
        return f"at most {_LONGEST} characters are expected, was {len(text)}"
    known = _READ.get(text)
    return _READ.keep(text, _parsed(text), len(text)) if known is None else known


def _parsed(text: str) -> Preference | str:
    try:
        args = msgspec.json.decode(text, type=PreferenceArgs)
    except (msgspec.DecodeError, RecursionError) as error:
        return json.dumps(str(error)[:_LONGEST_ERROR], ensure_ascii=False)[1:-1]  # it may quote the text
    fault = next(iter(args.faults()), None)
    return read_preference(args) if fault is None else f"{fault.path}: {fault.problem}"


class Refusal(IntEnum):
    """Why a set does not take another pod of a controller."""

    NONE = 0
    MAXIMUM = 1
    """The set has its maximum."""
    MINIMUM = 2
    """Other sets need all remaining replicas for their minimums."""


class SetCounts:
    """The pods of a controller on each set, and whether a set takes another one.

    Args:
        preference: the sets.
        replicas: how many pods the controller wants.
        pods: the pods on the nodes of each set, without terminating ones; the last number is that of other nodes.

    Attributes:
        pods: as given.
        replicas: as given.
        least, most: the limits of each set, in pods.
    """

    def __init__(self, preference: Preference, replicas: int, pods: Sequence[int]) -> None:
        self.preference, self.replicas, self.pods = preference, replicas, pods
        limits = [each.pods(replicas) for each in preference.sets]
        self.least = [least for least, _ in limits]
        self.most = [most for _, most in limits]
        self._lacking = [max(0, least - there) for least, there in zip(self.least, pods, strict=False)]
        self._remaining = replicas - sum(pods)

    def refusal(self, number: int, change: int = 0) -> Refusal:
        """Return whether a set takes another pod.

        Args:
            number: the number of the set.
            change: the difference of its pods to the counted ones, as if pods were added to its nodes or removed.
        """
        lacking = sum(self._lacking)
        if number < len(self.most):
            there, most = self.pods[number] + change, self.most[number]
            if most is not None and there >= most:
                return Refusal.MAXIMUM
            own = max(0, self.least[number] - there)
            if own:
                return Refusal.NONE  # the pod counts for the minimum of the set
            lacking -= self._lacking[number]
        return Refusal.MINIMUM if lacking >= self._remaining - change and lacking else Refusal.NONE

    @property
    def refusals(self) -> list[Refusal]:
        """Why each set does not take another pod."""
        return [self.refusal(number) for number in range(len(self.pods))]

    @property
    def too_few(self) -> int:
        """By how many pods the minimums exceed the replicas that remain after one more pod."""
        lacking = sum(self._lacking)
        return min(lacking, max(0, lacking - self._remaining + 1))

    @property
    def lacking(self) -> list[int]:
        """The numbers of the sets below their minimum."""
        return [number for number, pods in enumerate(self._lacking) if pods]
