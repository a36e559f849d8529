"""HTTP extenders: the calls of each one, the order of the calls, and the combination of the responses.

Extenders are called in the order of the configuration, ignorable ones last. Filters are called one after another, each
for the nodes that the previous one left; priorities are called concurrently; the first interested extender that can bind
binds.

Source:
    kube-scheduler v1.36, pkg/scheduler/extender.go; schedule_one.go, findNodesThatPassExtenders, prioritizeNodes and
    extendersBinding; framework/preemption/preemption.go, callExtenders.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from scheduler.engine.ports import REAL_TIME
from scheduler.errors import ConfigurationError, FieldError
from scheduler.extensions import extender_wire
from scheduler.extensions.extender_wire import MAX_EXTENDER_PRIORITY, ExtenderError
from scheduler.files import read_regular
from scheduler.framework.diagnosis import PASS, Outcome, Outcomes
from scheduler.framework.events import EXTENDER
from scheduler.framework.interface import MAX_NODE_SCORE, Needs
from scheduler.framework.status import Code
from scheduler.kube.http.client import HttpClient, HttpError
from scheduler.kube.tls import client_context, load_key_pair
from scheduler.urls import shown_url

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from scheduler.configuration.types import Extender
    from scheduler.engine.ports import Time
    from scheduler.extensions.extender_wire import FilterAnswer, MetaVictims
    from scheduler.framework.diagnosis import Diagnosis
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, Rows, Snapshot

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ExtenderHealth:
    """Statistics since the extender's configuration became active.

    Attributes:
        asked: number of calls.
        failed: number of failed calls.
        seconds: duration of the last successful call.
        answered_at: time of the last successful call, in Unix seconds; None before the first.
        failed_at: time of the last failed call, in Unix seconds; None before the first.
        error: the last failure; "" if there is none.
    """

    asked: int = 0
    failed: int = 0
    seconds: float = 0.0
    answered_at: float | None = None
    failed_at: float | None = None
    error: str = ""

    def answered(self, seconds: float) -> None:
        """Record a successful call."""
        self.asked += 1
        self.seconds = seconds
        self.answered_at = time.time()

    def fails(self, error: str) -> None:
        """Record a failed call."""
        self.asked += 1
        self.failed += 1
        self.failed_at = time.time()
        self.error = error


T = TypeVar("T")

_DEFAULT_SECONDS = 5.0
_MOST_BYTES = 2**20
_MOST_BYTES_A_NODE = 512
"""The limits of a response, in addition to the size of the request: names, and a reason for each node."""


class HttpExtender:
    """A web service that takes part in scheduling, with a pool of connections that is opened by the first request.

    Every verb raises ExtenderError if the call fails or the response is invalid.

    Args:
        settings: its settings.
        path: their path in the configuration, for messages.
        check_leading: see `Extenders`.

    Attributes:
        name: its URL prefix without secrets, as in kube-scheduler's messages.
        ignorable: whether scheduling continues without it when it fails.
        health: statistics of calls.

    Raises:
        ConfigurationError: its certificates cannot be read.
    """

    def __init__(
        self,
        settings: Extender,
        path: str,
        check_leading: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self._check_leading = check_leading
        self.name = shown_url(settings.url_prefix)
        self.ignorable = settings.ignorable
        self.health = ExtenderHealth()
        self._seconds = settings.http_timeout.nanoseconds / 1e9 or _DEFAULT_SECONDS
        try:
            context = _ssl_context(settings)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            problem = f"cannot be used: {getattr(error, 'strerror', None) or error}"
            raise ConfigurationError([FieldError(f"{path}.tlsConfig", problem)]) from error
        server_name = settings.tls_config.server_name if settings.tls_config else ""
        self._client = HttpClient(context, server_name or None)
        self._managed = frozenset(resource.name for resource in settings.managed_resources)

    def is_interested(self, pod: PodInfo) -> bool:
        """Return whether a pod requests a resource that the extender manages; always True if it manages none."""
        if not self._managed:
            return True
        spec = pod.pod.spec
        return any(
            name in self._managed
            for container in (*spec.containers, *spec.init_containers)
            for written in (container.resources.requests, container.resources.limits)
            for name in written
        )

    async def filter(self, pod: PodInfo, nodes: Sequence[NodeObject]) -> FilterAnswer:
        """Request the nodes that can run a pod."""
        names_only = self.settings.node_cache_capable
        names = [node.name for node in nodes]
        return await self._ask(
            self.settings.filter_verb,
            extender_wire.arguments(pod, nodes, names_only=names_only),
            lambda answer: extender_wire.filter_answer(answer, names, names_only=names_only),
            len(nodes),
        )

    async def prioritize(self, pod: PodInfo, nodes: Sequence[NodeObject]) -> Sequence[tuple[str, int]]:
        """Request the scores of nodes: (name, any integer of 64 bits), without the extender's weight."""
        body = extender_wire.arguments(pod, nodes, names_only=self.settings.node_cache_capable)
        return await self._ask(
            self.settings.prioritize_verb,
            body,
            lambda answer: extender_wire.priorities_answer(answer, len(nodes)),
            len(nodes),
        )

    async def preempt(
        self, pod: PodInfo, victims: Mapping[str, tuple[Sequence[PodInfo], int]]
    ) -> Mapping[str, MetaVictims]:
        """Request the victims that remain: node name -> victims, and the number of violated disruption budgets."""
        body = extender_wire.preemption_arguments(pod, victims, names_only=self.settings.node_cache_capable)
        return await self._ask(self.settings.preempt_verb, body, extender_wire.preemption_answer)

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Request the binding of a pod."""
        body = extender_wire.binding_arguments(pod, node_name)
        await self._ask(self.settings.bind_verb, body, extender_wire.binding_answer)

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    async def _ask(self, verb: str, body: bytes, read: Callable[[bytes], T], n_nodes: int = 0) -> T:
        began = time.monotonic()
        try:
            url = f"{self.settings.url_prefix.rstrip('/')}/{verb}"
            answer = read(
                await self._post(url, verb, body, len(body) + _MOST_BYTES + _MOST_BYTES_A_NODE * n_nodes)
            )
        except ExtenderError as error:
            self.health.fails(str(error))
            # An owner of the error must not keep the frames that raised it, with the whole request and response.
            raise ExtenderError(f'extender "{self.name}": {error}') from error.with_traceback(None)
        self.health.answered(time.monotonic() - began)
        return answer

    async def _post(self, url: str, verb: str, body: bytes, most_bytes: int) -> bytes:
        is_bind = verb == self.settings.bind_verb
        try:
            answer = await self._client.send(
                "POST",
                url,
                body=body,
                timeout_seconds=self._seconds,
                most_bytes=most_bytes,
                check=self._check_leading if is_bind else None,
            )
        except HttpError as error:
            raise ExtenderError(str(error)) from error
        if answer.status != 200:
            raise ExtenderError(f"failed {verb} with extender at URL {shown_url(url)}, code {answer.status}")
        return answer.body


def _ssl_context(settings: Extender) -> ssl.SSLContext:
    """Return the TLS settings for this extender.

    Source:
        kube-scheduler v1.36, pkg/scheduler/extender.go, makeTransport: with enableHTTPS and no authority given,
        every server is trusted.
    """
    tls = settings.tls_config
    has_authority = tls is not None and bool(tls.ca_file or tls.ca_data)
    is_insecure = (settings.enable_https and not has_authority) or (tls is not None and tls.insecure)
    authority = _content(tls.ca_data, tls.ca_file) if tls is not None and has_authority else None
    context = client_context(authority, verifies=not is_insecure)
    if tls is not None and (tls.cert_file or tls.cert_data):
        certificate, key = _content(tls.cert_data, tls.cert_file), _content(tls.key_data, tls.key_file)
        load_key_pair(context, certificate, key)
    return context


def _content(data: bytes, file: str) -> bytes:
    """Return PEM text; data take precedence over a file."""
    return data or read_regular(Path(file))


LEFT_OUT = "node(s) were left out by an extender without a reason"

_SCALE = MAX_NODE_SCORE // MAX_EXTENDER_PRIORITY
_LARGEST = (1 << 63) - 1


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

    async def scores(
        self, pod: PodInfo, snapshot: Snapshot, rows: Rows, totals: Callable[[], Int64s]
    ) -> Mapping[str, Int64s]:
        """Return extender -> int64 (len(rows),), weighted and on the scale of plugins; failed extenders are excluded.

        A score has no range. An extender fails if the total of a node with its score exceeds 64 bits.

        Args:
            pod: the pod.
            snapshot: the cluster.
            rows: the feasible nodes.
            totals: returns the total scores of plugins, int64 (len(rows),).
        """
        asked = list(self._interested(pod, lambda settings: settings.prioritize_verb))
        if not asked:
            return {}
        nodes = [snapshot.nodes[row] for row in rows.tolist()]
        answers = await asyncio.gather(
            *(
                self._time.task(extender.prioritize(pod, nodes), f"prioritize of {extender.name}")
                for extender in asked
            ),
            return_exceptions=True,
        )
        by_extender: dict[str, Int64s] = {}
        total_of = {node.name: total for node, total in zip(nodes, totals().tolist(), strict=True)}
        for extender, answer in zip(asked, answers, strict=True):
            try:
                if isinstance(answer, BaseException):
                    raise answer
                scores = _weighted(answer, extender, total_of)
            except ExtenderError as error:
                self._ignore(error, extender, "prioritize", pod)
                continue
            for name, score in scores.items():
                total_of[name] += score
            found = np.array([scores.get(node.name, 0) for node in nodes], dtype=np.int64)
            by_extender[extender.name] = by_extender.get(extender.name, 0) + found
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


def _weighted(
    answer: Sequence[tuple[str, int]], extender: HttpExtender, totals: Mapping[str, int]
) -> Mapping[str, int]:
    """Return node -> the weighted score of an extender, for nodes with a total before it.

    Raises:
        ExtenderError: a total with this score is not an integer of 64 bits.
    """
    scores: dict[str, int] = {}
    for name, score in answer:
        if name in totals:
            scores[name] = scores.get(name, 0) + score * extender.settings.weight * _SCALE
    for name, score in scores.items():
        if max(abs(score), abs(totals[name] + score)) > _LARGEST:
            raise ExtenderError(
                f'extender "{extender.name}": gave node "{name}" the weighted score {score}, '
                "with which its total exceeds 64 bits"
            )
    return scores


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
