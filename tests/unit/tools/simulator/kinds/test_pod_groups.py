"""Workloads and PodGroups as a kube-apiserver 1.36 serves them with their feature gates on; the words are its own."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.kube.http.request import STRATEGIC_MERGE_PATCH
from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.support.errors import raises
from tests.unit.tools.simulator.a_store import AStore

GROUPS, WORKLOADS = "podgroups.scheduling.k8s.io", "workloads.scheduling.k8s.io"
FINALIZER = "scheduling.k8s.io/podgroup-protection"
GANG = {"gang": {"minCount": 2}}
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
REASON = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
    "'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
    "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)
CONDITION = {
    "type": "PodGroupScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "pod group is unschedulable",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def group(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": GANG, **spec}}


def workload(*templates: dict[str, Any], **spec: Any) -> dict[str, Any]:
    listed = list(templates) or [template("a")]
    return {"metadata": {"name": "w"}, "spec": {"podGroupTemplates": listed, **spec}}


def template(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "schedulingPolicy": GANG, **fields}


def made_from(workload_name: str, template_name: str) -> dict[str, Any]:
    reference = {"workloadName": workload_name, "podGroupTemplateName": template_name}
    return {"podGroupTemplateRef": {"workload": reference}}


def refusal(store: AStore, resource: str, obj: dict[str, Any]) -> tuple[int, str]:
    with pytest.raises(StatusError) as caught:
        store.create(resource, obj)
    return caught.value.code, caught.value.message


def a_store() -> AStore:
    return AStore(DRAWorkloadResourceClaims=True)


def with_group(**spec: Any) -> AStore:
    store = a_store()
    store.create(GROUPS, group(**spec))
    return store


def test_a_group_gets_default_fields_and_no_generation():
    created = AStore().create(GROUPS, group() | {"status": {"conditions": [CONDITION]}})

    assert created["spec"] == {"schedulingPolicy": GANG, "disruptionMode": "Pod", "priority": 0}
    assert created["status"] == {}
    assert "generation" not in created["metadata"]


def test_a_group_keeps_its_fields():
    said = {
        "schedulingPolicy": {"basic": {}},
        "schedulingConstraints": {"topology": [{"key": "example.com/rack"}]},
        "disruptionMode": "PodGroup",
    }

    assert AStore().create(GROUPS, group(**said))["spec"] == said | {"priority": 0}


def test_a_workload_keeps_its_fields():
    said = workload(template("a"), template("b", priority=7), controllerRef={"kind": "Job", "name": "j"})

    created = AStore().create(WORKLOADS, said)

    assert created["spec"] == said["spec"]
    assert created.keys() == {"kind", "apiVersion", "metadata", "spec"}
    assert "generation" not in created["metadata"]


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        pytest.param([], [FINALIZER], id="none of its own"),
        pytest.param(["a.b/c"], ["a.b/c", FINALIZER], id="another one"),
        pytest.param([FINALIZER, "a.b/c"], [FINALIZER, "a.b/c"], id="the same"),
    ],
)
def test_a_group_has_a_protection_finalizer(asked: list[str], kept: list[str]):
    created = AStore().create(GROUPS, group() | {"metadata": {"name": "g", "finalizers": asked}})

    assert created["metadata"]["finalizers"] == kept


POLICY = "spec.schedulingPolicy"
REFERENCE = "spec.podGroupTemplateRef"


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        pytest.param(
            {"schedulingPolicy": {}},
            f'{POLICY}: Invalid value: "": must specify one of: `basic`, `gang`',
            id="no policy",
        ),
        pytest.param(
            {"schedulingPolicy": {"basic": {}, **GANG}},
            f'{POLICY}: Invalid value: "{{basic, gang}}": must specify exactly one of: `basic`, `gang`',
            id="both policies",
        ),
        pytest.param(
            {"schedulingPolicy": {"gang": {}}}, f"{POLICY}.gang.minCount: Required value", id="no count"
        ),
        pytest.param(
            {"schedulingPolicy": {"gang": {"minCount": 0}}},
            f"{POLICY}.gang.minCount: Required value",
            id="a count of zero",
        ),
        pytest.param(
            {"schedulingPolicy": {"gang": {"minCount": -1}}},
            f"{POLICY}.gang.minCount: Invalid value: -1: must be greater than or equal to 1",
            id="a count below nothing",
        ),
        pytest.param(
            {"schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}},
            "spec.schedulingConstraints.topology: Too many: 2: must have at most 1 item",
            id="two topology keys",
        ),
        pytest.param(
            {"schedulingConstraints": {"topology": [{}]}},
            "spec.schedulingConstraints.topology[0].key: Required value",
            id="a topology without a key",
        ),
        pytest.param(
            {"schedulingConstraints": {"topology": [{"key": "-"}]}},
            f'spec.schedulingConstraints.topology[0].key: Invalid value: "-": {LABEL_KEY}',
            id="a topology key that no label has",
        ),
        pytest.param(
            {"disruptionMode": "All"},
            'spec.disruptionMode: Unsupported value: "All": supported values: "Pod", "PodGroup"',
            id="no such mode",
        ),
        pytest.param(
            {"disruptionMode": ""},
            'spec.disruptionMode: Unsupported value: "": supported values: "Pod", "PodGroup"',
            id="an empty mode",
        ),
        pytest.param(
            {"priorityClassName": "system-node-critical"},
            "spec.priority: Invalid value: 2000001000: must be less than or equal to 1000000000",
            id="a class of the system's",
        ),
        pytest.param(
            {"podGroupTemplateRef": {}},
            f'{REFERENCE}: Invalid value: "": must specify one of: `workload`',
            id="a reference to nothing",
        ),
        pytest.param(
            made_from("", "a"), f"{REFERENCE}.workload.workloadName: Required value", id="no workload"
        ),
        pytest.param(
            made_from("W", "a"),
            f'{REFERENCE}.workload.workloadName: Invalid value: "W": {SUBDOMAIN}',
            id="no name of a workload",
        ),
        pytest.param(
            made_from("w", ""), f"{REFERENCE}.workload.podGroupTemplateName: Required value", id="no template"
        ),
        pytest.param(
            made_from("w", "a.b"),
            f'{REFERENCE}.workload.podGroupTemplateName: Invalid value: "a.b": {LABEL}',
            id="no name of a template",
        ),
        pytest.param(
            {"schedulingPolicy": {}, "disruptionMode": "All"},
            f'[{POLICY}: Invalid value: "": must specify one of: `basic`, `gang`, '
            'spec.disruptionMode: Unsupported value: "All": supported values: "Pod", "PodGroup"]',
            id="two faults",
        ),
    ],
)
def test_an_invalid_group_is_refused(spec: dict[str, Any], problem: str):
    assert refusal(AStore(), GROUPS, group(**spec)) == (
        422,
        f'PodGroup.scheduling.k8s.io "g" is invalid: {problem}',
    )


TEMPLATES = "spec.podGroupTemplates"


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        pytest.param({"metadata": {"name": "w"}}, f"{TEMPLATES}: Required value", id="no templates"),
        pytest.param(
            workload(*(template(f"t{place}") for place in range(9))),
            f"{TEMPLATES}: Too many: 9: must have at most 8 items",
            id="nine templates",
        ),
        pytest.param(
            workload(template("a"), template("a", disruptionMode="Pod")),
            f'{TEMPLATES}[1]: Duplicate value: {{"name":"a","schedulingPolicy":{{"gang":{{"minCount":2}}}},'
            '"schedulingConstraints":null,"disruptionMode":"Pod"}',
            id="a name twice",
        ),
        pytest.param(workload(template("")), f"{TEMPLATES}[0].name: Required value", id="no name"),
        pytest.param(
            workload(template("a.b")), f'{TEMPLATES}[0].name: Invalid value: "a.b": {LABEL}', id="no label"
        ),
        pytest.param(
            workload({"name": "a"}),
            f'{TEMPLATES}[0].schedulingPolicy: Invalid value: "": must specify one of: `basic`, `gang`',
            id="no policy",
        ),
        pytest.param(
            workload(template("a"), template("b", disruptionMode="All")),
            f'{TEMPLATES}[1].disruptionMode: Unsupported value: "All": supported values: "Pod", "PodGroup"',
            id="no such mode",
        ),
        pytest.param(
            workload(template("a", priorityClassName="A")),
            f'{TEMPLATES}[0].priorityClassName: Invalid value: "A": {SUBDOMAIN}',
            id="no name of a class",
        ),
        pytest.param(
            workload(template("a", priority=2_000_000_000)),
            f"{TEMPLATES}[0].priority: Invalid value: 2000000000: must be less than or equal to 1000000000",
            id="a priority too high",
        ),
        pytest.param(
            workload(controllerRef={"apiGroup": "B", "kind": "Job", "name": "j"}),
            f'spec.controllerRef.apiGroup: Invalid value: "B": {SUBDOMAIN}',
            id="no group of kinds",
        ),
        pytest.param(
            workload(controllerRef={"kind": "Job"}),
            "spec.controllerRef.name: Required value",
            id="a controller without a name",
        ),
        pytest.param(
            workload(controllerRef={"kind": "a/b%", "name": ".."}),
            "[spec.controllerRef.kind: Invalid value: \"a/b%\": may not contain '/', "
            "spec.controllerRef.kind: Invalid value: \"a/b%\": may not contain '%', "
            "spec.controllerRef.name: Invalid value: \"..\": may not be '..']",
            id="a controller that no path leads to",
        ),
    ],
)
def test_an_invalid_workload_is_refused(obj: dict[str, Any], problem: str):
    assert refusal(AStore(), WORKLOADS, obj) == (422, f'Workload.scheduling.k8s.io "w" is invalid: {problem}')


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("podGroupTemplateRef", made_from("w", "a")["podGroupTemplateRef"], id="its template"),
        pytest.param("schedulingPolicy", {"gang": {"minCount": 3}}, id="its policy"),
        pytest.param("schedulingConstraints", {}, id="its constraints"),
        pytest.param("disruptionMode", "PodGroup", id="its mode"),
        pytest.param("priorityClassName", "p", id="its class"),
        pytest.param("priority", 1, id="its priority"),
        pytest.param("priority", None, id="its priority taken away"),
    ],
)
def test_the_spec_of_a_group_is_immutable(field: str, value: Any):
    with raises(
        StatusError,
        code=422,
        message=f'PodGroup.scheduling.k8s.io "g" is invalid: spec.{field}: Invalid value: null: field is immutable',
    ):
        with_group().patch(GROUPS, "g", {"spec": {field: value}})


@pytest.mark.parametrize(
    ("field", "value", "more"),
    [
        pytest.param("controllerRef", {"kind": "Job", "name": "j"}, "", id="its controller"),
        pytest.param("podGroupTemplates", [template("b")], "", id="its templates"),
        pytest.param("podGroupTemplates", [], f", {TEMPLATES}: Required value", id="no templates any longer"),
    ],
)
def test_the_spec_of_a_workload_is_immutable(store: AStore, field: str, value: Any, more: str):
    store.create(WORKLOADS, workload())

    with pytest.raises(StatusError) as caught:
        store.patch(WORKLOADS, "w", {"spec": {field: value}})

    reported = f"spec.{field}: Invalid value: null: field is immutable"
    shown = f"[{reported}{more}]" if more else reported
    assert caught.value.message == f'Workload.scheduling.k8s.io "w" is invalid: {shown}'


@pytest.mark.parametrize(("resource", "obj"), [(GROUPS, group()), (WORKLOADS, workload())])
def test_labels_can_change(store: AStore, resource: str, obj: dict[str, Any]):
    name = store.create(resource, obj)["metadata"]["name"]

    changed = store.patch(resource, name, {"metadata": {"labels": {"a": "b"}}})

    assert changed["metadata"]["labels"] == {"a": "b"}
    assert "generation" not in changed["metadata"]


def test_a_status_is_written_through_its_own_path_only():
    store = with_group()
    as_a_whole = store.patch(GROUPS, "g", {"status": {"conditions": [CONDITION]}})
    other = {"spec": {"disruptionMode": "PodGroup"}, "metadata": {"labels": {"a": "b"}, "finalizers": None}}
    through_status = store.patch(
        GROUPS, "g", other | {"status": {"conditions": [CONDITION]}}, subresource="status"
    )

    assert as_a_whole["status"] == {}
    assert through_status["status"] == {"conditions": [CONDITION]}
    assert through_status["spec"] == as_a_whole["spec"]
    assert "labels" not in through_status["metadata"]
    assert through_status["metadata"]["finalizers"] == [FINALIZER]


def test_a_condition_replaces_the_one_of_its_type():
    store = with_group()

    def report(**condition: str) -> dict[str, Any]:
        status = {"conditions": [CONDITION | condition]}
        return store.patch(
            GROUPS, "g", {"status": status}, patch_type=STRATEGIC_MERGE_PATCH, subresource="status"
        )

    report()
    report(type="DisruptionTarget")
    changed = report(status="True")

    kept = {one["type"]: one["status"] for one in changed["status"]["conditions"]}
    assert kept == {"PodGroupScheduled": "True", "DisruptionTarget": "False"}


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        pytest.param(
            {"status": "Maybe"},
            'status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown"',
            id="status",
        ),
        pytest.param({"reason": ""}, "reason: Required value", id="no reason"),
        pytest.param({"reason": "a b"}, f'reason: Invalid value: "a b": {REASON}', id="prose for a reason"),
        pytest.param(
            {"reason": "a" * 1025}, "reason: Too long: may not be more than 1024 bytes", id="long reason"
        ),
        pytest.param(
            {"message": "a" * 32769}, "message: Too long: may not be more than 32768 bytes", id="long message"
        ),
        pytest.param({"lastTransitionTime": None}, "lastTransitionTime: Required value", id="no time"),
        pytest.param({"type": "-"}, f'type: Invalid value: "-": {LABEL_KEY}', id="type"),
        pytest.param(
            {"observedGeneration": -1},
            "observedGeneration: Invalid value: -1: must be greater than or equal to zero",
            id="generation",
        ),
    ],
)
def test_an_invalid_condition_is_refused(condition: dict[str, Any], problem: str):
    status = {"conditions": [CONDITION | condition]}

    with raises(
        StatusError, message=f'PodGroup.scheduling.k8s.io "g" is invalid: status.conditions[0].{problem}'
    ):
        with_group().patch(GROUPS, "g", {"status": status}, subresource="status")


def test_there_is_one_condition_of_each_type():
    store = with_group()
    obj = store.get(GROUPS, "g") | {"status": {"conditions": [CONDITION, CONDITION]}}

    with pytest.raises(StatusError) as caught:
        store.update(GROUPS, obj, subresource="status")

    assert caught.value.message.endswith('status.conditions[1].type: Duplicate value: "PodGroupScheduled"')


@pytest.mark.parametrize(
    ("classes", "asked", "given"),
    [
        pytest.param({}, {}, {"priority": 0}, id="no classes"),
        pytest.param({"p": {"value": 5}}, {"priorityClassName": "p"}, {"priority": 5}, id="named"),
        pytest.param(
            {"p": {"value": 5}}, {"priorityClassName": "p", "priority": 5}, {"priority": 5}, id="its value"
        ),
        pytest.param(
            {"p": {"value": 5, "globalDefault": True}},
            {},
            {"priority": 5, "priorityClassName": "p"},
            id="the global default",
        ),
    ],
)
def test_a_priority_comes_from_a_class(classes: dict[str, Any], asked: dict[str, Any], given: dict[str, Any]):
    store = AStore()
    for name, class_ in classes.items():
        store.create("priorityclasses", {"metadata": {"name": name}, **class_})

    spec = store.create(GROUPS, group(**asked))["spec"]

    assert spec == {"schedulingPolicy": GANG, "disruptionMode": "Pod"} | asked | given


FORBIDDEN = 'podgroups.scheduling.k8s.io "g" is forbidden: '


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        pytest.param(
            {"priorityClassName": "absent"}, "no PriorityClass with name absent was found", id="class"
        ),
        pytest.param(
            {"priority": 7},
            "priority set in the pod group (7) must match the priority computed (0) based on the priority class set in "
            "the spec",
            id="another priority",
        ),
        pytest.param(made_from("x", "a"), 'PodGroup rejected: Workload "x" not found', id="no such workload"),
        pytest.param(
            made_from("w", "b"),
            'PodGroup rejected: PodGroupTemplate "b" not found in Workload "w"',
            id="no such template",
        ),
        pytest.param(
            made_from("going", "a"), 'PodGroup rejected: Workload "going" is being deleted', id="terminating"
        ),
        pytest.param(
            made_from("elsewhere", "a"), 'PodGroup rejected: Workload "elsewhere" not found', id="namespace"
        ),
    ],
)
def test_admission_refuses_a_group(store: AStore, spec: dict[str, Any], problem: str):
    store.create(WORKLOADS, workload())
    store.create("namespaces", {"metadata": {"name": "other"}})
    store.create(WORKLOADS, workload() | {"metadata": {"name": "elsewhere", "namespace": "other"}})
    store.create(WORKLOADS, workload() | {"metadata": {"name": "going", "finalizers": ["a.b/c"]}})
    store.delete(WORKLOADS, "going")

    assert refusal(store, GROUPS, group(**spec)) == (403, FORBIDDEN + problem)


def test_a_group_may_differ_from_its_template(store: AStore):
    store.create(WORKLOADS, workload())

    spec = store.create(GROUPS, group(schedulingPolicy={"basic": {}}, **made_from("w", "a")))["spec"]

    assert spec["podGroupTemplateRef"] == made_from("w", "a")["podGroupTemplateRef"]


def test_errors_of_a_group_are_reported_before_its_missing_workload():
    code, _ = refusal(AStore(), GROUPS, group(schedulingPolicy={}, **made_from("x", "a")))

    assert code == 422


CLAIM = {"name": "c", "resourceClaimName": "r"}


def test_claims_of_groups_and_templates_are_kept_and_cannot_be_changed():
    store = with_group(resourceClaims=[CLAIM])
    workload_ = store.create(WORKLOADS, workload(template("a", resourceClaims=[CLAIM])))
    status = {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "r"}]}

    assert store.get(GROUPS, "g")["spec"]["resourceClaims"] == [CLAIM]
    assert workload_["spec"]["podGroupTemplates"][0]["resourceClaims"] == [CLAIM]
    assert store.patch(GROUPS, "g", {"status": status}, subresource="status")["status"] == status
    with pytest.raises(StatusError) as caught:
        store.patch(GROUPS, "g", {"spec": {"resourceClaims": None}})
    assert caught.value.message.endswith("spec.resourceClaims: Invalid value: null: field is immutable")


def test_a_status_names_only_claims_of_the_group():
    store = with_group(resourceClaims=[CLAIM])
    with pytest.raises(StatusError) as caught:
        store.patch(GROUPS, "g", {"status": {"resourceClaimStatuses": [{"name": "d"}]}}, subresource="status")

    assert caught.value.message.endswith(
        'status.resourceClaimStatuses[0].name: Invalid value: "d": must match the name of an entry in '
        "`spec.resourceClaims`"
    )


@pytest.mark.parametrize(
    ("claims", "problem"),
    [
        ([CLAIM | {"name": f"c{number}"} for number in range(5)], ": Too many: 5: must have at most 4 items"),
        ([CLAIM, CLAIM], '[1]: Duplicate value: {"name":"c","resourceClaimName":"r"}'),
        ([CLAIM | {"name": ""}], "[0].name: Required value"),
        ([CLAIM | {"name": "a.b"}], f'[0].name: Invalid value: "a.b": {LABEL}'),
        ([CLAIM | {"resourceClaimName": "R"}], f'[0].resourceClaimName: Invalid value: "R": {SUBDOMAIN}'),
        (
            [{"name": "c"}],
            '[0]: Invalid value: "": must specify one of: `resourceClaimName`, `resourceClaimTemplateName`',
        ),
    ],
    ids=["too many", "twice the same", "no name", "no label", "no name of a claim", "no claim"],
)
def test_a_group_with_invalid_claims_is_refused(claims: list[dict[str, Any]], problem: str):
    code, message = refusal(a_store(), GROUPS, group(resourceClaims=claims))

    assert (code, message) == (
        422,
        f'PodGroup.scheduling.k8s.io "g" is invalid: spec.resourceClaims{problem}',
    )
