"""Our own recordings as workloads: the pods to place arrive as recorded, and all other changes happen as recorded."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.daemon.app.watches import NODE_KIND, POD_KIND
from scheduler.daemon.recording.recording_files import SUFFIX
from scheduler.snapshot import object_key
from scheduler.tools.whatif.backtest.backtest_run import material_of
from scheduler.tools.whatif.backtest.other_objects import RecordedObjects
from scheduler.tools.whatif.backtest.pod_lifetimes import is_disrupted, takes_pods
from scheduler.tools.whatif.backtest.recorded_history import read_history
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.simulation.object_versions import pending
from scheduler.tools.whatif.simulation.workload import (
    Arrival,
    NodeGoes,
    NodeIsDrained,
    NodeIsThere,
    ObjectGoes,
    ObjectIsThere,
    PodGoes,
    PodIsAnother,
    PodIsThere,
    Workload,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.whatif.backtest.pod_lifetimes import PodLifetime
    from scheduler.tools.whatif.backtest.recorded_history import RecordedChange
    from scheduler.tools.whatif.simulation.workload import TimelineEvent


def is_own_recording(path: str) -> bool:
    """Return whether a folder contains files of `run --record`."""
    return Path(path).is_dir() and any(Path(path).glob(f"*{SUFFIX}"))


def read_own_recording(path: str) -> Workload:
    """Read a folder of `run --record`, as far as its files are complete.

    Pods of the recorded scheduler arrive as pending when they did, and run as long as recorded once they are placed.
    Recorded replacements of evicted pods do not arrive, because the simulation replaces its own evicted pods. Pods of other
    schedulers are where and when they were.

    Raises:
        RecordingError: it cannot be read, or no pod was placed in it.
        ConfigurationError: the recorded configuration cannot be read here.
    """
    material = material_of(read_history(Path(path)))
    reader = _Reader(material.lives, material.history.preempted)
    for happening in material.history.there:
        reader.take_first(happening)
    for happening in material.history.happenings:
        reader.take(happening)
    return reader.workload()


class _Reader:
    """Converts recorded changes to a workload.

    As a store for objects of other kinds, it collects the objects.
    """

    def __init__(self, lives: Mapping[str, PodLifetime], preempted: Collection[str]) -> None:
        self._lives, self._preempted = lives, preempted
        self._cluster = ClusterFile()
        self._events: list[TimelineEvent] = []
        self._objects = RecordedObjects(self, follows=False)
        self._known: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._uids: dict[str, str] = {}
        self._newest: dict[str, PodInfo] = {}  # uid -> newest version of a pending pod
        self._closed: set[str] = set()  # nodes that take no pods
        self._drained: set[str] = set()
        self._now = 0.0

    def take_first(self, happening: RecordedChange) -> None:
        """Add an object that existed at the beginning."""
        if happening.kind == NODE_KIND:
            self._cluster.nodes.append(happening.obj)
        elif happening.kind == POD_KIND and happening.obj.node_name:
            self._uids[happening.key] = happening.obj.uid
            self._cluster.pods.append(happening.obj)
        else:
            self.take(happening)

    def take(self, happening: RecordedChange) -> None:
        """Add a later change."""
        self._now = happening.at
        if happening.kind == POD_KIND:
            if happening.obj is None:
                self._pod_gone(happening.key)
            else:
                self._pod(happening.obj)
        elif happening.kind != NODE_KIND:
            self._objects.take(happening.kind, happening.key, happening.obj)
        elif happening.obj is None:
            self._events.append(NodeGoes(happening.at, happening.key))
        else:
            self._node(happening.obj)

    def workload(self) -> Workload:
        """Return the workload."""
        ours = [life for life in self._lives.values() if not life.is_there and not life.is_heir]
        arrivals = [
            Arrival(pending(life.pod), life.came, life.runs if life.bound < inf else inf) for life in ours
        ]
        return Workload(self._cluster, arrivals, self._events)

    def _node(self, node: NodeObject) -> None:
        self._events.append(NodeIsThere(self._now, node))
        if takes_pods(node):
            self._closed.discard(node.name)
            self._drained.discard(node.name)
        else:
            self._closed.add(node.name)

    def _pod(self, pod: PodInfo) -> None:
        self._uids[pod.key] = pod.uid
        if pod.is_terminating and pod.uid not in self._preempted and is_disrupted(pod):
            self._drain(pod.node_name)
        life = self._lives.get(pod.uid)
        if life is None:
            self._events.append(PodIsThere(self._now, pod))
        elif not pod.node_name and not life.is_heir:
            known = self._newest.get(pod.uid, life.pod)
            if pod.pod.spec != known.pod.spec:
                self._events.append(PodIsAnother(self._now, pending(pod)))
            self._newest[pod.uid] = pod

    def _drain(self, node_name: str) -> None:
        """Note that a node is drained, if it takes no pods."""
        if node_name in self._closed and node_name not in self._drained:
            self._drained.add(node_name)
            self._events.append(NodeIsDrained(self._now, node_name))

    def _pod_gone(self, key: str) -> None:
        life = self._lives.get(self._uids.pop(key, ""))
        if life is None or life.is_there or (life.bound == inf and not life.is_heir):
            self._events.append(PodGoes(self._now, key))

    # The store for objects of other kinds.

    def put_object(self, kind: str, obj: Mapping[str, Any]) -> object:
        """Note that an object was added or changed."""
        key = object_key(obj)
        self._known[kind, key] = obj
        if self._now:
            self._events.append(ObjectIsThere(self._now, kind, obj))
        else:
            self._cluster.others.setdefault(kind, {})[key] = msgspec.json.encode(obj)
        return obj

    def remove_object(self, kind: str, key: str) -> None:
        """Note that an object was deleted."""
        if self._known.pop((kind, key), None) is not None:
            self._events.append(ObjectGoes(self._now, kind, key))

    def find(self, kind: str, key: str) -> Mapping[str, Any] | None:
        """Return the current version of an object."""
        return self._known.get((kind, key))
