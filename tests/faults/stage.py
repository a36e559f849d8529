"""The stage of a campaign: one server, one daemon after another, and the actors."""

from __future__ import annotations

import asyncio
from collections import Counter
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from scheduler.tools.simulator.faults import binds
from tests.faults.daemon_runs import Lives
from tests.faults.event_log import Story
from tests.faults.group_checks import Groups
from tests.faults.pod_facts import has_ended
from tests.support.daemon_harness import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from scheduler.objects.pod import PodInfo
    from scheduler.tools.simulator.api.requests import RequestInfo
    from scheduler.tools.simulator.registry.registry import Backup
    from scheduler.tools.simulator.registry.store import Store
    from scheduler.tools.simulator.server import ApiServer
    from tests.faults.campaign import Plan
    from tests.faults.daemon_runs import Life

    Judge = Callable[[Life, PodInfo, str, Mapping[str, Mapping[str, PodInfo]]], None]

ODD_POD_CPU, ODD_NODE_CPU = "1337m", "7777m"
"""What odd objects ask for and offer: the texts that may arrive as something nobody can read."""


class Finding(NamedTuple):
    """Something that must not be.

    Attributes:
        what: for people.
        uid: the pod in question; "" where there is none.
    """

    what: str
    uid: str


class Stage:
    """What actors act on.

    Attributes:
        plan: what the seed means.
        server: the API server.
        store: its objects.
        folder: for files.
        kubeconfig: with the token of daemons; None where they need none.
        cluster: helps to create them.
        story: what happened.
        lives: the daemons.
        groups: follows groups of pods.
        garbled: what arrives at daemons as something else: sent -> received.
        repetition: how probable it is that what a watch brings comes twice.
        is_taped: whether all that daemons are told and decide is kept.
        is_calm: whether the storm is over.
        calm_at: since when, in seconds.
        server_is_away: held by whoever has stopped the server.
        restores: when it went back to an older state, in seconds.
        findings: what must not be and was.
        acts: "actor: act" -> how often.
        judges: judge each choice of a node for a pod that is in no group: daemon, pod, node, and the pods that the daemon
            has to know to be on nodes: node name -> uid -> pod.
        quota_judges: the same for quotas, at the daemon that checks them.
    """

    def __init__(self, plan: Plan, server: ApiServer, folder: Path, *, is_taped: bool = False) -> None:
        self.folder = folder
        self.kubeconfig: Path | None = None
        self.is_taped = is_taped
        self.plan = plan
        self.server = server
        self.store: Store = server.store
        self.cluster = Cluster(server)
        self.garbled = self.cluster.garbled
        self.repetition = 0.0
        self.is_calm = False
        self.calm_at = inf
        self.server_is_away = asyncio.Lock()
        self.restores: list[float] = []
        self.findings: list[Finding] = []
        self.acts: Counter[str] = Counter()
        self.judges: list[Judge] = []
        self.quota_judges: list[Judge] = []
        self.story = Story(self.store)
        self.lives = Lives(self)
        self.groups = Groups(self)
        self._watchers: list[Callable[[str, PodInfo], None]] = []
        self._spy_on_bindings()

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return asyncio.get_running_loop().time()

    @property
    def follows_groups(self) -> bool:
        """Whether there are groups of pods."""
        return self.plan.groups

    def random_of(self, name: str) -> Random:
        """Return a source of chance of one's own, so that one actor's draws do not change another's."""
        return Random(f"{self.plan.seed}/{name}")

    def find(self, what: str, uid: str = "") -> None:
        """Note something that must not be; the same thing counts once."""
        finding = Finding(what, uid)
        if finding not in self.findings:
            self.findings.append(finding)
            self.story.tell("FINDING", what)

    def restore(self, backup: Backup) -> None:
        """Let the server go back to an older state, while it does not listen."""
        self.story.catch_up()
        self.restores.append(self.now)
        self.server.restore(backup)
        self.story.go_back()

    def was_restored(self, within_seconds: float) -> bool:
        """Whether the server went back to an older state so lately."""
        return bool(self.restores) and self.now - self.restores[-1] <= within_seconds

    def on_step(self, watcher: Callable[[str, PodInfo], None]) -> None:
        """Have pods of ours announced as "assumed", "held" at Permit, "binding", and "bound"."""
        self._watchers.append(watcher)

    def reached(self, step: str, pod: PodInfo) -> None:
        """Announce how far a pod has come."""
        for watcher in self._watchers:
            watcher(step, pod)

    def later(self, seconds: float, act: Callable[..., None], *arguments: Any) -> None:
        """Do something after a while, if it is still stormy then."""
        asyncio.get_running_loop().call_later(seconds, self._if_stormy, act, *arguments)

    def soon(self, turns: int, act: Callable[..., None], *arguments: Any) -> None:
        """Do something after so many turns of the loop, at the same virtual time."""
        if turns > 0:
            asyncio.get_running_loop().call_soon(self.soon, turns - 1, act, *arguments)
        else:
            self._if_stormy(act, *arguments)

    def _if_stormy(self, act: Callable[..., None], *arguments: Any) -> None:
        if not self.is_calm:
            act(*arguments)

    def _spy_on_bindings(self) -> None:
        """Have each Binding announced that is not refused, right before it is carried out."""
        check = self.server.faults.check

        def check_and_announce(info: RequestInfo) -> None:
            check(info)
            if binds(info):
                self.lives.binding_arrives(f"{info.namespace}/{info.name}")

        self.server.faults.check = check_and_announce  # type: ignore[method-assign]

    def is_ours(self, pod: dict[str, Any]) -> bool:
        """Whether a pod names a profile of ours."""
        return pod["spec"].get("schedulerName") in self.plan.scheduler_names

    def is_odd(self, pod: PodInfo) -> bool:
        """Whether a pod is one of those that may arrive unreadable."""
        requests = pod.pod.spec.containers[0].resources.requests
        return requests.get("cpu") == ODD_POD_CPU

    def our_pods(self) -> list[dict[str, Any]]:
        """Return the pods of ours that have not ended."""
        return [pod for pod in self.store.list("pods") if self.is_ours(pod) and not has_ended(pod)]
