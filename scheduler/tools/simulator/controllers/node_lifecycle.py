"""Simulates the node lifecycle controller: sets taints from spec.unschedulable and conditions.

Source:
    kube-controller-manager v1.36, pkg/controller/nodelifecycle/node_lifecycle_controller.go,
    doNoScheduleTaintingPass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.tools.simulator.controllers.controller import Controller
from scheduler.tools.simulator.registry.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.tools.simulator.apimachinery.objects import Object

UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_BY_CONDITION: Final[Mapping[tuple[str, str], str]] = {
    ("Ready", "False"): "node.kubernetes.io/not-ready",
    ("Ready", "Unknown"): "node.kubernetes.io/unreachable",
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}  # (condition, status) -> taint
_OURS: Final = frozenset({UNSCHEDULABLE, *_BY_CONDITION.values()})


class NodeLifecycle(Controller[Store]):
    """Keeps the NoSchedule taints of nodes."""

    resources = ("nodes",)

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._changed: dict[str, Object] = {}  # node name -> node

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        name = obj["metadata"]["name"]
        if type_ == "DELETED":
            self._changed.pop(name, None)
        else:
            self._changed[name] = obj

    def act(self) -> None:
        changed, self._changed = self._changed, {}
        for node in changed.values():
            taints = node["spec"].get("taints", [])
            wanted = _wanted(node)
            present = {taint["key"] for taint in taints if _is_ours(taint)}
            if wanted == present:
                continue
            kept = [taint for taint in taints if not _is_ours(taint) or taint["key"] in wanted]
            added = [{"key": key, "effect": "NoSchedule"} for key in sorted(wanted - present)]
            self.store.change(node, {"spec": {"taints": [*kept, *added]}})


def _wanted(node: Object) -> set[str]:
    """Return the keys of the taints a node should have."""
    wanted = {UNSCHEDULABLE} if node["spec"].get("unschedulable") else set()
    for condition in node.get("status", {}).get("conditions", ()):
        key = _BY_CONDITION.get((condition.get("type", ""), condition.get("status", "")))
        if key:
            wanted.add(key)
    return wanted


def _is_ours(taint: Object) -> bool:
    return taint.get("effect") == "NoSchedule" and taint.get("key") in _OURS
