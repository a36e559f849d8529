"""Decides for the pods of another scheduler beside it, and compares the decisions; writes nothing.

It is the daemon without queue, cycles and lease, with the same parts, watches and decisions. Changes from the watches pass
through `HeldChanges`, which orders them, to `DecisionOrder`, which applies them and evaluates the decisions.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from dataclasses import replace as with_fields
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from scheduler.clock import rfc3339_micro
from scheduler.configuration.load import Configuration, parse
from scheduler.daemon.app.api_access import ApiClient
from scheduler.daemon.app.assembly import Parts
from scheduler.daemon.app.gauges import show_state
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.daemon.app.needs import together
from scheduler.daemon.app.shadow.comparison import (
    AGREEMENT,
    EQUIVALENT_VICTIMS,
    OTHER_VICTIMS,
    PREEMPTS,
    UNKNOWN,
    ShadowEvaluator,
)
from scheduler.daemon.app.shadow.decision_order import DecisionOrder
from scheduler.daemon.app.shadow.findings import Findings
from scheduler.daemon.app.shadow.observed_changes import HeldChanges
from scheduler.daemon.app.watches import Watches
from scheduler.daemon.metrics import Metrics
from scheduler.engine.cycle.attempt_log import AttemptLog
from scheduler.engine.cycle.event_handlers import PodHandler
from scheduler.kube.client.requests import DryRunRequests
from scheduler.objects.pod import PodInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from scheduler.clock import Clock
    from scheduler.daemon.app.shadow.comparison import ShadowVerdict
    from scheduler.daemon.app.shadow.observed_changes import ObservedChange
    from scheduler.engine.runtime.framework import Framework
    from scheduler.framework.interface import Plugin
    from scheduler.kube.client.connection import ApiConnection

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
_SLICE_SECONDS = 0.005
DEFAULT: Final = "default"
CONFIG: Final = "config"
_DEFAULTS: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: DefaultPreemption
    args: {minCandidateNodesPercentage: 100}
"""
"""The default plugins without sampling of nodes, also for preemption: the other scheduler may have looked at any node."""


def default_of(scheduler_name: str) -> Configuration:
    """Return the default profile under another scheduler's name."""
    return parse(_DEFAULTS, scheduler_name=scheduler_name)


def under_the_name(configuration: Configuration, scheduler_name: str) -> Configuration:
    """Return a configuration with a single profile of that name: the one that has the name, or the first."""
    profiles = configuration.settings.profiles
    named = next((each for each in profiles if each.scheduler_name == scheduler_name), profiles[0])
    only = replace(named, scheduler_name=scheduler_name)
    return with_fields(configuration, settings=replace(configuration.settings, profiles=(only,)))


