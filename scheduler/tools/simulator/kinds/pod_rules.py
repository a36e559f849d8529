"""Validation of pods, and of their changes.

Only rules that are relevant for a scheduler or its users; most fields are not validated.

Source:
    kube-apiserver v1.36, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from scheduler.tools.simulator.apimachinery.causes import (
    Cause,
    duplicate,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
)
from scheduler.tools.simulator.apimachinery.objects import json_text
from scheduler.tools.simulator.apimachinery.strategy import dns_label, dns_subdomain, validate_dns_label
from scheduler.tools.simulator.kinds.persistent_volumes import validate_claim_spec
from scheduler.tools.simulator.kinds.placement_rules import REQUIRED, validate_placement, validate_resources

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from scheduler.tools.simulator.apimachinery.objects import Object

_UPDATABLE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_LAST_PORT: Final = 65535
_LONGEST_SECONDS: Final = 2**31 - 1


def validate_pod(pod: Object) -> Iterator[Cause]:
    """Yield the errors of a new pod."""
    spec = pod["spec"]
    yield from validate_pod_spec(spec, "spec", pod["metadata"].get("name", ""))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        yield forbidden_field("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def validate_pod_spec(spec: Object, path: str, pod_name: str = "") -> Iterator[Cause]:
    """Yield the errors of the spec of a pod, or of a pod template, which has no name."""
    yield from _validate_volumes(spec.get("volumes", ()), f"{path}.volumes", pod_name)
    volumes = {volume.get("name", "") for volume in spec.get("volumes", ())}
    claims = {claim["name"] for claim in spec.get("resourceClaims", ()) if claim.get("name")}
    yield from _validate_resource_claims(spec.get("resourceClaims", ()), f"{path}.resourceClaims")
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    seen: set[str] = set()
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field, ())):
            where, name = f"{path}.{field}[{index}]", container.get("name", "")
            yield from _validate_container(container, where, volumes, claims)
            if name and name in seen:
                yield duplicate(f"{where}.name", name)
            seen.add(name)
    yield from _validate_host_ports(spec.get("containers", ()), f"{path}.containers")
    policy = spec["restartPolicy"]
    if policy not in _RESTART_POLICIES:
        yield not_supported(f"{path}.restartPolicy", policy, _RESTART_POLICIES)
    yield from validate_placement(spec, path)
    node_name, deadline = spec.get("nodeName", ""), spec.get("activeDeadlineSeconds", 1)
    if node_name and (problem := dns_subdomain(node_name)):
        yield invalid_value(f"{path}.nodeName", f'"{node_name}"', problem)
    if not 1 <= deadline <= _LONGEST_SECONDS:
        problem = f"must be between 1 and {_LONGEST_SECONDS}, inclusive"
        yield invalid_value(f"{path}.activeDeadlineSeconds", str(deadline), problem)
    if "schedulingGroup" in spec:
        yield from _validate_scheduling_group(spec["schedulingGroup"], f"{path}.schedulingGroup.podGroupName")
    if "workloadRef" in spec:
        yield from _validate_workload_reference(spec["workloadRef"], f"{path}.workloadRef")


def validate_pod_update(new: Object, old: Object) -> Iterator[Cause]:
    """Yield the errors of a change of a pod."""
    after, before = new["spec"], old["spec"]
    if after == before:
        return
    yield from validate_pod(new)
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
    if gates:
        yield from _validate_gated_update(after, before)
    if _fixed_part(after, before) != _fixed_part(before, before):
        yield forbidden_field("spec", f"{_UPDATABLE}\n{_difference(after, before)}")


def _validate_gated_update(after: Object, before: Object) -> Iterator[Cause]:
    """Yield the changes of a gated pod other than additions to its node selection."""
    selector = after.get("nodeSelector", {})
    if not before.get("nodeSelector", {}).items() <= selector.items():
        problem = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield invalid_value("spec.nodeSelector", json_text(dict(sorted(selector.items()))), problem)
    old_terms, terms = _required_terms(before), _required_terms(after)
    path = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
    if old_terms and len(old_terms) != len(terms):
        problem = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        yield invalid_value(path, json_text(terms), problem)
        return
    for index, (old, new) in enumerate(zip(old_terms, terms, strict=False)):
        if not _only_adds(new, old):
            problem = "only additions are allowed (no mutations or deletions)"
            yield invalid_value(f"{path}[{index}]", json_text(new), problem)


def _required_terms(spec: Object) -> Sequence[Object]:
    required_terms = spec.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED, {})
    terms: Sequence[Object] = required_terms.get("nodeSelectorTerms", ())
    return terms


def _only_adds(new: Object, old: Object) -> bool:
    """Return whether a term of a node selector keeps all its requirements, and may have more."""
    parts = ("matchExpressions", "matchFields")
    if not any(old.get(part) for part in parts):
        return not any(new.get(part) for part in parts)
    return all(new.get(part, [])[: len(old.get(part, []))] == old.get(part, []) for part in parts)


def _without_seconds(toleration: Object) -> Object:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _fixed_part(spec: Object, before: Object) -> Object:
    """Return a spec without the fields that may change; `before` determines what else may change while gated."""
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
    """Return the fields that differ, as lines of a diff."""
    lines = []
    for name in sorted({*after, *before}):
        if after.get(name) != before.get(name):
            lines += [f"- {json.dumps({name: before.get(name)})}", f"+ {json.dumps({name: after.get(name)})}"]
    return "\n".join(lines)


def _validate_volumes(volumes: Sequence[Object], path: str, pod_name: str) -> Iterator[Cause]:
    seen: set[str] = set()
    made = {f"{pod_name}-{one.get('name', '')}" for one in volumes if pod_name and "ephemeral" in one}
    for index, volume in enumerate(volumes):
        where, name = f"{path}[{index}]", volume.get("name", "")
        for source in sorted(set(volume) - {"name"}, key=_order_of_source)[1:]:
            yield forbidden_field(f"{where}.{source}", "may not specify more than 1 volume type")
        if "ephemeral" in volume:
            yield from _validate_ephemeral(volume["ephemeral"], f"{where}.ephemeral.volumeClaimTemplate")
        claim = volume.get("persistentVolumeClaim", {"claimName": " "}).get("claimName", "")
        if not claim:
            yield required(f"{where}.persistentVolumeClaim.claimName")
        yield from validate_dns_label(name, f"{where}.name")
        if name and name in seen:
            yield duplicate(f"{where}.name", name)
        seen.add(name)
        if claim in made:
            problem = "must not reference a PVC that gets created for an ephemeral volume"
            yield invalid_value(f"{where}.persistentVolumeClaim.claimName", f'"{claim}"', problem)


def _order_of_source(name: str) -> tuple[bool, bool, str]:
    """Sort key for the most common volume sources in upstream's order."""
    return name != "emptyDir", name != "hostPath", name


