"""Aggregated discovery, and errors for missing resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.simulator.simulator_client import serving
from tests.unit.tools.simulator.definitions import definition

if TYPE_CHECKING:
    from pathlib import Path

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


async def test_all_resources_are_listed_in_one_response(tmp_path: Path):
    async with serving(tmp_path) as (_, client):
        body = definition(subresources={"status": {}})
        await client.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
        _, core = await client.ask("GET", "/api", Accept=f"{AGGREGATED},application/json")
        _, groups = await client.ask("GET", "/apis", Accept=f"{AGGREGATED},application/json")

    assert (core["kind"], core["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    (only,) = core["items"]
    pods = next(one for one in only["versions"][0]["resources"] if one["resource"] == "pods")
    assert (pods["scope"], pods["shortNames"]) == ("Namespaced", ["po"])
    eviction = next(one for one in pods["subresources"] if one["subresource"] == "eviction")
    assert eviction["responseKind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
    by_name = {group["metadata"]["name"]: group for group in groups["items"]}
    (widgets,) = by_name["example.com"]["versions"][0]["resources"]
    assert (widgets["responseKind"]["kind"], widgets["subresources"][0]["subresource"]) == (
        "Widget",
        "status",
    )


@pytest.mark.parametrize(
    ("version", "gates", "expected"),
    [
        ("1.34", {}, []),
        ("1.35", {}, ["v1alpha1/workloads"]),
        ("1.35", {"DRADeviceTaints": True, "DRADeviceTaintRules": True}, ["v1alpha1/workloads", "v1alpha3/devicetaintrules"]),
        ("1.36", {"GenericWorkload": False}, []),
        ("1.36", {"DRADeviceTaintRules": True}, [
            "v1alpha2/podgroups", "v1alpha2/workloads", "v1alpha3/devicetaintrules", "v1beta2/devicetaintrules",
        ]),
        ("1.37", {"DRADeviceTaintRules": False}, [
            "v1alpha3/podgroups", "v1alpha3/workloads", "v1beta1/podgroups", "v1beta1/workloads",
        ]),
        ("1.37", {"GenericWorkload": False}, ["v1/devicetaintrules"]),
    ],
)  # fmt: skip
async def test_kinds_are_served_with_their_gates(
    tmp_path: Path, version: str, gates: dict[str, bool], expected: list[str]
):
    async with serving(tmp_path, version=version, feature_gates=gates) as (_, client):
        _, found = await client.ask("GET", "/version")
        _, groups = await client.ask("GET", "/apis", Accept=f"{AGGREGATED},application/json")

    gated = {"podgroups", "workloads", "devicetaintrules"}
    served = [
        f"{each['version']}/{one['resource']}"
        for group in groups["items"]
        for each in group["versions"]
        for one in each["resources"]
        if one["resource"] in gated
    ]
    assert sorted(served) == expected
    assert f"{found['major']}.{found['minor']}" == version


async def test_a_client_that_prefers_plain_discovery_gets_it(tmp_path: Path):
    async with serving(tmp_path) as (_, client):
        _, plain = await client.ask("GET", "/apis", Accept="application/json")

        _, anything = await client.ask("GET", "/apis", Accept="*/*")

    assert (plain["kind"], anything["kind"]) == ("APIGroupList", "APIGroupList")


async def test_logs_of_containers_that_do_not_run_are_refused_with_a_message(tmp_path: Path):
    async with serving(tmp_path) as (_, client):
        code, status = await client.ask("GET", "/api/v1/namespaces/default/pods/p/log")

    assert (code, status["kind"]) == (501, "Status")
    assert "containers are not run here" in status["message"]
