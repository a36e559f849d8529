"""The kinds of API objects that the scheduler reads and writes, and their paths on the API server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of API object.

    Attributes:
        group: the API group; "" for the core group.
        plural: the name in URLs, as in `pods`.
        versions: the versions in which the scheduler can read and write a kind that has several, best first. They are
            asked for with `discovery.ServedVersions` where the server does not serve `version`.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    versions: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """The object's `apiVersion`: `v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of one object, of all objects of a namespace, or of all objects."""
        path = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        path = f"{path}/namespaces/{namespace}/{self.plural}" if namespace else f"{path}/{self.plural}"
        if name:
            path = f"{path}/{name}"
        return f"{path}/{subresource}" if subresource else path

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod", namespaced=True)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SERVICES = Resource("", "v1", "services", "Service", namespaced=True)
REPLICATION_CONTROLLERS = Resource(
    "", "v1", "replicationcontrollers", "ReplicationController", namespaced=True
)
PERSISTENT_VOLUME_CLAIMS = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True
)
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", namespaced=True)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", namespaced=True)
POD_DISRUPTION_BUDGETS = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True
)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
CSI_NODES = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
CSI_DRIVERS = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
CSI_STORAGE_CAPACITIES = Resource(
    "storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", namespaced=True
)
VOLUME_ATTACHMENTS = Resource(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False
)
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", namespaced=True)
RESOURCE_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
POD_GROUPS = Resource(
    "scheduling.k8s.io",
    "v1alpha2",
    "podgroups",
    "PodGroup",
    namespaced=True,
    versions=("v1beta1", "v1alpha3", "v1alpha2"),
)
COMPOSITE_POD_GROUPS = Resource(
    "scheduling.k8s.io", "v1alpha3", "compositepodgroups", "CompositePodGroup", namespaced=True
)
WORKLOADS = Resource("scheduling.k8s.io", "v1alpha1", "workloads", "Workload", namespaced=True)
DEVICE_TAINT_RULES = Resource(
    "resource.k8s.io",
    "v1",
    "devicetaintrules",
    "DeviceTaintRule",
    namespaced=False,
    versions=("v1", "v1beta2", "v1alpha3"),
)
COSCHEDULING_POD_GROUPS = Resource(
    "scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup", namespaced=True
)
VOLCANO_POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", namespaced=True)
ELASTIC_QUOTAS = Resource("scheduling.x-k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota", namespaced=True)
SCHEDULER_PROFILES = Resource(
    "custom-scheduler.io", "v1alpha1", "schedulerprofiles", "SchedulerProfile", namespaced=False
)
QUEUES = Resource("custom-scheduler.io", "v1alpha1", "queues", "Queue", namespaced=False)
SHARD_ASSIGNMENTS = Resource(
    "custom-scheduler.io", "v1alpha1", "shardassignments", "ShardAssignment", namespaced=False
)
EVENTS = Resource("events.k8s.io", "v1", "events", "Event", namespaced=True)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