class ShadowService:
    """Evaluates the decisions of another scheduler.

    Args:
        connection: connection to the API server, only for reads; the caller closes it.
        scheduler_name: the scheduler whose pods are evaluated.
        default: the default profile; None for `default_of`.
        candidate: configuration to evaluate beside the default profile; None for the default profile alone.
        sampling: the other scheduler's percentageOfNodesToScore.
        clock: the time.
        random: spreads retries.

    Attributes:
        configuration: the configuration that is shown: the candidate, or the default profile.
        metrics: all metrics.
        parts: the cluster at the time of the last evaluated decision.
        findings: the results of the comparison.
        attempts: this scheduler's decisions for the last pods.
        arrivals: changes that were received and not yet evaluated.
        history: changes that were evaluated and may be evaluated again.

    Raises:
        ConfigurationError: a plugin is unknown, broken, or has bad arguments.
    """

    def __init__(
        self,
        connection: ApiConnection,
        scheduler_name: str,
        *,
        default: Configuration | None = None,
        candidate: Configuration | None = None,
        sampling: int = 0,
        clock: Clock,
        random: Random,
        in_tree: Mapping[str, type[Plugin]] = IN_TREE,
    ) -> None:
        self.scheduler_name = scheduler_name
        self._clock = clock
        self.metrics = Metrics()
        connection.observer = self.metrics.rest_client
        self.parts = Parts(clock, self.metrics, in_tree)
        client = ApiClient(self.parts, connection, DryRunRequests(), metrics=self.metrics, random=random)
        self._tasks = client.tasks
        configurations = {DEFAULT: default or default_of(scheduler_name)}
        if candidate is not None:
            configurations[CONFIG] = under_the_name(candidate, scheduler_name)
        self._generations = {
            name: self.parts.build(each, client.access) for name, each in configurations.items()
        }
        *_, (_, last) = self._generations.items()
        self.configuration = last.configuration
        self.parts.activate(last)
        self._judges = [
            ShadowEvaluator(name, self.parts, each.frameworks[scheduler_name], sampling)
            for name, each in self._generations.items()
        ]
        self.findings = Findings(self.metrics.families)
        self.attempts = AttemptLog()
        self.arrivals = HeldChanges(scheduler_name, clock)
        self.history = DecisionOrder(self._judges, clock=clock, done=self._note)
        self.watches = Watches(
            connection,
            self.parts,
            PodHandler(self.parts),
            metrics=self.metrics,
            random=random,
            needs=together(each.needs for each in self._generations.values()),
            wrap_handler=self.arrivals.held,
        )
        show_state(self.metrics, self.parts, lambda: last)

    @property
    def has_synced(self) -> bool:
        """Whether the cluster was read once, so that decisions are evaluated."""
        return self.arrivals.is_open

    @property
    def frameworks(self) -> Mapping[str, Framework]:
        """Name of the evaluating profile -> profile."""
        return {name: each.frameworks[self.scheduler_name] for name, each in self._generations.items()}

    def summary(self) -> dict[str, Any]:
        """Return the results so far, as JSON values."""
        return {
            "scheduler": self.scheduler_name,
            "profiles": self.findings.summary(),
            "placedBeforeSeen": self.arrivals.unseen,
            "notSearched": self.history.unsearched,
            "trials": self.history.trials,
            "underWay": len(self.arrivals) + len(self.history),
            "disagreementsForgotten": self.findings.forgotten,
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Watch and evaluate until `stop` is set, then evaluate the rest."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.parts.web.close)
            async with self._tasks:
                self.watches.start(self._tasks.spawn)
                for generation in self._generations.values():
                    generation.start_refreshing(self._tasks.spawn, self.metrics.refreshes)
                await self._judge_until(stop)

    async def _judge_until(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            stopping = tasks.create_task(stop.wait(), name="stop")
            ready = tasks.create_task(self._begin(), name="first lists")
            await asyncio.wait({stopping, ready}, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                ready.cancel()
                return
            while not stop.is_set():
                await self._judge_some()
                await self._wait(stopping)
            await self._judge_the_rest()

    async def _begin(self) -> None:
        await self.watches.wait_synced()
        for generation in self._generations.values():
            await generation.wait_refreshed()
        self.arrivals.is_open = True
        logger.info(
            "Shadowing", extra={"scheduler": self.scheduler_name, "nodes": self.parts.cache.table.n_nodes}
        )

    async def _judge_some(self) -> None:
        until = self._clock.monotonic() + _SLICE_SECONDS
        for entry in self.arrivals.due(self._clock.monotonic()):
            await self.history.append(entry)
            if self._clock.monotonic() >= until:
                await asyncio.sleep(0)
                until = self._clock.monotonic() + _SLICE_SECONDS
        await self.history.settle(self._clock.monotonic())

    async def _judge_the_rest(self) -> None:
        for entry in self.arrivals.rest():
            await self.history.append(entry)
            await asyncio.sleep(0)
        await self.history.settle(self._clock.monotonic(), at_the_end=True)

    async def _wait(self, stopping: asyncio.Task[Any]) -> None:
        """Wait for a change, or for a moment while changes are held."""
        self.arrivals.came.clear()
        if len(self.arrivals) or len(self.history):
            await asyncio.wait({stopping}, timeout=_LOOK_SECONDS)
            return
        coming = asyncio.ensure_future(self.arrivals.came.wait())
        await asyncio.wait({stopping, coming}, return_when=asyncio.FIRST_COMPLETED)
        coming.cancel()
        with suppress(asyncio.CancelledError):
            await coming

    # Results.

    def _note(self, entry: ObservedChange, around: Sequence[ObservedChange]) -> None:
        theirs = entry.decision
        assert theirs is not None
        for judge, verdict in zip(self._judges, entry.verdicts, strict=True):
            if verdict.cause == PREEMPTS:
                self._compare_victims(entry, verdict, around)
            self.findings.note(judge.name, verdict.cause, was_moved=entry.was_moved)
            if verdict.cause in AGREEMENT or verdict.cause in UNKNOWN:
                continue
            details = {
                "pod": theirs.pod.key,
                "at": rfc3339_micro(self._clock.utc_now()),
                "profile": judge.name,
                "decision": theirs.what.value,
                "cause": verdict.cause,
                **verdict.details,
            }
            self.findings.keep(theirs.pod.key, details)
            ours = verdict.details.get("ours", {}).get("node", "")
            extra = {key: details[key] for key in ("pod", "profile", "decision", "cause")}
            logger.info("Decision differs", extra={**extra, "node": theirs.node_name, "ours": ours})
        last = entry.verdicts[-1]
        self.attempts.note(last.decision, last.snapshot, number=1, at=self._clock.utc_now())

    def _compare_victims(
        self, entry: ObservedChange, verdict: ShadowVerdict, around: Sequence[ObservedChange]
    ) -> None:
        """Compare the preempted pods of a node with the victims that this scheduler would choose.

        The pod for which a victim was preempted is not recorded. If several pods preempt on a node, only the preemption of this
        scheduler's victims is checked.
        """
        assert entry.decision is not None
        node_name, uid = entry.decision.node_name, entry.uid
        left = {
            pod.key: pod
            for each in around
            for pod in (each.old if each.new is None else each.new,)
            if isinstance(pod, PodInfo) and pod.node_name == node_name and _is_preempted(pod)
        }
        staying = [
            pod
            for key in verdict.victims - left.keys()
            if (pod := self.parts.pods.get(key)) is not None and not pod.is_terminating
        ]
        others = {pod.uid for pod in self.parts.nominator.nominated_pods_for_node(node_name)}
        others |= {each.uid for each in around if each.decision and each.decision.node_name == node_name}
        if not staying and (others - {uid} or left.keys() <= verdict.victims):
            return
        instead = [pod for key, pod in left.items() if key not in verdict.victims]
        alike = {_importance(pod) for pod in staying} & {_importance(pod) for pod in instead}
        verdict.cause = EQUIVALENT_VICTIMS if alike else OTHER_VICTIMS
        verdict.details = {
            "theirs": {"node": node_name, "victims": sorted(left)},
            "ours": {"node": node_name, "victims": sorted(verdict.victims)},
        }


def _is_preempted(pod: PodInfo) -> bool:
    return any(
        condition.type == "DisruptionTarget" and condition.reason == "PreemptionByScheduler"
        for condition in pod.pod.status.conditions
    )


def _importance(pod: PodInfo) -> tuple[int, str]:
    """Return the criteria for the choice of a victim; kube-scheduler chooses at random among pods with equal ones."""
    return pod.priority, pod.pod.status.start_time
