"""Nodes: their defaults, and what is wrong with their taints and resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from scheduler.simulator.apimachinery.objects import names
from scheduler.simulator.apimachinery.strategy import Cluster, Strategy
from scheduler.simulator.kinds.placement_rules import validate_taints
from scheduler.simulator.kinds.pod_defaults import default_conditions
from scheduler.simulator.kinds.resource_rules import validate_amount

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scheduler.simulator.apimachinery.causes import Cause
    from scheduler.simulator.apimachinery.objects import Object

_NODE_INFO: Final = dict.fromkeys(
    names(
        "machineID systemUUID bootID kernelVersion osImage containerRuntimeVersion kubeletVersion "
        "kubeProxyVersion operatingSystem architecture"
    ),
    "",
)
_ENDPOINTS: Final = {"kubeletEndpoint": {"Port": 0}}
_CONDITION_TIMES: Final = ("lastHeartbeatTime", "lastTransitionTime")


class NodeStrategy(Strategy):
    """The rules of nodes; unlike others, a new node keeps the status it comes with."""

    has_status = True
    blank: ClassVar[Object] = {
        "spec": {},
        "status": {"daemonEndpoints": _ENDPOINTS, "nodeInfo": _NODE_INFO},
    }

    def default(self, obj: Object) -> None:
        obj.setdefault("spec", {})
        status = obj.setdefault("status", {})
        if "capacity" in status:
            status.setdefault("allocatable", dict(status["capacity"]))
        default_conditions(status, _CONDITION_TIMES)
        status.setdefault("daemonEndpoints", _ENDPOINTS)
        status["nodeInfo"] = _NODE_INFO | status.get("nodeInfo", {})

    def validate_create(self, obj: Object) -> Sequence[Cause]:
        return [*validate_taints(obj["spec"].get("taints", ()), "metadata.taints"), *_validate_amounts(obj)]

    def validate_update(self, obj: Object, old: Object) -> Sequence[Cause]:
        taints = obj["spec"].get("taints", ())
        return [
            *self.validate_create(obj),
            *validate_taints(taints, "metadata.taints"),
        ]  # upstream says it twice

    def validate_part_update(self, obj: Object, old: Object) -> Sequence[Cause]:
        return list(_validate_amounts(obj))

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        """Leave a new node as it is."""


def _validate_amounts(node: Object) -> Iterator[Cause]:
    for field in ("capacity", "allocatable"):
        for name, text in node["status"].get(field, {}).items():
            yield from validate_amount(name, text, f"status.{field}.{name}")
