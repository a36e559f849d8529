"""Kinds that no one here acts on: what they are filled in with, for those who watch and write them.

kube-controller-manager begins to work only once it could list them all.

Source:
    kube-apiserver v1.36, the defaults.go and strategy.go of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from scheduler.simulator.apimachinery.objects import restore
from scheduler.simulator.apimachinery.strategy import Generic, Strategy
from scheduler.simulator.kinds.pod_defaults import default_pod_spec, default_template

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object

_DEFAULT_SHARE: Final = 80


class Plain(Strategy):
    """Kinds without a status whose spec has a generation."""

    has_generation = True


class WithStatus(Strategy):
    """Kinds with a status of their own, and no generation."""

    has_status = True
    blank: ClassVar[Object] = {"spec": {}, "status": {}}
    initial_status: ClassVar[Object] = {}


class EndpointsStrategy(Strategy):
    """The rules of Endpoints."""

    create_on_update = True

    def default(self, obj: Object) -> None:
        for subset in obj.get("subsets", ()):
            for port in subset.get("ports", ()):
                port.setdefault("protocol", "TCP")


class EndpointSliceStrategy(Plain):
    """The rules of EndpointSlices."""

    blank: ClassVar[Object] = {"addressType": "", "endpoints": None, "ports": None}

    def default(self, obj: Object) -> None:
        super().default(obj)
        for endpoint in obj["endpoints"] or ():
            endpoint.setdefault("conditions", {})
        for port in obj["ports"] or ():
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")

    def spec_differs(self, obj: Object, old: Object) -> bool:
        return any(obj.get(field) != old.get(field) for field in ("addressType", "endpoints", "ports"))


class IngressStrategy(Generic):
    """The rules of Ingresses."""

    blank: ClassVar[Object] = {"spec": {}, "status": {"loadBalancer": {}}}
    initial_status: ClassVar[Object] = {"loadBalancer": {}}

    def default(self, obj: Object) -> None:
        super().default(obj)
        obj["status"].setdefault("loadBalancer", {})


class IngressClassStrategy(Plain):
    """The rules of IngressClasses."""

    blank: ClassVar[Object] = {"spec": {}}

    def default(self, obj: Object) -> None:
        super().default(obj)
        if "parameters" in obj["spec"]:
            obj["spec"]["parameters"].setdefault("scope", "Cluster")


class LimitRangeStrategy(Strategy):
    """The rules of LimitRanges."""

    create_on_update = True
    blank: ClassVar[Object] = {"spec": {"limits": None}}

    def default(self, obj: Object) -> None:
        for item in obj.setdefault("spec", {}).setdefault("limits", None) or ():
            if item.get("type") != "Container":
                continue
            limits = item.get("max", {}) | item.get("default", {})
            requests = item.get("min", {}) | limits | item.get("defaultRequest", {})
            for field, amounts in (("default", limits), ("defaultRequest", requests)):
                if amounts:
                    item[field] = amounts


class CronJobStrategy(Generic):
    """The rules of CronJobs."""

    blank: ClassVar[Object] = {"spec": {}, "status": {}}
    initial_status: ClassVar[Object] = {}

    def default(self, obj: Object) -> None:
        super().default(obj)
        spec = obj["spec"]
        spec.setdefault("schedule", "")
        spec.setdefault("concurrencyPolicy", "Allow")
        spec.setdefault("suspend", False)
        spec.setdefault("successfulJobsHistoryLimit", 3)
        spec.setdefault("failedJobsHistoryLimit", 1)
        template = spec.setdefault("jobTemplate", {})
        template.setdefault("metadata", {})
        default_template(template.setdefault("spec", {}))


class AutoscalerStrategy(WithStatus):
    """The rules of HorizontalPodAutoscalers."""

    initial_status: ClassVar[Object] = {"desiredReplicas": 0, "currentMetrics": None}

    def default(self, obj: Object) -> None:
        super().default(obj)
        spec = obj["spec"]
        spec.setdefault("scaleTargetRef", {"kind": "", "name": ""})
        spec.setdefault("minReplicas", 1)
        spec.setdefault("maxReplicas", 0)
        spec.setdefault("metrics", [_cpu_metric(_DEFAULT_SHARE)])
        for field, value in self.initial_status.items():
            obj["status"].setdefault(field, value)


class OldAutoscalerStrategy(AutoscalerStrategy):
    """HorizontalPodAutoscalers in version v1, which knows no other metric than the use of cpu."""

    def to_storage(self, obj: Object) -> Object:
        spec = dict(obj.get("spec", {}))
        share = spec.pop("targetCPUUtilizationPercentage", None)
        if share is not None:
            spec["metrics"] = [_cpu_metric(share)]
        status = dict(obj.get("status", {}))
        status.pop("currentCPUUtilizationPercentage", None)
        return obj | {"spec": spec, "status": status}

    def from_storage(self, obj: Object) -> Object:
        spec, status = dict(obj["spec"]), dict(obj["status"])
        for metric in spec.pop("metrics", ()):
            share = metric.get("resource", {}).get("target", {}).get("averageUtilization")
            if share is not None and metric["resource"]["name"] == "cpu":
                spec["targetCPUUtilizationPercentage"] = share
        status.pop("currentMetrics", None)
        status.pop("conditions", None)
        return obj | {"apiVersion": "autoscaling/v1", "spec": spec, "status": status}


def _cpu_metric(share: int) -> Object:
    target = {"type": "Utilization", "averageUtilization": share}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


class SigningRequestStrategy(WithStatus):
    """The rules of CertificateSigningRequests: only their status and approval change."""

    def prepare_update(self, obj: Object, old: Object) -> None:
        super().prepare_update(obj, old)
        restore(obj, old, "spec")


class RuntimeClassStrategy(Strategy):
    """The rules of RuntimeClasses."""

    unconditional_update = False
    create_on_update = True
    blank: ClassVar[Object] = {"handler": ""}


class PodTemplateStrategy(Plain):
    """The rules of PodTemplates."""

    returns_deleted = True
    blank: ClassVar[Object] = {"template": {}}

    def default(self, obj: Object) -> None:
        template = obj.setdefault("template", {})
        template.setdefault("metadata", {})
        default_pod_spec(template.setdefault("spec", {}))

    def spec_differs(self, obj: Object, old: Object) -> bool:
        return bool(obj["template"] != old["template"])


class AdmissionPolicyStrategy(Generic):
    """The rules of ValidatingAdmissionPolicies; no policy is asked here."""

    unconditional_update = False
    blank: ClassVar[Object] = {"spec": {}, "status": {}}
    initial_status: ClassVar[Object] = {}

    def default(self, obj: Object) -> None:
        super().default(obj)
        obj["spec"].setdefault("failurePolicy", "Fail")
        _default_match(obj["spec"].get("matchConstraints"))


class AdmissionPolicyBindingStrategy(Plain):
    """The rules of ValidatingAdmissionPolicyBindings."""

    unconditional_update = False
    blank: ClassVar[Object] = {"spec": {}}

    def default(self, obj: Object) -> None:
        super().default(obj)
        _default_match(obj["spec"].get("matchResources"))


def _default_match(match: Object | None) -> None:
    if match is None:
        return
    match.setdefault("namespaceSelector", {})
    match.setdefault("objectSelector", {})
    match.setdefault("matchPolicy", "Equivalent")
    for field in ("resourceRules", "excludeResourceRules"):
        for rule in match.get(field, ()):
            rule.setdefault("scope", "*")
