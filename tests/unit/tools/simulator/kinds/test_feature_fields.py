"""Fields of feature gates: a server keeps, drops, refuses or does not know them, by its version and gates.

Source:
    kube-apiserver v1.36, pkg/api/pod/util.go, dropDisabledFields; pkg/api/resourceclaimspec/util.go; strategy.go of
    pkg/registry/resource/{resourceslice,resourceclaim,deviceclass}, pkg/registry/scheduling/{podgroup,workload}.
"""

from __future__ import annotations

import copy
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from scheduler.configuration.feature_gates import VERSIONS, features_of
from scheduler.tools.simulator.apimachinery.kinds import Place
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.apimachinery.structure import WriteOptions
from scheduler.tools.simulator.kinds.builtin_kinds import builtin_kinds
from scheduler.tools.simulator.kinds.feature_fields import disabled_fields
from tests.unit.tools.simulator.a_store import AStore, deployment, node, pod

if TYPE_CHECKING:
    from collections.abc import Mapping

Object = dict[str, Any]
SLICES, CLAIMS = "resourceslices.resource.k8s.io", "resourceclaims.resource.k8s.io"
GROUPS, WORKLOADS = "podgroups.scheduling.k8s.io", "workloads.scheduling.k8s.io"
GANG = {"gang": {"minCount": 2}}
RESULT = {"request": "r", "driver": "d.example.com", "pool": "n1", "device": "d"}
QUANTITIES: Object = {"requestPolicy": {"default": "1", "validRange": {"min": "1"}}}
RULES: Object = {"key": "k", "effect": "NoSchedule"}
SPREAD: Object = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {},
}


def base(resource: str) -> Object:
    """Return a valid object of a kind."""
    exactly = {"deviceClassName": "gpu"}
    claim = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    device: Object = {
        "name": "d",
        "attributes": {"a": {"string": "x"}},
        "capacity": {"memory": {"value": "8"}},
    }
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    objects: dict[str, Object] = {
        "pods": pod("p"),
        "deployments.apps": deployment("d", 1),
        "nodes": node("n"),
        SLICES: {"spec": {"driver": "d.example.com", "pool": pool, "nodeName": "n1", "devices": [device]}},
        CLAIMS: {"spec": claim},
        "resourceclaimtemplates.resource.k8s.io": {"spec": {"spec": claim}},
        "deviceclasses.resource.k8s.io": {"spec": {}},
        "csidrivers.storage.k8s.io": {"spec": {}},
        GROUPS: {"spec": {"schedulingPolicy": GANG}},
        WORKLOADS: {"spec": {"podGroupTemplates": [{"name": "a", "schedulingPolicy": GANG}]}},
    }
    return {"metadata": {"name": "x"}, **copy.deepcopy(objects[resource])}


def at(obj: Any, path: str) -> Any:
    """Return the value at a path, as in `spec.devices.0.taints`; None if a step is missing."""

    def step(value: Any, name: str) -> Any:
        if isinstance(value, list):
            return value[int(name)] if int(name) < len(value) else None
        return value.get(name) if isinstance(value, dict) else None

    return reduce(step, path.split("."), obj)


def put(obj: Object, path: str, value: Any) -> Object:
    """Return an object with another value at a path."""
    *steps, last = path.split(".")
    holder: Any = obj
    for name in steps:
        holder = holder[int(name)] if isinstance(holder, list) else holder.setdefault(name, {})
    holder[last] = value
    return obj


class Case(NamedTuple):
    """A field that needs a gate.

    Attributes:
        gate: the gate.
        version: a version in which it can be on and off.
        resource: the kind of the object.
        path: the field.
        value: a valid value.
        more: other fields that the value needs: path -> value.
    """

    gate: str
    version: str
    resource: str
    path: str
    value: Any
    more: Mapping[str, Any] = MappingProxyType({})


