"""Deployments, ReplicaSets and other objects that create pods from a template."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.simulator.apimachinery.causes import Cause, invalid_value, required
from scheduler.simulator.apimachinery.objects import json_text
from scheduler.simulator.apimachinery.selectors import label_rule
from scheduler.simulator.apimachinery.strategy import Generic
from scheduler.simulator.kinds.persistent_volume_claims import validate_claim_spec
from scheduler.simulator.kinds.pod_defaults import default_claim_spec, default_pod_spec
from scheduler.simulator.kinds.pod_rules import validate_pod_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.apimachinery.strategy import Cluster

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


class WorkloadStrategy(Generic):
    """The rules shared by all workloads; ReplicaSets need no others."""

    def default(self, obj: Object) -> None:
        spec = obj["spec"]
        spec.setdefault("replicas", 1)
        default_pod_spec(spec["template"]["spec"])

    def validate(self, obj: Object) -> Sequence[Cause]:
        spec = obj["spec"]
        selector = spec.get("selector")
        if not selector:
            return [required("spec.selector")]
        labels = spec["template"]["metadata"].get("labels", {})
        if not label_rule(selector).matches(labels):
            problem = "`selector` does not match template `labels`"
            return [invalid_value("spec.template.metadata.labels", json_text(labels), problem)]
        return list(validate_pod_spec(self.pod_spec(spec), "spec.template.spec"))

    def pod_spec(self, spec: Object) -> Object:
        """Return the pod spec of a workload, with what its controller adds."""
        found: Object = spec["template"]["spec"]
        return found

    def validate_update(self, obj: Object, old: Object) -> Sequence[Cause]:
        selector = obj["spec"].get("selector")
        if selector != old["spec"].get("selector"):
            return [invalid_value("spec.selector", json_text(selector), "field is immutable")]
        return self.validate(obj)


class DeploymentStrategy(WorkloadStrategy):
    """The rules of Deployments."""

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

    def default(self, obj: Object) -> None:
        super().default(obj)
        obj["spec"].setdefault("podManagementPolicy", "OrderedReady")
        _default_rollout(obj["spec"], "updateStrategy", partition=0)
        retention = obj["spec"].get("persistentVolumeClaimRetentionPolicy", {})
        kept = {"whenDeleted": "Retain", "whenScaled": "Retain"}
        obj["spec"]["persistentVolumeClaimRetentionPolicy"] = kept | retention
        for index, template in enumerate(obj["spec"].get("volumeClaimTemplates", ())):
            default_claim_spec(template["spec"])
            template["status"].setdefault("phase", "Pending")
            named = {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
            obj["spec"]["volumeClaimTemplates"][index] = named | template

    def pod_spec(self, spec: Object) -> Object:
        made = {one["metadata"].get("name", ""): one for one in spec.get("volumeClaimTemplates", ())}
        volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in made]
        found = super().pod_spec(spec)
        others = [one for one in found.get("volumes", ()) if one.get("name") not in made]
        return found | {"volumes": volumes + others} if made else found

    def validate(self, obj: Object) -> Sequence[Cause]:
        templates = obj["spec"].get("volumeClaimTemplates", ())
        causes = [
            cause
            for index, template in enumerate(templates)
            for cause in validate_claim_spec(template["spec"], f"spec.volumeClaimTemplates[{index}].spec")
        ]
        return [*causes, *super().validate(obj)]


class DaemonSetStrategy(WorkloadStrategy):
    """The rules of DaemonSets, which have no number of replicas."""

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
    """Set the defaults of a rollout."""
    strategy = spec.setdefault(field, {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = rolling | strategy.get("rollingUpdate", {})
    spec.setdefault("revisionHistoryLimit", 10)
