"""Clusters with GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.daemon.app.api_access import NO_API_SERVER
from scheduler.daemon.app.capabilities import TableObjects
from scheduler.engine.runtime.plugin_classes import constructor_wants
from scheduler.framework import ApiWrite, ClusterObjects, CycleState
from scheduler.snapshot import ClusterTable
from tests.support.builders import node, pod

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot


def gpu_node(name: str, gpus: int, model: str = "G1", cpu: str = "64") -> NodeObject:
    labels = {"alibabacloud.com/gpu-card-model": model} if gpus else {}
    return node(name, cpu=cpu, labels=labels, allocatable={"alibabacloud.com/gpu-count": str(gpus)})


def gpu_pod(
    name: str, milli: int = 1000, count: int = 1, *, models: str = "", gpus: str = "", cpu: str = "1"
) -> PodInfo:
    said = {"gpu-milli": str(milli), "gpu-count": str(count), "gpu-card-model": models, "gpu-index": gpus}
    annotations = {f"alibabacloud.com/{key}": value for key, value in said.items() if value}
    return pod(name, cpu=cpu, annotations=annotations)


class GpuCluster:
    """A table, and the state that its plugins share."""

    def __init__(
        self, nodes: Iterable[NodeObject], pods: Mapping[str, Sequence[PodInfo]] | None = None
    ) -> None:
        self.table = ClusterTable()
        self.objects = TableObjects(self.table)
        for each in nodes:
            row = self.table.add_node(each)
            for there in (pods or {}).get(each.name, ()):
                self.table.add_pod(row, there.placed_on(each.name))

    @property
    def snapshot(self) -> Snapshot:
        return self.table.snapshot()

    def made(self, plugin: type[Any], **args: Any) -> Any:
        wants = constructor_wants(plugin)
        values = {ClusterObjects: self.objects, ApiWrite: NO_API_SERVER.write}
        given = {
            name: msgspec.convert(args, plugin.Args) if protocol is None else values[protocol]
            for name, protocol in wants.items()
        }
        return plugin(**given)

    def place(self, plugin: Any, wanted: PodInfo, node_name: str) -> PodInfo:
        """Place a pod on a node as the cycle does: add it first, then reserve."""
        row = self.table.row_of(node_name)
        assert row is not None
        placed = wanted.placed_on(node_name)
        self.table.add_pod(row, placed)
        status = plugin.reserve(CycleState(), placed, node_name)
        assert status is None or status.is_success, status
        return placed
