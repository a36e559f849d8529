"""Nodes: only defaults are particular; taints are the business of a controller."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from scheduler.simulator.pod_defaults import default_conditions
from scheduler.simulator.strategy import Cluster, Strategy

Object = dict[str, Any]

_NODE_INFO: Final = dict.fromkeys(
    (
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
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
