"""Simulates metrics-server: serves the usage of nodes and pods as `metrics.k8s.io`, for `kubectl top` and for plugins.

A running pod uses a fraction of its requests that depends on its UID alone, so that the figures are the same in each run.
They change when pods start and end.

Source:
    metrics-server v0.8, pkg/api.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.objects.decode import decode_pod
from scheduler.tools.simulator.apimachinery.kinds import Kind
from scheduler.tools.simulator.apimachinery.objects import key_of
from scheduler.tools.simulator.apimachinery.strategy import Strategy
from scheduler.tools.simulator.controllers.controller import Controller
from scheduler.tools.simulator.registry.store import Store

if TYPE_CHECKING:
    from scheduler.tools.simulator.apimachinery.objects import Object

_GROUP, _VERSION = "metrics.k8s.io", "v1beta1"
_READ_VERBS: Final = ("get", "list")
_KINDS: Final = (
    Kind(_GROUP, _VERSION, "nodes", "NodeMetrics", False, Strategy(), verbs=_READ_VERBS, is_custom=True),
    Kind(_GROUP, _VERSION, "pods", "PodMetrics", True, Strategy(), verbs=_READ_VERBS, is_custom=True),
)
_WINDOW: Final = "30s"
_NODE_MILLI_CPU: Final = 100
_NODE_BYTES: Final = 512 * 2**20
"""What a node uses without pods."""
_LEAST_PERCENT, _MOST_PERCENT = 20, 90


class MetricsServer(Controller[Store]):
    """Keeps the usage of nodes and pods up to date."""

    resources = ("nodes", "pods")

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        # uid -> namespace, name, node, milliCPU, bytes
        self._usage: dict[str, tuple[str, str, str, int, int]] = {}
        self._nodes: set[str] = set()
        self._changed: dict[str, None] = {}  # nodes to report

    def start(self) -> None:
        """Serve the kinds, and start watching."""
        self.store.serve(_KINDS)
        super().start()

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        namespace, name = key_of(obj)
        if resource == "nodes":
            (self._nodes.discard if type_ == "DELETED" else self._nodes.add)(name)
            self._changed[name] = None
            return
        uid, is_running = obj["metadata"]["uid"], obj["status"].get("phase") == "Running"
        before = self._usage.get(uid)
        if type_ == "DELETED" or not is_running:
            if before is not None:
                del self._usage[uid]
                self._changed[before[2]] = None
                self._forget("pods.metrics.k8s.io", name, namespace)
            return
        if before is None:
            node = obj["spec"]["nodeName"]
            self._usage[uid] = namespace, name, node, *_usage_of(obj)
            self._changed[node] = None
            self._report(_KINDS[1], {"name": name, "namespace": namespace}, *self._usage[uid][3:], obj)

    def act(self) -> None:
        changed, self._changed = self._changed, {}
        used = {name: [_NODE_MILLI_CPU, _NODE_BYTES] for name in changed}
        for _, _, node, milli_cpu, n_bytes in self._usage.values() if changed else ():
            if node in used:
                used[node][0] += milli_cpu
                used[node][1] += n_bytes
        for name, (milli_cpu, n_bytes) in used.items():
            if name in self._nodes:
                self._report(_KINDS[0], {"name": name}, milli_cpu, n_bytes)
            else:
                self._forget("nodes.metrics.k8s.io", name)

    def _report(
        self, kind: Kind, metadata: Object, milli_cpu: int, n_bytes: int, pod: Object | None = None
    ) -> None:
        usage = {"cpu": f"{milli_cpu}m", "memory": f"{n_bytes // 1024}Ki"}
        amounts: Object = {"usage": usage}
        if pod is not None:
            first, *others = (each["name"] for each in pod["spec"]["containers"])
            nothing = {"cpu": "0", "memory": "0"}
            amounts = {
                "containers": [
                    {"name": first, "usage": usage},
                    *({"name": each, "usage": nothing} for each in others),
                ]
            }
        head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        self.store.apply(head | {"timestamp": self.store.timestamp(), "window": _WINDOW} | amounts)

    def _forget(self, resource: str, name: str, namespace: str = "default") -> None:
        if self.store.find(resource, name, namespace) is not None:
            self.store.delete(resource, name, namespace)


def _usage_of(pod: Object) -> tuple[int, int]:
    """Return the milliCPU and the bytes that a running pod uses."""
    resources = decode_pod(msgspec.json.encode(pod)).resources
    share = (
        zlib.crc32(pod["metadata"]["uid"].encode()) % (_MOST_PERCENT - _LEAST_PERCENT + 1) + _LEAST_PERCENT
    )
    return resources.nonzero_milli_cpu * share // 100, resources.nonzero_memory_bytes * share // 100
