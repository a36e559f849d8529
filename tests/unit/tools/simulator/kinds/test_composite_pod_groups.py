"""CompositePodGroups, and Workloads with their templates, as a kube-apiserver 1.37 with the gate serves them.

Source:
    Kubernetes v1.37, staging/src/k8s.io/api/scheduling/v1alpha3/types.go, the `+k8s:` tags.
    kube-apiserver v1.37, pkg/apis/scheduling/validation/validation_test.go, whose cases are written anew.
"""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.unit.tools.simulator.a_store import AStore

COMPOSITES, WORKLOADS = "compositepodgroups.scheduling.k8s.io", "workloads.scheduling.k8s.io"
GANG, LEAF_GANG = {"gang": {"minGroupCount": 2}}, {"gang": {"minCount": 2}}
REFERENCE = {"workloadName": "w", "templateName": "a"}
LEAF = {"name": "leaf", "schedulingPolicy": LEAF_GANG}


def a_store() -> AStore:
    return AStore(version="1.37", CompositePodGroup=True)


def composite(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "root", "namespace": "default"},
        "spec": {"schedulingPolicy": GANG, "workloadRef": REFERENCE, **spec},
    }


def template(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "schedulingPolicy": GANG, **(fields or {"podGroupTemplates": [LEAF]})}


def workload(*templates: dict[str, Any], **spec: Any) -> dict[str, Any]:
    if templates:
        spec["compositePodGroupTemplates"] = [*templates]
    return {"metadata": {"name": "w", "namespace": "default"}, "spec": spec}


def problems(store: AStore, resource: str, obj: dict[str, Any], *, update: bool = False) -> dict[str, str]:
    with pytest.raises(StatusError) as caught:
        (store.update if update else store.create)(resource, obj)
    assert caught.value.code == 422
    return {cause["field"]: cause["message"] for cause in caught.value.body()["details"]["causes"]}


@pytest.mark.parametrize(
    ("spec", "field"),
    [({}, "spec.workloadRef"), ({"workloadRef": REFERENCE}, "spec.parentCompositePodGroupName")],
    ids=["without a Workload", "no name"],
)
def test_a_group_with_a_parent_names_both_objects(spec: dict[str, Any], field: str) -> None:
    name = "Root" if spec else "root"
    group = {"schedulingPolicy": LEAF_GANG, "parentCompositePodGroupName": name, **spec}

    found = problems(a_store(), "podgroups.scheduling.k8s.io", {"metadata": {"name": "g"}, "spec": group})

    assert list(found) == [field]


def test_a_composite_group_gets_default_fields_and_the_priority_of_its_class() -> None:
    store = a_store()
    store.create("priorityclasses.scheduling.k8s.io", {"metadata": {"name": "high"}, "value": 7})

    created = store.create(COMPOSITES, composite(priorityClassName="high", parentCompositePodGroupName="top"))

    assert created["apiVersion"] == "scheduling.k8s.io/v1alpha3"
    assert created["spec"] == {
        "schedulingPolicy": GANG,
        "workloadRef": REFERENCE,
        "parentCompositePodGroupName": "top",
        "disruptionMode": {"single": {}},
        "priorityClassName": "high",
        "priority": 7,
    }


def test_a_class_that_does_not_exist_is_refused() -> None:
    with pytest.raises(StatusError) as caught:
        a_store().create(COMPOSITES, composite(priorityClassName="none"))
    assert caught.value.code == 403
    assert str(caught.value.body()["message"]).startswith(
        'compositepodgroups.scheduling.k8s.io "root" is forbidden'
    )


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"schedulingPolicy": {}}, "spec.schedulingPolicy"),
        ({"schedulingPolicy": {"basic": {}, **GANG}}, "spec.schedulingPolicy"),
        ({"schedulingPolicy": {"gang": {"minGroupCount": 0}}}, "spec.schedulingPolicy.gang.minGroupCount"),
        ({"schedulingPolicy": {"gang": {"minGroupCount": -1}}}, "spec.schedulingPolicy.gang.minGroupCount"),
        ({"parentCompositePodGroupName": "Top"}, "spec.parentCompositePodGroupName"),
        ({"workloadRef": REFERENCE | {"workloadName": ""}}, "spec.workloadRef.workloadName"),
        ({"disruptionMode": {}}, "spec.disruptionMode"),
        (
            {"schedulingConstraints": {"topology": [{"key": "zone"}, {"key": "rack"}]}},
            "spec.schedulingConstraints.topology",
        ),
    ],
)
def test_a_composite_group_with_a_wrong_field_is_refused(spec: dict[str, Any], field: str) -> None:
    assert list(problems(a_store(), COMPOSITES, composite(**spec))) == [field]


