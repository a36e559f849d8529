"""The input of a simulation: nodes, pods that arrive, run and end, and other changes of the cluster."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field, replace
from math import ceil, inf
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from scheduler.tools.whatif.simulation.object_versions import (
    cordoned,
    for_scheduler,
    in_order_of_removal,
    named,
    with_replicas,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.whatif.cluster_file import ClusterFile
    from scheduler.tools.whatif.simulation.cluster import MemoryCluster


logger = logging.getLogger(__name__)


class TimelineEvent(Protocol):
    """A change at a time.

    Attributes:
        at: seconds since the beginning.
    """

    @property
    def at(self) -> float: ...

    def happen(self, cluster: MemoryCluster) -> None:
        """Apply the change to a cluster."""
        ...


@dataclass(frozen=True, slots=True)
class NodeIsThere:
    """A node is added or changed."""

    at: float
    node: NodeObject

    def happen(self, cluster: MemoryCluster) -> None:
        cluster.put_node(self.node)


@dataclass(frozen=True, slots=True)
class NodeGoes:
    """A node is removed with its pods, at once; owners replace their pods."""

    at: float
    name: str

    def happen(self, cluster: MemoryCluster) -> None:
        if self.name in cluster.nodes:
            cluster.remove_node(self.name)
        for pod in cluster.pods_on(self.name):
            cluster.evict(pod)
            cluster.remove_pod(pod.key)


@dataclass(frozen=True, slots=True)
class NodeIsCordoned:
    """A node is cordoned or uncordoned."""

    at: float
    name: str
    wanted: bool = True

    def happen(self, cluster: MemoryCluster) -> None:
        node = cluster.nodes.get(self.name)
        if node is not None:
            cluster.put_node(cordoned(node, wanted=self.wanted))


@dataclass(frozen=True, slots=True)
class NodeIsDrained:
    """A node is cordoned, and its pods are evicted."""

    at: float
    name: str

    def happen(self, cluster: MemoryCluster) -> None:
        NodeIsCordoned(self.at, self.name).happen(cluster)
        for pod in cluster.pods_on(self.name):
            if not any(owner.kind == "DaemonSet" for owner in pod.pod.metadata.owner_references):
                cluster.evict(pod)


@dataclass(frozen=True, slots=True)
class PodIsThere:
    """A pod is added or changed, for example a pod that another scheduler placed."""

    at: float
    pod: PodInfo

    def happen(self, cluster: MemoryCluster) -> None:
        cluster.put_pod(self.pod)


@dataclass(frozen=True, slots=True)
class PodGoes:
    """A pod is removed, if it exists."""

    at: float
    key: str

    def happen(self, cluster: MemoryCluster) -> None:
        cluster.remove_pod(self.key)


@dataclass(frozen=True, slots=True)
class OwnerKeeps:
    """A workload is limited to a number of pods; see `in_order_of_removal`.

    Attributes:
        kind: the kind of its controller; the object of that name, if there is one, gets this number of replicas.
    """

    at: float
    kind: str
    namespace: str
    name: str
    number: int

    def happen(self, cluster: MemoryCluster) -> None:
        controller = cluster.find(self.kind, f"{self.namespace}/{self.name}")
        if controller is not None:
            cluster.put_object(self.kind, with_replicas(controller, self.number))
        pods = [pod for pod in cluster.pods_of(self.namespace, self.name) if not pod.is_terminating]
        for pod in in_order_of_removal(pods)[: max(0, len(pods) - self.number)]:
            cluster.remove_pod(pod.key)


@dataclass(frozen=True, slots=True)
class PodIsResized:
    """The requests of a container of a pod change in place; "" means its first container."""

    at: float
    key: str
    container: str
    requests: Mapping[str, str]

    def happen(self, cluster: MemoryCluster) -> None:
        if not cluster.resize(self.key, self.container, self.requests):
            fields = {"at": f"{self.at:g}s", "action": "resize", "error": f"there is no pod {self.key}"}
            logger.warning("Step of the scenario failed", extra=fields)


@dataclass(frozen=True, slots=True)
class ObjectIsThere:
    """An object of another kind is added or changed."""

    at: float
    kind: str
    obj: Mapping[str, Any]

    def happen(self, cluster: MemoryCluster) -> None:
        cluster.put_object(self.kind, self.obj)


@dataclass(frozen=True, slots=True)
class ObjectGoes:
    """An object of another kind is removed."""

    at: float
    kind: str
    key: str

    def happen(self, cluster: MemoryCluster) -> None:
        cluster.remove_object(self.kind, self.key)


@dataclass(frozen=True, slots=True)
class PodIsAnother:
    """A pending pod changes, for example because a gate is removed."""

    at: float
    pod: PodInfo

    def happen(self, cluster: MemoryCluster) -> None:
        cluster.change_pending(self.pod)


GPU_MILLI = "alibabacloud.com/gpu-milli"
GPU_COUNT = "alibabacloud.com/gpu-count"
GPU_MODEL = "alibabacloud.com/gpu-card-model"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that arrives.

    Attributes:
        pod: the pending pod.
        at: seconds since the beginning.
        runs: run time in seconds after it is placed; infinity for no end.
    """

    pod: PodInfo
    at: float
    runs: float = float("inf")


@dataclass(frozen=True, slots=True)
class Workload:
    """A cluster and its changes.

    Attributes:
        cluster: the nodes, and the pods that exist at the beginning.
        arrivals: pods, by time.
        events: other changes, by time; they precede arrivals at the same time.
        gives_up: whether a pod that does not fit at its arrival is removed, instead of waiting.
    """

    cluster: ClusterFile
    arrivals: Sequence[Arrival] = field(default=())
    events: Sequence[TimelineEvent] = field(default=())
    gives_up: bool = False


