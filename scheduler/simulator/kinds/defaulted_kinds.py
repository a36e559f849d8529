"""Kinds that no simulated controller handles: their defaults, for clients that watch and write them.

kube-controller-manager starts to work only when it has listed all of them.

Source:
    kube-apiserver v1.36, the defaults.go and strategy.go of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import restore
from scheduler.simulator.apimachinery.strategy import Generic, Strategy
from scheduler.simulator.kinds.pod_defaults import default_pod_spec

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object

_DEFAULT_SHARE: Final = 80


class Plain(Strategy):
    """Kinds without a status whose spec has a generation."""

    has_generation = True


class WithStatus(Strategy):
    """Kinds with a status and without a generation."""

    has_status = True


class EndpointsStrategy(Strategy):
    """The rules of Endpoints."""

    create_on_update = True

    def default(self, obj: Object) -> None:
        for subset in obj.get("subsets", ()):
            for port in subset.get("ports", ()):
                port.setdefault("protocol", "TCP")


class EndpointSliceStrategy(Plain):
    """The rules of EndpointSlices."""

    def default(self, obj: Object) -> None:
        for port in obj.get("ports", ()):
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")

    def spec_differs(self, obj: Object, old: Object) -> bool:
        return any(obj.get(field) != old.get(field) for field in ("addressType", "endpoints", "ports"))


class IngressClassStrategy(Plain):
    """The rules of IngressClasses."""

    def default(self, obj: Object) -> None:
        if "parameters" in obj["spec"]:
            obj["spec"]["parameters"].setdefault("scope", "Cluster")


class LimitRangeStrategy(Strategy):
    """The rules of LimitRanges."""

    create_on_update = True

    def default(self, obj: Object) -> None:
        for item in obj["spec"].get("limits", ()):
            if item.get("type") != "Container":
                continue
            limits = item.get("max", {}) | item.get("default", {})
            requests = item.get("min", {}) | limits | item.get("defaultRequest", {})
            for field, amounts in (("default", limits), ("defaultRequest", requests)):
                if amounts:
                    item[field] = amounts


class CronJobStrategy(Generic):
    """The rules of CronJobs."""

    def default(self, obj: Object) -> None:
        spec = obj["spec"]
        spec.setdefault("concurrencyPolicy", "Allow")
        spec.setdefault("suspend", False)
        spec.setdefault("successfulJobsHistoryLimit", 3)
        spec.setdefault("failedJobsHistoryLimit", 1)
        default_pod_spec(spec["jobTemplate"]["spec"]["template"]["spec"])


class AutoscalerStrategy(WithStatus):
    """The rules of HorizontalPodAutoscalers."""

    def default(self, obj: Object) -> None:
        spec = obj["spec"]
        spec.setdefault("minReplicas", 1)
        spec.setdefault("metrics", [_cpu_metric(_DEFAULT_SHARE)])


class OldAutoscalerStrategy(AutoscalerStrategy):
    """HorizontalPodAutoscalers in version v1, whose only metric is cpu utilization."""

    def to_storage(self, obj: Object) -> Object:
        spec = dict(obj["spec"])
        share = spec.pop("targetCPUUtilizationPercentage", None)
        if share is not None:
            spec["metrics"] = [_cpu_metric(share)]
        status = dict(obj["status"])
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
    """The rules of CertificateSigningRequests: only status and approval can change."""

    def prepare_update(self, obj: Object, old: Object) -> None:
        super().prepare_update(obj, old)
        restore(obj, old, "spec")


class RuntimeClassStrategy(Strategy):
    """The rules of RuntimeClasses."""

    unconditional_update = False
    create_on_update = True


class PodTemplateStrategy(Plain):
    """The rules of PodTemplates."""

    returns_deleted = True

    def default(self, obj: Object) -> None:
        default_pod_spec(obj["template"]["spec"])

    def spec_differs(self, obj: Object, old: Object) -> bool:
        return bool(obj["template"] != old["template"])


class AdmissionPolicyStrategy(Generic):
    """The rules of ValidatingAdmissionPolicies; policies are not evaluated."""

    unconditional_update = False

    def default(self, obj: Object) -> None:
        obj["spec"].setdefault("failurePolicy", "Fail")
        _default_match(obj["spec"].get("matchConstraints"))


class AdmissionPolicyBindingStrategy(Plain):
    """The rules of ValidatingAdmissionPolicyBindings."""

    unconditional_update = False

    def default(self, obj: Object) -> None:
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
