"""A simulation places pods where the daemon does that talks to a server, preemptions and groups included."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scheduler.configuration.load import default, parse
from scheduler.engine.cycle import scheduling
from scheduler.engine.cycle.observer import NoObserver
from scheduler.objects.decode import decode_node, decode_pod
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.simulation.parallel_simulations import Player
from scheduler.tools.whatif.simulation.virtual_daemon import VirtualDaemon
from scheduler.tools.whatif.simulation.virtual_time import VirtualTimeLoop
from scheduler.tools.whatif.simulation.workload import Arrival, PodIsResized, Workload, served_by
from tests.integration.groups.gangs import member
from tests.support import virtual_time
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.engine.runtime.scoring import Scores
    from scheduler.objects.pod import PodInfo

_POD_GROUPS = "podgroups.scheduling.k8s.io"
_STOP_SECONDS = 1.0  # of the simulated kubelets
_END = 150.0

Timeline = list[tuple[float, dict[str, Any]]]


class Nobody:
    """A witness who notes where pods were bound, in order."""

    def __init__(self) -> None:
        self.bound: list[tuple[str, str]] = []

    def came(self, pod: PodInfo) -> None: ...
    def evicted(self, pod: PodInfo) -> None: ...
    def went(self, pod: PodInfo) -> None: ...
    def failed(self, pod: PodInfo) -> None: ...
    def settled(self, now: float) -> None: ...

    def placed(self, pod: PodInfo, waited_seconds: float) -> None:
        self.bound.append((pod.name, pod.node_name))


def first_of_equals(scores: Scores, *_: object) -> int:
    return int(min(scores.best))


def nodes() -> list[dict[str, Any]]:
    """No two are alike, so that ties are rare."""
    return [
        node_object(f"n-{place}", cpu=str(4 + place), memory=f"{8 + 3 * place}Gi", pods=110)
        for place in range(4)
    ]


def pod_group(name: str, min_count: int, **priority: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-of-{name}"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": min_count}}, **priority},
    }


def priority_of_members(timeline: Timeline) -> int:
    members = [
        pod["spec"] for _, pod in timeline if "resized" not in pod and "schedulingGroup" in pod["spec"]
    ]
    return max((spec.get("priority", 0) for spec in members), default=0)


def preemption() -> Timeline:
    filler = [(float(each), pod_object(f"low-{each}", cpu="1700m", memory="1Gi")) for each in range(12)]
    return [*filler, (60.0, pod_object("high", cpu="3500m", memory="1Gi", priority=10))]


def gang() -> Timeline:
    filler = [(float(each), pod_object(f"low-{each}", cpu="1700m", memory="1Gi")) for each in range(6)]
    members = [member("g", f"g-{each}", cpu="1500m", memory="2Gi") for each in range(5)]
    return [
        *filler,
        *((20.0 + place, each) for place, each in enumerate(members)),
        (50.0, pod_object("last", cpu="1")),
    ]


def mixed() -> Timeline:
    random = Random(4)
    timeline: Timeline = [
        (
            float(second),
            pod_object(
                f"p-{second}",
                cpu=f"{random.randrange(300, 2600)}m",
                memory=f"{random.randrange(200, 3000)}Mi",
                priority=random.choice((0, 0, 0, 5, 10)),
            ),
        )
        for second in range(30)
    ]
    members = [member("g", f"g-{each}", cpu="700m", memory="500Mi", priority=20) for each in range(3)]
    return [*timeline, *((40.0, each) for each in members)]


def resizes() -> Timeline:
    """Deferred resizes hold capacity, are carried out when a victim has left, or never fit."""
    filler = [(float(each), pod_object(f"low-{each}", cpu="1700m", memory="1Gi")) for each in range(9)]
    grow = [
        (20.0 + place, resize(f"low-{place}", cpu)) for place, cpu in enumerate(("3", "2500m", "90", "3"))
    ]
    held = [(30.0 + place, pod_object(f"p-{place}", cpu=f"{700 + 10 * place}m")) for place in range(6)]
    return [*filler, *grow, *held, (60.0, pod_object("high", cpu="2500m", memory="1Gi", priority=10))]


def resize(name: str, cpu: str) -> dict[str, Any]:
    return {"name": name, "resized": {"cpu": cpu}}


PROTECTION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  pluginConfig:
  - name: DefaultPreemption
    args:
      protection: {minRunTime: {preemption: 2m}, delay: 10s}
"""

