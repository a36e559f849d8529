"""Compares the daemon's state with the cluster: periodically, at a signal, and on request; and dumps it.

A check also follows an outage of the API server: the result of a write may never have been watched, and a server that
was restored from a backup has lost it. The cluster changes between the API server's answer and the watch, so every
object is compared twice, and a difference is reported only if both comparisons find exactly the same. Then it is
repaired: a missed watch event by listing the kind again, derived state by deriving it again, and a cached result by
dropping it.

Source:
    kube-scheduler v1.36, backend/cache/debugger/dumper.go.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from scheduler.daemon.app.consistency.state_check import WHOLE_TURN, Discrepancy, Finding, StateCheck
from scheduler.engine.queue.pod_places import Place
from scheduler.engine.state.cache import PodState
from scheduler.errors import ApiError
from scheduler.framework.events import ActionType, ClusterEvent, EventResource
from scheduler.kube.client.resources import NODES, PODS

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
    from random import Random

    from scheduler.daemon.app.assembly import Cycles, Parts
    from scheduler.daemon.app.watches import Watches
    from scheduler.daemon.metrics.additional import ConsistencyMetrics
    from scheduler.kube.client.reflector import Reflector
    from scheduler.objects.pod import PodInfo

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    Version = tuple[str, str]


@dataclass(slots=True)
class ServerCheck:
    """The result of one comparison of all watched versions.

    Attributes:
        findings: difference at the time of the answer, possibly a very recent change -> reflector of that kind.
        compared: kind -> number of objects of the kind in the API server.
        unread: kind -> why it could not be compared.
    """

    findings: dict[Finding, Reflector[Any]] = field(default_factory=dict)
    compared: dict[str, int] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)


async def check_server(reflectors: Iterable[Reflector[Any]]) -> ServerCheck:
    """Compare each kind, one after another; skip a kind that is being listed, which corrects it anyway."""
    look = ServerCheck()
    for reflector in reflectors:
        kind = str(reflector.resource)
        if not reflector.resource_version and not reflector.is_absent:
            look.unread[kind] = "it is being listed"
            continue
        try:
            served = await reflector.served_versions()
        except ApiError as error:
            look.unread[kind] = str(error)
            continue
        look.compared[kind] = len(served)
        shown = reflector.versions
        if shown == served or not reflector.resource_version:
            continue
        for key in {**shown, **served}:
            if shown.get(key) != served.get(key):
                finding = _finding(f"{kind} {key}", shown.get(key), served.get(key))
                look.findings[finding] = reflector
    return look


def _finding(key: str, shown: Version | None, served: Version | None) -> Finding:
    what = (
        Discrepancy.MISSED
        if shown is None
        else Discrepancy.REDUNDANT
        if served is None
        else Discrepancy.WATCHED
    )
    return Finding(what, key, f"the watch has shown {_text(shown)}, the API server has {_text(served)}")


def _text(version: Version | None) -> str:
    return "none" if version is None else f"version {version[1]} of {version[0]}"


_PODS_AT_A_TIME = 50
_OWN_FIELDS = {
    "cpu": "MilliCPU",
    "memory": "Memory",
    "ephemeral-storage": "EphemeralStorage",
    "pods": "AllowedPodNumber",
}


def nodes(parts: Parts) -> Iterator[dict[str, Any]]:
    """Yield the cached data of each node, including deleted nodes that still have pods."""
    table = parts.cache.table
    for name in [node.name for node in table.nodes]:
        row = table.row_of(name)
        if row is not None:
            yield {
                "name": name,
                "deleted": False,
                "requested": dict(table.requested_on(row)),
                "allocatable": dict(table.nodes[row].allocatable),
                **_pods_of(parts, name, table.pods_on(row).values()),
            }
    for name, pods in parts.cache.pods_of_unknown_nodes().items():
        yield {
            "name": name,
            "deleted": True,
            "requested": {},
            "allocatable": {},
            **_pods_of(parts, name, pods),
        }


def pending(parts: Parts) -> Iterator[dict[str, Any]]:
    """Yield each pod of the queue with its place."""
    for queued in list(parts.queue.pods()):
        place = parts.queue.place_of(queued.pod.uid)
        if place is not Place.OUTSIDE:
            yield {**_pod(queued.pod), "place": place.value, "attempts": queued.attempts}


def summary(parts: Parts) -> str:
    """Return the number of pods in the queue, in kube-scheduler's format; pods in flight are in none of its parts."""
    count = parts.queue.count
    waiting = count(Place.UNSCHEDULABLE) + count(Place.GATED)
    return f"activeQ:{count(Place.ACTIVE)}; backoffQ:{count(Place.BACKOFF)}; unschedulablePods:{waiting}"


