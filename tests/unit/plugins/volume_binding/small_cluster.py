"""VolumeBinding on a small cluster with given objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plugins.volume_binding.node_volumes import NodeVolumes
from plugins.volume_binding.plugin import VolumeBinding, VolumeBindingArgs
from scheduler.daemon.app.capabilities import TableObjects
from scheduler.framework import CycleState, Status
from scheduler.framework.sliced_work import answer_to_end
from scheduler.snapshot import ClusterTable
from scheduler.testing.fakes import FakeApi, Fakes, FakeTimeSlice
from scheduler.testing.samples import DRIVER, mounted, watch_storage
from tests.support.builders import node, pod

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugins.volume_binding.node_volumes import VolumesOnNode
    from scheduler.objects.pod import PodInfo

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
LOCAL = "kubernetes.io/no-provisioner"


class Stage:
    """Nodes n1 in zone a, n2 in zone b, n3 without a zone, and some storage.

    Attributes:
        table: the cluster.
        limit: the time slice of its calls.
        plugin: VolumeBinding, which writes to `api`.
    """

    def __init__(
        self, *objects: dict[str, Any], args: VolumeBindingArgs | None = None, **capabilities: Any
    ) -> None:
        self.table = ClusterTable()
        for name, labels in (("n1", {ZONE: "a"}), ("n2", {ZONE: "b"}), ("n3", {})):
            self.table.add_node(node(name, labels=labels))
        watch_storage(self.table)
        self.show(*objects)
        fakes = Fakes()
        self.metrics = fakes.metrics
        self.api: FakeApi = capabilities.get("writer", fakes.api)
        self.limit: FakeTimeSlice = capabilities.get("time_slice", FakeTimeSlice())
        given = {
            "writer": self.api,
            "happenings": fakes.happenings,
            "locks": fakes.keyed_lock,
            "clock": fakes.clock,
            "time_slice": self.limit,
            "metrics": fakes.metrics,
            "features": fakes.features,
        }
        args = args or VolumeBindingArgs()
        self.plugin = VolumeBinding(args=args, objects=TableObjects(self.table), **given | capabilities)

    def show(self, *objects: dict[str, Any]) -> None:
        """Add objects to the API server."""
        watch_storage(self.table, *objects)

    def shown(self, kind: str, key: str) -> Any:
        return self.table.watch_kind(kind).get(key)

    def judged(self, waiting: PodInfo) -> tuple[CycleState, Status | None]:
        """Run PreFilter, and Filter if PreFilter passes."""
        state, snapshot = CycleState(), self.table.snapshot()
        answer = answer_to_end(lambda: self.plugin.pre_filter(state, waiting, snapshot))
        assert answer is None or isinstance(answer, Status)
        if answer is None:
            answer_to_end(lambda: self.plugin.filter(state, waiting, snapshot, snapshot.all_rows))
        return state, answer

    def pre_filter(self, waiting: PodInfo) -> Status | None:
        return self.judged(waiting)[1]

    def refusals(self, waiting: PodInfo) -> Mapping[str, tuple[str, tuple[str, ...]]]:
        """Return node -> code and reasons, for rejected nodes."""
        state, answer = self.judged(waiting)
        assert answer is None, answer
        outcomes = state.read("VolumeBinding", NodeVolumes).outcomes
        return {
            each.name: (outcomes.of(row).code.value, outcomes.of(row).reasons)
            for row, each in enumerate(self.table.nodes)
            if not outcomes.passing[row]
        }

    def feasible(self, waiting: PodInfo) -> set[str]:
        """Return the nodes that pass."""
        return {each.name for each in self.table.nodes} - self.refusals(waiting).keys()

    def on(self, waiting: PodInfo, node_name: str) -> tuple[list[str], list[str]]:
        """Return the changes on a node: `claim -> volume`, and claims to provision."""
        state, _ = self.judged(waiting)
        found: VolumesOnNode | None = state.read("VolumeBinding", NodeVolumes).on(node_name)
        assert found is not None
        bindings = [f"{claim.metadata.name} -> {volume}" for claim, volume in found.bindings]
        return bindings, [claim.metadata.name for claim in found.provisions]

    def chosen(self, waiting: PodInfo, node_name: str) -> list[str]:
        """Return `claim -> volume` on a node, however long it takes."""
        state, snapshot = CycleState(), self.table.snapshot()
        assert answer_to_end(lambda: self.plugin.pre_filter(state, waiting, snapshot)) is None
        answer_to_end(lambda: self.plugin.filter(state, waiting, snapshot, snapshot.all_rows))
        found = state.read("VolumeBinding", NodeVolumes).on(node_name)
        assert found is not None
        return [f"{claim.metadata.name} -> {volume}" for claim, volume in found.bindings]

    def reserved(self, waiting: PodInfo, node_name: str) -> CycleState:
        """Evaluate a pod, add it to a node, and reserve its volumes there."""
        state, answer = self.judged(waiting)
        assert answer is None, answer
        row = self.table.row_of(node_name)
        assert row is not None
        self.table.add_pod(row, waiting.placed_on(node_name))
        self.plugin.reserve(state, waiting, node_name)
        return state


def using(*claims: str, name: str = "web", **spec: Any) -> PodInfo:
    """Return a pod that uses claims."""
    return pod(name, volumes=mounted(*claims), **spec)


def ephemeral(name: str = "web") -> PodInfo:
    """Return a pod with an ephemeral volume `scratch`."""
    return pod(name, volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}])


__all__ = ["DRIVER", "HOST", "LOCAL", "ZONE", "Stage", "ephemeral", "using"]