def _validate_ephemeral(source: Object, path: str) -> Iterator[Cause]:
    template = source.get("volumeClaimTemplate")
    if template is None:
        yield required(path)
    else:
        yield from validate_claim_spec(template["spec"], f"{path}.spec")


def _validate_resource_claims(claims: Sequence[Object], path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        where, name = f"{path}[{index}]", claim.get("name", "")
        if name and name in seen:
            yield duplicate(f"{where}.name", name)
        else:
            yield from validate_dns_label(name, f"{where}.name")
        seen.add(name)
        sources = [one for one in ("resourceClaimName", "resourceClaimTemplateName") if one in claim]
        if len(sources) != 1:
            shown = {
                "Name": name,
                "ResourceClaimName": claim.get("resourceClaimName"),
                "ResourceClaimTemplateName": claim.get("resourceClaimTemplateName"),
            }
            problem = (
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
                if sources
                else "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            )
            yield invalid_value(where, json_text(shown), problem)
        for source in sources:
            if problem := dns_subdomain(claim[source]):
                yield invalid_value(f"{where}.{source}", f'"{claim[source]}"', problem)


def _validate_scheduling_group(group: Object, path: str) -> Iterator[Cause]:
    """Yield the errors of the pod group of a pod; the group need not exist."""
    name = group.get("podGroupName")
    if name is None:
        yield invalid_value(path, "null", "must specify one of: `podGroupName`")
    elif problem := dns_subdomain(name):
        yield invalid_value(path, f'"{name}"', problem)


def _validate_workload_reference(reference: Object, path: str) -> Iterator[Cause]:
    """Yield the errors of the group of a pod in 1.35; the Workload need not exist.

    Source:
        kube-apiserver v1.35, pkg/apis/core/validation/validation.go, validateWorkloadReference.
    """
    for field, rule in (("name", dns_subdomain), ("podGroup", dns_label), ("podGroupReplicaKey", dns_label)):
        name = reference.get(field, "")
        problem = rule(name) if name or field != "podGroupReplicaKey" else ""
        if problem:
            yield invalid_value(f"{path}.{field}", f'"{name}"', problem)


def _validate_container(
    container: Object, path: str, volumes: AbstractSet[str], claims: AbstractSet[str]
) -> Iterator[Cause]:
    yield from validate_dns_label(container.get("name", ""), f"{path}.name")
    if not container.get("image"):
        yield required(f"{path}.image")
    for index, port in enumerate(container.get("ports", ())):
        yield from _validate_port(port, f"{path}.ports[{index}]")
    yield from _validate_mounts(container.get("volumeMounts", ()), f"{path}.volumeMounts", volumes)
    yield from validate_resources(container.get("resources", {}), f"{path}.resources", claims)


def _validate_port(port: Object, path: str) -> Iterator[Cause]:
    if not port.get("containerPort"):
        yield required(f"{path}.containerPort")
    for field in ("containerPort", "hostPort"):
        number = port.get(field, 0)
        if number and not 1 <= number <= _LAST_PORT:
            problem = f"must be between 1 and {_LAST_PORT}, inclusive"
            yield invalid_value(f"{path}.{field}", str(number), problem)
    if port["protocol"] not in _PROTOCOLS:
        yield not_supported(f"{path}.protocol", port["protocol"], _PROTOCOLS)


def _validate_mounts(mounts: Sequence[Object], path: str, volumes: AbstractSet[str]) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, mount in enumerate(mounts):
        where, name, place = f"{path}[{index}]", mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            yield required(f"{where}.name")
        if name not in volumes:
            yield Cause("FieldValueNotFound", f"{where}.name", f'Not found: "{name}"')
        if not place:
            yield required(f"{where}.mountPath")
        if place in seen:
            yield invalid_value(f"{where}.mountPath", f'"{place}"', "must be unique")
        seen.add(place)


def _validate_host_ports(containers: Sequence[Object], path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for place, port in enumerate(container.get("ports", ())):
            if not port.get("hostPort"):
                continue
            key = f"{port['protocol']}/{port.get('hostIP', '')}/{port['hostPort']}"
            if key in seen:
                yield duplicate(f"{path}[{index}].ports[{place}].hostPort", key)
            seen.add(key)