TIMELINES = [
    pytest.param(preemption(), "", id="preemption"),
    pytest.param(preemption(), PROTECTION, id="preemption of pods that are protected first"),
    pytest.param(gang(), "", id="a gang whose last members come later"),
    pytest.param(resizes(), "", id="resizes"),
    pytest.param(mixed(), "", id="priorities and a gang that preempts"),
]


@pytest.mark.parametrize(("timeline", "configuration"), TIMELINES)
def test_the_same_pods_are_placed_on_the_same_nodes(
    tmp_path: Path, timeline: Timeline, configuration: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(scheduling, "pick", first_of_equals)
    simulated = by_simulation(timeline, configuration)

    assert simulated == by_daemon(tmp_path, timeline, configuration)
    last = [node for name, node in simulated.items() if name.startswith(("high", "g-"))]
    assert last
    assert all(last)


def by_simulation(timeline: Timeline, configuration: str) -> dict[str, str]:
    """Return pod -> node, at the end."""

    async def main() -> dict[str, str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loaded = parse(configuration) if configuration else default()
        daemon = VirtualDaemon(
            loop, loaded, random=Random(1), observer=NoObserver(), stop_seconds=_STOP_SECONDS
        )
        group = pod_group("g", 3, priority=priority_of_members(timeline))
        groups = {"scheduling.k8s.io/v1alpha2/podgroups": {"default/g": msgspec.json.encode(group)}}
        there = ClusterFile([decode_node(msgspec.json.encode(each)) for each in nodes()], [], groups)
        pods = [(at, pod) for at, pod in timeline if "resized" not in pod]
        arrivals = [Arrival(decode_pod(msgspec.json.encode(pod)), at) for at, pod in pods]
        events = [
            PodIsResized(at, f"default/{each['name']}", "", each["resized"])
            for at, each in timeline
            if "resized" in each
        ]
        workload = served_by(Workload(there, arrivals, events), list(daemon.parts.profiles.frameworks))
        daemon.fill(there)
        player = Player(workload, daemon, Nobody())
        await daemon.run(player.play())
        return {pod.name: pod.node_name for pod in daemon.parts.pods.values()}

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main())


def by_daemon(folder: Path, timeline: Timeline, configuration: str) -> dict[str, str]:
    """Return the same of a daemon and a server."""
    found: dict[str, str] = {}

    async def main() -> None:
        async with cluster(folder, kubelet=True) as it, it.daemon(configuration):
            it.add_nodes(*nodes())
            name = it.priority_class(priority_of_members(timeline))
            it.server.store.create(_POD_GROUPS, pod_group("g", 3, priorityClassName=name))
            await asyncio.sleep(1.0)
            began = asyncio.get_running_loop().time()
            for at, pod in timeline:
                await asyncio.sleep(max(0.0, began + at - asyncio.get_running_loop().time()))
                if "resized" in pod:
                    container = {**it.pod(pod["name"])["spec"]["containers"][0]}
                    container["resources"] = {"requests": container["resources"]["requests"] | pod["resized"]}
                    spec = {"containers": [container]}
                    it.server.store.patch("pods", pod["name"], {"spec": spec}, subresource="resize")
                    continue
                pod["metadata"].pop("uid", None)
                it.add_pods(pod)
            await asyncio.sleep(_END)
            found.update({pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in it.pods()})

    virtual_time.run(main())
    return found
