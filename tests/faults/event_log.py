"""The events of a campaign, for readers of a finding."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.tools.simulator.registry.store import Store
    from scheduler.tools.simulator.storage import Watch


class Line(NamedTuple):
    """One thing that happened."""

    at_seconds: float
    who: str
    what: str

    def __str__(self) -> str:
        return f"{self.at_seconds:10.3f}  {self.who:<9}  {self.what}"


@dataclass(slots=True)
class PodRecord:
    """One pod's life as the API server saw it.

    Attributes:
        uid: its own.
        key: namespace/name.
        group_name: of its PodGroup; "" for none.
        scheduler_name: who is responsible for it.
        is_successor: whether there was another pod by its name before, or it was another itself before the server was
            restored. What is said of that one may reach it, if no watch has told of the change yet: a status patch carries
            no uid, as kube-scheduler's.
        nodes: (seconds, node), each time its nodeName became another; the first is its binding.
        lost_nodes: where it was bound, which a server that was restored does not know.
        ungated_at: since when it has no gates; None while it has.
        gone_at: when it was deleted or had ended; None while it is there.
        came_back_at: when a server that was restored brought it back, after it was gone; what daemons knew of it is over.
        written_while_gated: the versions of its status that came while it was gated.
    """

    uid: str
    key: str
    group_name: str
    scheduler_name: str
    is_successor: bool
    nodes: list[tuple[float, str]] = field(default_factory=list)
    lost_nodes: set[str] = field(default_factory=set)
    ungated_at: float | None = None
    gone_at: float | None = None
    came_back_at: float = 0.0
    written_while_gated: list[Any] = field(default_factory=list)

    def forget(self, now: float) -> None:
        """Begin anew, as what it is now."""
        self.is_successor = True
        if self.gone_at is not None:
            self.came_back_at = now
        self.lost_nodes.update(name for _, name in self.nodes)
        self.nodes.clear()
        self.gone_at = None


class Story:
    """All that happened, oldest first, and each pod's part in it.

    Attributes:
        pods: uid -> what became of the pod; of every pod there ever was.
        foreign: uids of pods that somebody else has bound.
    """

    def __init__(self, store: Store) -> None:
        self.lines: list[Line] = []
        self.pods: dict[str, PodRecord] = {}
        self.foreign: set[str] = set()
        self._store = store
        self._is_going_back = False
        self._loop = asyncio.get_running_loop()
        self._watches: dict[str, Watch] = {}
        self._keys: set[str] = set()  # namespace/name of every pod there ever was
        self._statuses: dict[str, Any] = {}  # uid -> status last seen, while gated
        for resource in ("nodes", "pods"):
            self._watches[resource] = store.watch(resource, self._soon)

    def tell(self, who: str, what: str) -> None:
        """Note something; what the cluster did before comes first."""
        self.catch_up()
        self._add(who, what)

    def catch_up(self) -> None:
        """Note what the cluster did until now."""
        for resource, watch in self._watches.items():
            for type_, entry in watch.take():
                if resource == "nodes":
                    self._add("node", f"{type_.lower()} {entry.name}{_node(entry.object)}")
                else:
                    self._note_pod(type_, entry.object)

    def go_back(self) -> None:
        """Note that the server was restored from an older state: what changed by that was another history."""
        self._is_going_back = True
        self.catch_up()
        self._is_going_back = False

    def close(self) -> None:
        """Watch no longer."""
        self.catch_up()
        for resource, watch in self._watches.items():
            self._store.unwatch(resource, watch)

    def about(self, *words: str) -> Iterator[Line]:
        """Yield the lines that hold one of the words."""
        for line in self.lines:
            if any(word in line.what for word in words):
                yield line

    def _soon(self) -> None:
        self._loop.call_soon(self.catch_up)

    def _add(self, who: str, what: str) -> None:
        self.lines.append(Line(self._loop.time(), who, what))

    def _note_pod(self, type_: str, pod: dict[str, Any]) -> None:
        metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
        now, uid = self._loop.time(), metadata["uid"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        record = self.pods.get(uid)
        if record is None:
            record = self.pods[uid] = PodRecord(
                uid,
                key,
                spec.get("schedulingGroup", {}).get("podGroupName", ""),
                spec.get("schedulerName", ""),
                is_successor=key in self._keys,
            )
            self._keys.add(key)
        if self._is_going_back:
            record.forget(now)
        node = spec.get("nodeName", "")
        if node and (not record.nodes or record.nodes[-1][1] != node):
            record.nodes.append((now, node))
        if spec.get("schedulingGates"):
            if self._statuses.setdefault(uid, status) != status:
                record.written_while_gated.append(status)
        elif record.ungated_at is None:
            record.ungated_at = now
        ended = type_ == "DELETED" or status.get("phase") in {"Succeeded", "Failed"}
        if ended and record.gone_at is None:
            record.gone_at = now
        self._add("pod", f"{type_.lower()} {key} {uid[:8]}{_pod(pod)}")


def _node(node: dict[str, Any]) -> str:
    spec, offered = node["spec"], node.get("status", {}).get("allocatable", {})
    parts = [f"cpu={offered.get('cpu')}", f"memory={offered.get('memory')}", f"pods={offered.get('pods')}"]
    if spec.get("unschedulable"):
        parts.append("cordoned")
    parts += [f"{taint['key']}:{taint['effect']}" for taint in spec.get("taints", ())]
    return f" ({', '.join(parts)})"


def _pod(pod: dict[str, Any]) -> str:
    metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
    requests = spec["containers"][0].get("resources", {}).get("requests", {})
    parts = [f"{name}={amount}" for name, amount in requests.items()]
    if spec.get("priority"):
        parts.append(f"priority={spec['priority']}")
    if spec.get("schedulingGates"):
        parts.append("gated")
    if spec.get("nodeName"):
        parts.append(f"on {spec['nodeName']}")
    if status.get("nominatedNodeName"):
        parts.append(f"nominated to {status['nominatedNodeName']}")
    if status.get("phase") != "Pending":
        parts.append(str(status.get("phase")))
    if "deletionTimestamp" in metadata:
        parts.append("terminating")
    parts.extend(
        f"{condition.get('reason')}: {condition.get('message', '')}"
        for condition in status.get("conditions", ())
        if condition["type"] == "PodScheduled" and condition.get("status") != "True"
    )
    return f" ({', '.join(parts)})"
