"""CompositePodGroups, groups of groups, and the Workloads of 1.37 with the templates of both kinds of groups.

They are served with the feature gate CompositePodGroup.

Source:
    Kubernetes v1.37, staging/src/k8s.io/api/scheduling/v1alpha3/types.go, the `+k8s:` tags.
    kube-apiserver v1.37, pkg/apis/scheduling/validation/validation.go, ValidateWorkloadSpec.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.tools.simulator.apimachinery.causes import (
    duplicate,
    forbidden_field,
    invalid_value,
    required,
    too_many,
)
from scheduler.tools.simulator.apimachinery.objects import json_text
from scheduler.tools.simulator.apimachinery.strategy import SeveralVersions, Strategy, validate_dns_label
from scheduler.tools.simulator.kinds.pod_groups import (
    MOST_TEMPLATES,
    PARENT,
    set_priority,
    validate_conditions,
    validate_controller,
    validate_one_of,
    validate_parent,
    validate_scheduling,
    validate_shared_update,
    validate_templates,
    validate_unchanged,
    validate_workload_reference,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scheduler.configuration.feature_gates import Features
    from scheduler.tools.simulator.apimachinery.causes import Cause
    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.apimachinery.strategy import Cluster

_MOST_LEVELS: Final = 4
_LEAVES, _COMPOSITES = "podGroupTemplates", "compositePodGroupTemplates"
_MINIMUM: Final = "minGroupCount"
_IMMUTABLE: Final = (
    PARENT,
    "workloadRef",
    "schedulingPolicy",
    "schedulingConstraints",
    "disruptionMode",
    "priorityClassName",
    "priority",
    "preemptionPolicy",
)
_IMMUTABLE_IN_TEMPLATE: Final = _IMMUTABLE[3:]


class CompositePodGroupStrategy(Strategy):
    """The rules of CompositePodGroups."""

    has_status = True

    def __init__(self, features: Features) -> None:
        self._has_policy = features.enabled("PodGroupPreemptionPolicy")

    def default(self, obj: Object) -> None:
        obj["spec"].setdefault("disruptionMode", {"single": {}})

    def admit_create(self, obj: Object, cluster: Cluster) -> None:
        set_priority(obj, cluster, "compositepodgroups", with_policy=self._has_policy)

    def validate(self, obj: Object) -> Iterable[Cause]:
        spec = obj["spec"]
        if "workloadRef" in spec:
            yield from validate_parent(spec)
            yield from validate_workload_reference(spec["workloadRef"], "spec.workloadRef")
        else:
            yield required("spec.workloadRef")
        yield from validate_scheduling(spec, "spec", _MINIMUM)

    def validate_update(self, obj: Object, old: Object) -> Iterable[Cause]:
        yield from self.validate(obj)
        yield from validate_unchanged(obj["spec"], old["spec"], _IMMUTABLE)

    def validate_part_update(self, obj: Object, old: Object) -> Iterable[Cause]:
        yield from validate_conditions(obj["status"].get("conditions", ()), "status.conditions")


class GroupWorkloadStrategyOf137(SeveralVersions):
    """The rules of Workloads in 1.37: the templates are fixed, but `minCount` may change."""

    def __init__(self, features: Features, api_version: str, stored: str) -> None:
        super().__init__(api_version, stored)
        self._has_trees = features.enabled("CompositePodGroup")

    def validate(self, obj: Object) -> Iterable[Cause]:
        spec = obj["spec"]
        if "controllerRef" in spec:
            yield from validate_controller(spec["controllerRef"], "spec.controllerRef")
        if spec.get(_COMPOSITES) and not self._has_trees:
            yield forbidden_field(f"spec.{_COMPOSITES}", "")
            return
        given = [name for name in (_LEAVES, _COMPOSITES) if spec.get(name)]
        yield from validate_one_of(dict.fromkeys(given), (_LEAVES, _COMPOSITES), "spec")
        yield from _validate_templates(spec, "spec")
        yield from _validate_tree(spec)

    def validate_update(self, obj: Object, old: Object) -> Iterable[Cause]:
        yield from self.validate(obj)
        yield from validate_unchanged(obj["spec"], old["spec"], ("controllerRef",))
        yield from _validate_templates_update(obj["spec"], old["spec"], "spec")


def _validate_templates(holder: Object, path: str) -> Iterator[Cause]:
    """Yield the errors of each template below a Workload or a template, without those of the whole tree."""
    for name in (_LEAVES, _COMPOSITES):
        templates, where = holder.get(name, ()), f"{path}.{name}"
        if len(templates) > MOST_TEMPLATES:
            yield too_many(where, len(templates), MOST_TEMPLATES)
            continue
        yield from (
            validate_templates(templates, where)
            if name == _LEAVES
            else _validate_composites(templates, where)
        )


def _validate_composites(templates: Sequence[Object], path: str) -> Iterator[Cause]:
    names = [template["name"] for template in templates]
    for index, template in enumerate(templates):
        where = f"{path}[{index}]"
        if template["name"] in names[:index]:
            yield duplicate(where, template["name"])
        yield from validate_dns_label(template["name"], f"{where}.name")
        yield from validate_scheduling(template, where, _MINIMUM)
        if not template.get(_LEAVES) and not template.get(_COMPOSITES):
            problem = "must have at least one child PodGroupTemplate or CompositePodGroupTemplate"
            yield invalid_value(where, f'"{template["name"]}"', problem)
        yield from _validate_templates(template, where)


def _validate_tree(spec: Object) -> Iterator[Cause]:
    """Yield the errors that the templates of a Workload have together."""
    found = [*_all_templates(spec, "spec", 1)]
    lists: dict[str, str] = {}  # name -> the first list with it
    for path, level, template in found:
        own, name = path.rpartition("[")[0], template["name"]
        first = lists.setdefault(name, own)
        if first != own:
            yield duplicate(f"{path}.name", name)
        if level == _MOST_LEVELS and _COMPOSITES in path.rpartition(".")[2]:
            top = path.split(".")[1]
            problem = f"maximum template hierarchy depth is {_MOST_LEVELS}"
            yield invalid_value(f"spec.{top}", json_text(template.get(_COMPOSITES)), problem)
    priorities = {
        (template.get("priorityClassName", ""), template.get("priority")) for _, _, template in found
    }
    if len(priorities) > 1:
        problem = "all priority and priorityClassName values must be identical, detected multiple values"
        if not spec.get(_COMPOSITES):
            problem = "detected multiple priority configurations"
        yield invalid_value("spec", "null", problem)


def _all_templates(holder: Object, path: str, level: int) -> Iterator[tuple[str, int, Object]]:
    """Yield (path, level, template) of all templates below a Workload or a template."""
    for name in (_LEAVES, _COMPOSITES):
        for index, template in enumerate(holder.get(name, ())):
            where = f"{path}.{name}[{index}]"
            yield where, level, template
            yield from _all_templates(template, where, level + 1)


def _validate_templates_update(holder: Object, old: Object, path: str) -> Iterator[Cause]:
    for name in (_LEAVES, _COMPOSITES):
        before = {template["name"]: template for template in old.get(name, ())}
        templates = {template["name"]: template for template in holder.get(name, ())}
        for index, (key, template) in enumerate(templates.items()):
            where = f"{path}.{name}[{index}]"
            if key not in before:
                yield forbidden_field(where, "cannot add new items")
            elif name == _LEAVES:
                yield from validate_shared_update(template, before[key], where)
            else:
                yield from _validate_composite_update(template, before[key], where)
        if before.keys() - templates.keys():
            yield forbidden_field(f"{path}.{name}", "cannot remove items")


def _validate_composite_update(template: Object, before: Object, path: str) -> Iterator[Cause]:
    for field in _IMMUTABLE_IN_TEMPLATE:
        if template.get(field) != before.get(field):
            yield invalid_value(f"{path}.{field}", "null", "field is immutable")
    yield from _validate_templates_update(template, before, path)
