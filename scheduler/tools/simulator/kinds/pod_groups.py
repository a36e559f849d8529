"""Workloads and PodGroups: pods that are placed together; their specs are immutable, but for `minCount` since 1.37.

Source:
    kube-apiserver v1.35, pkg/apis/scheduling/validation/validation.go.
    kube-apiserver v1.36, staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/validation/validation.go, ValidateConditions.
    kube-apiserver v1.36, pkg/apis/scheduling/v1alpha2/zz_generated.validations.go and
    pkg/apis/scheduling/validation/validation.go.
    kube-apiserver v1.37 (01d0b727), staging/src/k8s.io/api/scheduling/v1beta1/generated.proto, the `+k8s:` tags.
    kube-apiserver v1.36, pkg/registry/scheduling/{workload,podgroup}/strategy.go and
    plugin/pkg/admission/{priority,podgroup,scheduling/podgroupprotection}.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from scheduler.errors import AdmissionError
from scheduler.objects.admission import priority_class
from scheduler.objects.api_types import api_type
from scheduler.tools.simulator.apimachinery.causes import (
    Cause,
    duplicate,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
    too_long,
    too_many,
)
from scheduler.tools.simulator.apimachinery.objects import is_terminating, json_text, names, restore
from scheduler.tools.simulator.apimachinery.status import StatusError, forbidden_resource
from scheduler.tools.simulator.apimachinery.strategy import (
    SeveralVersions,
    Strategy,
    dns_label,
    validate_dns_label,
    validate_label_name,
)
from scheduler.tools.simulator.kinds.devices import validate_subdomain
from scheduler.tools.simulator.kinds.persistent_volumes import protect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scheduler.configuration.feature_gates import Features
    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.apimachinery.strategy import Cluster

_STATUSES: Final = ("False", "True", "Unknown")
_LONGEST_REASON: Final = 1024
_LONGEST_MESSAGE: Final = 32 * 1024
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", re.ASCII)
_REASON_RULE: Final = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
    "'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
    "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)


def validate_conditions(conditions: Sequence[Object], path: str) -> Iterator[Cause]:
    """Yield the errors of the conditions in a status; each type may occur once."""
    types: set[str] = set()
    for index, condition in enumerate(conditions):
        where = f"{path}[{index}]"
        if condition["type"] in types:
            yield duplicate(f"{where}.type", condition["type"])
        types.add(condition["type"])
        yield from _validate_condition(condition, where)


def _validate_condition(condition: Object, path: str) -> Iterator[Cause]:
    yield from validate_label_name(condition["type"], f"{path}.type")
    if condition["status"] not in _STATUSES:
        yield not_supported(f"{path}.status", condition["status"], _STATUSES)
    generation = condition.get("observedGeneration", 0)
    if generation < 0:
        problem = "must be greater than or equal to zero"
        yield invalid_value(f"{path}.observedGeneration", str(generation), problem)
    if not condition.get("lastTransitionTime"):
        yield required(f"{path}.lastTransitionTime")
    reason = condition["reason"]
    if not reason:
        yield required(f"{path}.reason")
    elif not _REASON.fullmatch(reason):
        yield invalid_value(f"{path}.reason", f'"{reason}"', _REASON_RULE)
    for field, most in (("reason", _LONGEST_REASON), ("message", _LONGEST_MESSAGE)):
        if len(condition[field].encode()) > most:
            yield too_long(f"{path}.{field}", most)


_POLICIES: Final = ("basic", "gang")
_DISRUPTION_MODES: Final = ("Pod", "PodGroup")
_DISRUPTION_MEMBERS: Final = ("single", "all")
_PREEMPTION_POLICIES: Final = ("Never", "PreemptLowerPriority")
_GROUP_FIELDS: Final = (
    "podGroupTemplateRef",
    "schedulingPolicy",
    "schedulingConstraints",
    "disruptionMode",
    "priorityClassName",
    "priority",
    "resourceClaims",
)
_TEMPLATES: Final = "spec.podGroupTemplates"
MOST_TEMPLATES: Final = 8
_MOST_TOPOLOGY_KEYS: Final = 1
_MOST_CLAIMS: Final = 4
_CLAIM_SOURCES: Final = ("resourceClaimName", "resourceClaimTemplateName")
_HIGHEST_PRIORITY: Final = 1_000_000_000


def validate_workload(spec: Object) -> Iterator[Cause]:
    """Yield the errors of the spec of a new Workload."""
    if "controllerRef" in spec:
        yield from validate_controller(spec["controllerRef"], "spec.controllerRef")
    templates = spec.get("podGroupTemplates", ())
    miscounted = list(_validate_count(templates))
    if miscounted:
        yield from miscounted
        return
    yield from validate_templates(templates, _TEMPLATES)


def validate_templates(templates: Sequence[Object], path: str) -> Iterator[Cause]:
    """Yield the errors of templates of PodGroups."""
    names = [template["name"] for template in templates]
    for index, template in enumerate(templates):
        if template["name"] in names[:index]:
            shown = json_text(_as_go_writes(template))
            yield Cause("FieldValueDuplicate", f"{path}[{index}]", f"Duplicate value: {shown}")
    for index, template in enumerate(templates):
        yield from validate_dns_label(template["name"], f"{path}[{index}].name")
        yield from validate_scheduling(template, f"{path}[{index}]")


def validate_workload_update(spec: Object, before: Object) -> Iterator[Cause]:
    """Yield the changes of the spec of a Workload, none of which is allowed."""
    yield from validate_unchanged(spec, before, ("controllerRef", "podGroupTemplates"))
    templates = spec.get("podGroupTemplates", ())
    if templates != before.get("podGroupTemplates", ()):
        yield from _validate_count(templates)


def validate_pod_group(spec: Object) -> Iterator[Cause]:
    """Yield the errors of the spec of a new PodGroup."""
    if "podGroupTemplateRef" in spec:
        yield from _validate_template_reference(spec["podGroupTemplateRef"], "spec.podGroupTemplateRef")
    yield from validate_scheduling(spec, "spec")


def validate_unchanged(spec: Object, before: Object, fields: Sequence[str]) -> Iterator[Cause]:
    """Yield the changes of immutable fields of a spec."""
    for field in fields:
        if spec.get(field) != before.get(field):
            yield invalid_value(f"spec.{field}", "null", "field is immutable")


def validate_scheduling(holder: Object, path: str, minimum: str = "minCount") -> Iterator[Cause]:
    """Yield the errors of the fields that groups and their templates share; `minimum` is the field of a gang."""
    policy = holder["schedulingPolicy"]
    yield from validate_one_of(policy, _POLICIES, f"{path}.schedulingPolicy")
    if "gang" in policy:
        yield from _validate_min_count(policy["gang"][minimum], f"{path}.schedulingPolicy.gang.{minimum}")
    topology = holder.get("schedulingConstraints", {}).get("topology", ())
    where = f"{path}.schedulingConstraints.topology"
    if len(topology) > _MOST_TOPOLOGY_KEYS:
        yield too_many(where, len(topology), _MOST_TOPOLOGY_KEYS)
    else:
        for index, constraint in enumerate(topology):
            yield from _validate_key(constraint["key"], f"{where}[{index}].key")
    mode = holder.get("disruptionMode")
    if isinstance(mode, dict):
        yield from validate_one_of(mode, _DISRUPTION_MEMBERS, f"{path}.disruptionMode")
    elif mode is not None and mode not in _DISRUPTION_MODES:
        yield not_supported(f"{path}.disruptionMode", mode, _DISRUPTION_MODES)
    if holder.get("priorityClassName"):
        yield from validate_subdomain(holder["priorityClassName"], f"{path}.priorityClassName")
    priority = holder.get("priority", 0)
    if priority > _HIGHEST_PRIORITY:
        problem = f"must be less than or equal to {_HIGHEST_PRIORITY}"
        yield invalid_value(f"{path}.priority", str(priority), problem)
    preempts = holder.get("preemptionPolicy")
    if preempts is not None and preempts not in _PREEMPTION_POLICIES:
        yield not_supported(f"{path}.preemptionPolicy", preempts, _PREEMPTION_POLICIES)
    yield from _validate_claims(holder.get("resourceClaims", ()), f"{path}.resourceClaims")


def _validate_claims(claims: Sequence[Object], path: str) -> Iterator[Cause]:
    if len(claims) > _MOST_CLAIMS:
        yield too_many(path, len(claims), _MOST_CLAIMS)
        return
    names = [claim["name"] for claim in claims]
    for index, claim in enumerate(claims):
        if claim["name"] in names[:index]:
            shown = json_text({field: claim[field] for field in ("name", *_CLAIM_SOURCES) if field in claim})
            yield Cause("FieldValueDuplicate", f"{path}[{index}]", f"Duplicate value: {shown}")
    for index, claim in enumerate(claims):
        where = f"{path}[{index}]"
        yield from validate_one_of(claim, _CLAIM_SOURCES, where)
        if not claim["name"]:
            yield required(f"{where}.name")
        else:
            yield from validate_dns_label(claim["name"], f"{where}.name")
        for source in _CLAIM_SOURCES:
            if source in claim:
                yield from validate_subdomain(claim[source], f"{where}.{source}")


def validate_one_of(holder: Object, members: Sequence[str], path: str) -> Iterator[Cause]:
    """Yield an error unless exactly one member of a union is set."""
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
    yield from validate_one_of(reference, ("workload",), path)
    workload = reference.get("workload")
    if workload is None:
        return
    if not workload["workloadName"]:
        yield required(f"{path}.workload.workloadName")
    else:
        yield from validate_subdomain(workload["workloadName"], f"{path}.workload.workloadName")
    yield from validate_dns_label(workload["podGroupTemplateName"], f"{path}.workload.podGroupTemplateName")


def _validate_count(
    templates: Sequence[Object], path: str = _TEMPLATES, missing: str = ""
) -> Iterator[Cause]:
    if len(templates) > MOST_TEMPLATES:
        yield too_many(path, len(templates), MOST_TEMPLATES)
    elif not templates:
        yield required(path, missing)


def _validate_workload_of_135(spec: Object) -> Iterator[Cause]:
    if "controllerRef" in spec:
        yield from validate_controller(spec["controllerRef"], "spec.controllerRef")
    groups, path = spec.get("podGroups", ()), "spec.podGroups"
    miscounted = list(_validate_count(groups, path, "must have at least one item"))
    if miscounted:
        yield from miscounted
        return
    names: set[str] = set()
    for index, group in enumerate(groups):
        where, name = f"{path}[{index}]", group["name"]
        if problem := dns_label(name):
            yield invalid_value(f"{where}.name", f'"{name}"', problem)
        if name in names:
            yield duplicate(f"{where}.name", name)
        names.add(name)
        policy = f"{where}.policy"
        found = [f"`{member}`" for member in _POLICIES if member in group["policy"]]
        one = "exactly one of `basic`, `gang` is required"
        if not found:
            yield required(policy, one)
        elif len(found) > 1:
            shown = f'"{{{", ".join(found)}}}"'
            yield invalid_value(policy, shown, f"{one}, but multiple fields are set")
        elif "gang" in group["policy"] and group["policy"]["gang"]["minCount"] <= 0:
            shown = str(group["policy"]["gang"]["minCount"])
            yield invalid_value(f"{policy}.gang.minCount", shown, "must be greater than zero")


def validate_controller(reference: Object, path: str) -> Iterator[Cause]:
    """Yield the errors of the reference of a Workload to its controlling object."""
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


GROUP: Final = "scheduling.k8s.io"
PROTECTION: Final = "scheduling.k8s.io/podgroup-protection"

_OWN_METADATA: Final = names("labels annotations finalizers ownerReferences")


class GroupWorkloadStrategy(Strategy):
    """The rules of Workloads, which contain templates of PodGroups; no simulated controller creates groups from them."""

    def validate(self, obj: Object) -> Iterable[Cause]:
        return validate_workload(obj["spec"])

    def validate_update(self, obj: Object, old: Object) -> Iterable[Cause]:
        return validate_workload_update(obj["spec"], old["spec"])


class GroupWorkloadStrategyOf135(Strategy):
    """The rules of Workloads in 1.35, which contain groups themselves."""

    def validate(self, obj: Object) -> Iterable[Cause]:
        return _validate_workload_of_135(obj["spec"])

    def validate_update(self, obj: Object, old: Object) -> Iterable[Cause]:
        yield from self.validate(obj)
        spec, before = obj["spec"], old["spec"]
        for field in ("controllerRef", "podGroups"):
            if field in before and spec.get(field) != before[field]:
                yield invalid_value(field, json_text(spec.get(field)), "field is immutable")


class PodGroupStrategy(Strategy):
    """The rules of PodGroups."""

    has_status = True

    def __init__(self, features: Features) -> None:
        self._has_priority = features.enabled("WorkloadAwarePreemption")
        self._has_policy = features.enabled("PodGroupPreemptionPolicy")

    def default(self, obj: Object) -> None:
        obj["spec"].setdefault("disruptionMode", "Pod")

    def admit_create(self, obj: Object, cluster: Cluster) -> None:
        protect(obj, PROTECTION)
        if self._has_priority:
            set_priority(obj, cluster, with_policy=self._has_policy)

    def check_create(self, obj: Object, cluster: Cluster) -> None:
        _check_template(obj, cluster)

    def prepare_part_update(self, subresource: str, obj: Object, old: Object, cluster: Cluster) -> None:
        super().prepare_part_update(subresource, obj, old, cluster)
        for field in _OWN_METADATA:
            restore(obj["metadata"], old["metadata"], field)

    def validate(self, obj: Object) -> Iterable[Cause]:
        return validate_pod_group(obj["spec"])

    def validate_update(self, obj: Object, old: Object) -> Iterable[Cause]:
        return validate_unchanged(obj["spec"], old["spec"], _GROUP_FIELDS)

    def validate_part_update(self, obj: Object, old: Object) -> Iterable[Cause]:
        yield from validate_conditions(obj["status"].get("conditions", ()), "status.conditions")
        claims = {claim["name"] for claim in obj["spec"].get("resourceClaims", ())}
        for index, status in enumerate(obj["status"].get("resourceClaimStatuses", ())):
            if status["name"] not in claims:
                problem = "must match the name of an entry in `spec.resourceClaims`"
                where = f"status.resourceClaimStatuses[{index}].name"
                yield invalid_value(where, f'"{status["name"]}"', problem)


STORED: Final = f"{GROUP}/v1beta1"
"""The version in which a server of 1.37 stores Workloads and PodGroups."""
_SHARED_IMMUTABLE: Final = (
    "schedulingConstraints",
    "disruptionMode",
    "priorityClassName",
    "priority",
    "preemptionPolicy",
    "resourceClaims",
)
PARENT: Final = "parentCompositePodGroupName"


class PodGroupStrategyOf137(SeveralVersions, PodGroupStrategy):
    """The rules of PodGroups in 1.37: `minCount` may change, and the named Workload need not exist."""

    def __init__(self, features: Features, api_version: str, stored: str) -> None:
        SeveralVersions.__init__(self, api_version, stored)
        PodGroupStrategy.__init__(self, features)
        self._has_trees = features.enabled("CompositePodGroup")

    def default(self, obj: Object) -> None:
        obj["spec"].setdefault("disruptionMode", {"single": {}})

    def check_create(self, obj: Object, cluster: Cluster) -> None:
        return

    def validate(self, obj: Object) -> Iterable[Cause]:
        spec = obj["spec"]
        if PARENT in spec and not self._has_trees:
            yield forbidden_field(f"spec.{PARENT}", "")
        else:
            yield from validate_parent(spec)
        if "workloadRef" in spec:
            yield from validate_workload_reference(spec["workloadRef"], "spec.workloadRef")
        yield from validate_scheduling(spec, "spec")

    def validate_update(self, obj: Object, old: Object) -> Iterable[Cause]:
        yield from self.validate(obj)
        yield from validate_unchanged(obj["spec"], old["spec"], ("workloadRef", PARENT))
        yield from validate_shared_update(obj["spec"], old["spec"], "spec")


def validate_parent(spec: Object) -> Iterator[Cause]:
    """Yield the errors of the parent of a group."""
    if PARENT in spec:
        yield from validate_subdomain(spec[PARENT], f"spec.{PARENT}")
        if "workloadRef" not in spec:
            yield required("spec.workloadRef")


def validate_workload_reference(reference: Object, path: str) -> Iterator[Cause]:
    """Yield the errors of the reference to a template in a Workload."""
    if not reference["workloadName"]:
        yield required(f"{path}.workloadName")
    else:
        yield from validate_subdomain(reference["workloadName"], f"{path}.workloadName")
    yield from validate_dns_label(reference["templateName"], f"{path}.templateName")


def validate_shared_update(holder: Object, before: Object, path: str) -> Iterator[Cause]:
    """Yield the forbidden changes of the fields that groups and their templates share."""
    policy, old = holder["schedulingPolicy"], before["schedulingPolicy"]
    if policy.get("basic") != old.get("basic"):
        yield invalid_value(f"{path}.schedulingPolicy.basic", "null", "field is immutable")
    if "gang" in policy and "gang" not in old:
        yield invalid_value(f"{path}.schedulingPolicy.gang", "null", "field cannot be set once created")
    if "gang" in old and "gang" not in policy:
        yield invalid_value(f"{path}.schedulingPolicy.gang", "null", "field cannot be cleared once set")
    for field in _SHARED_IMMUTABLE:
        if holder.get(field) != before.get(field):
            yield invalid_value(f"{path}.{field}", "null", "field is immutable")


def set_priority(
    group: Object, cluster: Cluster, resource: str = "podgroups", *, with_policy: bool = False
) -> None:
    """Set the priority of the class of a group, and with `with_policy` the preemption policy.

    Raises:
        StatusError: 403, the class does not exist, or the group has another priority or policy.
    """
    spec = group["spec"]
    refused = partial(_refused, group, resource=resource)
    try:
        class_ = priority_class(spec, cluster)
    except AdmissionError as error:
        raise refused(str(error)) from error
    computed: dict[str, Any] = {"priority": class_.get("value", 0)}
    if with_policy:
        computed["preemptionPolicy"] = class_.get("preemptionPolicy") or "PreemptLowerPriority"
    for field, value in computed.items():
        if spec.setdefault(field, value) != value:
            raise refused(
                f"{field} set in the pod group ({spec[field]}) must match the {field} computed ({value}) "
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


def _refused(group: Object, problem: str, resource: str = "podgroups") -> StatusError:
    metadata = group["metadata"]
    name = metadata.get("name") or metadata.get("generateName") or "Unknown"
    return forbidden_resource(GROUP, resource, name, problem)
