"""All extenders of a configuration: the order of calls, and the combination of their responses.

Extenders are called in the order of the configuration, ignorable ones last. Filters are called one after another, each
for the nodes that the previous one left; priorities are called concurrently; the first interested extender that can bind
binds.

Source:
    kube-scheduler v1.36, schedule_one.go, findNodesThatPassExtenders, prioritizeNodes and extendersBinding;
    framework/preemption/preemption.go, callExtenders.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

import numpy as np

from scheduler.engine.ports import REAL_TIME
from scheduler.extensions.extenders.http_extender import HttpExtender
from scheduler.extensions.extenders.wire import MAX_EXTENDER_PRIORITY, ExtenderError
from scheduler.framework.diagnosis import PASS, Outcome, Outcomes
from scheduler.framework.events import EXTENDER
from scheduler.framework.interface import MAX_NODE_SCORE, Needs
from scheduler.framework.status import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from scheduler.configuration.types import Extender
    from scheduler.engine.ports import Time
    from scheduler.extensions.extenders.wire import FilterAnswer
    from scheduler.framework.diagnosis import Diagnosis
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, Rows, Snapshot

logger = logging.getLogger(__name__)

LEFT_OUT = "node(s) were left out by an extender without a reason"

_SCALE = MAX_NODE_SCORE // MAX_EXTENDER_PRIORITY


class ExtenderObserver(Protocol):
    """Is notified of failures of extenders."""

    def extender_failed(
        self, extender: str, verb: str, pod: PodInfo, error: ExtenderError, *, is_fatal: bool
    ) -> None:
        """Handle a failed call of an extender, or an invalid response.

        Args:
            extender: its URL prefix.
            verb: the verb: `filter`, `prioritize`, `preempt` or `bind`.
            pod: the pod of the call.
            error: the error.
            is_fatal: whether the attempt at the pod fails because of it, so that the pod shows the error anyway.
        """
        ...


class Extenders:
    """The extenders of a configuration, in order.

    Args:
        settings: the settings of each.
        observer: is notified of failures.
        check_leading: called immediately before a bind request; raises if this scheduler must not bind.
        time: starts concurrent requests.
        make: builds an extender from its settings, its path in the configuration, and `check_leading`.

    Raises:
        ConfigurationError: certificates cannot be read.
    """

    def __init__(
        self,
        settings: Sequence[Extender],
        observer: ExtenderObserver,
        check_leading: Callable[[], None] = lambda: None,
        time: Time = REAL_TIME,
        make: Callable[..., HttpExtender] = HttpExtender,
    ) -> None:
        self._time = time
        made = [
            make(extender, f"extenders[{place}]", check_leading) for place, extender in enumerate(settings)
        ]
        self._extenders = sorted(made, key=lambda extender: extender.ignorable)
        self._observer = observer

    def __bool__(self) -> bool:
        return bool(self._extenders)

    def __iter__(self) -> Iterator[HttpExtender]:
        return iter(self._extenders)

    @property
    def choose(self) -> bool:
        """Whether any of them filters or scores nodes, so that one feasible node is not enough."""
        return any(each.settings.filter_verb or each.settings.prioritize_verb for each in self._extenders)

    @property
    def needs(self) -> Needs:
        """The fields of pods to keep: all, if any extender receives whole victims and not only their UIDs."""
        whole = (
            each.settings.preempt_verb and not each.settings.node_cache_capable for each in self._extenders
        )
        return Needs(bound_pod_objects=any(whole))

    async def filter(self, pod: PodInfo, snapshot: Snapshot, rows: Rows, diagnosis: Diagnosis) -> Rows:
        """Return the rows that pass all extenders; rejections are recorded in the diagnosis.

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
        """Return extender -> int64 (len(rows),), weighted and on the scale of plugins; failed extenders are excluded."""
        asked = list(self._interested(pod, lambda settings: settings.prioritize_verb))
        if not asked:
            return {}
        nodes = [snapshot.nodes[row] for row in rows.tolist()]
        place_of = {node.name: place for place, node in enumerate(nodes)}
        answers = await asyncio.gather(
            *(
                self._time.task(extender.prioritize(pod, nodes), f"prioritize of {extender.name}")
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
        """Have an extender bind the pod; return False if none is interested, or all are ignorable and failed.

        Raises:
            ExtenderError: one that is not ignorable failed; it may have bound the pod nevertheless.
            NotLeadingError: none was called, because this scheduler no longer leads.
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
        """Return whether an extender must be called before pods are preempted for this pod."""
        return any(self._interested(pod, lambda settings: settings.preempt_verb))

    async def preempt(
        self, pod: PodInfo, snapshot: Snapshot, victims: Mapping[str, tuple[Sequence[PodInfo], int]]
    ) -> Mapping[str, tuple[Sequence[PodInfo], int]]:
        """Return the victims that the extenders leave: node name -> victims, and the number of violated disruption budgets.

        Raises:
            ExtenderError: one that is not ignorable failed, or named pods that do not exist.
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
        """Report an error, and raise it unless it can be ignored; an error of `prioritize` always can."""
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
    """Return an extender's rejections of the rows it was called with."""
    passed = frozenset(answer.node_names)
    index = np.zeros(snapshot.n_nodes, dtype=np.uint16)
    places: dict[Outcome, int] = {PASS: 0}
    # A loop over the nodes of the request, because each of them was sent by name.
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
