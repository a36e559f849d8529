"""The kinds a new server serves."""

from __future__ import annotations

from typing import Final

from scheduler.simulator.apimachinery.kinds import REVIEW_VERBS, VERBS, Kind, Kinds, selectable
from scheduler.simulator.apimachinery.objects import names
from scheduler.simulator.apimachinery.strategy import Generic, Strategy
from scheduler.simulator.custom_resources.definitions import DefinitionStrategy
from scheduler.simulator.kinds.defaulted_kinds import (
    AdmissionPolicyBindingStrategy,
    AdmissionPolicyStrategy,
    AutoscalerStrategy,
    CronJobStrategy,
    EndpointSliceStrategy,
    EndpointsStrategy,
    IngressClassStrategy,
    IngressStrategy,
    LimitRangeStrategy,
    OldAutoscalerStrategy,
    Plain,
    PodTemplateStrategy,
    RuntimeClassStrategy,
    SigningRequestStrategy,
    WithStatus,
)
from scheduler.simulator.kinds.devices import DeviceClassStrategy, ResourceSliceStrategy
from scheduler.simulator.kinds.disruption_budgets import DisruptionBudgetStrategy
from scheduler.simulator.kinds.events import INVOLVED_FIELDS, CoreEventStrategy, EventStrategy
from scheduler.simulator.kinds.jobs import JobStrategy
from scheduler.simulator.kinds.leases import LeaseStrategy
from scheduler.simulator.kinds.namespaces import NamespaceStrategy
from scheduler.simulator.kinds.nodes import NodeStrategy
from scheduler.simulator.kinds.persistent_volume_claims import PersistentVolumeClaimStrategy
from scheduler.simulator.kinds.persistent_volumes import PersistentVolumeStrategy
from scheduler.simulator.kinds.pods import PodStrategy
from scheduler.simulator.kinds.resource_claims import ResourceClaimStrategy, ResourceClaimTemplateStrategy
from scheduler.simulator.kinds.roles import BindingStrategy, RoleStrategy
from scheduler.simulator.kinds.services import ServiceStrategy
from scheduler.simulator.kinds.storage import (
    CSIDriverStrategy,
    CSINodeStrategy,
    CSIStorageCapacityStrategy,
    StorageClassStrategy,
    VolumeAttachmentStrategy,
    VolumeAttributesClassStrategy,
)
from scheduler.simulator.kinds.workloads import (
    DaemonSetStrategy,
    DeploymentStrategy,
    StatefulSetStrategy,
    WorkloadStrategy,
)

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


