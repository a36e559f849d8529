"""Services: they get a cluster IP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.simulator.apimachinery.metadata import dns_label
from scheduler.simulator.apimachinery.strategy import Cluster, Strategy

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object


class ServiceStrategy(Strategy):
    """The rules of services."""

    name_rule = staticmethod(dns_label)
    create_on_update = True
    returns_deleted = True
    has_status = True

    def default(self, obj: Object) -> None:
        spec = obj["spec"]
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        for port in spec.get("ports", ()):
            port.setdefault("protocol", "TCP")
            if not port.get("targetPort"):
                port["targetPort"] = port.get("port", 0)
        if spec["type"] != "ExternalName":
            spec.setdefault("internalTrafficPolicy", "Cluster")

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        super().prepare_create(obj, cluster)
        spec = obj["spec"]
        if spec["type"] == "ExternalName":
            return
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        if "clusterIP" not in spec:
            low = cluster.random_bits(16)
            spec["clusterIP"] = f"10.96.{low >> 8}.{low & 0xFF}"
        spec.setdefault("clusterIPs", [spec["clusterIP"]])

    def prepare_update(self, obj: Object, old: Object) -> None:
        super().prepare_update(obj, old)
        for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if field in old["spec"]:
                obj["spec"].setdefault(field, old["spec"][field])
