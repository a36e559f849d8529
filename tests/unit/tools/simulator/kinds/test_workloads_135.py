"""Workloads with groups as a kube-apiserver 1.35 serves them in scheduling.k8s.io/v1alpha1, and pods that name them.

Source:
    kube-apiserver v1.35, pkg/apis/scheduling/validation/validation.go, validateWorkloadSpec and validatePodGroupPolicy;
    pkg/apis/core/validation/validation.go, validateWorkloadReference.
"""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.unit.tools.simulator.a_store import AStore, pod

WORKLOADS = "workloads.scheduling.k8s.io"
GANG = {"gang": {"minCount": 2}}
ONE = "exactly one of `basic`, `gang` is required"


def workload(*groups: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "w"}, "spec": {"podGroups": list(groups), **spec}}


def part(name: str = "a", policy: Any = GANG) -> dict[str, Any]:
    return {"name": name, "policy": policy}


def refused(obj: dict[str, Any], resource: str = WORKLOADS, store: AStore | None = None) -> list[str]:
    store = store or AStore(version="1.35")
    write = store.create if store.find(resource, obj["metadata"]["name"]) is None else store.update
    with pytest.raises(StatusError) as caught:
        write(resource, obj)
    assert caught.value.code == 422
    return [f"{each['field']}: {each['message']}" for each in caught.value.body()["details"]["causes"]]


def test_a_workload_has_gangs_and_basic_groups():
    controller = {"apiGroup": "batch", "kind": "Job", "name": "train"}
    given = workload(part(), part("b", {"basic": {}}), controllerRef=controller)

    created = AStore(version="1.35").create(WORKLOADS, given)

    assert created["apiVersion"] == "scheduling.k8s.io/v1alpha1"
    assert created["spec"] == given["spec"]


@pytest.mark.parametrize(
    ("groups", "problems"),
    [
        ([], ["spec.podGroups: Required value: must have at least one item"]),
        (
            [part(f"a{number}") for number in range(9)],
            ["spec.podGroups: Too many: 9: must have at most 8 items"],
        ),
        ([part(), part()], ['spec.podGroups[1].name: Duplicate value: "a"']),
        ([part(policy={})], [f"spec.podGroups[0].policy: Required value: {ONE}"]),
        (
            [part(policy={**GANG, "basic": {}})],
            [
                (
                    'spec.podGroups[0].policy: Invalid value: "{`basic`, `gang`}": '
                    f"{ONE}, but multiple fields are set"
                )
            ],
        ),
        (
            [part(policy={"gang": {"minCount": 0}})],
            ["spec.podGroups[0].policy.gang.minCount: Invalid value: 0: must be greater than zero"],
        ),
    ],
    ids=["none", "too many", "one name twice", "no policy", "two policies", "no pod"],
)
def test_a_workload_with_wrong_groups_is_refused(groups: list[dict[str, Any]], problems: list[str]):
    assert refused(workload(*groups)) == problems


def test_the_name_of_a_group_is_a_label():
    (problem,) = refused(workload(part("A")))

    assert problem.startswith('spec.podGroups[0].name: Invalid value: "A": a lowercase RFC 1123 label')


def test_groups_cannot_be_changed_and_a_controller_can_be_set_once():
    store = AStore(version="1.35")
    store.create(WORKLOADS, workload(part()))
    place = {"name": "w", "namespace": "default"}

    (problem,) = refused(workload(part("b")) | {"metadata": place}, store=store)
    assert problem.startswith("podGroups: Invalid value: ")
    assert problem.endswith(": field is immutable")

    controller = {"kind": "Job", "name": "train"}
    owned = workload(part(), controllerRef=controller) | {"metadata": place}
    assert store.update(WORKLOADS, owned)["spec"]["controllerRef"] == controller
    (problem,) = refused(workload(part()) | {"metadata": place}, store=store)
    assert problem == "controllerRef: Invalid value: null: field is immutable"


def test_a_pod_names_a_group_of_a_workload_that_need_not_exist():
    reference = {"name": "w", "podGroup": "a", "podGroupReplicaKey": "0"}

    assert (
        AStore(version="1.35").create("pods", pod("p", workloadRef=reference))["spec"]["workloadRef"]
        == reference
    )


@pytest.mark.parametrize(
    ("reference", "fields"),
    [
        ({"name": "w", "podGroup": ""}, ["podGroup"]),
        ({"name": "W", "podGroup": "A"}, ["name", "podGroup"]),
        ({"name": "w", "podGroup": "a", "podGroupReplicaKey": "a.b"}, ["podGroupReplicaKey"]),
    ],
)
def test_a_pod_with_a_wrong_reference_is_refused(reference: dict[str, str], fields: list[str]):
    problems = refused(pod("p", workloadRef=reference), "pods")

    assert [each.partition(":")[0] for each in problems] == [f"spec.workloadRef.{field}" for field in fields]


def test_the_reference_of_a_pod_cannot_be_changed():
    store = AStore(version="1.35")
    stored = store.create("pods", pod("p", workloadRef={"name": "w", "podGroup": "a"}))
    changed = {**stored, "spec": {**stored["spec"], "workloadRef": {"name": "w", "podGroup": "b"}}}

    (problem,) = refused(changed, "pods", store)

    assert problem.startswith("spec: Forbidden: pod updates may not change fields other than")
