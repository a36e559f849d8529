"""The scenarios of pod groups on the simulated API server, with a daemon in the same loop and virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from scheduler.configuration.feature_gates import stages_at
from tests.conformance.group_play import play, whole_node
from tests.conformance.groups import kinds_of_writes, priority_classes
from tests.support.daemon_accounts import NAMESPACE
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from scheduler.daemon.app.daemon import Daemon
    from scheduler.tools.simulator.server import LoggedRequest
    from tests.conformance.group_play import Object
    from tests.conformance.groups import Case, Difference
    from tests.support.daemon_harness import Cluster

_RESOURCES = {
    "Node": "nodes",
    "Pod": "pods",
    "PodGroup": "podgroups.scheduling.k8s.io",
    "CompositePodGroup": "compositepodgroups.scheduling.k8s.io",
    "PodDisruptionBudget": "poddisruptionbudgets.policy",
}
_OF_KINDS = ("CompositePodGroup",)  # without which the server does not serve the kinds
_DAEMONS = f"system:serviceaccount:{NAMESPACE}:daemon-"


async def play_simulated(case: Case, folder: Path) -> list[Difference]:
    """Play a case; returns in what it went otherwise than recorded.

    Args:
        case: to play.
        folder: for the server's socket.
    """
    gates = {gate: True for gate in _OF_KINDS if gate in stages_at(case.version)}
    async with cluster(folder, version=case.version, feature_gates=gates) as it:
        for name, said in priority_classes().items():
            it.server.store.create("priorityclasses.scheduling.k8s.io", {"metadata": {"name": name}, **said})
        it.add_nodes(*map(whole_node, case.stored["initialNodes"]))
        async with it.daemon(case.configuration) as daemon:
            await asyncio.sleep(1)
            return await play(case, _Simulated(it, daemon))


class _Simulated:
    """A Stage."""

    def __init__(self, it: Cluster, daemon: Daemon) -> None:
        self._store = it.server.store
        self._requests = it.server.requests
        self._daemon = daemon

    async def create(self, obj: Object) -> None:
        self._store.create(_RESOURCES[obj["kind"]], obj)

    async def delete(self, kind: str, name: str) -> None:
        self._store.delete(_RESOURCES[kind], name)

    async def patch_pod(self, name: str, patch: Any, *, status: bool = False) -> None:
        self._store.patch("pods", name, patch, subresource="status" if status else "")

    async def pods(self) -> list[Object]:
        return self._store.list("pods")

    async def groups(self) -> list[Object]:
        return self._store.list(_RESOURCES["PodGroup"])

    async def cycles(self) -> float | None:
        collected = self._daemon.metrics.registry.collect()
        return sum(
            sample.value
            for metric in collected
            for sample in metric.samples
            if sample.name == "scheduler_podgroup_schedule_attempts_total"
        )

    async def writes(self) -> Iterable[str] | None:
        ours = (each for each in self._requests if each.user.startswith(_DAEMONS))
        return kinds_of_writes(write for each in ours for write in recorded(each))


def recorded(request: LoggedRequest) -> Iterator[dict[str, Any]]:
    """Yield what a case would record of a request."""
    rest = request.path.partition("/pods/")[2]
    match request.method:
        case "POST" if request.path.endswith("/binding"):
            yield {"bind": rest.removesuffix("/binding")}
        case "DELETE" if rest:
            yield {"delete": f"pods/{rest}"}
        case "POST" if request.path.endswith("/events"):
            yield {"event": request.json["regarding"]["name"], **request.json}
        case "PATCH" if request.path.endswith("/status"):
            key = "podStatus" if rest else "podGroupStatus"
            for condition in request.json.get("status", {}).get("conditions", ()):
                yield {key: request.path, "condition": condition}
