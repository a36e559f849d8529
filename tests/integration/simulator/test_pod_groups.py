"""Workloads and PodGroups over HTTP: discovery, tables, watches, and writes by permitted users."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.kube.http.request import STRATEGIC_MERGE_PATCH
from scheduler.tools.simulator.access.rbac import User
from tests.integration.simulator.simulator_client import serving
from tests.support import virtual_time

if TYPE_CHECKING:
    from pathlib import Path

BASE = "/apis/scheduling.k8s.io/v1alpha2"
GROUPS = f"{BASE}/namespaces/default/podgroups"
WORKLOADS = f"{BASE}/namespaces/default/workloads"
POLICY = {"gang": {"minCount": 2}}
GROUP = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": POLICY}}
WORKLOAD = {
    "metadata": {"name": "w"},
    "spec": {"podGroupTemplates": [{"name": "a", "schedulingPolicy": POLICY}]},
}
SCHEDULED = {
    "type": "PodGroupScheduled",
    "status": "True",
    "reason": "Scheduled",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
AS_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


async def test_groups_are_listed_beside_priority_classes(tmp_path: Path):
    async with serving(tmp_path) as (_, client):
        _, group = await client.ask("GET", "/apis/scheduling.k8s.io")
        _, known = await client.ask("GET", BASE)

    assert [one["version"] for one in group["versions"]] == ["v1", "v1alpha2"]
    assert group["preferredVersion"]["version"] == "v1"
    found = {one["name"]: (one["kind"], one["namespaced"], one["singularName"]) for one in known["resources"]}
    assert found == {
        "podgroups": ("PodGroup", True, "podgroup"),
        "podgroups/status": ("PodGroup", True, ""),
        "workloads": ("Workload", True, "workload"),
    }
    verbs = {one["name"]: set(one["verbs"]) for one in known["resources"]}
    assert verbs["podgroups/status"] == {"get", "patch", "update"}
    assert verbs["workloads"] == verbs["podgroups"] >= {"create", "deletecollection", "patch", "watch"}
    assert not any(one.get("shortNames") or one.get("categories") for one in known["resources"])


async def test_a_group_is_created_patched_watched_and_printed(tmp_path: Path):
    async with serving(tmp_path) as (_, client), client.watch(f"{BASE}/podgroups?watch=true") as watching:
        await client.ask("POST", WORKLOADS, WORKLOAD)
        reference = {"workload": {"workloadName": "w", "podGroupTemplateName": "a"}}
        spec = GROUP["spec"] | {"podGroupTemplateRef": reference}
        code, created = await client.ask("POST", GROUPS, GROUP | {"spec": spec})
        patch = {"status": {"conditions": [SCHEDULED]}}
        header = {"Content-Type": STRATEGIC_MERGE_PATCH}
        _, patched = await client.ask("PATCH", f"{GROUPS}/g/status", patch, **header)
        _, table = await client.ask("GET", GROUPS, Accept=AS_TABLE)
        _, workloads = await client.ask("GET", WORKLOADS, Accept=AS_TABLE)
        deleted, status = await client.ask("DELETE", f"{WORKLOADS}/w")
        await asyncio.sleep(0.01)
        seen = watching.seen

    assert (code, created["kind"], created["apiVersion"]) == (201, "PodGroup", "scheduling.k8s.io/v1alpha2")
    assert patched["status"] == {"conditions": [SCHEDULED]}
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name",
        "Policy",
        "Workload",
        "Status",
        "Age",
    ]
    assert table["rows"][0]["cells"][:4] == ["g", "Gang", "w", "Scheduled"]
    assert [column["name"] for column in workloads["columnDefinitions"]] == ["Name", "Age"]
    assert (deleted, status["status"]) == (200, "Success")
    assert seen == [("ADDED", "g"), ("MODIFIED", "g")]


@pytest.mark.parametrize(
    ("verb", "resource", "subresource", "allowed"),
    [
        pytest.param("list", "podgroups", "", True, id="reads groups"),
        pytest.param("watch", "podgroups", "", True, id="watches groups"),
        pytest.param("patch", "podgroups", "status", True, id="patches their status"),
        pytest.param("update", "podgroups", "status", True, id="updates their status"),
        pytest.param("patch", "podgroups", "", False, id="changes no group"),
        pytest.param("create", "podgroups", "", False, id="creates no group"),
        pytest.param("list", "workloads", "", False, id="reads no workload"),
    ],
)
def test_a_scheduler_reads_groups_and_writes_their_status(
    tmp_path: Path, verb: str, resource: str, subresource: str, allowed: bool
):
    assert _may(tmp_path, "system:kube-scheduler", verb, resource, subresource) is allowed


@pytest.mark.parametrize(
    ("role", "verb", "resource", "allowed"),
    [
        pytest.param("view", "list", "podgroups", True, id="view reads groups"),
        pytest.param("view", "list", "workloads", True, id="view reads workloads"),
        pytest.param("view", "create", "podgroups", False, id="view creates none"),
        pytest.param("edit", "create", "podgroups", True, id="edit creates groups"),
        pytest.param("edit", "deletecollection", "workloads", True, id="edit deletes workloads"),
    ],
)
def test_the_default_roles_permit_reading_and_creating_groups(
    tmp_path: Path, role: str, verb: str, resource: str, allowed: bool
):
    assert _may(tmp_path, "ann", verb, resource, "", role) is allowed


def _may(tmp_path: Path, user: str, verb: str, resource: str, subresource: str, role: str = "") -> bool:
    answers: list[Any] = []

    async def ask() -> None:
        users = {"theirs": User(user)}
        async with serving(tmp_path, rbac=True, token="root", users=users) as (server, client):
            await asyncio.sleep(0.01)
            if role:
                binding = {
                    "metadata": {"name": "b"},
                    "roleRef": {"kind": "ClusterRole", "name": role},
                    "subjects": [{"kind": "User", "name": user}],
                }
                server.store.create("clusterrolebindings.rbac.authorization.k8s.io", binding)
            attributes = {
                "group": "scheduling.k8s.io",
                "namespace": "default",
                "verb": verb,
                "resource": resource,
                "subresource": subresource,
            }
            _, answer = await client.ask(
                "POST",
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                {"spec": {"resourceAttributes": attributes}},
                Authorization="Bearer theirs",
            )
            answers.append(answer["status"]["allowed"])

    virtual_time.run(ask())
    return bool(answers[0])
