"""Which pods are valid, and what may change in one.

Only rules that a scheduler or its users can run into; most fields are taken as they come.

Source:
    kube-apiserver v1.36, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from scheduler.objects.quantity import parse_quantity
from scheduler.objects.resource_names import is_extended_resource_name, is_hugepage_resource_name
from scheduler.simulator.apimachinery.causes import Cause, forbidden_field, invalid_value, required
from scheduler.simulator.apimachinery.metadata import dns_label

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.simulator.apimachinery.objects import Object

_UPDATABLE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def validate_pod(pod: Object) -> Iterator[Cause]:
    """Yield what is wrong with a new pod."""
    spec = pod["spec"]
    if not spec.get("containers"):
        yield required("spec.containers")
    names: set[str] = set()
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field, ())):
            yield from _validate_container(container, f"spec.{field}[{index}]", names)
    if spec.get("nodeName") and spec.get("schedulingGates"):
        yield forbidden_field("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def validate_pod_update(new: Object, old: Object) -> Iterator[Cause]:
    """Yield what is wrong with a change of a pod."""
    after, before = new["spec"], old["spec"]
    if after == before:
        return
    for field in ("containers", "initContainers"):
        if len(after.get(field, ())) != len(before.get(field, ())):
            yield forbidden_field(f"spec.{field}", "pod updates may not add or remove containers")
            return
    kept = [_without_seconds(toleration) for toleration in after.get("tolerations", ())]
    if any(_without_seconds(toleration) not in kept for toleration in before.get("tolerations", ())):
        yield forbidden_field(
            "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
        )
    gates = {gate["name"] for gate in before.get("schedulingGates", ())}
    for index, gate in enumerate(after.get("schedulingGates", ())):
        if gate["name"] not in gates:
            yield forbidden_field(
                f"spec.schedulingGates[{index}].name",
                f"only deletion is allowed, but found new scheduling gate '{gate['name']}'",
            )
    if _fixed_part(after, before) != _fixed_part(before, before):
        yield forbidden_field("spec", f"{_UPDATABLE}\n{_difference(after, before)}")


def _without_seconds(toleration: Object) -> Object:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _fixed_part(spec: Object, before: Object) -> Object:
    """Return a spec without what an update may change; `before` says what else may change while gated."""
    changeable = {"activeDeadlineSeconds", "tolerations", "schedulingGates"}
    fixed = {name: value for name, value in spec.items() if name not in changeable}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [container | {"image": ""} for container in fixed[field]]
    if before.get("schedulingGates"):
        fixed.pop("nodeSelector", None)
        affinity = {key: value for key, value in fixed.pop("affinity", {}).items() if key != "nodeAffinity"}
        if affinity:
            fixed["affinity"] = affinity
    if before.get("terminationGracePeriodSeconds", 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        fixed["terminationGracePeriodSeconds"] = before["terminationGracePeriodSeconds"]
    return fixed


def _difference(after: Object, before: Object) -> str:
    """Show the fields that differ, as lines of a diff."""
    lines = []
    for name in sorted({*after, *before}):
        if after.get(name) != before.get(name):
            lines += [f"- {json.dumps({name: before.get(name)})}", f"+ {json.dumps({name: after.get(name)})}"]
    return "\n".join(lines)


def _validate_container(container: Object, path: str, names: set[str]) -> Iterator[Cause]:
    name = container.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif problem := dns_label(name):
        yield invalid_value(f"{path}.name", f'"{name}"', problem)
    elif name in names:
        yield Cause("FieldValueDuplicate", f"{path}.name", f'Duplicate value: "{name}"')
    names.add(name)
    if not container.get("image"):
        yield required(f"{path}.image")
    yield from _validate_resources(container.get("resources", {}), f"{path}.resources")


def _validate_resources(resources: Object, path: str) -> Iterator[Cause]:
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    for field, quantities in (("limits", limits), ("requests", requests)):
        for name, text in quantities.items():
            if parse_quantity(text).unscaled < 0:
                yield invalid_value(
                    f"{path}.{field}[{name}]", f'"{text}"', "must be greater than or equal to 0"
                )
    for name, text in requests.items():
        overcommit = not (is_extended_resource_name(name) or is_hugepage_resource_name(name))
        limit = limits.get(name)
        if limit is None:
            if not overcommit:
                yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
            continue
        asked, allowed = parse_quantity(text), parse_quantity(limit)
        if not overcommit and asked != allowed:
            yield invalid_value(f"{path}.requests", f'"{text}"', f"must be equal to {name} limit of {limit}")
        elif overcommit and asked > allowed:
            yield invalid_value(
                f"{path}.requests", f'"{text}"', f"must be less than or equal to {name} limit of {limit}"
            )