def test_a_composite_group_names_a_workload() -> None:
    obj = composite()
    del obj["spec"]["workloadRef"]
    assert problems(a_store(), COMPOSITES, obj) == {"spec.workloadRef": "Required value"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schedulingPolicy", {"gang": {"minGroupCount": 1}}),
        ("parentCompositePodGroupName", "other"),
        ("workloadRef", REFERENCE | {"templateName": "b"}),
        ("disruptionMode", {"all": {}}),
        ("schedulingConstraints", {"topology": [{"key": "zone"}]}),
    ],
)
def test_the_spec_of_a_composite_group_is_immutable(field: str, value: Any) -> None:
    store = a_store()
    created = store.create(COMPOSITES, composite(parentCompositePodGroupName="top"))
    changed = created | {"spec": created["spec"] | {field: value}}

    assert list(problems(store, COMPOSITES, changed, update=True)) == [f"spec.{field}"]


def test_the_conditions_of_a_composite_group_are_validated() -> None:
    store = a_store()
    store.create(COMPOSITES, composite())
    wrong = {"conditions": [{"type": "A", "status": "Perhaps", "reason": "R", "message": ""}]}

    with pytest.raises(StatusError) as caught:
        store.patch(COMPOSITES, "root", {"status": wrong}, subresource="status")
    fields = {cause["field"] for cause in caught.value.body()["details"]["causes"]}
    assert fields == {"status.conditions[0].status", "status.conditions[0].lastTransitionTime"}


DEEP = "must have at least one child PodGroupTemplate or CompositePodGroupTemplate"


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(
            workload(),
            {
                "spec": 'Invalid value: "": must specify one of: `podGroupTemplates`, '
                "`compositePodGroupTemplates`"
            },
            id="no template",
        ),
        pytest.param(
            workload(template("a"), podGroupTemplates=[LEAF | {"name": "b"}]),
            {
                "spec": 'Invalid value: "{podGroupTemplates, compositePodGroupTemplates}": must specify exactly '
                "one of: `podGroupTemplates`, `compositePodGroupTemplates`"
            },
            id="templates of both kinds",
        ),
        pytest.param(
            workload({"name": "a", "schedulingPolicy": GANG}),
            {"spec.compositePodGroupTemplates[0]": f'Invalid value: "a": {DEEP}'},
            id="no child",
        ),
        pytest.param(
            workload(template("leaf")),
            {"spec.compositePodGroupTemplates[0].podGroupTemplates[0].name": 'Duplicate value: "leaf"'},
            id="one name in two lists",
        ),
        pytest.param(
            workload(template("a"), template("a", podGroupTemplates=[LEAF | {"name": "b"}])),
            {"spec.compositePodGroupTemplates[1]": 'Duplicate value: "a"'},
            id="one name twice in a list",
        ),
        pytest.param(
            workload(template("a", podGroupTemplates=[LEAF], priorityClassName="high")),
            {
                "spec": "Invalid value: null: all priority and priorityClassName values must be identical, "
                "detected multiple values"
            },
            id="two priorities",
        ),
        pytest.param(
            workload(*(template(f"c{n}", podGroupTemplates=[LEAF | {"name": f"l{n}"}]) for n in range(9))),
            {"spec.compositePodGroupTemplates": "Too many: 9: must have at most 8 items"},
            id="too many",
        ),
    ],
)
def test_a_workload_with_wrong_templates_is_refused(obj: dict[str, Any], expected: dict[str, str]) -> None:
    assert problems(a_store(), WORKLOADS, obj) == expected


def test_templates_have_at_most_four_levels() -> None:
    three = template("three")
    two = template("two", compositePodGroupTemplates=[three])
    assert a_store().create(WORKLOADS, workload(template("one", compositePodGroupTemplates=[two])))

    one = template("one", compositePodGroupTemplates=[two])
    found = problems(a_store(), WORKLOADS, workload(template("zero", compositePodGroupTemplates=[one])))
    assert list(found) == ["spec.compositePodGroupTemplates[0]"]
    assert found["spec.compositePodGroupTemplates[0]"].endswith("maximum template hierarchy depth is 4")


def test_templates_below_a_composite_template_are_fixed_except_min_count() -> None:
    store = a_store()
    store.create(WORKLOADS, workload(template("a")))
    more = LEAF | {"schedulingPolicy": {"gang": {"minCount": 3}}}
    assert store.update(WORKLOADS, workload(template("a", podGroupTemplates=[more])))

    where = "spec.compositePodGroupTemplates[0]"
    added = workload(template("a", podGroupTemplates=[LEAF, LEAF | {"name": "b"}]))
    assert list(problems(store, WORKLOADS, added, update=True)) == [f"{where}.podGroupTemplates[1]"]
    removed = workload(template("a", compositePodGroupTemplates=[template("b")]))
    assert f"{where}.podGroupTemplates" in problems(store, WORKLOADS, removed, update=True)
    moved = template("a", podGroupTemplates=[LEAF], disruptionMode={"all": {}})
    assert list(problems(store, WORKLOADS, workload(moved), update=True)) == [f"{where}.disruptionMode"]


def test_version_1_36_does_not_serve_the_kind() -> None:
    assert not [
        kind for kind in AStore(version="1.36").registry.kinds if kind.resource == "compositepodgroups"
    ]
