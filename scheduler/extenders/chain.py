"""All extenders of a configuration: who is asked when, and what their answers come to.

They are asked in the order of the configuration, those that may be ignored after all others.

Filters are asked one after another, each about the nodes the one before left; priorities of all at once; of those
that bind, the first that cares for the pod.

Source:
    kube-scheduler v1.36, schedule_one.go, findNodesThatPassExtenders, prioritizeNodes and extendersBinding;
    framework/preemption/preemption.go, callExtenders.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

import numpy as np

from scheduler.extenders.http_extender import HttpExtender
from scheduler.extenders.wire import MAX_EXTENDER_PRIORITY, ExtenderError
from scheduler.framework.events import EXTENDER
from scheduler.framework.interface import MAX_NODE_SCORE, Needs
from scheduler.framework.outcomes import PASS, Outcome, Outcomes
from scheduler.framework.status import Code
from scheduler.steps import UNHEARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from scheduler.configuration.types import Extender
    from scheduler.extenders.wire import FilterAnswer
    from scheduler.framework.diagnosis import Diagnosis
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, Rows, Snapshot
    from scheduler.steps import Steps

logger = logging.getLogger(__name__)

LEFT_OUT = "node(s) were left out by an extender without a reason"

_SCALE = MAX_NODE_SCORE // MAX_EXTENDER_PRIORITY


class ExtenderObserver(Protocol):
    """Who hears of extenders that fail."""

    def extender_failed(
        self, extender: str, verb: str, pod: PodInfo, error: ExtenderError, *, is_fatal: bool
    ) -> None:
        """Take note that an extender could not be asked, or answered nonsense.

        Args:
            extender: its URL prefix.
            verb: what it was to do: `filter`, `prioritize`, `preempt` or `bind`.
            pod: for whom.
            error: what went wrong.
            is_fatal: whether the attempt at the pod fails for it, so that the pod's user is told anyway.
        """
        ...


class Extenders:
    """The extenders of a configuration, in order.

    Args:
        settings: of each.
        observer: hears of those that fail.
        check_leading: is called right before one is asked to bind, and raises when nothing may be bound from here.
        steps: are told what is asked, and what the answers are.
        make: of the settings of one, where they stand, and `check_leading`.

    Raises:
        ConfigurationError: certificates cannot be read.
    """

    def __init__(
        self,
        settings: Sequence[Extender],
        observer: ExtenderObserver,
        check_leading: Callable[[], None] = lambda: None,
        steps: Steps = UNHEARD,
        make: Callable[..., HttpExtender] = HttpExtender,
    ) -> None:
        self._steps = steps
        made = [
            make(extender, f"extenders[{place}]", check_leading, steps)
            for place, extender in enumerate(settings)
        ]
        self._extenders = sorted(made, key=lambda extender: extender.ignorable)
        self._observer = observer

    def __bool__(self) -> bool:
        return bool(self._extenders)

    def __iter__(self) -> Iterator[HttpExtender]:
        return iter(self._extenders)

    @property
    def choose(self) -> bool:
        """Whether any of them filters or ranks nodes, so that one feasible node is not enough."""
        return any(each.settings.filter_verb or each.settings.prioritize_verb for each in self._extenders)

    @property
    def needs(self) -> Needs:
        """What must be known of pods: all, if any of them is sent those that would have to go, not their UIDs alone."""
        whole = (
            each.settings.preempt_verb and not each.settings.node_cache_capable for each in self._extenders
        )
        return Needs(bound_pod_objects=any(whole))

    async def filter(self, pod: PodInfo, snapshot: Snapshot, rows: Rows, diagnosis: Diagnosis) -> Rows:
        """Return the rows that all extenders leave; refusals are noted in the diagnosis.

        Raises:
            ExtenderError: one that is not ignorable failed.
        """
        for extender in self._interested(pod, lambda settings: settings.filter_verb):
            if not rows.size:
                break
            nodes = [snapshot.nodes[row] for row in rows.tolist()]
            try:
                answer = await extender.filter(pod, nodes)
            except ExtenderError as error:
                self._ignore(error, extender, "filter", pod)
                continue
            refusals = _refusals(answer, snapshot, rows)
            rows = diagnosis.reject(EXTENDER, refusals.table, refusals.index[rows], rows)
        return rows

    async def scores(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Mapping[str, Int64s]:
        """Return extender -> int64 (len(rows),), weighted and on the scale of plugins; who fails is left out."""
        asked = list(self._interested(pod, lambda settings: settings.prioritize_verb))
        if not asked:
            return {}
        nodes = [snapshot.nodes[row] for row in rows.tolist()]
        place_of = {node.name: place for place, node in enumerate(nodes)}
        answers = await asyncio.gather(
            *(
                self._steps.task(extender.prioritize(pod, nodes), f"prioritize of {extender.name}")
                for extender in asked
            ),
            return_exceptions=True,
        )
        by_extender: dict[str, Int64s] = {}
        for extender, answer in zip(asked, answers, strict=True):
            if isinstance(answer, ExtenderError):
                self._ignore(answer, extender, "prioritize", pod)
                continue
            if isinstance(answer, BaseException):
                raise answer
            scores = by_extender.setdefault(extender.name, np.zeros(len(rows), dtype=np.int64))
            for name, score in answer:
                if name in place_of:
                    scores[place_of[name]] += score * extender.settings.weight * _SCALE
        return by_extender

    async def bind(self, pod: PodInfo, node_name: str) -> bool:
        """Have an extender bind the pod; False if all that could are ignorable and failed.

        Raises:
            ExtenderError: one that is not ignorable failed, in which case it may have bound the pod all the same.
            NotLeadingError: none was asked, for we lead no more.
        """
        for extender in self._interested(pod, lambda settings: settings.bind_verb):
            try:
                await extender.bind(pod, node_name)
            except ExtenderError as error:
                self._ignore(error, extender, "bind", pod)
            else:
                return True
        return False

    def may_change_victims(self, pod: PodInfo) -> bool:
        """Whether an extender is to be asked before pods are preempted for this one."""
        return any(self._interested(pod, lambda settings: settings.preempt_verb))

    async def preempt(
        self, pod: PodInfo, snapshot: Snapshot, victims: Mapping[str, tuple[Sequence[PodInfo], int]]
    ) -> Mapping[str, tuple[Sequence[PodInfo], int]]:
        """Return what the extenders leave of node name -> victims, and how many disruption budgets that breaks.

        Raises:
            ExtenderError: one that is not ignorable failed, or named pods that are not there.
        """
        for extender in self._interested(pod, lambda settings: settings.preempt_verb):
            if not victims:
                break
            try:
                victims = await self._victims_of(extender, pod, snapshot, victims)
            except ExtenderError as error:
                self._ignore(error, extender, "preempt", pod)
        return victims

    async def close(self) -> None:
        """Close all connections."""
        for extender in self._extenders:
            await extender.close()

    def _interested(self, pod: PodInfo, verb: Callable[[Extender], str]) -> list[HttpExtender]:
        return [
            extender
            for extender in self._extenders
            if verb(extender.settings) and extender.is_interested(pod)
        ]

    def _ignore(self, error: ExtenderError, extender: HttpExtender, verb: str, pod: PodInfo) -> None:
        """Tell of an error, and raise it if it cannot be ignored; without priorities any extender can be."""
        logger.warning(
            "Extender failed",
            extra={
                "extender": extender.name,
                "verb": verb,
                "pod": pod.key,
                "ignorable": extender.ignorable,
                "error": str(error),
            },
        )
        is_fatal = not extender.ignorable and verb != "prioritize"
        self._observer.extender_failed(extender.name, verb, pod, error, is_fatal=is_fatal)
        if is_fatal:
            raise error

    @staticmethod
    async def _victims_of(
        extender: HttpExtender,
        pod: PodInfo,
        snapshot: Snapshot,
        victims: Mapping[str, tuple[Sequence[PodInfo], int]],
    ) -> Mapping[str, tuple[Sequence[PodInfo], int]]:
        answer = await extender.preempt(pod, victims)
        left: dict[str, tuple[Sequence[PodInfo], int]] = {}
        for name, meta in answer.items():
            row = snapshot.row_of(name)
            if row is None:
                raise ExtenderError(f'extender "{extender.name}": claims to preempt on unknown node "{name}"')
            there = {each.uid: each for each in snapshot.pods_on(row)}
            missing = [uid for uid in meta.uids if uid not in there]
            if missing:
                raise ExtenderError(
                    f'extender "{extender.name}": claims to preempt pod (UID: {missing[0]}) on node: {name}, '
                    "but the pod is not found on that node"
                )
            if meta.uids:
                left[name] = ([there[uid] for uid in meta.uids], meta.pdb_violations)
            elif not extender.ignorable:
                raise ExtenderError(
                    f'extender "{extender.name}": expected at least one victim pod on node "{name}"'
                )
        return left


def _refusals(answer: FilterAnswer, snapshot: Snapshot, rows: Rows) -> Outcomes:
    """Return what an extender's answer says of the rows it was asked about."""
    passed = frozenset(answer.node_names)
    index = np.zeros(snapshot.n_nodes, dtype=np.uint16)
    places: dict[Outcome, int] = {PASS: 0}
    # A loop over the nodes an extender was told of, each of which went over the wire by name.
    for row in rows.tolist():
        name = snapshot.name_of(row)
        if name not in passed:
            index[row] = places.setdefault(_outcome(answer, name), len(places))
    return Outcomes(index, tuple(places))


def _outcome(answer: FilterAnswer, name: str) -> Outcome:
    if name in answer.unresolvable:
        reason = answer.unresolvable[name] or LEFT_OUT
        return Outcome(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,))
    if name in answer.failed:
        return Outcome(Code.UNSCHEDULABLE, (answer.failed[name] or LEFT_OUT,))
    return Outcome(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (LEFT_OUT,))