async def log_dump(parts: Parts) -> None:
    """Log the dump: one line for each node, and one line for each batch of queued pods."""
    for number, node in enumerate(nodes(parts)):
        logger.info("Dump of cached NodeInfo", extra={"nodes": node_text(node)})
        if number % _PODS_AT_A_TIME == 0:
            await asyncio.sleep(0)
    lines = [pod_text(pod) for pod in pending(parts)]
    counts = summary(parts)
    for start in range(0, max(len(lines), 1), _PODS_AT_A_TIME):
        pods = "".join(lines[start : start + _PODS_AT_A_TIME])
        logger.info("Dump of scheduling queue", extra={"summary": counts, "pods": pods})
        await asyncio.sleep(0)


def node_text(node: Mapping[str, Any]) -> str:
    """Return a node of `nodes` in kube-scheduler's format."""
    text = (
        f"Node name: {node['name']}\nDeleted: {str(node['deleted']).lower()}\n"
        f"Requested Resources: {_resources(node['requested'])}\nAllocatable Resources:{_resources(node['allocatable'])}\n"
        f"Scheduled Pods(number: {len(node['pods'])}):\n{''.join(map(pod_text, node['pods']))}"
    )
    nominated = node["nominatedPods"]
    if nominated:
        text += f"Nominated Pods(number: {len(nominated)}):\n{''.join(map(pod_text, nominated))}"
    return text


def pod_text(pod: Mapping[str, Any]) -> str:
    """Return a pod in kube-scheduler's format, followed by this scheduler's own fields."""
    text = (
        f"name: {pod['name']}, namespace: {pod['namespace']}, uid: {pod['uid']}, phase: {pod['phase']}, "
        f"nominated node: {pod['nominatedNode']}"
    )
    more = "".join(f", {name}: {pod[name]}" for name in ("place", "attempts", "state") if name in pod)
    return f"{text}{more}\n"


def _pods_of(parts: Parts, node_name: str, pods: Any) -> dict[str, Any]:
    counted = [
        _pod(pod)
        if parts.cache.state_of(pod.uid) is PodState.CONFIRMED
        else {**_pod(pod), "state": "assumed"}
        for pod in pods
    ]
    nominated = [_pod(pod) for pod in parts.nominator.nominated_pods_for_node(node_name)]
    return {"pods": counted, "nominatedPods": nominated}


def _pod(pod: PodInfo) -> dict[str, Any]:
    status = pod.pod.status
    return {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "phase": status.phase,
        "nominatedNode": status.nominated_node_name,
    }


def _resources(amounts: Mapping[str, int]) -> str:
    """Return amounts in the format of a Resource in Go."""
    own = " ".join(f"{go}:{amounts.get(name, 0)}" for name, go in _OWN_FIELDS.items())
    scalar = " ".join(f"{name}:{amounts[name]}" for name in sorted(amounts) if name not in _OWN_FIELDS)
    return f"&{{{own} ScalarResources:map[{scalar}]}}"


CHECK_SECONDS = 600.0
"""The interval of checks without a request; lengthened by up to half at random, so that replicas do not check at once.
The versions of 30,000 pods cost the API server a fraction of a list, and an error that stays unnoticed for ten minutes
is seldom urgent."""
SECOND_CHECK_SECONDS = 2.0
"""The longest time until the watch has shown a change that a list has shown."""
SETTLE_SECONDS = 3.0
"""The time between the end of an outage and the check: by then the watches continue, or have listed again."""
_SHOWN = 20

REPAIRED = ClusterEvent(EventResource.WILDCARD, ActionType.ALL, "CacheRepaired")
"""The error may have kept any pod from being scheduled, and no other event would requeue it."""
RESTORED = ClusterEvent(EventResource.WILDCARD, ActionType.ALL, "ClusterRestored")
"""The restored cluster has lost the results of pods and the events that they waited for."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a check.

    Attributes:
        findings: the differences; empty if there are none.
        compared: kind -> number of objects of the kind in the API server.
        unread: kind -> why it could not be compared with the API server.
        is_repaired: whether the differences were repaired.
    """

    findings: Sequence[Finding] = ()
    compared: Mapping[str, int] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    is_repaired: bool = False

    @property
    def result(self) -> str:
        """The result as metrics name it."""
        return "drift" if self.findings else "failed" if self.unread else "clean"


