"""Workloads and PodGroups: pods that are placed together.

They are served with the feature gates GenericWorkload, GangScheduling, TopologyAwareWorkloadScheduling and
WorkloadAwarePreemption, and without DRAWorkloadResourceClaims.

Source:
    kube-apiserver v1.36, pkg/registry/scheduling/{workload,podgroup}/strategy.go and
    plugin/pkg/admission/{priority,podgroup,scheduling/podgroupprotection}.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import is_terminating, names, restore
from scheduler.simulator.apimachinery.status import StatusError, forbidden_resource
from scheduler.simulator.apimachinery.strategy import Strategy
from scheduler.simulator.kinds.persistent_volumes import protect
from scheduler.simulator.kinds.pod_group_rules import (
    validate_pod_group,
    validate_pod_group_status,
    validate_pod_group_update,
    validate_workload,
    validate_workload_update,
)
from scheduler.simulator.kinds.priorities import priority_class

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.simulator.apimachinery.causes import Cause
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.apimachinery.strategy import Cluster

GROUP: Final = "scheduling.k8s.io"
PROTECTION: Final = "scheduling.k8s.io/podgroup-protection"

_OWN_METADATA: Final = names("labels annotations finalizers ownerReferences")


class GroupWorkloadStrategy(Strategy):
    """The rules of Workloads, which contain templates of PodGroups; no simulated controller creates groups from them."""

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        _drop_template_claims(obj)

    def prepare_update(self, obj: Object, old: Object) -> None:
        _drop_template_claims(obj)

    def validate(self, obj: Object) -> Iterable[Cause]:
        return validate_workload(obj["spec"])

    def validate_update(self, obj: Object, old: Object) -> Iterable[Cause]:
        return validate_workload_update(obj["spec"], old["spec"])


class PodGroupStrategy(Strategy):
    """The rules of PodGroups."""

    has_status = True

    def default(self, obj: Object) -> None:
        obj["spec"].setdefault("disruptionMode", "Pod")

    def admit_create(self, obj: Object, cluster: Cluster) -> None:
        protect(obj, PROTECTION)
        _set_priority(obj, cluster)

    def check_create(self, obj: Object, cluster: Cluster) -> None:
        _check_template(obj, cluster)

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        super().prepare_create(obj, cluster)
        obj["spec"].pop("resourceClaims", None)

    def prepare_update(self, obj: Object, old: Object) -> None:
        super().prepare_update(obj, old)
        obj["spec"].pop("resourceClaims", None)

    def prepare_part_update(self, subresource: str, obj: Object, old: Object, cluster: Cluster) -> None:
        super().prepare_part_update(subresource, obj, old, cluster)
        for field in _OWN_METADATA:
            restore(obj["metadata"], old["metadata"], field)
        obj["status"].pop("resourceClaimStatuses", None)

    def validate(self, obj: Object) -> Iterable[Cause]:
        return validate_pod_group(obj["spec"])

    def validate_update(self, obj: Object, old: Object) -> Iterable[Cause]:
        return validate_pod_group_update(obj["spec"], old["spec"])

    def validate_part_update(self, obj: Object, old: Object) -> Iterable[Cause]:
        return validate_pod_group_status(obj["status"])


def _drop_template_claims(workload: Object) -> None:
    for template in workload["spec"].get("podGroupTemplates", ()):
        template.pop("resourceClaims", None)


def _set_priority(group: Object, cluster: Cluster) -> None:
    spec = group["spec"]
    computed = priority_class(spec, cluster, partial(_refused, group)).get("value", 0)
    if spec.setdefault("priority", computed) != computed:
        raise _refused(
            group,
            f"priority set in the pod group ({spec['priority']}) must match the priority computed ({computed}) "
            "based on the priority class set in the spec",
        )


def _check_template(group: Object, cluster: Cluster) -> None:
    """Reject a group whose template does not exist.

    Raises:
        StatusError: 403, it does not exist.
    """
    reference = group["spec"].get("podGroupTemplateRef")
    if reference is None:
        return
    name, template = (reference["workload"][field] for field in ("workloadName", "podGroupTemplateName"))
    workload = cluster.find(f"workloads.{GROUP}", name, group["metadata"]["namespace"])
    if workload is None:
        raise _refused(group, f'PodGroup rejected: Workload "{name}" not found')
    if is_terminating(workload):
        raise _refused(group, f'PodGroup rejected: Workload "{name}" is being deleted')
    if all(one["name"] != template for one in workload["spec"]["podGroupTemplates"]):
        problem = f'PodGroup rejected: PodGroupTemplate "{template}" not found in Workload "{name}"'
        raise _refused(group, problem)


def _refused(group: Object, problem: str) -> StatusError:
    metadata = group["metadata"]
    name = metadata.get("name") or metadata.get("generateName") or "Unknown"
    return forbidden_resource(GROUP, "podgroups", name, problem)
