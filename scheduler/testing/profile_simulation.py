"""Your plugins in a whole profile, on a small cluster: what would happen to a pod, and why."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.clock import SystemClock
from scheduler.configuration.defaults import MINIMAL_PLUGINS
from scheduler.configuration.load import parse
from scheduler.daemon.app.assembly import Parts
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.engine.cycle.explanation import Explainer, explain_gated
from scheduler.engine.cycle.hypothetical import evaluate
from scheduler.engine.cycle.observer import NoObserver
from scheduler.engine.runtime.plugin_classes import check_plugin
from scheduler.objects.node import NodeObject
from scheduler.testing.fakes import Fakes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.engine.cycle.explanation import Explanation
    from scheduler.framework import Plugin
    from scheduler.objects.pod import PodInfo

_PROFILE = "custom-scheduler"


class ProfileSimulation:
    """A profile with the default plugins and yours, on a small cluster.

        trial = Trial(node("a"), node("b", labels={"disk": "ssd"}), plugins=[PreferSsd])
        assert trial.schedule(pod("web")) == "b"
        print(trial.explain(pod("db"))["nodes"])

    A scheduled pod stays on its node, so that the next pod sees it.

    Args:
        objects: nodes, and pods on them.
        plugins: plugins to add to the default ones.
        only: leave out the default plugins, except PrioritySort and DefaultBinder.
        args: name of a plugin -> its arguments, as in a configuration.
        weights: name of a plugin -> its weight; 1 by default.
        others: kind -> `namespace/name` -> object, for plugins whose `needs` names kinds.
        fakes: fakes of the capabilities; new ones if not given.

    Attributes:
        fakes: fakes of the capabilities.

    Raises:
        PluginLoadError: a plugin is incomplete.
        ConfigurationError: arguments are invalid, or a plugin cannot be built.
    """

    def __init__(
        self,
        *objects: NodeObject | PodInfo,
        plugins: Iterable[type[Plugin]] = (),
        only: bool = False,
        args: Mapping[str, Mapping[str, Any]] | None = None,
        weights: Mapping[str, int] | None = None,
        others: Mapping[str, Mapping[str, Mapping[str, Any]]] | None = None,
        fakes: Fakes | None = None,
    ) -> None:
        self.fakes = fakes or Fakes()
        own = {plugin.name: check_plugin(plugin, plugin.__name__) for plugin in plugins}
        parts = Parts(SystemClock(), NoObserver(), {**IN_TREE, **own})
        configuration = parse(_configuration(own, args or {}, weights or {}, only=only))
        generation = parts.build(configuration, own=self.fakes.by_protocol())
        self._framework = generation.frameworks[_PROFILE]
        self._cache = parts.cache
        parts.fill(
            generation.needs,
            nodes=(each for each in objects if isinstance(each, NodeObject)),
            bound_pods=(each for each in objects if not isinstance(each, NodeObject)),
            others=others or {},
        )

    def refresh(self) -> None:
        """Let the plugins fetch their background data, as the daemon does at start and periodically."""
        asyncio.run(self._refresh())

    async def _refresh(self) -> None:
        for plugin in self._framework.plugins.all():
            if plugin.refresh_seconds is not None:
                await plugin.refresh()

    def explain(self, pod: PodInfo) -> Explanation:
        """Return what would happen to a pod, like `custom-scheduler explain -o json`; nothing changes."""
        return self._judge(pod)[0]

    def schedule(self, pod: PodInfo) -> str | None:
        """Place a pod on the best node (the smallest name among equal ones), and return it; None if no node fits.

        Raises:
            RuntimeError: a plugin failed.
        """
        explanation, best = self._judge(pod)
        if explanation["result"] == "error":
            raise RuntimeError(explanation["message"])
        if best is not None:
            self._cache.assume(pod, best)
        return best

    def _judge(self, pod: PodInfo) -> tuple[Explanation, str | None]:
        gate = self._framework.run_pre_enqueue(pod)
        if not gate.is_success:
            return explain_gated(pod, gate), None
        snapshot = self._cache.snapshot()
        explainer = Explainer(self._framework, SystemClock(), nodes_of_a_kind=math.inf)
        decision, explanation = evaluate(self._framework, pod, snapshot, nominated={}, explainer=explainer)
        return explanation, next(iter(explanation.get("best", ())), decision.node_name or None)


def _configuration(
    plugins: Mapping[str, type[Plugin]],
    args: Mapping[str, Mapping[str, Any]],
    weights: Mapping[str, int],
    *,
    only: bool,
) -> str:
    """Return a configuration as JSON."""
    ours = [{"name": name, "weight": weights.get(name, 1)} for name in plugins if name not in IN_TREE]
    needed = [{"name": name} for name in MINIMAL_PLUGINS]
    points = {
        "multiPoint": {
            "enabled": [*needed, *ours] if only else ours,
            "disabled": [{"name": "*"}] if only else [],
        }
    }
    profile = {
        "schedulerName": _PROFILE,
        "plugins": points,
        "pluginConfig": [{"name": name, "args": dict(values)} for name, values in args.items()],
    }
    written = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    return msgspec.json.encode(written).decode()
