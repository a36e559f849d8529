"""Nodes: only defaults are particular; taints are the business of a controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from scheduler.simulator.apimachinery.objects import names
from scheduler.simulator.apimachinery.strategy import Cluster, Strategy
from scheduler.simulator.kinds.pod_defaults import default_conditions

if TYPE_CHECKING:
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

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        """Leave a new node as it is."""
