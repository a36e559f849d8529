"""Validation of the placement and resources of pods and nodes.

Source:
    kube-apiserver v1.36, pkg/apis/core/validation/validation.go.
    kube-apiserver v1.36, pkg/apis/core/validation/validation.go, validateResourceRequirements.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from scheduler.objects.quantity import parse_quantity
from scheduler.objects.resource_names import (
    is_extended_resource_name,
    is_hugepage_resource_name,
    is_native_resource,
)
from scheduler.tools.simulator.apimachinery.causes import (
    Cause,
    duplicate,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
)
from scheduler.tools.simulator.apimachinery.objects import json_text, names
from scheduler.tools.simulator.apimachinery.selectors import (
    validate_label_selector,
    validate_node_selector,
    validate_node_selector_term,
)
from scheduler.tools.simulator.apimachinery.strategy import (
    dns_label,
    qualified_name_problems,
    validate_label_name,
    validate_label_value,
    validate_labels,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from scheduler.tools.simulator.apimachinery.objects import Object

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"

_ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES: Final = ("Honor", "Ignore")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NUMERIC: Final = ("Lt", "Gt")
_CANONICAL_INTEGER = re.compile(r"0|-?[1-9]\d*", re.ASCII)
_GO_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_HEAVIEST: Final = 100


def validate_placement(spec: Object, path: str) -> Iterator[Cause]:
    """Yield the errors of the placement fields of a pod, or of a pod template."""
    yield from validate_labels(spec.get("nodeSelector", {}), f"{path}.nodeSelector")
    affinity = spec.get("affinity", {})
    if "nodeAffinity" in affinity:
        yield from _validate_node_affinity(affinity["nodeAffinity"], f"{path}.affinity.nodeAffinity")
    for field in ("podAffinity", "podAntiAffinity"):
        if field in affinity:
            yield from _validate_pod_affinity(affinity[field], f"{path}.affinity.{field}")
    yield from _validate_gates(spec.get("schedulingGates", ()), f"{path}.schedulingGates")
    yield from _validate_spread(
        spec.get("topologySpreadConstraints", ()), f"{path}.topologySpreadConstraints"
    )
    yield from validate_tolerations(spec.get("tolerations", ()), f"{path}.tolerations")


def validate_taints(taints: Sequence[Object], path: str) -> Iterator[Cause]:
    """Yield the errors of the taints of a node."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        where, key, effect = f"{path}[{index}]", taint.get("key", ""), taint.get("effect", "")
        yield from validate_label_name(key, f"{where}.key")
        yield from validate_label_value(taint.get("value", ""), f"{where}.value")
        if not effect:
            yield required(f"{where}.effect")
        elif effect not in _EFFECTS:
            yield not_supported(f"{where}.effect", effect, _EFFECTS)
        if (key, effect) in seen:
            shown = {"Key": key, "Value": taint.get("value", ""), "Effect": effect}
            shown["TimeAdded"] = taint.get("timeAdded")
            problem = f"Duplicate value: {json_text(shown)}: taints must be unique by key and effect pair"
            yield Cause("FieldValueDuplicate", where, problem)
        seen.add((key, effect))


