"""The status of ElasticQuotas under a running daemon; time is virtual."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.integration.plugins.test_quotas import CRDS, QUOTAS, quota, several, teams
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.daemon_harness import Cluster


def status(it: Cluster, name: str, namespace: str = "") -> dict[str, Any]:
    found: dict[str, Any] = it.server.store.get(QUOTAS, name, namespace or name).get("status", {})
    return found


def used(it: Cluster, name: str) -> dict[str, str]:
    found: dict[str, str] = status(it, name).get("used", {})
    return found


def accepted(it: Cluster, name: str, namespace: str = "") -> tuple[str, str, str]:
    conditions = status(it, name, namespace).get("conditions", ())
    [found] = conditions or [{}]
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


def status_writes(it: Cluster) -> int:
    return len(
        [each for each in it.server.requests if "elasticquotas" in each.path and each.method == "PATCH"]
    )


async def test_the_usage_of_running_pods_is_shown_and_a_burst_is_one_write(tmp_path: Path) -> None:
    async with teams(tmp_path, a=(2, 6), b=(4, 4)) as it:
        await it.until(lambda: used(it, "a") == {"cpu": "0"})
        before = status_writes(it)
        it.add_pods(*several("a", 3), pod_object("small", namespace="a", cpu="500m"))
        await it.until(lambda: used(it, "a") == {"cpu": "3500m"})
        assert status_writes(it) - before <= 3
        assert used(it, "b") == {"cpu": "0"}
        assert accepted(it, "a") == ("True", "Valid", "")

        before = status_writes(it)
        await asyncio.sleep(120)
        assert status_writes(it) == before
        it.server.store.delete("pods", "small", "a")
        await it.until(lambda: used(it, "a") == {"cpu": "3"})


async def test_a_second_quota_of_a_namespace_is_reported_as_ignored(tmp_path: Path) -> None:
    async with teams(tmp_path, a=(2, 6)) as it:
        await it.until(lambda: accepted(it, "a")[0] == "True")
        await asyncio.sleep(2)
        second = quota("a", 1, 1)
        second["metadata"]["name"] = "second"
        it.server.store.create(QUOTAS, second)

        reported = "metadata.namespace: ElasticQuota a is older, and the first one counts"
        await it.until(lambda: accepted(it, "second", "a") == ("False", "Ignored", reported))
        await it.until(lambda: it.notes("second", "Ignored") == [reported])
        it.server.store.delete(QUOTAS, "a", "a")
        await it.until(lambda: accepted(it, "second", "a") == ("True", "Valid", ""))


async def test_a_min_above_max_is_reported_at_its_field(tmp_path: Path) -> None:
    async with teams(tmp_path, a=(6, 4)) as it:
        reported = "spec.min.cpu: must be at most spec.max.cpu (4), was 6; max holds"
        await it.until(lambda: accepted(it, "a") == ("False", "MinAboveMax", reported))
        it.server.store.patch(QUOTAS, "a", {"spec": {"min": {"cpu": 3}}}, namespace="a")
        await it.until(lambda: accepted(it, "a") == ("True", "Valid", ""))


async def test_an_amount_that_overflows_is_reported_at_its_field_and_affects_no_other(tmp_path: Path) -> None:
    async with teams(tmp_path, a=(0, 6), b=(4, 4)) as it:
        it.server.store.patch(QUOTAS, "a", {"spec": {"min": {"cpu": "8Ei"}}}, namespace="a")
        reported = "spec.min.cpu: at most 9223372036854775807m is expected, was 8Ei; it does not count"
        await it.until(lambda: accepted(it, "a") == ("False", "Invalid", reported))
        it.add_pods(*several("b", 4))
        await it.until(lambda: used(it, "b") == {"cpu": "4"})


async def test_a_negative_amount_is_refused_by_the_schema(tmp_path: Path) -> None:
    async with teams(tmp_path, a=(0, 6)) as it:
        for wrong in (-1, "-1"):
            for field in ("min", "max"):
                with pytest.raises(StatusError, match=rf"spec\.{field}\.cpu"):
                    it.server.store.patch(QUOTAS, "a", {"spec": {field: {"cpu": wrong}}}, namespace="a")


THEIRS = {
    "type": "Audited",
    "status": "True",
    "reason": "Checked",
    "message": "by the team",
    "lastTransitionTime": "2020-01-01T00:00:00Z",
}


def put_conditions(it: Any, namespace: str, *conditions: dict[str, str]) -> None:
    """Let somebody else write the conditions of a quota."""
    changed = {"status": {"conditions": list(conditions)}}
    it.server.store.patch(QUOTAS, namespace, changed, namespace=namespace, subresource="status")


async def test_a_condition_of_another_writer_stays_and_is_not_taken_for_ours(tmp_path: Path) -> None:
    async with teams(tmp_path, a=(2, 6)) as it:
        await it.until(lambda: accepted(it, "a") == ("True", "Valid", ""))
        ours = status(it, "a")["conditions"]
        put_conditions(it, "a", THEIRS, *ours)
        await asyncio.sleep(5)
        it.add_pods(*several("a", 1))
        await it.until(lambda: used(it, "a") == {"cpu": "1"})

        assert status(it, "a")["conditions"] == [THEIRS, *ours]
        before = status_writes(it)
        await asyncio.sleep(60)
        assert status_writes(it) == before


async def test_a_condition_that_no_watch_has_delivered_yet_stays(tmp_path: Path) -> None:
    async with teams(tmp_path, a=(2, 6)) as it:
        await it.until(lambda: accepted(it, "a") == ("True", "Valid", ""))
        ours = status(it, "a")["conditions"]
        late = it.server.faults.stall_watches(lambda request: request.resource == "elasticquotas")
        put_conditions(it, "a", THEIRS, *ours)
        it.add_pods(*several("a", 1))
        await asyncio.sleep(5)
        it.server.faults.remove(late)
        await it.until(lambda: used(it, "a") == {"cpu": "1"})

        assert status(it, "a")["conditions"] == [THEIRS, *ours]


async def test_a_foreign_write_over_our_status_is_corrected_within_a_minute(tmp_path: Path) -> None:
    async with teams(tmp_path, a=(2, 6)) as it:
        await it.until(lambda: accepted(it, "a") == ("True", "Valid", ""))
        ours = status(it, "a")
        theirs = {"used": {"cpu": "5"}, "conditions": []}
        before = status_writes(it)
        for _ in range(5):  # whoever insists is not fought about it
            it.server.store.patch(QUOTAS, "a", {"status": theirs}, namespace="a", subresource="status")
            await asyncio.sleep(20)

        await it.until(lambda: used(it, "a") == ours["used"] and accepted(it, "a") == ("True", "Valid", ""))
        assert status_writes(it) - before <= 3
        before = status_writes(it)
        await asyncio.sleep(300)
        assert status_writes(it) == before


async def test_a_field_that_the_server_drops_is_not_written_again_and_again(tmp_path: Path) -> None:
    async with teams(tmp_path, a=(2, 6)) as it:
        definition = it.server.store.get(CRDS, "elasticquotas.scheduling.x-k8s.io")
        known = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
        del known["properties"]["conditions"]  # as scheduler-plugins' own has it
        it.server.store.update(CRDS, definition)
        it.server.store.patch(QUOTAS, "a", {"spec": {"min": {"cpu": 3}}}, namespace="a")
        await asyncio.sleep(120)
        before = status_writes(it)
        await asyncio.sleep(600)
        assert status_writes(it) == before
        assert "conditions" not in status(it, "a")


async def test_nothing_is_written_if_the_plugin_is_not_enabled(tmp_path: Path) -> None:
    async with teams(tmp_path, a=(2, 6)) as it:
        await it.until(lambda: used(it, "a"))
    (tmp_path / "other").mkdir()
    async with cluster(tmp_path / "other") as it, it.daemon():
        it.add_nodes(node_object("n"))
        await asyncio.sleep(10)
        assert status_writes(it) == 0
