"""Aggregated discovery, and errors for missing resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.simulator.simulator_client import serving
from tests.support.virtual_time_test import virtually
from tests.unit.simulator.definitions import definition

if TYPE_CHECKING:
    from pathlib import Path

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@virtually
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


@virtually
async def test_a_client_that_prefers_plain_discovery_gets_it(tmp_path: Path):
    async with serving(tmp_path) as (_, client):
        _, plain = await client.ask("GET", "/apis", Accept="application/json")

        _, anything = await client.ask("GET", "/apis", Accept="*/*")

    assert (plain["kind"], anything["kind"]) == ("APIGroupList", "APIGroupList")


@virtually
async def test_logs_of_containers_that_do_not_run_are_refused_with_a_message(tmp_path: Path):
    async with serving(tmp_path) as (_, client):
        code, status = await client.ask("GET", "/api/v1/namespaces/default/pods/p/log")

    assert (code, status["kind"]) == (501, "Status")
    assert "containers are not run here" in status["message"]
