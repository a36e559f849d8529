"""Preempts pods for a group, after a dry run showed that the whole group fits without them."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from scheduler.engine.cycle.group_pass import PassOptions
from scheduler.engine.cycle.group_pauses import ChangedError
from scheduler.engine.cycle.group_search import Members, capacity_for
from scheduler.engine.cycle.preemption import Preemptor
from scheduler.engine.runtime.budget import OverBudgetError
from scheduler.engine.runtime.calls import PluginError
from scheduler.framework.interface import ExtensionPoint
from scheduler.framework.status import SUCCESS, Code, Status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
    from typing import Self

    from scheduler.clock import Clock
    from scheduler.engine.cycle.attempt import Attempt
    from scheduler.engine.cycle.group_pass import GroupPasses, Pass
    from scheduler.engine.cycle.group_pauses import GroupPauses
    from scheduler.engine.cycle.group_search import GroupPlacements
    from scheduler.engine.cycle.observer import CycleObserver
    from scheduler.engine.cycle.preemption import GroupPreemptions
    from scheduler.engine.state.cache import Cache
    from scheduler.framework.group_plugins import PodGroupPostFilterPlugin
    from scheduler.framework.preemption import Protected
    from scheduler.framework.reasons import Cause
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Bools

T = TypeVar("T")

logger = logging.getLogger(__name__)

_CHANGED: Final = "the cluster changed during the search for victims"


class GroupPreemption:
    """Runs preemption for groups.

    Args:
        cache: the cluster.
        placements: tries the members.
        passes: undoes the tries.
        pauses: pauses the attempt between two dry runs.
        preemptions: evicts victims.
        clock: measures the plugins.
        observer: receives the measurements.
    """

    def __init__(
        self,
        cache: Cache,
        placements: GroupPlacements,
        passes: GroupPasses,
        pauses: GroupPauses,
        preemptions: GroupPreemptions,
        *,
        clock: Clock,
        observer: CycleObserver,
    ) -> None:
        self._cache, self._placements, self._passes = cache, placements, passes
        self._pauses, self._preemptions = pauses, preemptions
        self._clock, self._observer = clock, observer

    async def make(self, tried: Pass, attempts: Sequence[Attempt]) -> Status:
        """Preempt pods if the whole group fits without them; return a success if the preemption started.

        Raises:
            OverBudgetError: no further member may be tried.
            ChangedError: the attempt must start again.
        """
        plugins = attempts[0].framework.group_post_filters
        if not tried.group.is_entity:
            message = "default preemption plugin is not registered, workload aware preemption is disabled"
            refusal = tried.group.why_no_preemption if plugins else message
            return Status.unschedulable(refusal) if refusal else await self._ask(plugins[0], tried, attempts)
        began = self._clock.monotonic()
        status = await self._ask_all(plugins, tried, attempts)
        profile, point = attempts[0].framework.profile, ExtensionPoint.POD_GROUP_POST_FILTER
        self._observer.extension_point(profile, point, status.code)(self._clock.monotonic() - began)
        return status

    async def _ask_all(
        self, plugins: Sequence[PodGroupPostFilterPlugin], tried: Pass, attempts: Sequence[Attempt]
    ) -> Status:
        """Ask plugins until one preempts or fails; return its result, or all reasons."""
        reasons: list[str] = []
        causes: list[Cause] = []
        for plugin in plugins:
            status = await self._ask(plugin, tried, attempts)
            reason = f"pod group preemption: {status.message}"
            if not status.is_rejected:
                return replace(status, reasons=(reason,))
            reasons.append(reason)
            causes.extend(status.causes)
        return Status(Code.UNSCHEDULABLE, tuple(reasons), origins=tuple(causes))

    async def _ask(self, asked: PodGroupPostFilterPlugin, tried: Pass, attempts: Sequence[Attempt]) -> Status:
        trials = _Simulations(self._cache, self._placements, self._passes, self._pauses, tried, attempts)
        members = [attempt.queued.pod for attempt in attempts]
        try:
            found = await asked.post_filter_group(tried.group, members, trials)
            victims = found if isinstance(found, Status) else await trials.confirmed(found)
            quota = "" if isinstance(victims, Status) else asked.quota_of(members[0])
        except PluginError as error:
            return error.status
        except (OverBudgetError, ChangedError):
            raise
        except Exception as error:
            logger.exception("Plugin failed to preempt pods for a group", extra={"plugin": asked.name})
            return Status.failed(f'plugin "{asked.name}" failed to preempt pods: {error}', error)
        if isinstance(victims, Status):
            if victims.is_success:
                self._expect(tried, {pod.uid: pod.pod.status.nominated_node_name for pod in members})
            return victims.by(asked.name) if victims.is_rejected else victims
        tried.victims = victims
        # The members fit after the victims are gone; until then the nominations keep the capacity for them.
        self._expect(tried, trials.nodes)
        messages = (
            member.decision.status.message
            for leaf in tried.leaves
            for member in leaf.members
            if member.needs_room
        )
        preemptor = Preemptor(members, "", asked.name, quota, tried.group, next(messages, ""))
        self._preemptions.start_for_group(preemptor, victims)
        if not tried.group.is_entity:
            return SUCCESS
        return Status(Code.SUCCESS, (f"found a placement for podgroup, preempting {len(victims)} victims",))

    def _expect(self, tried: Pass, nodes: Mapping[str, str]) -> None:
        """Record the nodes where the members will fit."""
        tried.expected = nodes
        for member in tried.members:
            member.expected = nodes.get(member.attempt.queued.pod.uid, "")


class _Simulations:
    """Dry runs of a group on the cluster without some pods; implements `GroupDryRuns`.

    Attributes:
        nodes: uid -> node of the member in the last result of `fits_without`.
        refusal: why too few members fitted in it.
    """

    def __init__(
        self,
        cache: Cache,
        placements: GroupPlacements,
        passes: GroupPasses,
        pauses: GroupPauses,
        tried: Pass,
        attempts: Sequence[Attempt],
    ) -> None:
        self._cache, self._placements, self._passes, self._pauses = cache, placements, passes, pauses
        self._tried, self._attempts = tried, attempts
        self._members = Members(tried.group, attempts)
        self._open: tuple[int, Bools] | None = None  # (result of `GroupPauses.nodes`, nodes)
        # Number of pauses at the last dry run that fitted, if nothing changed during it.
        self._fitted_after = -1
        self.nodes: dict[str, str] = {}
        self.refusal = SUCCESS
        self.snapshot = cache.snapshot

    async def done(self, work: Generator[None, None, T]) -> T:
        while True:
            try:
                next(work)
            except StopIteration as end:
                result: T = end.value
                return result
            await self._pauses.yield_to_loop()
            await self._pauses.pause(False)

    async def fits_without(self, pods: Sequence[PodInfo]) -> frozenset[str] | None:
        """Return the nodes of the members in a dry run without some pods; None if too few members fit."""
        await self._pauses.pause(False)
        return await self._try(pods)

    async def stays_without(self, pods: Sequence[PodInfo]) -> frozenset[str] | None:
        """Return the last result of `fits_without` if each member fits on its node in it; else None."""
        await self._pauses.pause(False)
        return await self._stay(pods)

    def note_protected(self, protected: Protected) -> None:
        self._tried.protected = protected

    async def confirmed(self, victims: Sequence[PodInfo]) -> Sequence[PodInfo] | Status:
        """Return the victims that still exist, if the group fits without them on the current cluster."""
        if self._fitted_after == self._pauses.count:
            return victims
        left = [pod for pod in victims if self._cache.pod(pod.uid) is not None]
        if self._tried.group.is_entity:
            found = await self._stay(left)
        else:
            found = await self._try(left)
        return Status.unschedulable(_CHANGED) if found is None else left

    async def _open_nodes(self) -> Bools:
        """Return bool (n_nodes,), the nodes that are possible for any member after an eviction of pods."""
        if self._open is None or self._open[0] != self._pauses.nodes():
            self._open = self._pauses.nodes(), await self._found_open()
        return self._open[1]

    async def _found_open(self) -> Bools:
        n_nodes = self._cache.table.n_nodes
        is_tried = len(self._tried.members) == len(self._attempts)
        if not self._pauses.has_same_nodes or not is_tried:  # rows may differ from those of the tried members
            return np.ones(n_nodes, dtype=np.bool_)
        found = np.zeros(n_nodes, dtype=np.bool_)
        final = self._attempts[0].framework.plugins.filters_with(lambda each: each.reads_only_nodes)
        for member in self._tried.members:
            await self._pauses.yield_to_loop()
            found |= ~member.decision.diagnosis.refused_by(final)
        return found

    def _may_fit(self, nodes: Bools) -> bool:
        """Return whether nodes have enough free capacity for the group, as a cheap check before a dry run."""
        members = [attempt.queued.pod for attempt in self._attempts]
        needed = max(1, self._tried.group.min_count - len(self._cache.groups.placed(self._tried.group.key)))
        return int(capacity_for(members, self._cache.snapshot())[nodes].sum()) >= needed

    async def _stay(self, pods: Sequence[PodInfo]) -> frozenset[str] | None:
        changes, root, n_kept = self._pauses.changes, self._tried.group, 0
        trials: list[Pass] = []
        async with _Absent(self._cache, pods, self._pauses.yield_to_loop) as absent:
            options = PassOptions(is_trial=True, nodes=self.nodes, absent=self._pausing(absent), root=root)
            for leaf in root.leaves:
                wanted = [each for each in self._members.of(leaf) if each.queued.pod.uid in self.nodes]
                trial = await self._passes.run(leaf, self._tried.plugin, wanted, options)
                trials.append(trial)
                n_kept += len(trial.kept)
                if len(trial.kept) < len(wanted):
                    break
            for trial in reversed(trials):
                await self._passes.take_back(trial)
        if not trials[-1].error.is_success:
            raise PluginError(trials[-1].error)  # the result is unknown
        if n_kept < len(self.nodes):
            return None
        self._note_fit(changes)
        return frozenset(self.nodes.values())

    def _pausing(self, absent: _Absent) -> _Absent | None:
        """Return the absent pods if a dry run may pause: not with members of other parts of a tree assumed."""
        return None if self._tried.group.is_composite else absent

    def _note_fit(self, changes: int) -> None:
        self._fitted_after = self._pauses.count if changes == self._pauses.changes else -1

    async def _try(self, pods: Sequence[PodInfo]) -> frozenset[str] | None:
        nodes, changes = await self._open_nodes(), self._pauses.changes
        is_entity = self._tried.group.is_entity  # its message comes from the dry run itself
        async with _Absent(self._cache, pods, self._pauses.yield_to_loop) as absent:
            if not is_entity and not self._may_fit(nodes):
                return None
            trial = await self._placements.run(
                self._tried.group,
                self._tried.plugin,
                self._attempts,
                PassOptions(is_trial=True, gives_up=True, absent=self._pausing(absent)),
            )
            await self._passes.take_back(trial)
        if not trial.error.is_success:
            raise PluginError(trial.error)  # the result is unknown
        if not trial.is_enough:
            self.refusal = trial.refusal
            return None
        self._note_fit(changes)
        self.nodes = {each.pod.uid: each.node_name for each in trial.assumed}
        return frozenset(self.nodes.values())


class _Absent(AsyncExitStack):
    """Pods that the cache does not count within the block; implements `AbsentPods`."""

    def __init__(
        self, cache: Cache, pods: Sequence[PodInfo], yield_to_loop: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__()
        self._cache, self._pods, self._yield_to_loop = cache, pods, yield_to_loop

    async def __aenter__(self) -> Self:
        await self.leave_out()
        return self

    async def count(self) -> None:
        await self.aclose()

    async def leave_out(self) -> None:
        await self.enter_async_context(self._cache.without(self._pods, self._yield_to_loop))
