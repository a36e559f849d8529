"""Deployments, ReplicaSets and their like: objects that make pods from a template."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from scheduler.simulator.apimachinery.causes import Cause, invalid_value, required
from scheduler.simulator.apimachinery.objects import json_text
from scheduler.simulator.apimachinery.selectors import labels_match, requirements_of
from scheduler.simulator.apimachinery.strategy import Generic
from scheduler.simulator.kinds.pod_defaults import default_pod_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.apimachinery.strategy import Cluster

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_BLANK_TEMPLATE = {"metadata": {}, "spec": {"containers": None}}


class WorkloadStrategy(Generic):
    """What all of them share."""

    blank: ClassVar[Object] = {"spec": {"selector": None, "template": _BLANK_TEMPLATE}, "status": {}}
    initial_status: ClassVar[Object] = {}

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("replicas", 1)
        template = spec.setdefault("template", {})
        template.setdefault("metadata", {})
        default_pod_spec(template.setdefault("spec", {}))
        obj.setdefault("status", dict(self.initial_status))

    def validate_create(self, obj: Object) -> Sequence[Cause]:
        spec = obj["spec"]
        selector = spec.get("selector")
        if not selector:
            return [required("spec.selector")]
        labels = spec["template"]["metadata"].get("labels", {})
        if not labels_match(requirements_of(selector), labels):
            shown = json_text(labels)
            return [
                invalid_value(
                    "spec.template.metadata.labels", shown, "`selector` does not match template `labels`"
                )
            ]
        if not spec["template"]["spec"].get("containers"):
            return [required("spec.template.spec.containers")]
        return ()

    def validate_update(self, obj: Object, old: Object) -> Sequence[Cause]:
        selector = obj["spec"].get("selector")
        if selector != old["spec"].get("selector"):
            shown = json_text(selector)
            return [invalid_value("spec.selector", shown, "field is immutable")]
        return self.validate_create(obj)


class DeploymentStrategy(WorkloadStrategy):
    """The rules of Deployments."""

    blank: ClassVar[Object] = {
        "spec": {"selector": None, "template": _BLANK_TEMPLATE, "strategy": {}},
        "status": {},
    }

    def default(self, obj: Object) -> None:
        super().default(obj)
        spec = obj["spec"]
        strategy = spec.setdefault("strategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)

    def spec_differs(self, obj: Object, old: Object) -> bool:
        return super().spec_differs(obj, old) or obj["metadata"].get("annotations") != old["metadata"].get(
            "annotations"
        )


class StatefulSetStrategy(WorkloadStrategy):
    """The rules of StatefulSets."""

    blank: ClassVar[Object] = {
        "spec": {"selector": None, "template": _BLANK_TEMPLATE, "serviceName": "", "updateStrategy": {}},
        "status": {"replicas": 0, "availableReplicas": 0},
    }
    initial_status: ClassVar[Object] = {"replicas": 0, "availableReplicas": 0}

    def default(self, obj: Object) -> None:
        super().default(obj)
        spec = obj["spec"]
        spec.setdefault("podManagementPolicy", "OrderedReady")
        strategy = spec.setdefault("updateStrategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
        spec.setdefault("revisionHistoryLimit", 10)


class DaemonSetStrategy(WorkloadStrategy):
    """The rules of DaemonSets; how many pods there are is not theirs to say."""

    _COUNTS: ClassVar[Object] = dict.fromkeys(
        ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"), 0
    )
    blank: ClassVar[Object] = {
        "spec": {"selector": None, "template": _BLANK_TEMPLATE, "updateStrategy": {}},
        "status": _COUNTS,
    }
    initial_status: ClassVar[Object] = _COUNTS

    def default(self, obj: Object) -> None:
        super().default(obj)
        spec = obj["spec"]
        spec.pop("replicas", None)
        strategy = spec.setdefault("updateStrategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)
        spec.setdefault("revisionHistoryLimit", 10)

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


class ReplicaSetStrategy(WorkloadStrategy):
    """The rules of ReplicaSets."""

    blank: ClassVar[Object] = {
        "spec": {"selector": None, "template": _BLANK_TEMPLATE},
        "status": {"replicas": 0},
    }
    initial_status: ClassVar[Object] = {"replicas": 0}