def builtin_kinds() -> Kinds:
    """Return the kinds a new server serves: what schedulers and controllers read and write, and what makes pods."""
    plain, generic = Strategy(), Generic()
    # fmt: off
    return Kinds([
        Kind("", "v1", "pods", "Pod", True, PodStrategy(), "V1Pod", ("po",), _ALL, ("status", "binding", "eviction"), _POD_FIELDS),
        Kind("", "v1", "nodes", "Node", False, NodeStrategy(), "V1Node", ("no",), (), _STATUS, _NODE_FIELDS),
        Kind("", "v1", "namespaces", "Namespace", False, NamespaceStrategy(), "V1Namespace", ("ns",), (), ("status", "finalize"), selectable("status.phase"), None, _NAMESPACE_VERBS),
        Kind("", "v1", "events", "Event", True, CoreEventStrategy(), "CoreV1Event", ("ev",), (), (), _CORE_EVENT_FIELDS),
        Kind("", "v1", "services", "Service", True, ServiceStrategy(), "V1Service", ("svc",), _ALL, _STATUS, selectable("spec.clusterIP", "spec.type")),
        Kind("", "v1", "configmaps", "ConfigMap", True, plain, "V1ConfigMap", ("cm",)),
        Kind("", "v1", "secrets", "Secret", True, plain, "V1Secret"),
        Kind("", "v1", "serviceaccounts", "ServiceAccount", True, plain, "V1ServiceAccount", ("sa",), (), ("token",)),
        Kind("", "v1", "persistentvolumes", "PersistentVolume", False, PersistentVolumeStrategy(), "V1PersistentVolume", ("pv",), (), _STATUS, _NAME_FIELD),
        Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, PersistentVolumeClaimStrategy(), "V1PersistentVolumeClaim", ("pvc",), (), _STATUS, _NAME_FIELD),
        Kind("", "v1", "replicationcontrollers", "ReplicationController", True, generic, "V1ReplicationController", ("rc",), _ALL, _STATUS),
        Kind("", "v1", "podtemplates", "PodTemplate", True, PodTemplateStrategy(), "V1PodTemplate"),
        Kind("", "v1", "endpoints", "Endpoints", True, EndpointsStrategy(), "V1Endpoints", ("ep",)),
        Kind("", "v1", "resourcequotas", "ResourceQuota", True, WithStatus(), "V1ResourceQuota", ("quota",), (), _STATUS),
        Kind("", "v1", "limitranges", "LimitRange", True, LimitRangeStrategy(), "V1LimitRange", ("limits",)),
        Kind("apps", "v1", "deployments", "Deployment", True, DeploymentStrategy(), "V1Deployment", ("deploy",), _ALL, _SCALE),
        Kind("apps", "v1", "replicasets", "ReplicaSet", True, WorkloadStrategy(), "V1ReplicaSet", ("rs",), _ALL, _SCALE),
        Kind("apps", "v1", "statefulsets", "StatefulSet", True, StatefulSetStrategy(), "V1StatefulSet", ("sts",), _ALL, _SCALE),
        Kind("apps", "v1", "daemonsets", "DaemonSet", True, DaemonSetStrategy(), "V1DaemonSet", ("ds",), _ALL, _STATUS),
        Kind("apps", "v1", "controllerrevisions", "ControllerRevision", True, plain, "V1ControllerRevision"),
        Kind("batch", "v1", "jobs", "Job", True, JobStrategy(), "V1Job", (), _ALL, _STATUS),
        Kind("batch", "v1", "cronjobs", "CronJob", True, CronJobStrategy(), "V1CronJob", ("cj",), _ALL, _STATUS),
        Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", True, AutoscalerStrategy(), "V2HorizontalPodAutoscaler", ("hpa",), _ALL, _STATUS),
        Kind("autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler", True, OldAutoscalerStrategy(), "V1HorizontalPodAutoscaler", ("hpa",), _ALL, _STATUS),
        Kind("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", False, SigningRequestStrategy(), "V1CertificateSigningRequest", ("csr",), (), ("status", "approval"), selectable("spec.signerName")),
        Kind("events.k8s.io", "v1", "events", "Event", True, EventStrategy(), "EventsV1Event", ("ev",), (), (), _EVENT_FIELDS, ("", "events")),
        Kind("coordination.k8s.io", "v1", "leases", "Lease", True, LeaseStrategy(), "V1Lease"),
        Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True, EndpointSliceStrategy(), "V1EndpointSlice"),
        Kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", True, Plain(), "V1NetworkPolicy", ("netpol",)),
        Kind("networking.k8s.io", "v1", "ingresses", "Ingress", True, IngressStrategy(), "V1Ingress", ("ing",), (), _STATUS),
        Kind("networking.k8s.io", "v1", "ingressclasses", "IngressClass", False, IngressClassStrategy(), "V1IngressClass"),
        Kind("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", False, WithStatus(), "V1ServiceCIDR", (), (), _STATUS),
        Kind("networking.k8s.io", "v1", "ipaddresses", "IPAddress", False, plain, "V1IPAddress", ("ip",)),
        Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, DisruptionBudgetStrategy(), "V1PodDisruptionBudget", ("pdb",), (), _STATUS),
        Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, Plain(), "V1PriorityClass", ("pc",)),
        Kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False, RuntimeClassStrategy(), "V1RuntimeClass"),
        Kind("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False, AdmissionPolicyStrategy(), "V1ValidatingAdmissionPolicy", (), ("api-extensions",), _STATUS),
        Kind("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False, AdmissionPolicyBindingStrategy(), "V1ValidatingAdmissionPolicyBinding", (), ("api-extensions",)),
        Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", False, StorageClassStrategy(), "V1StorageClass", ("sc",)),
        Kind("storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass", False, VolumeAttributesClassStrategy(), "V1VolumeAttributesClass", ("vac",)),
        Kind("storage.k8s.io", "v1", "csinodes", "CSINode", False, CSINodeStrategy(), "V1CSINode"),
        Kind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False, CSIDriverStrategy(), "V1CSIDriver"),
        Kind("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", True, CSIStorageCapacityStrategy(), "V1CSIStorageCapacity"),
        Kind("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", False, VolumeAttachmentStrategy(), "V1VolumeAttachment", (), (), _STATUS),
        Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, DefinitionStrategy(), "V1CustomResourceDefinition", ("crd", "crds"), ("api-extensions",), _STATUS),
        Kind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True, ResourceClaimStrategy(), "ResourceV1ResourceClaim", (), (), _STATUS),
        Kind("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", True, ResourceClaimTemplateStrategy(), "V1ResourceClaimTemplate"),
        Kind("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False, ResourceSliceStrategy(), "V1ResourceSlice", (), (), (), selectable("spec.nodeName", "spec.driver")),
        Kind("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False, DeviceClassStrategy(), "V1DeviceClass"),
        Kind("rbac.authorization.k8s.io", "v1", "roles", "Role", True, RoleStrategy("roles"), "V1Role"),
        Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True, BindingStrategy("rolebindings"), "V1RoleBinding"),
        Kind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False, RoleStrategy("clusterroles"), "V1ClusterRole"),
        Kind("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False, BindingStrategy("clusterrolebindings"), "V1ClusterRoleBinding"),
        Kind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False, plain, "V1TokenReview", verbs=REVIEW_VERBS),
        Kind("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False, plain, "V1SelfSubjectReview", verbs=REVIEW_VERBS),
        Kind("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False, plain, "V1SubjectAccessReview", verbs=REVIEW_VERBS),
        Kind("authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", True, plain, "V1LocalSubjectAccessReview", verbs=REVIEW_VERBS),
        Kind("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False, plain, "V1SelfSubjectAccessReview", verbs=REVIEW_VERBS),
        Kind("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", False, plain, "V1SelfSubjectRulesReview", verbs=REVIEW_VERBS),
    ])
    # fmt: on
