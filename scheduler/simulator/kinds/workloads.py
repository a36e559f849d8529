"""Deployments, ReplicaSets and their like: objects that make pods from a template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from scheduler.simulator.apimachinery.causes import Cause, invalid_value, required
from scheduler.simulator.apimachinery.objects import json_text
from scheduler.simulator.apimachinery.selectors import labels_match, requirements_of
from scheduler.simulator.apimachinery.strategy import Generic
from scheduler.simulator.kinds.pod_defaults import default_claim_spec, default_template
from scheduler.simulator.kinds.pod_rules import validate_pod_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.apimachinery.strategy import Cluster

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def _blank(status: Object, **spec: Any) -> Object:
    """Return what Go writes of an empty workload."""
    template = {"metadata": {}, "spec": {"containers": None}}
    return {"spec": {"selector": None, "template": template, **spec}, "status": status}


class WorkloadStrategy(Generic):
    """What all of them share; ReplicaSets need no more."""

    initial_status: ClassVar[Object] = {"replicas": 0}
    blank: ClassVar[Object] = _blank(initial_status)

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("replicas", 1)
        default_template(spec)
        obj.setdefault("status", dict(self.initial_status))

    def validate_create(self, obj: Object) -> Sequence[Cause]:
        spec = obj["spec"]
        selector = spec.get("selector")
        if not selector:
            return [required("spec.selector")]
        labels = spec["template"]["metadata"].get("labels", {})
        if not labels_match(requirements_of(selector), labels):
            problem = "`selector` does not match template `labels`"
            return [invalid_value("spec.template.metadata.labels", json_text(labels), problem)]
        return list(validate_pod_spec(spec["template"]["spec"], "spec.template.spec"))

    def validate_update(self, obj: Object, old: Object) -> Sequence[Cause]:
        selector = obj["spec"].get("selector")
        if selector != old["spec"].get("selector"):
            return [invalid_value("spec.selector", json_text(selector), "field is immutable")]
        return self.validate_create(obj)


class DeploymentStrategy(WorkloadStrategy):
    """The rules of Deployments."""

    initial_status: ClassVar[Object] = {}
    blank: ClassVar[Object] = _blank(initial_status, strategy={})

    def default(self, obj: Object) -> None:
        super().default(obj)
        _default_rollout(obj["spec"], "strategy", maxUnavailable="25%", maxSurge="25%")
        obj["spec"].setdefault("progressDeadlineSeconds", 600)

    def spec_differs(self, obj: Object, old: Object) -> bool:
        return super().spec_differs(obj, old) or obj["metadata"].get("annotations") != old["metadata"].get(
            "annotations"
        )


class StatefulSetStrategy(WorkloadStrategy):
    """The rules of StatefulSets."""

    initial_status: ClassVar[Object] = {"replicas": 0, "availableReplicas": 0}
    blank: ClassVar[Object] = _blank(initial_status, serviceName="", updateStrategy={})

    def default(self, obj: Object) -> None:
        super().default(obj)
        obj["spec"].setdefault("podManagementPolicy", "OrderedReady")
        _default_rollout(obj["spec"], "updateStrategy", partition=0)
        retention = obj["spec"].get("persistentVolumeClaimRetentionPolicy", {})
        kept = {"whenDeleted": "Retain", "whenScaled": "Retain"}
        obj["spec"]["persistentVolumeClaimRetentionPolicy"] = kept | retention
        for index, template in enumerate(obj["spec"].get("volumeClaimTemplates", ())):
            default_claim_spec(template.setdefault("spec", {}))
            template.setdefault("status", {}).setdefault("phase", "Pending")
            named = {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
            obj["spec"]["volumeClaimTemplates"][index] = named | template


class DaemonSetStrategy(WorkloadStrategy):
    """The rules of DaemonSets; how many pods there are is not theirs to say."""

    initial_status: ClassVar[Object] = dict.fromkeys(
        ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"), 0
    )
    blank: ClassVar[Object] = _blank(initial_status, updateStrategy={})

    def default(self, obj: Object) -> None:
        super().default(obj)
        obj["spec"].pop("replicas", None)
        _default_rollout(obj["spec"], "updateStrategy", maxUnavailable=1, maxSurge=0)

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        super().prepare_create(obj, cluster)
        _set_template_generation(obj, 1)

    def prepare_update(self, obj: Object, old: Object) -> None:
        super().prepare_update(obj, old)
        generation = int(old["metadata"].get("annotations", {}).get(TEMPLATE_GENERATION, 1))
        changed = obj["spec"]["template"] != old["spec"]["template"]
        _set_template_generation(obj, generation + changed)


def _set_template_generation(daemon_set: Object, generation: int) -> None:
    metadata = daemon_set["metadata"]
    metadata["annotations"] = metadata.get("annotations", {}) | {TEMPLATE_GENERATION: str(generation)}


def _default_rollout(spec: Object, field: str, **rolling: int | str) -> None:
    """Fill in how a new template takes the place of the old one."""
    strategy = spec.setdefault(field, {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = rolling | strategy.get("rollingUpdate", {})
    spec.setdefault("revisionHistoryLimit", 10)