CASES = [
    Case("GenericWorkload", "1.36", "pods", "spec.schedulingGroup", {"podGroupName": "g"}),
    Case("GenericWorkload", "1.35", "pods", "spec.workloadRef", {"name": "w", "podGroup": "a"}),
    Case("GenericWorkload", "1.35", "deployments.apps", "spec.template.spec.workloadRef", {"name": "w", "podGroup": "a"}),
    Case("PodLevelResources", "1.36", "pods", "spec.resources", {"requests": {"cpu": "1"}}),
    Case(
        "MatchLabelKeysInPodTopologySpread",
        "1.36",
        "pods",
        "spec.topologySpreadConstraints",
        [{**SPREAD, "matchLabelKeys": ["app"]}],
    ),
    Case("NodeDeclaredFeatures", "1.36", "nodes", "status.declaredFeatures", ["A"]),
    Case("DRAExtendedResource", "1.36", "deviceclasses.resource.k8s.io", "spec.extendedResourceName", "example.com/gpu"),
    Case("VolumeLimitScaling", "1.36", "csidrivers.storage.k8s.io", "spec.preventPodSchedulingIfMissing", True),
    Case("DRADeviceTaints", "1.36", SLICES, "spec.devices.0.taints.0.key", "k", {"spec.devices.0.taints": [RULES]}),
    Case("DRAConsumableCapacity", "1.36", SLICES, "spec.devices.0.allowMultipleAllocations", True),
    Case(
        "DRAConsumableCapacity",
        "1.36",
        SLICES,
        "spec.devices.0.capacity.memory",
        {"value": "8", **QUANTITIES},
        {"spec.devices.0.allowMultipleAllocations": True},
    ),
    Case(
        "DRADeviceBindingConditions",
        "1.36",
        SLICES,
        "spec.devices.0.bindingConditions",
        ["Ready"],
        {"spec.devices.0.bindingFailureConditions": ["Broken"]},
    ),
    Case("DRAOptionalNodeOperations", "1.37", SLICES, "spec.skipNodeOperations", ["*"]),
    Case(
        "DRADeviceCompatibilityGroups",
        "1.37",
        SLICES,
        "spec.devices.0.consumesCounters.0.compatibilityGroups",
        ["mig"],
        {"spec.devices.0.consumesCounters": [{"counterSet": "card", "counters": {"units": {"value": "1"}}}]},
    ),
    Case("DRAPartitionableDevices", "1.36", SLICES, "spec.devices.0.consumesCounters", [{"counterSet": "c", "counters": {"u": {"value": "1"}}}]),
    Case("DRAAdminAccess", "1.35", CLAIMS, "spec.devices.requests.0.exactly.adminAccess", True),
    Case("DRAConsumableCapacity", "1.36", CLAIMS, "spec.devices.requests.0.exactly.capacity", {"requests": {"memory": "1"}}),
    Case("DRADeviceTaints", "1.36", CLAIMS, "spec.devices.requests.0.exactly.tolerations", [{"operator": "Exists"}]),
    Case(
        "DRADeviceTaints",
        "1.36",
        "resourceclaimtemplates.resource.k8s.io",
        "spec.spec.devices.requests.0.exactly.tolerations",
        [{"operator": "Exists"}],
    ),
    Case("TopologyAwareWorkloadScheduling", "1.36", GROUPS, "spec.schedulingConstraints", {"topology": [{"key": "rack"}]}),
    Case("DRAWorkloadResourceClaims", "1.36", GROUPS, "spec.resourceClaims", [{"name": "c", "resourceClaimName": "c"}]),
    Case("WorkloadAwarePreemption", "1.36", GROUPS, "spec.disruptionMode", "PodGroup"),
    Case("WorkloadAwarePreemption", "1.36", WORKLOADS, "spec.podGroupTemplates.0.priority", 5),
    Case("PodGroupPreemptionPolicy", "1.37", GROUPS, "spec.preemptionPolicy", "PreemptLowerPriority"),
    Case("PodGroupPreemptionPolicy", "1.37", WORKLOADS, "spec.podGroupTemplates.0.preemptionPolicy", "Never"),
]  # fmt: skip
IDS = [f"{each.gate} {each.version} {each.path}" for each in CASES]


def made(case: Case) -> Object:
    obj = base(case.resource)
    for path, value in case.more.items():
        put(obj, path, copy.deepcopy(value))
    return put(obj, case.path, copy.deepcopy(case.value))


