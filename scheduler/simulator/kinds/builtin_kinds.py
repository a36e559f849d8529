"""The kinds a new server serves."""

from __future__ import annotations

from typing import Final

from scheduler.simulator.apimachinery.kinds import REVIEW_VERBS, VERBS, Kind, Kinds, selectable
from scheduler.simulator.apimachinery.objects import names
from scheduler.simulator.apimachinery.strategy import Generic, Strategy
from scheduler.simulator.custom_resources.definitions import DefinitionStrategy
from scheduler.simulator.kinds.disruption_budgets import DisruptionBudgetStrategy
from scheduler.simulator.kinds.events import INVOLVED_FIELDS, CoreEventStrategy, EventStrategy
from scheduler.simulator.kinds.jobs import JobStrategy
from scheduler.simulator.kinds.leases import LeaseStrategy
from scheduler.simulator.kinds.namespaces import NamespaceStrategy
from scheduler.simulator.kinds.nodes import NodeStrategy
from scheduler.simulator.kinds.pods import PodStrategy
from scheduler.simulator.kinds.roles import BindingStrategy, RoleStrategy
from scheduler.simulator.kinds.services import ServiceStrategy
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


class _Plain(Strategy):
    """Kinds without a status whose spec has a generation."""

    has_generation = True


def builtin_kinds() -> Kinds:
    """Return the kinds a new server serves: what schedulers read and write, and what makes pods."""
    plain, generic = Strategy(), Generic()
    # fmt: off
    return Kinds([
        Kind("", "v1", "pods", "Pod", True, PodStrategy(), ("po",), _ALL, ("status", "binding", "eviction"), _POD_FIELDS),
        Kind("", "v1", "nodes", "Node", False, NodeStrategy(), ("no",), (), _STATUS, _NODE_FIELDS),
        Kind("", "v1", "namespaces", "Namespace", False, NamespaceStrategy(), ("ns",), (), ("status", "finalize"), selectable("status.phase"), None, _NAMESPACE_VERBS),
        Kind("", "v1", "events", "Event", True, CoreEventStrategy(), ("ev",), (), (), _CORE_EVENT_FIELDS),
        Kind("", "v1", "services", "Service", True, ServiceStrategy(), ("svc",), _ALL, _STATUS, selectable("spec.clusterIP", "spec.type")),
        Kind("", "v1", "configmaps", "ConfigMap", True, plain, ("cm",)),
        Kind("", "v1", "secrets", "Secret", True, plain),
        Kind("", "v1", "serviceaccounts", "ServiceAccount", True, plain, ("sa",), (), ("token",)),
        Kind("", "v1", "persistentvolumes", "PersistentVolume", False, generic, ("pv",), (), _STATUS),
        Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, generic, ("pvc",), (), _STATUS),
        Kind("", "v1", "replicationcontrollers", "ReplicationController", True, generic, ("rc",), _ALL, _STATUS),
        Kind("apps", "v1", "deployments", "Deployment", True, DeploymentStrategy(), ("deploy",), _ALL, _SCALE),
        Kind("apps", "v1", "replicasets", "ReplicaSet", True, WorkloadStrategy(), ("rs",), _ALL, _SCALE),
        Kind("apps", "v1", "statefulsets", "StatefulSet", True, StatefulSetStrategy(), ("sts",), _ALL, _SCALE),
        Kind("apps", "v1", "daemonsets", "DaemonSet", True, DaemonSetStrategy(), ("ds",), _ALL, _STATUS),
        Kind("apps", "v1", "controllerrevisions", "ControllerRevision", True, plain),
        Kind("batch", "v1", "jobs", "Job", True, JobStrategy(), (), _ALL, _STATUS),
        Kind("events.k8s.io", "v1", "events", "Event", True, EventStrategy(), ("ev",), (), (), _EVENT_FIELDS, ("", "events")),
        Kind("coordination.k8s.io", "v1", "leases", "Lease", True, LeaseStrategy()),
        Kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", True, _Plain(), ("netpol",)),
        Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, DisruptionBudgetStrategy(), ("pdb",), (), _STATUS),
        Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, _Plain(), ("pc",)),
        Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", False, plain, ("sc",)),
        Kind("storage.k8s.io", "v1", "csinodes", "CSINode", False, plain),
        Kind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False, plain),
        Kind("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", True, plain),
        Kind("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", False, generic, (), (), _STATUS),
        Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, DefinitionStrategy(), ("crd", "crds"), ("api-extensions",), _STATUS),
        Kind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True, generic, (), (), _STATUS),
        Kind("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False, _Plain()),
        Kind("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False, _Plain()),
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
    ])
    # fmt: on