class ConsistencyChecker:
    """Checks one daemon.

    Args:
        random: chooses the times of checks, and the pods that are evaluated again.
    """

    def __init__(
        self, parts: Parts, cycles: Cycles, watches: Watches, *, metrics: ConsistencyMetrics, random: Random
    ) -> None:
        self._parts, self._watches = parts, watches
        self._metrics = metrics
        self._random = random
        self._state = StateCheck(parts, cycles, watches, random)
        self._checking = asyncio.Lock()
        self._asked = asyncio.Event()
        self._is_dump_wanted = False
        self._is_restored = False
        metrics.may_find(what.value for what in Discrepancy)

    def ask(self) -> None:
        """Request a check soon, and a dump of the cache and the queue to the log."""
        self._is_dump_wanted = True
        self._asked.set()

    def check_soon(self) -> None:
        """Request a check after the watches have settled."""
        asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._asked.set)

    def check_soon_and_wake(self) -> None:
        """Request a check after the watches have settled, and requeue all waiting pods, because the cluster was restored."""
        self._is_restored = True
        self.check_soon()

    async def run(self) -> NoReturn:
        """Check periodically and on request, until cancelled."""
        await self._watches.wait_synced()
        while True:
            try:
                async with asyncio.timeout(CHECK_SECONDS * self._random.uniform(1.0, 1.5)):
                    await self._asked.wait()
            except TimeoutError:
                pass
            is_dump_wanted, self._is_dump_wanted = self._is_dump_wanted, False
            self._asked.clear()
            try:
                report = await self.check(repair=True)
                if self._is_restored:
                    self._is_restored = False
                    self._parts.ports.repaired("restored")
                    self._parts.bus.happened(RESTORED, None, None)
                if is_dump_wanted:
                    logger.info("Cache was compared", extra={"result": report.result, **report.compared})
                    await log_dump(self._parts)
            except Exception:
                # A bug of the checker must not end the scheduler.
                logger.exception("Cache could not be compared")

    async def check(self, *, repair: bool) -> Report:
        """Compare, and repair the differences if `repair` is set; one check at a time."""
        async with self._checking:
            report = await self._check(repair=repair)
        if repair:
            at = self._parts.clock.utc_now().timestamp()
            self._metrics.checked(report.result, (each.what.value for each in report.findings), at)
        self._tell(report)
        return report

    async def _check(self, *, repair: bool) -> Report:
        server = await check_server(list(self._watches))
        state = await self.look(())
        if not server.findings and not state:
            return Report((), server.compared, server.unread)
        await asyncio.sleep(SECOND_CHECK_SECONDS)
        # All kinds again: whether a pod is bound must be known before its capacity is evaluated.
        again = await check_server(list(self._watches))
        missed = [finding for finding in again.findings if finding in server.findings]
        unclear = _Unclear(again)
        if state and repair:
            self._parts.ports.repaired("put right")
        derived = await self.look(unclear, found_before=state, repair=repair) if state else []
        if repair:
            for reflector in dict.fromkeys(again.findings[finding] for finding in missed):
                await self._watches.read_again(reflector)
            if derived:
                self._parts.bus.happened(REPAIRED, None, None)
        return Report([*missed, *derived], again.compared, again.unread, is_repaired=repair)

    async def look(
        self,
        unclear: Container[str],
        *,
        found_before: Collection[Finding] | None = None,
        repair: bool = False,
    ) -> list[Finding]:
        """Compare everything that derives from the watches.

        Args:
            unclear: as for `StateCheck.checks`.
            found_before: if given, only findings in it are reported.
            repair: repair each finding within the same time slice in which it was found.
        """
        findings: list[Finding] = []
        work = 0
        await self._parts.freeze.wait_over()
        for cost, step in self._state.checks(unclear):
            work += cost
            if work > WHOLE_TURN:
                work = cost
                await asyncio.sleep(0)
                await self._parts.freeze.wait_over()
            found = [each for each in step() if found_before is None or each in found_before]
            findings += found
            if repair:
                for put_right in dict.fromkeys(each.repair for each in found if each.repair is not None):
                    put_right()
        return findings

    def _tell(self, report: Report) -> None:
        if report.unread:
            logger.warning("Cache could not be compared completely", extra={"unread": dict(report.unread)})
        if not report.findings:
            return
        for fields in _mismatch(report.findings):
            logger.info("Cache mismatch", extra=fields)
        counts = Counter(finding.what.value for finding in report.findings)
        logger.error(
            "Cache differs from the cluster",
            extra={
                "found": dict(counts),
                "some": [str(finding) for finding in report.findings[:_SHOWN]],
                "repaired": report.is_repaired,
            },
        )


class _Unclear:
    """The objects of unknown state: the given ones, and all of a kind that could not be read."""

    def __init__(self, look: ServerCheck) -> None:
        self._keys = {finding.key for finding in look.findings}
        self._unread = look.unread

    def __contains__(self, key: object) -> bool:
        return key in self._keys or str(key).partition(" ")[0] in self._unread


def _mismatch(findings: Sequence[Finding]) -> list[dict[str, list[str]]]:
    """Return the log fields of kube-scheduler for missed and redundant nodes and pods.

    Source:
        kube-scheduler v1.36, backend/cache/debugger/comparer.go, Compare.
    """
    lines = []
    for resource, name in ((NODES, "Nodes"), (PODS, "Pods")):
        kind = f"{resource} "
        fields = {
            f"{what.value}{name}": [
                each.key.removeprefix(kind)
                for each in findings
                if each.what is what and each.key.startswith(kind)
            ][:_SHOWN]
            for what in (Discrepancy.MISSED, Discrepancy.REDUNDANT)
        }
        if any(fields.values()):
            lines.append(fields)
    return lines