def shown(stored: Object, case: Case) -> Any:
    """Return the field without default values."""
    found = at(stored, case.path)
    if isinstance(case.value, dict) and isinstance(found, dict):
        return {name: found[name] for name in case.value if name in found}
    if isinstance(case.value, list) and case.value and isinstance(case.value[0], dict) and found:
        return [{name: each[name] for name in case.value[0] if name in each} for each in found]
    return found


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_field_is_kept_only_with_its_gate(case: Case):
    on, off = (AStore(version=case.version, **{case.gate: value}) for value in (True, False))

    assert shown(on.create(case.resource, made(case)), case) == case.value
    assert shown(off.create(case.resource, made(case)), case) != case.value


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_field_in_use_stays_when_its_gate_is_turned_off(case: Case):
    store = AStore(version=case.version, **{case.gate: True})
    stored = store.create(case.resource, made(case))
    store.registry.kinds.replace([], builtin_kinds(features_of({case.gate: False}, case.version)))
    changed = {**stored, "metadata": {**stored["metadata"], "labels": {"a": "b"}}}

    updated = store.update(case.resource, changed)

    assert updated["metadata"]["labels"] == {"a": "b"}
    assert shown(updated, case) == case.value


@pytest.mark.parametrize("version", ["1.36", "1.37"])
@pytest.mark.parametrize(
    "values", [{"ints": [1, 2]}, {"versions": ["1.0.0"]}, {"strings": ["x"]}, {"bools": [True]}]
)
def test_an_attribute_has_several_values_only_with_the_gate(version: str, values: Object):
    body = put(base(SLICES), "spec.devices.0.attributes.b", values)
    store = AStore(version=version, DRAListTypeAttributes=True)
    stored = store.create(SLICES, body)
    assert at(stored, "spec.devices.0.attributes.b") == values

    with pytest.raises(StatusError, match=r"attributes\[b\]: Invalid value: \"\": exactly one value must be"):
        AStore(version=version).create(SLICES, body)

    store.registry.kinds.replace([], builtin_kinds(features_of({}, version)))
    assert at(store.update(SLICES, stored), "spec.devices.0.attributes.b") == values


@pytest.mark.parametrize(
    ("version", "resource", "path", "value"),
    [
        ("1.36", SLICES, "spec.skipNodeOperations", ["*"]),
        ("1.35", SLICES, "spec.devices.0.attributes.b", {"string": "x", "ints": [1]}),
        ("1.36", "pods", "spec.workloadRef", {"name": "w", "podGroup": "a"}),
        ("1.35", "pods", "spec.schedulingGroup", {"podGroupName": "g"}),
        ("1.34", "pods", "spec.workloadRef", {"name": "w", "podGroup": "a"}),
        ("1.34", "nodes", "status.declaredFeatures", ["A"]),
        ("1.35", "csidrivers.storage.k8s.io", "spec.preventPodSchedulingIfMissing", True),
    ],
)
def test_a_field_that_a_version_lacks_is_unknown(version: str, resource: str, path: str, value: Any):
    store, options = AStore(version=version), WriteOptions()
    kind = store.registry.kinds.named(resource)
    body = put(base(resource), path, value)
    place = Place(kind, "default" if kind.namespaced else "", "x")

    store.registry.create(place, body, options)

    unknown = path.replace(".0.", "[0].") + (".ints" if "ints" in str(value) else "")
    assert options.warnings == [f'unknown field "{unknown}"']
    with pytest.raises(StatusError, match="strict decoding error: unknown field") as caught:
        store.registry.create(place, body, WriteOptions(field_validation="Strict"))
    assert caught.value.code == 400


NUMERIC = {"key": "sla", "operator": "Gt", "value": "5", "effect": "NoSchedule"}
UNSUPPORTED = (
    'spec.tolerations[0].operator: Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt"'
)


