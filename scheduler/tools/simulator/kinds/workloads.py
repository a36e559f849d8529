"""Deployments, Jobs and other objects that create pods from a template, and PodDisruptionBudgets.

Source:
    kube-apiserver v1.36, pkg/apis/batch/v1/defaults.go and pkg/registry/batch/job/strategy.go.
    kube-controller-manager v1.36, pkg/controller/disruption/disruption.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scheduler.objects.created_pods import CONTROLLER_UID, TEMPLATE_GENERATION, job_labels
from scheduler.objects.pod_defaults import default_claim_spec, default_pod_spec
from scheduler.tools.simulator.apimachinery.causes import Cause, invalid_value, not_supported, required
from scheduler.tools.simulator.apimachinery.objects import (
    is_terminating,
    json_text,
    labels_of,
    names,
    with_condition,
)
from scheduler.tools.simulator.apimachinery.selectors import label_rule
from scheduler.tools.simulator.apimachinery.strategy import Generic
from scheduler.tools.simulator.kinds.persistent_volumes import validate_claim_spec
from scheduler.tools.simulator.kinds.pod_rules import validate_pod_spec
from scheduler.tools.simulator.kinds.pods import is_ready

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.apimachinery.strategy import Cluster


class WorkloadStrategy(Generic):
    """The rules shared by all workloads; ReplicaSets need no others."""

    def default(self, obj: Object) -> None:
        spec = obj["spec"]
        spec.setdefault("replicas", 1)
        default_pod_spec(spec["template"]["spec"])

    def validate(self, obj: Object) -> Iterator[Cause]:
        spec = obj["spec"]
        selector, labels = spec.get("selector"), spec["template"]["metadata"].get("labels", {})
        if not selector:
            yield required("spec.selector")
        elif not label_rule(selector).matches(labels):
            problem = "`selector` does not match template `labels`"
            yield invalid_value("spec.template.metadata.labels", json_text(labels), problem)
        else:
            yield from validate_pod_spec(self.pod_spec(spec), "spec.template.spec")

    def pod_spec(self, spec: Object) -> Object:
        """Return the pod spec of a workload, with what its controller adds."""
        found: Object = spec["template"]["spec"]
        return found

    def validate_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        selector = obj["spec"].get("selector")
        if selector != old["spec"].get("selector"):
            yield invalid_value("spec.selector", json_text(selector), "field is immutable")
        else:
            yield from self.validate(obj)


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

    def validate(self, obj: Object) -> Iterator[Cause]:
        for index, template in enumerate(obj["spec"].get("volumeClaimTemplates", ())):
            yield from validate_claim_spec(template["spec"], f"spec.volumeClaimTemplates[{index}].spec")
        yield from super().validate(obj)


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


class JobStrategy(Generic):
    """The rules of Jobs."""

    def default(self, obj: Object) -> None:
        spec = obj["spec"]
        if "completions" not in spec and "parallelism" not in spec:
            spec["completions"] = 1
        spec.setdefault("parallelism", 1)
        spec.setdefault("backoffLimit", 6)
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        spec.setdefault("manualSelector", False)
        spec.setdefault(
            "podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
        )
        default_pod_spec(spec["template"]["spec"])

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        super().prepare_create(obj, cluster)
        spec, metadata = obj["spec"], obj["metadata"]
        if spec["manualSelector"]:
            return
        template = spec["template"]["metadata"]
        template["labels"] = template.get("labels", {}) | job_labels(obj)
        selector = spec.setdefault("selector", {})
        selector["matchLabels"] = selector.get("matchLabels", {}) | {CONTROLLER_UID: metadata["uid"]}

    def validate(self, obj: Object) -> Iterator[Cause]:
        spec = obj["spec"]
        policy = spec["template"]["spec"].get("restartPolicy")
        if policy == "Always":
            yield not_supported("spec.template.spec.restartPolicy", policy, ("OnFailure", "Never"))
        yield from validate_pod_spec(spec["template"]["spec"], "spec.template.spec")
        for field in names(
            "parallelism completions backoffLimit activeDeadlineSeconds ttlSecondsAfterFinished"
        ):
            if spec.get(field, 0) < 0:
                yield invalid_value(f"spec.{field}", str(spec[field]), "must be greater than or equal to 0")
        if spec["completionMode"] == "Indexed" and "completions" not in spec:
            yield required("spec.completions", "when completion mode is Indexed")

    def validate_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        yield from self.validate(obj)
        spec, before = obj["spec"], old["spec"]
        for field in ("completions", "selector", "template", "completionMode"):
            may_change = before.get("suspend") or (field == "completions" and _is_elastic(spec, before))
            if spec.get(field) != before.get(field) and not may_change:
                yield invalid_value(f"spec.{field}", json_text(spec.get(field)), "field is immutable")


def _is_elastic(spec: Object, before: Object) -> bool:
    """Return whether an indexed Job changes its completions together with its parallelism."""
    return (
        before.get("completionMode") == "Indexed"
        and before.get("completions") == before.get("parallelism")
        and spec.get("completions") == spec.get("parallelism")
    )


ALLOWED: Final = "DisruptionAllowed"


class DisruptionBudgetStrategy(Generic):
    """The rules of budgets: they allow no disruption until a controller has counted pods."""


@dataclass(frozen=True, slots=True)
class Count:
    """The numbers in a budget's status, except the allowed disruptions."""

    expected_pods: int
    desired_healthy: int
    current_healthy: int

    @property
    def disruptions_allowed(self) -> int:
        if self.expected_pods <= 0:
            return 0
        return max(0, self.current_healthy - self.desired_healthy)


