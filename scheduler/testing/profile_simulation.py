"""Your plugins in a whole profile, on a small cluster: what would happen to a pod, and why."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, NamedTuple

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
from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.objects.node import NodeObject
from scheduler.testing.fakes import Fakes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.engine.cycle.attempt import Decision
    from scheduler.engine.cycle.explanation import Explanation
    from scheduler.framework import CycleState, Plugin
    from scheduler.objects.pod import PodInfo

_PROFILE = "custom-scheduler"


class _PodOnNode(NamedTuple):
    """A pod on the node that was chosen for it.

    Attributes:
        pod: the pod.
        node: the name of the node.
        state: the state of its cycle.
        plugins: the plugins that hold it at Permit.
    """

    pod: PodInfo
    node: str
    state: CycleState
    plugins: set[str]


class ProfileSimulation:
    """A profile with the default plugins and yours, on a small cluster.

        trial = ProfileSimulation(node("a"), node("b", labels={"disk": "ssd"}), plugins=[PreferSsd])
        assert trial.schedule(pod("web")) == "b"
        print(trial.explain(pod("db"))["nodes"])

    A scheduled pod stays on its node, so that the next pod sees it. Reserve and Permit run as in a daemon: a pod that they
    reject gets no node, and `status` tells why; a pod that Permit holds is in `held`, and counts on its node, until it is
    allowed or rejected, by `allow` and `reject` or by the plugin itself.

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
        status: the status of the last pod that was scheduled.

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
        self.status = SUCCESS
        self._held: dict[str, _PodOnNode] = {}  # uid -> pod
        self._placed: dict[str, _PodOnNode] = {}  # uid -> pod
        self._followed = 0, 0  # how many decisions of plugins about held pods were carried out
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
        self._follow_waiting()
        return self._judge(pod)[0]

    def schedule(self, pod: PodInfo) -> str | None:
        """Place a pod on the best node (the smallest name among equal ones), and return it.

        Returns:
            The node; None if no node fits, Reserve or Permit rejects the pod, or Permit holds it.

        Raises:
            RuntimeError: a plugin failed.
        """
        self._follow_waiting()
        explanation, best, decision = self._judge(pod)
        if explanation["result"] == "error":
            raise RuntimeError(explanation["message"])
        if best is None or decision is None:
            self.status = Status.unschedulable(explanation["message"] or "")
            return None
        placed = _PodOnNode(self._cache.assume(pod, best), best, decision.state, set())
        self.status = self._framework.run_reserve(placed.state, placed.pod, best)
        permitted = (
            self._framework.run_permit(placed.state, placed.pod, best)
            if self.status.is_success
            else self.status
        )
        if isinstance(permitted, Status):
            self.status = permitted
            if permitted.is_success:
                self._placed[pod.uid] = placed
                return best
            self._take_back(placed)
            if permitted.code is Code.ERROR:
                raise RuntimeError(permitted.message)
            return None
        self.status = Status(Code.WAIT, plugin=next(iter(permitted)))
        self._held[pod.uid] = placed._replace(plugins=set(permitted))
        self.fakes.waiting_pods.held[pod.uid] = placed.pod
        return None

    @property
    def held(self) -> dict[str, set[str]]:
        """The pods that Permit holds: `namespace/name` -> the plugins that hold it."""
        self._follow_waiting()
        return {each.pod.key: each.plugins for each in self._held.values()}

    def allow(self, pod: PodInfo) -> str:
        """Release a held pod for all plugins, and return its node.

        Raises:
            KeyError: the pod is not held.
        """
        self._follow_waiting()
        placed = self._released(pod.uid)
        self._placed[pod.uid] = placed
        return placed.node

    def reject(self, pod: PodInfo) -> None:
        """Reject a held pod: its node and its reservations are released.

        Raises:
            KeyError: the pod is not held.
        """
        self._follow_waiting()
        self._take_back(self._released(pod.uid))

    def bind(self, pod: PodInfo) -> Status:
        """Run PreBind, Bind and PostBind for a pod that was placed; if one of them fails, the node is released.

        Raises:
            KeyError: the pod was not placed, or was bound before.
        """
        return asyncio.run(self._bind(self._placed.pop(pod.uid)))

    async def _bind(self, placed: _PodOnNode) -> Status:
        framework, state, pod, node = self._framework, placed.state, placed.pod, placed.node
        busy = framework.run_pre_bind_pre_flights(state, pod, node)
        status = busy if isinstance(busy, Status) else await framework.run_pre_bind(state, pod, node, busy)
        if status.is_success:
            status = await framework.run_bind(state, pod, node)
        if status.is_success:
            await framework.run_post_bind(state, pod, node)
        else:
            self._take_back(placed)
        return status

    def _released(self, uid: str) -> _PodOnNode:
        self.fakes.waiting_pods.held.pop(uid, None)
        return self._held.pop(uid)

    def _take_back(self, placed: _PodOnNode) -> None:
        """Undo the reservations of a pod, and remove it from its node."""
        self._framework.run_unreserve(placed.state, placed.pod, placed.node)
        self._cache.forget(placed.pod.uid)

    def _follow_waiting(self) -> None:
        """Release the held pods that plugins have allowed or rejected by the capability `WaitingPods`."""
        waiting, (n_allowed, n_rejected) = self.fakes.waiting_pods, self._followed
        self._followed = len(waiting.allowed), len(waiting.rejected)
        for uid, plugin in waiting.allowed[n_allowed:]:
            if uid in self._held:
                self._held[uid].plugins.discard(plugin)
                if not self._held[uid].plugins:
                    self._placed[uid] = self._released(uid)
        for uid, _, _ in waiting.rejected[n_rejected:]:
            if uid in self._held:
                self._take_back(self._released(uid))

    def _judge(self, pod: PodInfo) -> tuple[Explanation, str | None, Decision | None]:
        gate = self._framework.run_pre_enqueue(pod)
        if not gate.is_success:
            return explain_gated(pod, gate), None, None
        snapshot = self._cache.snapshot()
        explainer = Explainer(self._framework, SystemClock(), nodes_of_a_kind=math.inf)
        decision, explanation = evaluate(self._framework, pod, snapshot, nominated={}, explainer=explainer)
        best = next(iter(explanation.get("best", ())), decision.node_name or None)
        return explanation, best, decision


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
