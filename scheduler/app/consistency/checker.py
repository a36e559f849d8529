"""Compares what the daemon knows with what there is: now and then, at a signal, and when somebody asks.

It is also looked when the API server was away: what was answered before may never have been shown, and a server that was
restored from a backup knows nothing of it. Everything is looked at twice, and only what is found both times, word for word, is said to differ: the cluster goes on
changing between an answer of the API server and the watch. Then it is put right: what the watch has missed by listing the
kind anew, what follows from that by following it again, and what is merely kept by forgetting it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from scheduler.app.consistency.dump import log_dump
from scheduler.app.consistency.findings import Finding, What
from scheduler.app.consistency.server_look import look_at_server
from scheduler.app.consistency.state_look import WHOLE_TURN, StateLook
from scheduler.client.resources import NODES, PODS
from scheduler.framework.events import ActionType, ClusterEvent, EventResource

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Mapping, Sequence
    from random import Random

    from scheduler.app.assembly import Cycles, Parts
    from scheduler.app.consistency.server_look import ServerLook
    from scheduler.app.watches import Watches
    from scheduler.metrics.consistency import ConsistencyMetrics

logger = logging.getLogger(__name__)

CHECK_SECONDS = 600.0
"""How often it is looked without being asked; half as much again at most, so that replicas do not ask all at once.

The versions of 30,000 pods cost the API server a fraction of a list, and a mistake that nobody has noticed for ten minutes
is seldom one of seconds."""
SECOND_LOOK_SECONDS = 2.0
"""How long a watch may take to show what a list has shown."""
SETTLE_SECONDS = 3.0
"""How long after an outage it is looked: until then the watches go on, or have listed anew."""
_SHOWN = 20

MENDED = ClusterEvent(EventResource.WILDCARD, ActionType.ALL, "CacheMended")
"""What was wrong may have kept any pod from being placed, and nothing else would wake it."""
RESTORED = ClusterEvent(EventResource.WILDCARD, ActionType.ALL, "ClusterRestored")
"""What pods were told is as lost as what they waited for."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a check came to.

    Attributes:
        findings: what differs; nothing, if all is well.
        compared: kind -> how many objects the API server has of it.
        unread: kind -> why it could not be compared with the API server.
        is_mended: whether what was found was put right.
    """

    findings: Sequence[Finding] = ()
    compared: Mapping[str, int] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    is_mended: bool = False

    @property
    def result(self) -> str:
        """In one word, as metrics have it."""
        return "drift" if self.findings else "failed" if self.unread else "clean"


class ConsistencyChecker:
    """Checks one daemon.

    Args:
        random: when it is looked, and at whose verdicts.
    """

    def __init__(
        self, parts: Parts, cycles: Cycles, watches: Watches, *, metrics: ConsistencyMetrics, random: Random
    ) -> None:
        self._parts, self._watches = parts, watches
        self._metrics = metrics
        self._random = random
        self._state = StateLook(parts, cycles, watches, random)
        self._checking = asyncio.Lock()
        self._asked = asyncio.Event()
        self._is_dump_wanted = False
        self._is_restored = False
        metrics.may_find(what.value for what in What)

    def ask(self) -> None:
        """Have it checked and the cache and the queue written to the log, soon."""
        self._is_dump_wanted = True
        self._asked.set()

    def look_soon(self) -> None:
        """Have it checked when the watches have settled."""
        asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._asked.set)

    def look_soon_and_wake(self) -> None:
        """Have it checked when the watches have settled, and all pods that wait tried again, for the cluster is another."""
        self._is_restored = True
        self.look_soon()

    async def run(self) -> NoReturn:
        """Check now and then, and when asked to, until cancelled."""
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
                report = await self.check(mend=True)
                if self._is_restored:
                    self._is_restored = False
                    self._parts.steps.mended("restored")
                    self._parts.bus.happened(RESTORED, None, None)
                if is_dump_wanted:
                    logger.info("Cache was compared", extra={"result": report.result, **report.compared})
                    await log_dump(self._parts)
            except Exception:
                # A mistake of ours here must not end the scheduler it looks after.
                logger.exception("Cache could not be compared")

    async def check(self, *, mend: bool) -> Report:
        """Compare, and put right what differs unless it is only to be told; one check at a time."""
        async with self._checking:
            report = await self._check(mend=mend)
        if mend:
            at = self._parts.clock.utc_now().timestamp()
            self._metrics.checked(report.result, (each.what.value for each in report.findings), at)
        self._tell(report)
        return report

    async def _check(self, *, mend: bool) -> Report:
        server = await look_at_server(list(self._watches))
        state = await self.look(())
        if not server.findings and not state:
            return Report((), server.compared, server.unread)
        await asyncio.sleep(SECOND_LOOK_SECONDS)
        # Of all kinds again: whether a pod is bound is to be known before anything is said of its room.
        again = await look_at_server(list(self._watches))
        missed = [finding for finding in again.findings if finding in server.findings]
        unclear = _Unclear(again)
        if state and mend:
            self._parts.steps.mended("put right")
        derived = await self.look(unclear, found_before=state, mend=mend) if state else []
        if mend:
            for reflector in dict.fromkeys(again.of[finding] for finding in missed):
                await self._watches.read_again(reflector)
            if derived:
                self._parts.bus.happened(MENDED, None, None)
        return Report([*missed, *derived], again.compared, again.unread, is_mended=mend)

    async def look(
        self,
        unclear: Container[str],
        *,
        found_before: Collection[Finding] | None = None,
        mend: bool = False,
    ) -> list[Finding]:
        """Look at everything that follows from what the watches have shown.

        Args:
            unclear: as of `StateLook.steps`.
            found_before: nothing else is said to be found.
            mend: put right what is found, each thing in the turn of the loop in which it was.
        """
        findings: list[Finding] = []
        work = 0
        await self._parts.freeze.wait_over()
        for cost, step in self._state.steps(unclear):
            work += cost
            if work > WHOLE_TURN:
                work = cost
                await asyncio.sleep(0)
                await self._parts.freeze.wait_over()
            found = [each for each in step() if found_before is None or each in found_before]
            findings += found
            if mend:
                for put_right in {each.mend for each in found if each.mend is not None}:
                    put_right()
        return findings

    def _tell(self, report: Report) -> None:
        if report.unread:
            logger.warning("Cache could not be compared in all", extra={"unread": dict(report.unread)})
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
                "mended": report.is_mended,
            },
        )


class _Unclear:
    """The objects of which it is not known what they are: all of a kind if it could not be read."""

    def __init__(self, look: ServerLook) -> None:
        self._keys = {finding.key for finding in look.findings}
        self._unread = look.unread

    def __contains__(self, key: object) -> bool:
        return key in self._keys or str(key).partition(" ")[0] in self._unread


def _mismatch(findings: Sequence[Finding]) -> list[dict[str, list[str]]]:
    """Return what kube-scheduler logs of nodes and pods that are missing, or here without being there.

    Source:
        kube-scheduler v1.36, backend/cache/debugger/comparer.go, Compare.
    """
    told = []
    for resource, name in ((NODES, "Nodes"), (PODS, "Pods")):
        of_kind = [each for each in findings if each.key.startswith(f"{resource} ")]
        missed = [
            each.key.split(" ")[1] for each in of_kind if each.problem.startswith("the watch has shown none")
        ]
        redundant = [each.key.split(" ")[1] for each in of_kind if each.problem.endswith("there is none")]
        if missed or redundant:
            told.append({f"missed{name}": missed[:_SHOWN], f"redundant{name}": redundant[:_SHOWN]})
    return told