def test_numeric_tolerations_need_their_gate():
    gate = "TaintTolerationComparisonOperators"
    kept = AStore(**{gate: True}).create("pods", pod("p", tolerations=[NUMERIC]))
    assert kept["spec"]["tolerations"][0] == NUMERIC

    with pytest.raises(StatusError) as caught:
        AStore().create("pods", pod("p", tolerations=[NUMERIC]))
    assert caught.value.message == f'Pod "p" is invalid: {UNSUPPORTED}'

    with pytest.raises(StatusError) as caught:
        AStore().create("deployments.apps", deployment("d", 1, tolerations=[NUMERIC]))
    assert "spec.template.spec.tolerations[0].operator: Unsupported value" in caught.value.message


def test_a_pod_with_a_numeric_toleration_may_change_without_the_gate():
    store = AStore(TaintTolerationComparisonOperators=True)
    stored = store.create("pods", pod("p", tolerations=[NUMERIC]))
    store.registry.kinds.replace([], builtin_kinds(features_of({})))

    updated = store.update("pods", {**stored, "metadata": {**stored["metadata"], "labels": {"a": "b"}}})

    assert updated["metadata"]["labels"] == {"a": "b"}


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ("-12", []),
        ("0", []),
        ("007", ["must be a valid decimal integer in canonical form"]),
        (
            "9223372036854775808",
            ['strconv.ParseInt: parsing "9223372036854775808": value out of range'],
        ),
        ("", ["must be non-empty", 'strconv.ParseInt: parsing "": invalid syntax']),
        (
            "1.5",
            [
                "must be a valid decimal integer in canonical form",
                'strconv.ParseInt: parsing "1.5": invalid syntax',
            ],
        ),
    ],
)
def test_a_numeric_toleration_has_a_64_bit_integer(value: str, problems: list[str]):
    store = AStore(TaintTolerationComparisonOperators=True)
    body = pod("p", tolerations=[NUMERIC | {"value": value}])
    found: list[tuple[str, str]] = []
    try:
        store.create("pods", body)
    except StatusError as error:
        found = [(each["field"], each["message"]) for each in error.body()["details"]["causes"]]

    assert found == [
        ("spec.tolerations[0].value", f'Invalid value: "{value}": {problem}') for problem in problems
    ]


def test_the_status_of_a_claim_loses_fields_of_disabled_gates():
    fields = {
        "shareID": "s",
        "consumedCapacity": {"memory": "1"},
        "skipNodeOperations": ["*"],
        "compatibilityGroups": {"card": ["mig"]},
    }
    gates = ("DRAConsumableCapacity", "DRAOptionalNodeOperations", "DRADeviceCompatibilityGroups")
    for value in (True, False):
        store = AStore(version="1.37", **dict.fromkeys(gates, value))
        claim = store.create(CLAIMS, base(CLAIMS))
        claim = {**claim, "status": {"allocation": {"devices": {"results": [{**RESULT, **fields}]}}}}

        written = store.update(CLAIMS, claim, subresource="status")

        result = written["status"]["allocation"]["devices"]["results"][0]
        assert {name for name in fields if name in result} == (set(fields) if value else set())


def test_a_group_has_no_priority_without_preemption_of_groups():
    spec = {"schedulingPolicy": GANG, "priorityClassName": "missing", "priority": 5}

    created = AStore(WorkloadAwarePreemption=False).create(GROUPS, {"metadata": {"name": "g"}, "spec": spec})

    assert created["spec"] == {"schedulingPolicy": GANG}


def test_every_field_of_the_table_exists():
    """A misspelled path would never be found."""
    for version in VERSIONS:
        features = features_of({"AllBeta": False, "AllAlpha": False}, version)
        fields = disabled_fields(features)
        kinds = {kind.group_resource: kind for kind in builtin_kinds(features_of({}, version))}
        for resource, disabled in fields.items():
            kind = kinds.get(resource)
            if kind is None:
                continue
            for each in disabled:
                if not each.is_known:
                    continue
                for steps in each.paths:
                    type_: Any = kind.type
                    for step in steps:
                        name = step.rstrip("[]{}")
                        assert type_ is not None, (resource, steps)
                        assert name in type_.by_name, (version, resource, steps)
                        field = type_.by_name[name]
                        assert step.removeprefix(name) in {"", field.container}, (resource, steps)
                        type_ = field.type