def validate_tolerations(tolerations: Sequence[Object], path: str) -> Iterator[Cause]:
    """Yield the errors of tolerations."""
    for index, toleration in enumerate(tolerations):
        where, key, effect = f"{path}[{index}]", toleration.get("key", ""), toleration.get("effect", "")
        if key:
            yield from validate_label_name(key, f"{where}.key")
        elif toleration.get("operator", "") != "Exists":
            shown = f'"{toleration.get("operator", "")}"'
            problem = (
                'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            )
            yield invalid_value(f"{where}.operator", shown, problem)
        if "tolerationSeconds" in toleration and effect != "NoExecute":
            problem = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid_value(f"{where}.effect", f'"{effect}"', problem)
        yield from _validate_operator(toleration, f"{where}.operator")
        if effect and effect not in _EFFECTS:
            yield not_supported(f"{where}.effect", effect, _EFFECTS)


def _validate_operator(toleration: Object, path: str) -> Iterator[Cause]:
    operator, value = toleration.get("operator", ""), toleration.get("value", "")
    if operator in {"", "Equal"}:
        yield from validate_label_value(value, path)
    elif operator == "Exists":
        if value:
            yield invalid_value(path, f'"{value}"', "value must be empty when `operator` is 'Exists'")
    elif operator in _NUMERIC:
        yield from _validate_number(value, path.removesuffix("operator") + "value")
    else:
        yield not_supported(path, operator, ("Equal", "Exists"))


def _validate_number(text: str, path: str) -> Iterator[Cause]:
    """Yield the errors of the number of a toleration with the operator Lt or Gt, as Go prints them."""
    shown = f'"{text}"'
    if not text:
        yield invalid_value(path, shown, "must be non-empty")
    elif not _CANONICAL_INTEGER.fullmatch(text):
        yield invalid_value(path, shown, "must be a valid decimal integer in canonical form")
    problem = "" if _GO_INTEGER.fullmatch(text) else "invalid syntax"
    if not problem and not -(2**63) <= int(text) < 2**63:
        problem = "value out of range"
    if problem:
        yield invalid_value(path, shown, f"strconv.ParseInt: parsing {shown}: {problem}")


def _validate_node_affinity(affinity: Object, path: str) -> Iterator[Cause]:
    if REQUIRED in affinity:
        yield from validate_node_selector(affinity[REQUIRED], f"{path}.{REQUIRED}")
    for index, term in enumerate(affinity.get(PREFERRED, ())):
        where = f"{path}.{PREFERRED}[{index}]"
        yield from _validate_weight(term, where)
        yield from validate_node_selector_term(
            term.get("preference", {}), f"{where}.preference", any_value=True
        )


def _validate_weight(term: Object, path: str) -> Iterator[Cause]:
    weight = term.get("weight", 0)
    if not 1 <= weight <= _HEAVIEST:
        yield invalid_value(f"{path}.weight", str(weight), "must be in the range 1-100")


def _validate_pod_affinity(affinity: Object, path: str) -> Iterator[Cause]:
    for index, term in enumerate(affinity.get(REQUIRED, ())):
        yield from _validate_term(term, f"{path}.{REQUIRED}[{index}]")
    for index, term in enumerate(affinity.get(PREFERRED, ())):
        where = f"{path}.{PREFERRED}[{index}]"
        yield from _validate_weight(term, where)
        yield from _validate_term(term.get("podAffinityTerm", {}), f"{where}.podAffinityTerm")


def _validate_term(term: Object, path: str) -> Iterator[Cause]:
    for field in ("labelSelector", "namespaceSelector"):
        yield from validate_label_selector(term.get(field, {}), f"{path}.{field}")
    for name in term.get("namespaces", ()):
        if problem := dns_label(name):
            yield invalid_value(f"{path}.namespace", f'"{name}"', problem)
    yield from _validate_label_keys(term, path)
    topology_key = term.get("topologyKey", "")
    if not topology_key:
        yield required(f"{path}.topologyKey", "can not be empty")
    yield from validate_label_name(topology_key, f"{path}.topologyKey")


def _validate_label_keys(holder: Object, path: str) -> Iterator[Cause]:
    """Yield the errors of matchLabelKeys and mismatchLabelKeys, which are merged into the selector already."""
    selector = holder.get("labelSelector")
    wanted, unwanted = holder.get("matchLabelKeys", ()), holder.get("mismatchLabelKeys", ())
    for field, keys in (("matchLabelKeys", wanted), ("mismatchLabelKeys", unwanted)):
        if keys and selector is None:
            yield forbidden_field(f"{path}.{field}", "must not be specified when labelSelector is not set")
            continue
        for index, key in enumerate(keys):
            yield from validate_label_name(key, f"{path}.{field}[{index}]")
    seen = set((selector or {}).get("matchLabels", {}))
    for requirement in (selector or {}).get("matchExpressions", ()):
        key = requirement.get("key", "")
        if key in wanted and key in seen:
            problem = "exists in both matchLabelKeys and labelSelector"
            yield invalid_value(f"{path}[{list(wanted).index(key)}]", f'"{key}"', problem)
        seen.add(key)
    for index, key in enumerate(wanted):
        if key in unwanted:
            problem = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield invalid_value(f"{path}.matchLabelKeys[{index}]", f'"{key}"', problem)


def _validate_gates(gates: Sequence[Object], path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        yield from validate_label_name(name, f"{path}[{index}]")
        if name in seen:
            yield duplicate(f"{path}[{index}]", name)
        seen.add(name)


def _validate_spread(constraints: Sequence[Object], path: str) -> Iterator[Cause]:
    for index, constraint in enumerate(constraints):
        where, action = f"{path}[{index}]", constraint["whenUnsatisfiable"]
        topology_key = constraint.get("topologyKey", "")
        yield from _validate_positive(constraint.get("maxSkew", 0), f"{where}.maxSkew")
        if not topology_key:
            yield required(f"{where}.topologyKey", "can not be empty")
        if action not in _ACTIONS:
            yield not_supported(f"{where}.whenUnsatisfiable", action, _ACTIONS)
        others = [(one.get("topologyKey", ""), one["whenUnsatisfiable"]) for one in constraints[index + 1 :]]
        if (topology_key, action) in others:
            field = f"{where}.{{topologyKey, whenUnsatisfiable}}"
            yield duplicate(field, f"{{{topology_key}, {action}}}")
        yield from _validate_min_domains(constraint, f"{where}.minDomains")
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            policy = constraint.get(field, "Honor")
            if policy not in _POLICIES:
                yield not_supported(f"{where}.{field}", policy, _POLICIES)
        yield from _validate_label_keys(constraint, where)
        yield from validate_label_selector(constraint.get("labelSelector", {}), f"{where}.labelSelector")


def _validate_min_domains(constraint: Object, path: str) -> Iterator[Cause]:
    count, action = constraint.get("minDomains"), constraint["whenUnsatisfiable"]
    if count is None:
        return
    yield from _validate_positive(count, path)
    if action != "DoNotSchedule":
        problem = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        yield invalid_value(path, str(count), problem)


def _validate_positive(number: int, path: str) -> Iterator[Cause]:
    if number <= 0:
        yield invalid_value(path, str(number), "must be greater than zero")


_COMPUTE: Final = frozenset({"cpu", "memory"})
_OF_CONTAINERS: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_COUNTED: Final = frozenset(
    names(
        "pods resourcequotas services replicationcontrollers secrets configmaps persistentvolumeclaims "
        "services.nodeports services.loadbalancers"
    )
)
_STANDARD: Final = frozenset(
    {
        *_OF_CONTAINERS,
        *_COUNTED,
        "storage",
        "requests.storage",
        *(f"{side}.{name}" for side in ("requests", "limits") for name in _OF_CONTAINERS),
    }
)


def validate_resources(resources: Object, path: str, claims: AbstractSet[str]) -> Iterator[Cause]:
    """Yield the errors of the resources of a container.

    Args:
        resources: the `resources` field.
        path: its path.
        claims: names of the pod's claims.
    """
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for field, quantities in (("limits", limits), ("requests", requests)):
        for name, text in quantities.items():
            where = f"{path}.{field}[{name}]"
            yield from _validate_name(name, where)
            yield from validate_amount(name, text, where)
            yield from _validate_huge_pages(name, text, where)
    yield from _compare(requests, limits, path)
    asked = {*limits, *requests}
    if any(map(is_hugepage_resource_name, asked)) and not asked & _COMPUTE:
        yield forbidden_field(path, "HugePages require cpu or memory")
    yield from _validate_claims(resources.get("claims", ()), f"{path}.claims", claims)


def validate_amount(name: str, text: str, path: str) -> Iterator[Cause]:
    """Yield the errors of an amount of a resource."""
    quantity = parse_quantity(text)
    if quantity.unscaled < 0:
        yield invalid_value(path, f'"{text}"', "must be greater than or equal to 0")
    if (name in _COUNTED or is_extended_resource_name(name)) and quantity.milli_value() % 1000:
        yield invalid_value(path, f'"{text}"', "must be an integer")


def _validate_name(name: str, path: str) -> Iterator[Cause]:
    problems = list(qualified_name_problems(name))
    own = not name.rpartition("/")[1]
    if not problems and own and name not in _STANDARD and not is_hugepage_resource_name(name):
        problems.append("must be a standard resource type or fully qualified")
    if own and name not in _OF_CONTAINERS and not is_hugepage_resource_name(name):
        problems.append("must be a standard resource for containers")
    elif not own and not is_native_resource(name) and not is_extended_resource_name(name):
        problems.append("doesn't follow extended resource name standard")
    for problem in problems:
        yield invalid_value(path, f'"{name}"', problem)


def _validate_huge_pages(name: str, text: str, path: str) -> Iterator[Cause]:
    if not is_hugepage_resource_name(name):
        return
    try:
        page = parse_quantity(name.removeprefix("hugepages-")).value()
    except ValueError as error:
        yield invalid_value(path, f'"{text}"', str(error))
        return
    if page <= 0 or parse_quantity(text).value() % page:
        yield invalid_value(path, f'"{text}"', f"{text} is not positive integer multiple of {name}")


def _compare(requests: Mapping[str, str], limits: Mapping[str, str], path: str) -> Iterator[Cause]:
    """Yield the errors of requests compared with limits."""
    for name, text in requests.items():
        overcommits = is_native_resource(name) and not is_hugepage_resource_name(name)
        limit = limits.get(name)
        if limit is None:
            if not overcommits:
                yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
            continue
        asked, allowed = parse_quantity(text), parse_quantity(limit)
        if not overcommits and asked != allowed:
            yield invalid_value(f"{path}.requests", f'"{text}"', f"must be equal to {name} limit of {limit}")
        elif overcommits and asked > allowed:
            problem = f"must be less than or equal to {name} limit of {limit}"
            yield invalid_value(f"{path}.requests", f'"{text}"', problem)


def _validate_claims(uses: Sequence[Object], path: str, claims: AbstractSet[str]) -> Iterator[Cause]:
    """Yield the errors of a container's references to its pod's claims."""
    seen: set[str] = set()
    for index, use in enumerate(uses):
        where, name, request = f"{path}[{index}]", use.get("name", ""), use.get("request", "")
        if not name:
            yield required(where)
            continue
        if name in seen:
            yield duplicate(where, name)
        else:
            key = f"{name}/{request}" if request else name
            if request and (problem := dns_label(request)):
                yield invalid_value(f"{where}.request", f'"{request}"', problem)
            if key in seen:
                yield duplicate(where, key)
            elif not request:
                overlaps = [one for one in seen if one.startswith(f"{name}/")]
                yield from (duplicate(where, name) for _ in overlaps)
            seen.add(key)
        if name not in claims:
            there = f": {', '.join(sorted(claims))}" if claims else " which is empty"
            problem = f'Not found: "{name}": must be one of the names in pod.spec.resourceClaims{there}'
            yield Cause("FieldValueNotFound", where, problem)
