"""Evaluates pending pods with a changed profile, beside the active one; nothing is written.

The plugins of the active profile are used as they are, with their data; only added plugins are built. Each pod is
evaluated in a hypothetical cluster, so plugins record nothing about it, and a pod that fits stays on its node for the
pods after it. PreEnqueue and preemption do not take part, and the members of a group are evaluated one by one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.daemon.app.needs import needs_of
from scheduler.engine.cycle.scheduling import TieBreaker, schedule_pod
from scheduler.engine.cycle.time_slices import answer_in_slices
from scheduler.engine.runtime.dry_run import DryRun
from scheduler.engine.runtime.framework import EnabledPlugins, Framework
from scheduler.engine.runtime.plugin_classes import points_of
from scheduler.engine.runtime.profiles import build_plugin
from scheduler.errors import PluginLoadError, SchedulerError
from scheduler.framework import Features
from scheduler.framework.interface import ExtensionPoint
from scheduler.framework.preemption import PreemptionDryRun
from scheduler.objects.wording import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler.engine.cycle.attempt import Decision
    from scheduler.framework.interface import Plugin
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Rows, Snapshot
    from scheduler.tools.board.subject import Subject

_MOST_PODS: Final = 100
_MOST_CHANGES: Final = 50
_MOST_WEIGHT: Final = 100
"""The limit of kube-scheduler: a higher total could overflow."""
_REST: Final = 3
"""After each evaluation the dry run pauses for this multiple of its time."""
_KEPT: Final = frozenset({ExtensionPoint.QUEUE_SORT, ExtensionPoint.BIND})
"""The points of which a profile needs a plugin, and which no evaluation calls."""


class ProfileChangeError(SchedulerError):
    """The changes cannot be tried."""


class ProfileChange(NamedTuple):
    """The change of one plugin in a profile.

    Attributes:
        plugin: the name of the plugin.
        weight: its weight at Score; None for the present one, or 1 for an added plugin.
        is_enabled: whether the profile has the plugin.
    """

    plugin: str
    weight: int | None = None
    is_enabled: bool = True


def change_in(text: str) -> ProfileChange:
    """Parse `NAME=off`, `NAME=on` or `NAME=WEIGHT`.

    Raises:
        ProfileChangeError: the text has another format, or the weight is not 1 to 100.
    """
    name, sign, value = text.partition("=")
    if name and sign and value in {"on", "off"}:
        return ProfileChange(name, is_enabled=value == "on")
    if name and value.isascii() and value.isdecimal() and len(value) <= 3 and 1 <= int(value) <= _MOST_WEIGHT:
        return ProfileChange(name, int(value))
    raise ProfileChangeError(
        f"PLUGIN=on, PLUGIN=off or PLUGIN=WEIGHT with a weight of 1 to 100 is expected, was {text:.100}"
    )


@dataclass(slots=True)
class ProfileDryRun:
    """A dry run of changes to one profile.

    Args:
        subject: the subject of the board.
        profile: the schedulerName of the profile.
        changes: the changes.

    Raises:
        ProfileChangeError: there is no such profile or plugin, or a plugin cannot be added here.
    """

    subject: Subject
    profile: str
    changes: Sequence[ProfileChange]
    _frameworks: tuple[Framework, Framework] = field(init=False)

    def __post_init__(self) -> None:
        active = self.subject.parts.profiles.frameworks.get(self.profile)
        if active is None:
            raise ProfileChangeError(f"there is no profile {self.profile}")
        if len(self.changes) > _MOST_CHANGES:
            raise ProfileChangeError(f"at most {_MOST_CHANGES} changes can be tried together")
        # Both sides have a framework of their own: nothing is measured, and no results are cached for other attempts.
        budget = self.subject.parts.budget
        self._frameworks = (
            Framework(self.profile, active.plugins, budget=budget),
            Framework(self.profile, self._changed(active), budget=budget),
        )

    def _changed(self, active: Framework) -> EnabledPlugins:
        """Return the plugins of a profile after the changes."""
        at = {point: list(plugins) for point, plugins in active.plugins.at.items()}
        weights = dict(active.plugins.weights)
        for change in self.changes:
            enabled = any(each.name == change.plugin for plugins in at.values() for each in plugins)
            if not change.is_enabled:
                if not enabled:
                    raise ProfileChangeError(f"profile {self.profile} has no plugin {change.plugin}")
                for point in at.keys() - _KEPT:
                    at[point] = [each for each in at[point] if each.name != change.plugin]
                continue
            if not enabled:
                self._add(change.plugin, at, weights)
            if change.weight is not None:
                if change.plugin not in weights:
                    raise ProfileChangeError(f"plugin {change.plugin} has no scores, and so no weight")
                weights[change.plugin] = change.weight
        return EnabledPlugins(at, weights, active.plugins.placement_weights, active.plugins.readers)

    def _add(self, name: str, at: dict[ExtensionPoint, list[Plugin]], weights: dict[str, int]) -> None:
        """Add a plugin at the end of its extension points."""
        added = self._added(name)
        for point in points_of(type(added)) - _KEPT:
            at.setdefault(point, []).append(added)
            if point is ExtensionPoint.SCORE:
                weights[added.name] = 1

    def _added(self, name: str) -> Plugin:
        """Build an in-tree plugin with its default arguments."""
        kind = IN_TREE.get(name)
        if kind is None:
            raise ProfileChangeError(f"there is no in-tree plugin {name}{did_you_mean(name, IN_TREE) or ''}")
        parts = self.subject.parts
        if missing := sorted(kind.needs.kinds - needs_of(parts.profiles.frameworks.values()).kinds):
            raise ProfileChangeError(
                f"plugin {name} reads {', '.join(missing)}, which the scheduler does not watch now"
            )
        capabilities = {
            **parts.capabilities(),
            PreemptionDryRun: DryRun(),
            Features: self.subject.configuration().features,
        }
        try:
            added = build_plugin(kind, kind.Args(), capabilities)
        except PluginLoadError as error:
            raise ProfileChangeError(str(error)) from error
        if added.refresh_seconds is not None:
            raise ProfileChangeError(
                f"plugin {name} fetches data in the background, only while a profile has it"
            )
        return added

    def pods(self) -> list[PodInfo]:
        """Return the pods to evaluate: those of the profile that wait for a node, in order of priority and age."""
        pods = [
            each.pod
            for each in self.subject.pending()
            if each.pod.scheduler_name == self.profile
            and not each.pod.node_name
            and not (each.queued is not None and each.queued.is_gated)
        ]
        return sorted(
            pods, key=lambda pod: (-pod.priority, pod.pod.metadata.creation_timestamp or "", pod.key)
        )

    async def run(self, has_left: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """Evaluate the pods with both profiles.

        Args:
            has_left: returns whether nobody waits for the result any more; the dry run then ends early.

        Returns:
            As JSON values: `pods`, at most 100, each with `pod`, and `before` and `after` with `node`, or null and the
            `message`; `count`, the number of pending pods of the profile.
        """
        pending = self.pods()
        sides = [_Side(self.subject, framework) for framework in self._frameworks]
        clock, found = self.subject.clock.monotonic, []
        for pod in pending[:_MOST_PODS]:
            if has_left():
                break
            results = []
            for side in sides:
                began = clock()
                results.append(await side.place(pod))
                await asyncio.sleep(_REST * (clock() - began))
            found.append({"pod": pod.key, "before": results[0], "after": results[1]})
        return {"pods": found, "count": len(pending)}


class _FirstByName(TieBreaker):
    """Chooses the node with the smallest name, so that both sides make the same choice among equal nodes."""

    def choose(self, pod: PodInfo, best: Rows, snapshot: Snapshot) -> int:
        return min(map(int, best), key=snapshot.name_of)


class _Side:
    """One of the compared profiles, with the pods that it placed so far."""

    def __init__(self, subject: Subject, framework: Framework) -> None:
        self._parts, self._framework = subject.parts, framework
        self._placed: list[tuple[str, PodInfo]] = []

    async def place(self, pod: PodInfo) -> dict[str, Any]:
        decision = await answer_in_slices(partial(self._decide, pod))
        if decision.node_name:
            self._placed.append((decision.node_name, pod.placed_on(decision.node_name)))
        return {"node": decision.node_name or None, "message": decision.status.message}

    def _decide(self, pod: PodInfo) -> Decision:
        """Decide about a pod, on the cluster as it is now and with the placed pods.

        Raises:
            NeedsTime: a plugin needs more than one time slice.
        """
        parts = self._parts
        cluster = parts.cache.snapshot()
        rows = ((cluster.row_of(name), placed) for name, placed in self._placed)
        snapshot = cluster.overlay(add=[(row, placed) for row, placed in rows if row is not None])
        return parts.budget.run_slice(
            partial(
                schedule_pod,
                self._framework,
                pod,
                snapshot,
                nominated=parts.nominator.others(pod, cluster),
                random=_FirstByName(0),
                avoided=parts.cache.pauses.rows(cluster, at=parts.clock.monotonic()),
                may_preempt=False,
                yields_to_loop=True,
            )
        )
