"""Workloads and PodGroups as a kube-apiserver 1.37 serves them in scheduling.k8s.io/v1beta1 and v1alpha3.

Source:
    kube-apiserver v1.37 (01d0b727), staging/src/k8s.io/api/scheduling/v1beta1/generated.proto, the `+k8s:` tags.
"""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.support.errors import raises
from tests.unit.tools.simulator.a_store import AStore

GROUPS, WORKLOADS = "podgroups.scheduling.k8s.io", "workloads.scheduling.k8s.io"
GANG = {"gang": {"minCount": 2}}
REFERENCE = {"workloadName": "w", "templateName": "a"}


def group(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": GANG, **spec}}


def workload(*names: str, **fields: Any) -> dict[str, Any]:
    templates = [{"name": name, "schedulingPolicy": GANG, **fields} for name in names]
    return {"metadata": {"name": "w"}, "spec": {"podGroupTemplates": templates}}


def a_store() -> AStore:
    return AStore(version="1.37")


def refused_fields(store: AStore, resource: str, obj: dict[str, Any], *, update: bool = False) -> list[str]:
    with pytest.raises(StatusError) as caught:
        (store.update if update else store.create)(resource, obj)
    assert caught.value.code == 422
    return [cause["field"] for cause in caught.value.body()["details"]["causes"]]


def test_a_group_gets_default_fields_and_may_name_a_workload_that_does_not_exist():
    created = a_store().create(GROUPS, group(workloadRef=REFERENCE))

    assert created["apiVersion"] == "scheduling.k8s.io/v1beta1"
    assert created["spec"] == {
        "schedulingPolicy": GANG,
        "workloadRef": REFERENCE,
        "disruptionMode": {"single": {}},
        "priority": 0,
    }


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"disruptionMode": {}}, "spec.disruptionMode"),
        ({"disruptionMode": {"single": {}, "all": {}}}, "spec.disruptionMode"),
        ({"workloadRef": REFERENCE | {"workloadName": ""}}, "spec.workloadRef.workloadName"),
        ({"workloadRef": REFERENCE | {"templateName": "A"}}, "spec.workloadRef.templateName"),
        ({"schedulingPolicy": {"gang": {"minCount": 0}}}, "spec.schedulingPolicy.gang.minCount"),
        ({"parentCompositePodGroupName": "root"}, "spec.parentCompositePodGroupName"),
    ],
)
def test_a_group_with_a_wrong_field_is_refused(spec: dict[str, Any], field: str):
    assert refused_fields(a_store(), GROUPS, group(**spec)) == [field]


def test_the_preemption_policy_of_a_group_is_that_of_its_class():
    store = AStore(version="1.37", PodGroupPreemptionPolicy=True)
    store.create("priorityclasses", {"metadata": {"name": "calm"}, "value": 7, "preemptionPolicy": "Never"})

    assert store.create(GROUPS, group())["spec"]["preemptionPolicy"] == "PreemptLowerPriority"
    calm = {"metadata": {"name": "h"}, "spec": group(priorityClassName="calm")["spec"]}
    assert store.create(GROUPS, calm)["spec"]["preemptionPolicy"] == "Never"
    with raises(StatusError, code=403):
        store.create(GROUPS, {"metadata": {"name": "i"}, "spec": group(preemptionPolicy="Never")["spec"]})
    assert refused_fields(store, WORKLOADS, workload("a", preemptionPolicy="Often")) == [
        "spec.podGroupTemplates[0].preemptionPolicy"
    ]


def test_min_count_may_change_and_nothing_else():
    store = a_store()
    created = store.create(GROUPS, group(workloadRef=REFERENCE))
    more = created | {"spec": created["spec"] | {"schedulingPolicy": {"gang": {"minCount": 5}}}}
    assert store.update(GROUPS, more)["spec"]["schedulingPolicy"]["gang"]["minCount"] == 5

    for spec, field in (
        ({"disruptionMode": {"all": {}}}, "spec.disruptionMode"),
        ({"workloadRef": REFERENCE | {"templateName": "b"}}, "spec.workloadRef"),
        (
            {"schedulingConstraints": {"topology": [{"key": "example.com/rack"}]}},
            "spec.schedulingConstraints",
        ),
    ):
        changed = more | {"metadata": {"name": "g", "namespace": "default"}, "spec": more["spec"] | spec}
        assert refused_fields(store, GROUPS, changed, update=True) == [field]
    basic = more | {"metadata": {"name": "g", "namespace": "default"}}
    basic["spec"] = more["spec"] | {"schedulingPolicy": {"basic": {}}}
    assert refused_fields(store, GROUPS, basic, update=True) == [
        "spec.schedulingPolicy.basic",
        "spec.schedulingPolicy.gang",
    ]


def test_a_basic_group_does_not_become_a_gang():
    store = a_store()
    store.create(GROUPS, {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"basic": {}}}})
    changed = group()
    changed["metadata"]["namespace"] = "default"
    changed["spec"]["priority"] = 0

    fields = refused_fields(store, GROUPS, changed, update=True)
    assert fields == ["spec.schedulingPolicy.basic", "spec.schedulingPolicy.gang"]


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        pytest.param(workload("a", "b"), "spec.podGroupTemplates[1]", id="a new template"),
        pytest.param(workload("b"), "spec.podGroupTemplates[0]", id="another template"),
        pytest.param(
            workload("a", disruptionMode={"all": {}}),
            "spec.podGroupTemplates[0].disruptionMode",
            id="another mode",
        ),
    ],
)
def test_the_templates_of_a_workload_are_fixed(changed: dict[str, Any], field: str):
    store = a_store()
    store.create(WORKLOADS, workload("a"))
    changed["metadata"]["namespace"] = "default"

    assert field in refused_fields(store, WORKLOADS, changed, update=True)


def test_the_min_count_of_a_template_may_change():
    store = a_store()
    store.create(WORKLOADS, workload("a"))
    changed = workload("a", schedulingPolicy={"gang": {"minCount": 3}})
    changed["metadata"]["namespace"] = "default"

    (template,) = store.update(WORKLOADS, changed)["spec"]["podGroupTemplates"]
    assert template["schedulingPolicy"] == {"gang": {"minCount": 3}}


def test_both_versions_show_the_same_object():
    store = a_store()
    store.create(GROUPS, group())
    kinds = [kind for kind in store.registry.kinds if kind.resource == "podgroups"]
    (stored,) = store.registry.each(GROUPS)

    views = {kind.version: kind.view(stored) for kind in kinds}
    assert views.keys() == {"v1beta1", "v1alpha3"}
    assert {version: view["apiVersion"] for version, view in views.items()} == {
        "v1beta1": "scheduling.k8s.io/v1beta1",
        "v1alpha3": "scheduling.k8s.io/v1alpha3",
    }
    assert len({str(view["spec"]) for view in views.values()}) == 1