def covers(budget: Object, pod: Object) -> bool:
    """Return whether a budget covers a pod; no selector matches none, an empty one all of the namespace."""
    selector = budget.get("spec", {}).get("selector")
    if selector is None or budget["metadata"]["namespace"] != pod["metadata"]["namespace"]:
        return False
    return label_rule(selector).matches(labels_of(pod))


def needs_scale(budget: Object) -> bool:
    """Return whether a budget is relative to the number of replicas."""
    spec = budget.get("spec", {})
    return "maxUnavailable" in spec or isinstance(spec.get("minAvailable"), str)


def count(budget: Object, pods: Iterable[Object], scale: int) -> Count:
    """Count a budget's pods.

    Args:
        budget: the PodDisruptionBudget.
        pods: the pods that it covers.
        scale: total number of replicas of their controllers.
    """
    pods = list(pods)
    spec = budget.get("spec", {})
    disrupted = budget.get("status", {}).get("disruptedPods", {})
    if "maxUnavailable" in spec:
        expected = scale
        desired = max(0, expected - scaled(spec["maxUnavailable"], expected))
    elif isinstance(spec.get("minAvailable"), str):
        expected = scale
        desired = scaled(spec["minAvailable"], expected)
    else:
        expected = len(pods)
        desired = int(spec.get("minAvailable", 1))
    healthy = sum(
        is_ready(pod) for pod in pods if not is_terminating(pod) and pod["metadata"]["name"] not in disrupted
    )
    return Count(expected, desired, healthy)


def scaled(value: int | str, whole: int, *, round_up: bool = True) -> int:
    """Return a number, or a percentage of a whole as a number."""
    if not isinstance(value, str):
        return value
    hundredths = int(value.removesuffix("%")) * whole
    return -(-hundredths // 100) if round_up else hundredths // 100


def conditions(budget: Object, allowed: int, now: str) -> list[Object]:
    """Return the conditions of a budget: one, which tells whether any disruption is allowed."""
    new = {
        "type": ALLOWED,
        "status": "True" if allowed > 0 else "False",
        "observedGeneration": budget["metadata"].get("generation", 0),
        "reason": "SufficientPods" if allowed > 0 else "InsufficientPods",
        "message": "",
    }
    return with_condition(budget.get("status", {}).get("conditions"), new, now)
