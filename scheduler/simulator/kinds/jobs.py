"""Jobs: their defaults, and which fields can change.

Source:
    kube-apiserver v1.36, pkg/apis/batch/v1/defaults.go and pkg/registry/batch/job/strategy.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.causes import Cause, invalid_value, not_supported, required
from scheduler.simulator.apimachinery.objects import json_text, names
from scheduler.simulator.apimachinery.strategy import Generic
from scheduler.simulator.kinds.pod_defaults import default_pod_spec
from scheduler.simulator.kinds.pod_rules import validate_pod_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.apimachinery.strategy import Cluster

CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
JOB_NAME: Final = "batch.kubernetes.io/job-name"
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"

_OLD_CONTROLLER_UID: Final = "controller-uid"
_OLD_JOB_NAME: Final = "job-name"


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
        uid, name = metadata["uid"], metadata.get("name", "")
        template = spec["template"]["metadata"]
        template["labels"] = template.get("labels", {}) | {
            CONTROLLER_UID: uid,
            _OLD_CONTROLLER_UID: uid,
            JOB_NAME: name,
            _OLD_JOB_NAME: name,
        }
        selector = spec.setdefault("selector", {})
        selector["matchLabels"] = selector.get("matchLabels", {}) | {CONTROLLER_UID: uid}

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
