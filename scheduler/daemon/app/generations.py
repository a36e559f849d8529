"""Consecutive configurations: the active generation, those that are ending, and the switch between them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.configuration.types import ConfigurationStruct, KubeSchedulerConfiguration
from scheduler.daemon.app.needs import together
from scheduler.daemon.app.plugin_dry_run import foreign_names
from scheduler.engine.cycle.sampling import percentages_of
from scheduler.engine.cycle.time_slices import run_in_slices
from scheduler.engine.runtime.profiles import load_each
from scheduler.engine.state.cache import PodState
from scheduler.extensions.wasm.library import guest_urls
from scheduler.loop_work import loop_work
from scheduler.urls import shown_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.assembly import Cycles, Parts
    from scheduler.daemon.app.generation import Generation
    from scheduler.daemon.app.tasks import Tasks
    from scheduler.daemon.app.watches import Watches
    from scheduler.daemon.metrics.additional import RefreshMetrics
    from scheduler.engine.runtime.registry import Registry
    from scheduler.extensions.extenders import Extenders
    from scheduler.framework.interface import Needs
    from scheduler.worker_thread import Aside

TAKEN = frozenset(
    {
        "profiles",
        "extenders",
        "percentage_of_nodes_to_score",
        "pod_initial_backoff_seconds",
        "pod_max_backoff_seconds",
        "attempt_budget",
        "node_pause_initial_seconds",
        "node_pause_max_seconds",
        "emulated_version",
        "feature_gates",
    }
)
"""Take effect from the next scheduling cycle on."""
WITHOUT_EFFECT = frozenset(
    {"parallelism", "enable_profiling", "enable_contention_profiling", "delay_cache_until_active"}
)
"""Accepted and shown, but without an effect."""
AT_START = frozenset({"leader_election", "client_connection", "sharding"})
"""Part of connections, the lease and the watches since the start of the process."""


def keep_what_needs_a_restart(
    new: Configuration, running: Configuration
) -> tuple[Configuration, tuple[str, ...]]:
    """Return a new configuration with the running one's values of fields that cannot change.

    Returns:
        The configuration to activate, and the paths of the fields that keep their values, as in
        `leaderElection.leaseDuration`.
    """
    kept = {name: getattr(running.settings, name) for name in sorted(AT_START)}
    paths = [
        path
        for name, value in kept.items()
        for path in _differences(getattr(new.settings, name), value, _key(KubeSchedulerConfiguration, name))
    ]
    return replace(new, settings=msgspec.structs.replace(new.settings, **kept)), tuple(paths)


def _differences(new: Any, old: Any, path: str) -> Iterator[str]:
    if new == old:
        return
    if not isinstance(new, ConfigurationStruct):
        yield path
        return
    for name in new.__struct_fields__:
        yield from _differences(getattr(new, name), getattr(old, name), f"{path}.{_key(type(new), name)}")


def _key(struct: type[ConfigurationStruct], name: str) -> str:
    """Return a field's name in the file."""
    return dict(zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True))[name]


