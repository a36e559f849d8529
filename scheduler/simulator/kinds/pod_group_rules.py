"""Validation of Workloads and PodGroups, whose specs are immutable.

Source:
    kube-apiserver v1.36, pkg/apis/scheduling/v1alpha2/zz_generated.validations.go and
    pkg/apis/scheduling/validation/validation.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.api_types import api_type
from scheduler.simulator.apimachinery.causes import Cause, invalid_value, not_supported, required, too_many
from scheduler.simulator.apimachinery.condition_rules import validate_conditions
from scheduler.simulator.apimachinery.metadata import validate_label_name
from scheduler.simulator.apimachinery.objects import json_text
from scheduler.simulator.kinds.device_rules import validate_label, validate_subdomain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scheduler.simulator.apimachinery.objects import Object

_POLICIES: Final = ("basic", "gang")
_DISRUPTION_MODES: Final = ("Pod", "PodGroup")
_GROUP_FIELDS: Final = (
    "podGroupTemplateRef",
    "schedulingPolicy",
    "schedulingConstraints",
    "disruptionMode",
    "priorityClassName",
    "priority",
)
_TEMPLATES: Final = "spec.podGroupTemplates"
_MOST_TEMPLATES: Final = 8
_MOST_TOPOLOGY_KEYS: Final = 1
_HIGHEST_PRIORITY: Final = 1_000_000_000


def validate_workload(spec: Object) -> Iterator[Cause]:
    """Yield the errors of the spec of a new Workload."""
    if "controllerRef" in spec:
        yield from _validate_controller(spec["controllerRef"], "spec.controllerRef")
    templates = spec.get("podGroupTemplates", ())
    miscounted = list(_validate_count(templates))
    if miscounted:
        yield from miscounted
        return
    names = [template["name"] for template in templates]
    for index, template in enumerate(templates):
        if template["name"] in names[:index]:
            shown = json_text(_as_go_writes(template))
            yield Cause("FieldValueDuplicate", f"{_TEMPLATES}[{index}]", f"Duplicate value: {shown}")
    for index, template in enumerate(templates):
        yield from validate_label(template["name"], f"{_TEMPLATES}[{index}].name")
        yield from _validate_scheduling(template, f"{_TEMPLATES}[{index}]")


def validate_workload_update(spec: Object, before: Object) -> Iterator[Cause]:
    """Yield the changes of the spec of a Workload, none of which is allowed."""
    yield from _validate_unchanged(spec, before, ("controllerRef", "podGroupTemplates"))
    templates = spec.get("podGroupTemplates", ())
    if templates != before.get("podGroupTemplates", ()):
        yield from _validate_count(templates)


def validate_pod_group(spec: Object) -> Iterator[Cause]:
    """Yield the errors of the spec of a new PodGroup."""
    if "podGroupTemplateRef" in spec:
        yield from _validate_template_reference(spec["podGroupTemplateRef"], "spec.podGroupTemplateRef")
    yield from _validate_scheduling(spec, "spec")


def validate_pod_group_update(spec: Object, before: Object) -> Iterator[Cause]:
    """Yield the changes of the spec of a PodGroup, none of which is allowed."""
    yield from _validate_unchanged(spec, before, _GROUP_FIELDS)


def validate_pod_group_status(status: Object) -> Iterator[Cause]:
    """Yield the errors of the status of a PodGroup."""
    yield from validate_conditions(status.get("conditions", ()), "status.conditions")


def _validate_unchanged(spec: Object, before: Object, fields: Sequence[str]) -> Iterator[Cause]:
    for field in fields:
        if spec.get(field) != before.get(field):
            yield invalid_value(f"spec.{field}", "null", "field is immutable")


def _validate_scheduling(holder: Object, path: str) -> Iterator[Cause]:
    """Yield the errors of the fields that PodGroups and their templates share."""
    policy = holder["schedulingPolicy"]
    yield from _validate_one_of(policy, _POLICIES, f"{path}.schedulingPolicy")
    if "gang" in policy:
        yield from _validate_min_count(policy["gang"]["minCount"], f"{path}.schedulingPolicy.gang.minCount")
    topology = holder.get("schedulingConstraints", {}).get("topology", ())
    where = f"{path}.schedulingConstraints.topology"
    if len(topology) > _MOST_TOPOLOGY_KEYS:
        yield too_many(where, len(topology), _MOST_TOPOLOGY_KEYS)
    else:
        for index, constraint in enumerate(topology):
            yield from _validate_key(constraint["key"], f"{where}[{index}].key")
    mode = holder.get("disruptionMode")
    if mode is not None and mode not in _DISRUPTION_MODES:
        yield not_supported(f"{path}.disruptionMode", mode, _DISRUPTION_MODES)
    if holder.get("priorityClassName"):
        yield from validate_subdomain(holder["priorityClassName"], f"{path}.priorityClassName")
    priority = holder.get("priority", 0)
    if priority > _HIGHEST_PRIORITY:
        problem = f"must be less than or equal to {_HIGHEST_PRIORITY}"
        yield invalid_value(f"{path}.priority", str(priority), problem)


def _validate_one_of(holder: Object, members: Sequence[str], path: str) -> Iterator[Cause]:
    found = [member for member in members if member in holder]
    all_ = ", ".join(f"`{member}`" for member in members)
    if not found:
        yield invalid_value(path, '""', f"must specify one of: {all_}")
    elif len(found) > 1:
        yield invalid_value(path, f'"{{{", ".join(found)}}}"', f"must specify exactly one of: {all_}")


def _validate_min_count(count: int, path: str) -> Iterator[Cause]:
    if count == 0:
        yield required(path)
    elif count < 0:
        yield invalid_value(path, str(count), "must be greater than or equal to 1")


def _validate_key(key: str, path: str) -> Iterator[Cause]:
    if not key:
        yield required(path)
    else:
        yield from validate_label_name(key, path)


def _validate_template_reference(reference: Object, path: str) -> Iterator[Cause]:
    yield from _validate_one_of(reference, ("workload",), path)
    workload = reference.get("workload")
    if workload is None:
        return
    if not workload["workloadName"]:
        yield required(f"{path}.workload.workloadName")
    else:
        yield from validate_subdomain(workload["workloadName"], f"{path}.workload.workloadName")
    yield from validate_label(workload["podGroupTemplateName"], f"{path}.workload.podGroupTemplateName")


def _validate_count(templates: Sequence[Object]) -> Iterator[Cause]:
    if len(templates) > _MOST_TEMPLATES:
        yield too_many(_TEMPLATES, len(templates), _MOST_TEMPLATES)
    elif not templates:
        yield required(_TEMPLATES)


def _validate_controller(reference: Object, path: str) -> Iterator[Cause]:
    if reference.get("apiGroup"):
        yield from validate_subdomain(reference["apiGroup"], f"{path}.apiGroup")
    for field in ("kind", "name"):
        yield from _validate_path_segment(reference[field], f"{path}.{field}")


def _validate_path_segment(name: str, path: str) -> Iterator[Cause]:
    if not name:
        yield required(path)
    elif name in {".", ".."}:
        yield invalid_value(path, f'"{name}"', f"may not be '{name}'")
    else:
        for mark in "/%":
            if mark in name:
                yield invalid_value(path, f'"{name}"', f"may not contain '{mark}'")


def _as_go_writes(template: Object) -> Object:
    """Return a template with its fields in order, and null for fields that Go always encodes."""
    fields = api_type("scheduling.k8s.io/v1alpha2", "PodGroupTemplate").by_name.values()
    return {
        field.name: template.get(field.name)
        for field in fields
        if field.name in template or field.in_json_at_zero
    }