def gpu_milli(pod: PodInfo) -> int:
    """Return the GPU share that a pod requests, in thousandths of a GPU."""
    annotations = pod.annotations
    if GPU_MILLI not in annotations and GPU_COUNT not in annotations:
        return 0
    try:
        return int(annotations.get(GPU_MILLI, "1000")) * int(annotations.get(GPU_COUNT, "1"))
    except ValueError:
        return 0


def gpu_capacity(cluster: ClusterFile) -> int:
    """Return the GPUs of all nodes, in thousandths."""
    return 1000 * sum(node.allocatable.get(GPU_COUNT, 0) for node in cluster.nodes)


def inflated(workload: Workload, ratio: float, seed: int) -> Workload:
    """Return the pods in random order and more of them, drawn with replacement, up to a share of the GPU capacity.

    No pod ends, and a pod that does not fit is removed, as in the paper "Beware of Fragmentation".

    Raises:
        ValueError: no node has GPUs, or no pod requests any.

    Source:
        hkust-adsl/kubernetes-scheduler-simulator, pkg/simulator/simulator.go, SortClusterPods and tuneUpPods.
    """
    wanted = ratio * gpu_capacity(workload.cluster)
    if not wanted or not any(gpu_milli(each.pod) for each in workload.arrivals):
        raise ValueError("nothing to inflate: no node has GPUs, or no pod requests any")
    random, given = Random(seed), sorted(workload.arrivals, key=lambda each: each.pod.key)
    pods = [each.pod for each in given]
    random.shuffle(pods)
    demand = 0
    for place, pod in enumerate(pods):
        demand += gpu_milli(pod)
        if demand > wanted:
            del pods[place:]
            break
    else:
        for number in range(1 << 62):
            pod = random.choice(given).pod
            demand += gpu_milli(pod)
            if demand > wanted:
                break
            pods.append(named(pod, f"{pod.name}-again-{number}"))
    arrivals = [Arrival(pod, float(second)) for second, pod in enumerate(pods)]
    return replace(workload, arrivals=arrivals, gives_up=True)


def drawn(workload: Workload, number: int, seed: int) -> Workload:
    """Return `number` pods, drawn with replacement, over the same time; their run times are scaled so that the load stays."""
    random, given = Random(seed), workload.arrivals
    last = max((each.at for each in given), default=0.0)
    shorter = len(given) / number
    arrivals = [
        Arrival(
            named(each.pod, f"{each.pod.name}-again-{place}"), random.uniform(0.0, last), each.runs * shorter
        )
        for place, each in enumerate(random.choices(given, k=number))
    ]
    return replace(workload, arrivals=sorted(arrivals, key=lambda each: (each.at, each.pod.key)))


def part_ends(workload: Workload, parts: int) -> list[float]:
    """Return the times at which the parts of a workload end; the same number of pods arrives in each part.

    Pods that arrive at the same time belong to the same part, so there may be fewer parts. If all pods arrive at the same
    time, the only part has no end: what happens later is a consequence of these arrivals.
    """
    times = sorted(each.at for each in workload.arrivals)
    ends = sorted({times[ceil(len(times) * number / parts) - 1] for number in range(1, parts + 1)})
    return ends if len(ends) > 1 else [inf]


def until(workload: Workload, end: float) -> Workload:
    """Return what happens up to a time."""
    return replace(
        workload,
        arrivals=[each for each in workload.arrivals if each.at <= end],
        events=[each for each in workload.events if each.at <= end],
    )


def served_by(workload: Workload, scheduler_names: Sequence[str]) -> Workload:
    """Return the workload with unknown schedulerNames replaced by the first of these names."""

    def mine(pod: PodInfo) -> PodInfo:
        if pod.scheduler_name in scheduler_names:
            return pod
        return for_scheduler(pod, scheduler_names[0])

    return replace(
        workload,
        arrivals=[replace(each, pod=mine(each.pod)) for each in workload.arrivals],
        events=[
            replace(each, pod=mine(each.pod)) if isinstance(each, PodIsAnother) else each
            for each in workload.events
        ],
    )


def typical_pods(workload: Workload, percentage: float = 95.0) -> Iterator[dict[str, object]]:
    """Yield the most frequent kinds of pods, up to a percentage, in the form of FragmentationGradientDescent's arguments.

    Source:
        hkust-adsl/kubernetes-scheduler-simulator, pkg/utils/frag.go, GetTypicalPods.
    """
    kinds = Counter(
        (
            each.pod.resources.requests.get("cpu", 0),
            int(each.pod.annotations.get(GPU_MILLI, "1000")) if gpu_milli(each.pod) else 0,
            int(each.pod.annotations.get(GPU_COUNT, "1")) if gpu_milli(each.pod) else 0,
            each.pod.annotations.get(GPU_MODEL, ""),
        )
        for each in workload.arrivals
    )
    seen, enough = 0, percentage * len(workload.arrivals) / 100.0
    for (cpu, milli, count, models), number in sorted(
        kinds.items(), key=lambda item: (item[1], item[0]), reverse=True
    ):
        if seen >= enough:
            return
        seen += number
        yield {
            "milliCpu": cpu,
            **({"gpuMilli": milli, "gpuCount": count} if count else {}),
            **({"gpuModels": models.split("|")} if models else {}),
            "share": number,
        }
