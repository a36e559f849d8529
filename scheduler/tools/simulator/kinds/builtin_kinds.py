"""The kinds that a new server serves, including those that no simulated controller handles.

kube-controller-manager starts to work only when it has listed all of them.

Source:
    kube-apiserver v1.36, the defaults.go and strategy.go of each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from scheduler.configuration.feature_gates import features_of
from scheduler.objects.pod_defaults import default_pod_spec
from scheduler.tools.simulator.apimachinery.causes import forbidden_field
from scheduler.tools.simulator.apimachinery.kinds import REVIEW_VERBS, VERBS, Kind, Kinds, selectable
from scheduler.tools.simulator.apimachinery.objects import names, restore
from scheduler.tools.simulator.apimachinery.strategy import Generic, Strategy
from scheduler.tools.simulator.kinds.composite_pod_groups import (
    CompositePodGroupStrategy,
    GroupWorkloadStrategyOf137,
)
from scheduler.tools.simulator.kinds.core import (
    INVOLVED_FIELDS,
    CoreEventStrategy,
    EventStrategy,
    LeaseStrategy,
    LimitRangeStrategy,
    NamespaceStrategy,
    NodeStrategy,
    ServiceStrategy,
)
from scheduler.tools.simulator.kinds.custom_resource_definitions import DefinitionStrategy
from scheduler.tools.simulator.kinds.devices import (
    DeviceClassStrategy,
    DeviceTaintRuleStrategy,
    ResourceSliceStrategy,
)
from scheduler.tools.simulator.kinds.feature_fields import disabled_fields
from scheduler.tools.simulator.kinds.persistent_volumes import (
    PersistentVolumeClaimStrategy,
    PersistentVolumeStrategy,
    immutable,
)
from scheduler.tools.simulator.kinds.pod_groups import (
    GROUP,
    STORED,
    GroupWorkloadStrategy,
    GroupWorkloadStrategyOf135,
    PodGroupStrategy,
    PodGroupStrategyOf137,
)
from scheduler.tools.simulator.kinds.pods import PodStrategy
from scheduler.tools.simulator.kinds.resource_claims import (
    ResourceClaimStrategy,
    ResourceClaimTemplateStrategy,
)
from scheduler.tools.simulator.kinds.roles import BindingStrategy, RoleStrategy
from scheduler.tools.simulator.kinds.storage import (
    CSIDriverStrategy,
    CSINodeStrategy,
    CSIStorageCapacityStrategy,
    StorageClassStrategy,
    VolumeAttachmentStrategy,
    VolumeAttributesClassStrategy,
)
from scheduler.tools.simulator.kinds.workloads import (
    DaemonSetStrategy,
    DeploymentStrategy,
    DisruptionBudgetStrategy,
    JobStrategy,
    StatefulSetStrategy,
    WorkloadStrategy,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.configuration.feature_gates import Features
    from scheduler.tools.simulator.apimachinery.causes import Cause
    from scheduler.tools.simulator.apimachinery.objects import Object

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


class PriorityClassStrategy(Plain):
    """The rules of PriorityClasses."""

    def default(self, obj: Object) -> None:
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def validate_update(self, obj: Object, old: Object) -> Iterable[Cause]:
        if obj.get("value", 0) != old.get("value", 0):
            yield forbidden_field("value", "may not be changed in an update.")
        yield from immutable(obj, old, "preemptionPolicy")


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


_ALL: Final = ("all",)
_NAMESPACE_VERBS: Final = tuple(verb for verb in VERBS if verb != "deletecollection")
_STATUS: Final = ("status",)
_SCALE: Final = ("status", "scale")

_POD_FIELDS: Final = selectable(
    *names(
        "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork status.phase "
        "status.podIP status.nominatedNodeName"
    ),
    hostNetwork="false",
)
_NAME_FIELD: Final = {"name": (("metadata", "name"), "")}
_NODE_FIELDS: Final = selectable("spec.unschedulable", unschedulable="false")
_CORE_EVENT_FIELDS: Final = {
    **selectable(*(f"involvedObject.{name}" for name in INVOLVED_FIELDS)),
    **selectable("reason", "reportingComponent", "type"),
    "source": (("source", "component"), ""),
}
_EVENT_FIELDS: Final = {
    **{f"regarding.{name}": (("involvedObject", name), "") for name in INVOLVED_FIELDS},
    **selectable("reason", "type"),
    "reportingController": (("reportingComponent",), ""),
}


_DEVICE_RULE_VERSIONS: Final = {"1.35": ("v1alpha3",), "1.36": ("v1beta2", "v1alpha3")}
"""Kubernetes version -> the versions of DeviceTaintRules, best first; v1 in later ones."""


def group_kinds(features: Features) -> list[Kind]:
    """Return Workloads and PodGroups, in the versions that a server with these features serves."""
    if not features.enabled("GenericWorkload"):
        return []
    if not features.enabled("PodGroupKind"):
        return [Kind(GROUP, "v1alpha1", "workloads", "Workload", True, GroupWorkloadStrategyOf135())]
    if not features.enabled("PodGroupEntities"):
        groups = PodGroupStrategy(features)
        return [
            Kind(GROUP, "v1alpha2", "workloads", "Workload", True, GroupWorkloadStrategy()),
            Kind(GROUP, "v1alpha2", "podgroups", "PodGroup", True, groups, (), (), _STATUS),
        ]
    kinds = []
    for served in ("v1beta1", "v1alpha3"):
        workloads = GroupWorkloadStrategyOf137(features, f"{GROUP}/{served}", STORED)
        of_137 = PodGroupStrategyOf137(features, f"{GROUP}/{served}", STORED)
        kinds.append(Kind(GROUP, served, "workloads", "Workload", True, workloads))
        kinds.append(Kind(GROUP, served, "podgroups", "PodGroup", True, of_137, (), (), _STATUS))
    if features.enabled("CompositePodGroup"):
        trees = CompositePodGroupStrategy(features)
        kinds.append(
            Kind(GROUP, "v1alpha3", "compositepodgroups", "CompositePodGroup", True, trees, (), (), _STATUS)
        )
    return kinds


def _device_rule_kinds(features: Features) -> list[Kind]:
    if not features.enabled("DRADeviceTaintRules"):
        return []
    group, versions = "resource.k8s.io", _DEVICE_RULE_VERSIONS.get(features.version, ("v1",))
    made = [DeviceTaintRuleStrategy(f"{group}/{version}", f"{group}/{versions[0]}") for version in versions]
    return [
        Kind(group, version, "devicetaintrules", "DeviceTaintRule", False, rules, (), (), _STATUS)
        for version, rules in zip(versions, made, strict=True)
    ]


def builtin_kinds(features: Features | None = None) -> Kinds:
    """Return the kinds that a new server serves: those that schedulers and controllers read and write.

    Args:
        features: the version of the server and its feature gates; fields that they do not allow are not kept. None for
            the kinds of the default version, with the fields of all versions.
    """
    served = features_of({}) if features is None else features
    disabled = {} if features is None else disabled_fields(features)
    fractions = features is None or features.enabled("DRAFractionalCapacityRange")
    resizes = ("resize",) if served.enabled("InPlacePodVerticalScaling") else ()
    pods = PodStrategy(
        resizes_as_a_whole=served.enabled("InPlacePodLevelResourcesVerticalScaling"),
        has_topology_labels=served.enabled("PodTopologyLabels"),
    )
    plain, generic = Strategy(), Generic()
    # fmt: off
    kinds = [
        Kind("", "v1", "pods", "Pod", True, pods, ("po",), _ALL, ("status", "binding", "eviction", *resizes), _POD_FIELDS),
        Kind("", "v1", "nodes", "Node", False, NodeStrategy(), ("no",), (), _STATUS, _NODE_FIELDS),
        Kind("", "v1", "namespaces", "Namespace", False, NamespaceStrategy(), ("ns",), (), ("status", "finalize"), selectable("status.phase"), None, _NAMESPACE_VERBS),
        Kind("", "v1", "events", "Event", True, CoreEventStrategy(), ("ev",), (), (), _CORE_EVENT_FIELDS),
        Kind("", "v1", "services", "Service", True, ServiceStrategy(), ("svc",), _ALL, _STATUS, selectable("spec.clusterIP", "spec.type")),
        Kind("", "v1", "configmaps", "ConfigMap", True, plain, ("cm",)),
        Kind("", "v1", "secrets", "Secret", True, plain),
        Kind("", "v1", "serviceaccounts", "ServiceAccount", True, plain, ("sa",), (), ("token",)),
        Kind("", "v1", "persistentvolumes", "PersistentVolume", False, PersistentVolumeStrategy(), ("pv",), (), _STATUS, _NAME_FIELD),
        Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, PersistentVolumeClaimStrategy(), ("pvc",), (), _STATUS, _NAME_FIELD),
        Kind("", "v1", "replicationcontrollers", "ReplicationController", True, generic, ("rc",), _ALL, _STATUS),
        Kind("", "v1", "podtemplates", "PodTemplate", True, PodTemplateStrategy()),
        Kind("", "v1", "endpoints", "Endpoints", True, EndpointsStrategy(), ("ep",)),
        Kind("", "v1", "resourcequotas", "ResourceQuota", True, WithStatus(), ("quota",), (), _STATUS),
        Kind("", "v1", "limitranges", "LimitRange", True, LimitRangeStrategy(), ("limits",)),
        Kind("apps", "v1", "deployments", "Deployment", True, DeploymentStrategy(), ("deploy",), _ALL, _SCALE),
        Kind("apps", "v1", "replicasets", "ReplicaSet", True, WorkloadStrategy(), ("rs",), _ALL, _SCALE),
        Kind("apps", "v1", "statefulsets", "StatefulSet", True, StatefulSetStrategy(), ("sts",), _ALL, _SCALE),
        Kind("apps", "v1", "daemonsets", "DaemonSet", True, DaemonSetStrategy(), ("ds",), _ALL, _STATUS),
        Kind("apps", "v1", "controllerrevisions", "ControllerRevision", True, plain),
        Kind("batch", "v1", "jobs", "Job", True, JobStrategy(), (), _ALL, _STATUS),
        Kind("batch", "v1", "cronjobs", "CronJob", True, CronJobStrategy(), ("cj",), _ALL, _STATUS),
        Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", True, AutoscalerStrategy(), ("hpa",), _ALL, _STATUS),
        Kind("autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler", True, OldAutoscalerStrategy(), ("hpa",), _ALL, _STATUS),
        Kind("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", False, SigningRequestStrategy(), ("csr",), (), ("status", "approval"), selectable("spec.signerName")),
        Kind("events.k8s.io", "v1", "events", "Event", True, EventStrategy(), ("ev",), (), (), _EVENT_FIELDS, ("", "events")),
        Kind("coordination.k8s.io", "v1", "leases", "Lease", True, LeaseStrategy()),
        Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True, EndpointSliceStrategy()),
        Kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", True, Plain(), ("netpol",)),
        Kind("networking.k8s.io", "v1", "ingresses", "Ingress", True, generic, ("ing",), (), _STATUS),
        Kind("networking.k8s.io", "v1", "ingressclasses", "IngressClass", False, IngressClassStrategy()),
        Kind("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", False, WithStatus(), (), (), _STATUS),
        Kind("networking.k8s.io", "v1", "ipaddresses", "IPAddress", False, plain, ("ip",)),
        Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, DisruptionBudgetStrategy(), ("pdb",), (), _STATUS),
        Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, PriorityClassStrategy(), ("pc",)),
        *group_kinds(served),
        Kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False, RuntimeClassStrategy()),
        Kind("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False, AdmissionPolicyStrategy(), (), ("api-extensions",), _STATUS),
        Kind("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False, AdmissionPolicyBindingStrategy(), (), ("api-extensions",)),
        Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", False, StorageClassStrategy(), ("sc",)),
        *([Kind("storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass", False, VolumeAttributesClassStrategy(), ("vac",))] if served.enabled("VolumeAttributesClass") else ()),
        Kind("storage.k8s.io", "v1", "csinodes", "CSINode", False, CSINodeStrategy()),
        Kind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False, CSIDriverStrategy()),
        Kind("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", True, CSIStorageCapacityStrategy()),
        Kind("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", False, VolumeAttachmentStrategy(), (), (), _STATUS),
        Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, DefinitionStrategy(), ("crd", "crds"), ("api-extensions",), _STATUS),
        Kind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True, ResourceClaimStrategy(), (), (), _STATUS),
        Kind("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", True, ResourceClaimTemplateStrategy()),
        Kind("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False, ResourceSliceStrategy(fractions=fractions), (), (), (), selectable("spec.nodeName", "spec.driver")),
        Kind("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False, DeviceClassStrategy()),
        *_device_rule_kinds(served),
        Kind("rbac.authorization.k8s.io", "v1", "roles", "Role", True, RoleStrategy("roles")),
        Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True, BindingStrategy("rolebindings")),
        Kind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False, RoleStrategy("clusterroles")),
        Kind("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False, BindingStrategy("clusterrolebindings")),
        Kind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False, plain, verbs=REVIEW_VERBS),
        Kind("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False, plain, verbs=REVIEW_VERBS),
        Kind("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False, plain, verbs=REVIEW_VERBS),
        Kind("authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", True, plain, verbs=REVIEW_VERBS),
        Kind("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False, plain, verbs=REVIEW_VERBS),
        Kind("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", False, plain, verbs=REVIEW_VERBS),
    ]
    # fmt: on
    return Kinds(replace(kind, disabled=disabled.get(kind.group_resource, ())) for kind in kinds)
