"""`python -m tests.bench.waking`: what an event costs that ten thousand pods may wait for, and a node's heartbeat.

The whole way is measured, from the bytes of a watch to the queue; CPU time. Machines differ; compare the lines of one
run with each other.
"""

from __future__ import annotations

import itertools
import json
import logging
import time
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from scheduler.clock import SystemClock
from scheduler.configuration.load import default
from scheduler.daemon.app.assembly import Parts
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.daemon.app.memory import settle_memory
from scheduler.daemon.metrics import Metrics
from scheduler.engine.cycle.event_handlers import NodeHandler, PodHandler
from scheduler.engine.queue import Place
from scheduler.kube.client.store import Store
from scheduler.kube.client.wire import decode_watch_event
from scheduler.objects.decode import decode_node, decode_pod
from tests.support.builders import node_object, pod_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.kube.client.wire import WatchEvent

_NODES = 1000
_EVENTS = 300
_VERSIONS = itertools.count(10)

Object = dict[str, Any]


class Kind(NamedTuple):
    """Pods that wait, and something that happens.

    Attributes:
        count: how many pods wait.
        pod: what a number adds to a pod.
        rejector: which plugin refused them.
        event: the object of a number, before and after it happened; None is not there.
    """

    count: int
    pod: Callable[[int], Object]
    rejector: str
    event: Callable[[int], tuple[Object | None, Object | None]]


def _node(number: int, **labels: str) -> Object:
    name = f"n{number}"
    zone = f"zone-{number % 3}"
    own = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone, **labels}
    heartbeats = [
        {
            "type": kind,
            "status": "False",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z",
            "reason": "KubeletIsWell",
        }
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    made = node_object(name, cpu="4", labels=own)
    made["status"]["conditions"] = heartbeats
    made["metadata"]["resourceVersion"] = str(next(_VERSIONS))
    return made


def _relabelled(number: int) -> tuple[Object, Object]:
    return _node(number % _NODES, churn=str(number)), _node(number % _NODES, churn=str(number + 1))


def _heartbeat(number: int) -> tuple[Object, Object]:
    after = _node(number % _NODES)
    for condition in after["status"]["conditions"]:
        condition["lastHeartbeatTime"] = f"2026-01-01T00:00:{number % 60:02d}Z"
    return _node(number % _NODES), after


def _left(number: int) -> tuple[Object, None]:
    labels = {"app": f"other{number % 50}", "pod-template-hash": "x"}
    return pod_object(f"left-{number}", nodeName=f"n{number % _NODES}", labels=labels), None


def _near(app: str) -> Object:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


KINDS = {
    "a label of a node, 20,000 pods of 7 selectors": Kind(
        20_000, lambda n: {"nodeSelector": {"never": f"x{n % 7}"}}, "NodeAffinity", _relabelled
    ),
    "a label of a node, 20,000 selectors": Kind(
        20_000, lambda n: {"nodeSelector": {"never": f"x{n}"}}, "NodeAffinity", _relabelled
    ),
    "a pod that left, 10,000 pods of 50 affinities": Kind(
        10_000, lambda n: _near(f"none{n % 50}"), "InterPodAffinity", _left
    ),
    "a pod that left, 10,000 affinities": Kind(
        10_000, lambda n: _near(f"none{n}"), "InterPodAffinity", _left
    ),
    "a heartbeat, 20,000 pods of 7 selectors": Kind(
        20_000, lambda n: {"nodeSelector": {"never": f"x{n % 7}"}}, "NodeAffinity", _heartbeat
    ),
}


def _line(kind: str, found: Object) -> bytes:
    return json.dumps({"type": kind, "object": found}, separators=(",", ":")).encode()


def _put(store: Store[Any], line: bytes) -> None:
    event: WatchEvent = decode_watch_event(line)
    if event.type == "DELETED":
        store.delete(event.identity)
    else:
        store.put(event.identity, event.object)


def microseconds(kind: Kind) -> float:
    """Return what one event costs."""
    parts = Parts(SystemClock(), Metrics(), IN_TREE)
    parts.activate(parts.build(default()))
    nodes = Store("Node", decode_node, NodeHandler(parts))
    pods = Store("Pod", decode_pod, PodHandler(parts))
    for number in range(_NODES):
        _put(nodes, _line("ADDED", _node(number)))
    for number in range(kind.count):
        made = pod_object(f"w-{number}", schedulerName="custom-scheduler", **kind.pod(number))
        parts.queue.add(decode_pod(json.dumps(made).encode()))
        queued = parts.queue.pop()
        assert queued is not None
        parts.queue.add_unschedulable(queued, unschedulable_plugins=[kind.rejector])
    happened = []
    for number in Random(1).sample(range(100_000), _EVENTS):
        before, after = kind.event(number)
        assert before is not None
        store = nodes if before["kind"] == "Node" else pods
        _put(store, _line("MODIFIED" if store is nodes else "ADDED", before))
        happened.append((store, _line("DELETED", before) if after is None else _line("MODIFIED", after)))
    seconds = 0.0
    for store, line in happened:
        begin = time.process_time()
        _put(store, line)
        seconds += time.process_time() - begin
    assert parts.queue.count(Place.UNSCHEDULABLE) == kind.count, "somebody was woken"
    return seconds / _EVENTS * 1e6


def main() -> None:
    """Print the table."""
    logging.disable(logging.WARNING)
    settle_memory()
    for label, kind in KINDS.items():
        print(f"{label:50}{microseconds(kind):9.0f} us{'':14}")


if __name__ == "__main__":
    main()
