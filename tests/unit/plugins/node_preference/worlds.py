"""A cluster of spot and on-demand nodes with the pods of one controller, for tests of NodePreference."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from plugins.node_preference.plugin import NodePreference, NodePreferenceArgs
from plugins.node_preference.preferences import ANNOTATION
from scheduler.daemon.app.capabilities import TableObjects
from scheduler.objects.meta import OwnerReference
from scheduler.snapshot import ClusterTable
from scheduler.testing import Fakes
from scheduler.testing.fakes import FakeSleep
from tests.support.builders import node, pod

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.objects.pod import PodInfo

WEB = {"app": "web"}
SPOT = {"name": "spot", "matchLabels": {"capacity": "spot"}}
ON_DEMAND = {"name": "on-demand", "matchLabels": {"capacity": "on-demand"}}
NODES = {"s1": "spot", "s2": "spot", "d1": "on-demand", "d2": "on-demand", "x": "other"}
_KINDS = {
    "ReplicaSet": ("apps/v1", "replicasets"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "Job": ("batch/v1", "jobs"),
    "CloneSet": ("apps.kruise.io/v1alpha1", "clonesets"),
}


def owned(each: PodInfo, kind: str = "ReplicaSet", name: str = "web-1", **metadata: Any) -> PodInfo:
    """Return a pod that names a controller."""
    owner = OwnerReference(_KINDS[kind][0], kind, name, uid=f"uid-of-{name}", controller=True)
    changed = msgspec.structs.replace(each.pod.metadata, **{"owner_references": (owner,), **metadata})
    return type(each)(msgspec.structs.replace(each.pod, metadata=changed))


class World:
    """Nodes, a controller of ten replicas with an annotation, and the plugin.

    Args:
        sets: the sets of the annotation; without any, the controller has none.
        args: the arguments of the plugin, as in a configuration.
        preference: other fields of the annotation, as in JSON.
        spec: other fields of the controller's spec.
        kind: the controller's kind.
    """

    def __init__(
        self,
        *sets: Mapping[str, Any],
        args: Mapping[str, Any] | None = None,
        kind: str = "ReplicaSet",
        spec: Mapping[str, Any] | None = None,
        **preference: Any,
    ) -> None:
        self.table = ClusterTable()
        self.kind = kind
        self.rows = {
            name: self.table.add_node(node(name, labels={"capacity": capacity}))
            for name, capacity in NODES.items()
        }
        text = json.dumps({"sets": sets, **preference}) if sets else None
        self.control(text, **(spec or {"replicas": 10}))
        self.fakes = Fakes()
        self.plugin = NodePreference(
            args=msgspec.convert(dict(args or {}), NodePreferenceArgs),
            cluster=TableObjects(self.table),
            api=self.fakes.api,
            background=self.fakes.background,
            sleep=FakeSleep(self.fakes.clock),
            metrics=self.fakes.metrics,
        )
        self._number = 0

    def control(self, annotation: str | None, **spec: Any) -> Mapping[str, Any]:
        """Add or replace the controller, and return it."""
        version, plural = _KINDS[self.kind]
        obj = {
            "metadata": {
                "name": "web-1",
                "namespace": "default",
                "uid": "uid-of-web-1",
                "annotations": {} if annotation is None else {ANNOTATION: annotation},
            },
            "spec": {"selector": {"matchLabels": WEB}, **spec},
        }
        self.table.watch_kind(f"{version}/{plural}")["default/web-1"] = obj
        return obj

    def run(self, *names: str, **fields: Any) -> Sequence[PodInfo]:
        """Add a pod of the controller on each of some nodes."""
        pods = []
        for name in names:
            self._number += 1
            placed = self.pod(f"p-{self._number}", node=name, **fields)
            self.table.add_pod(self.rows[name], placed)
            pods.append(placed)
        return pods

    def pod(self, name: str = "p", *, metadata: Mapping[str, Any] | None = None, **fields: Any) -> PodInfo:
        """Return a pod of the controller."""
        return owned(pod(name, **{"labels": WEB, **fields}), self.kind, **(metadata or {}))