class Generations:
    """The active generation, and earlier ones that have not ended.

    Args:
        first: the first generation.
        build: builds a generation from a configuration, its imported code and its extenders, in steps of some
            milliseconds; raises ConfigurationError.
        extenders: builds the extenders of a configuration, reading files that it names; raises ConfigurationError.
        aside: runs slow work.
        metrics: counts refreshes.

    Attributes:
        active: the active generation, which new attempts use.
        retiring: earlier generations with bindings in progress.
    """

    def __init__(
        self,
        first: Generation,
        build: Callable[[Configuration, Registry, Extenders], Generator[None, None, Generation]],
        extenders: Callable[[Configuration], Extenders],
        *,
        parts: Parts,
        cycles: Cycles,
        watches: Watches,
        tasks: Tasks,
        aside: Aside,
        metrics: RefreshMetrics,
    ) -> None:
        self.active = first
        self.retiring: list[Generation] = []
        self._build = build
        self._extenders = extenders
        self._parts = parts
        self._cycles = cycles
        self._watches = watches
        self._tasks = tasks
        self._worker = aside
        self._metrics = metrics
        self._reloading = asyncio.Lock()
        parts.ports.configured("built", first.configuration)
        parts.ports.configured("active", first.configuration)
        parts.activate(first)

    def start(self) -> None:
        """Start to refresh the data of plugins."""
        self.active.start_refreshing(self._tasks.spawn, self._metrics)

    async def close(self) -> None:
        """Close all generations."""
        for generation in (self.active, *self.retiring):
            await generation.close()

    @loop_work("reload", lambda: "a new configuration")
    async def reload(self, configuration: Configuration) -> Sequence[str]:
        """Activate another configuration, or leave everything unchanged.

        Its plugins are built, their objects are read and their data are refreshed while the old profiles continue. Then
        everything changes at once between two scheduling cycles. Binding cycles that began under the old profiles end there.

        Returns:
            The paths of fields that keep their old values, because they need a restart.

        Raises:
            ConfigurationError: a plugin is unknown, broken, has bad arguments or needs what cannot be read.
            SchedulerError: the daemon is not running.
        """
        async with self._reloading:
            possible, left = keep_what_needs_a_restart(configuration, self.active.configuration)
            generation = await self._built(possible)
            self._parts.ports.configured("built", possible)
            try:
                await self._watches.grow(generation.needs)
                generation.start_refreshing(self._tasks.spawn, self._metrics)
                await generation.wait_refreshed()
                await self._parts.freeze.wait_over()
                self.activate(generation)
            except BaseException:
                self._parts.ports.configured("dropped", possible)
                await generation.close()
                await self._watches.shrink(self._needs())
                raise
        return left

    async def _built(self, configuration: Configuration) -> Generation:
        """Build a configuration; its code is imported and compiled while the old profiles continue."""
        registry = self._parts.registry()
        names = foreign_names(configuration)
        try:
            if names:
                await self._worker(
                    partial(self._prepare, configuration, names, registry),
                    shown_text(f"importing {', '.join(names)}"),
                )
            extenders = await self._worker(
                partial(self._extenders, configuration), "reading the certificates of extenders"
            )
            return await run_in_slices(self._build(configuration, registry, extenders))
        except BaseException:
            registry.release()
            raise

    def _prepare(self, configuration: Configuration, names: Sequence[str], registry: Registry) -> None:
        """Read, import and compile the code; errors are raised again by the build."""
        if any(guest_urls(configuration)):
            self._parts.guests.prepare(configuration)
        load_each(configuration, names, registry, lambda _: None)

    def _needs(self) -> Needs:
        return together(generation.needs for generation in (self.active, *self.retiring))

    def activate(self, generation: Generation) -> None:
        """Activate a generation completely or not at all; nothing here awaits, so no cycle sees a part of it."""
        old = self.active
        try:
            self._swap(generation)
        except BaseException:
            self._swap(old)
            raise
        generation.registry.settle()
        self.retiring.append(old)
        # The task starts after the binding cycles of all choices so far, so it finds them in progress.
        self._tasks.spawn(self._retire(old), "old configuration")

    def _swap(self, generation: Generation) -> None:
        parts = self._parts
        parts.ports.configured("active", generation.configuration)
        served = frozenset(self.active.frameworks)
        self.active = generation
        self._let_go(generation)
        parts.activate(generation)
        self._cycles.sampling.configure(percentages_of(generation.configuration.settings))
        self._take_in(generation.frameworks.keys() - served)
        parts.bus.wake()

    def _let_go(self, generation: Generation) -> None:
        """Drop the pods whose schedulerName is no longer served, or whose resize is not tried any more."""
        parts = self._parts
        for pod in [queued.pod for queued in parts.queue.pods()]:
            if pod.node_name and not generation.preempts_for_resizes:
                parts.queue.delete(pod, "no pod is preempted for its resize any more")
            elif pod.scheduler_name not in generation.frameworks:
                parts.queue.delete(pod, "served by no profile any more")
                if parts.cache.state_of(pod.uid) is PodState.OUTSIDE:
                    parts.nominator.add(pod)  # as for pods of any other scheduler
                self._cycles.reporter.outdated(pod.key)

    def _take_in(self, names: Iterable[str]) -> None:
        """Queue the pods that waited for their schedulerName to be served, or for their resize to be tried."""
        names, pods, profiles = frozenset(names), self._watches.pods, self._parts.profiles
        for pod in pods.store.values():
            is_pending = not (pod.node_name or pod.is_terminal)
            # A pod that was scheduled a moment ago is skipped when it is popped.
            is_new = pod.scheduler_name in names if is_pending else profiles.tries_resize_of(pod)
            if is_new and self._parts.is_ours(pod) and not pods.is_outdated(pod.key):
                self._parts.queue.add(pod)

    async def _retire(self, old: Generation) -> None:
        """Release what only old profiles need, once no pod is being bound under them."""
        await self._cycles.binding.wait_ended(list(old.frameworks.values()))
        async with self._reloading:
            await old.close()
            self.retiring.remove(old)
            await self._watches.shrink(self._needs())
