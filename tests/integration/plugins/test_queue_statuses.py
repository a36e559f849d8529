"""The status of Queues under a running daemon, and their metrics; time is virtual."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from scheduler.configuration.load import parse
from tests.integration.plugins import test_quotas as quotas
from tests.support.builders import node_object
from tests.support.daemon_harness import cluster
from tests.support.fair_queues import (
    DEFINITION,
    EXAMPLE,
    QUEUES,
    placed,
    queue,
    several,
    teams,
    teams_and_daemon,
)

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.support.daemon_harness import Cluster


def status(it: Cluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = it.server.store.get(QUEUES, name).get("status", {})
    return {field: value for field, value in found.items() if field != "conditions"}


def accepted(it: Cluster, name: str) -> tuple[str, str, str]:
    conditions = it.server.store.get(QUEUES, name).get("status", {}).get("conditions", ())
    [found] = conditions or [{}]
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


def writes(it: Cluster) -> list[str]:
    return [each.path for each in it.server.requests if "queues" in each.path and each.method == "PATCH"]


async def test_the_state_of_queues_is_written_only_when_it_changes(tmp_path: Path) -> None:
    root = {**queue("root"), "spec": {"namespaces": []}}
    async with teams(tmp_path, root, queue("a", parent="root"), queue("b", max={"cpu": 3})) as it:
        await it.until(lambda: accepted(it, "a") == ("True", "Valid", ""))
        nothing = {"used": {}, "fairShare": {}, "pending": 0, "dominantShare": "0.0%"}
        assert status(it, "a") == nothing
        assert status(it, "b") == nothing | {"used": {"cpu": "0"}, "fairShare": {"cpu": "0"}}

        before = len(writes(it))
        it.add_pods(*several("a", 14))
        full = {"used": {"cpu": "12"}, "fairShare": {"cpu": "12"}, "pending": 2, "dominantShare": "100.0%"}
        await it.until(lambda: status(it, "a") == full)
        assert status(it, "root") == full
        assert len(writes(it)) - before <= 2 * 3
        before = len(writes(it))
        await asyncio.sleep(120)
        assert len(writes(it)) == before

        it.add_pods(*several("b", 4))
        await it.until(lambda: len(placed(it, "b")) == 3)
        few = {"used": {"cpu": "3"}, "fairShare": {"cpu": "3"}, "pending": 1, "dominantShare": "25.0%"}
        await it.until(lambda: status(it, "b") == few)
        await it.until(lambda: status(it, "a")["fairShare"] == {"cpu": "9"})
        for pod in placed(it, "a"):
            it.server.store.delete("pods", pod, "a")
        for pod in placed(it, "b") | {"b0", "b1", "b2", "b3"}:
            it.server.store.delete("pods", pod, "b")
        await asyncio.sleep(5)
        for pod in placed(it, "a"):
            it.server.store.delete("pods", pod, "a")
        await it.until(lambda: status(it, "root") == nothing)


async def test_an_inactive_queue_gets_the_reason_as_status_and_event(tmp_path: Path) -> None:
    async with teams(tmp_path, queue("a")) as it:
        await it.until(lambda: accepted(it, "a")[0] == "True")
        await asyncio.sleep(2)
        second = {**queue("second", parent="nobody"), "spec": {"namespaces": ["a"], "parent": "nobody"}}
        it.server.store.create(QUEUES, second)
        reported = "spec.parent: queue nobody does not exist"
        await it.until(lambda: accepted(it, "second") == ("False", "UnknownParent", reported))
        await it.until(lambda: it.notes("second", "UnknownParent") == [reported])

        it.server.store.patch(QUEUES, "second", {"spec": {"parent": None}})
        reported = "spec.namespaces[0]: queue a has namespace a already"
        await it.until(lambda: accepted(it, "second") == ("False", "NamespaceTaken", reported))
        await it.until(lambda: it.notes("second", "NamespaceTaken") == [reported])
        it.server.store.delete(QUEUES, "a")
        await it.until(lambda: accepted(it, "second") == ("True", "Valid", ""))


async def test_nothing_is_written_if_the_plugin_is_not_enabled(tmp_path: Path) -> None:
    async with teams(tmp_path, queue("a")) as it:
        await it.until(lambda: writes(it))
    (tmp_path / "other").mkdir()
    async with cluster(tmp_path / "other") as it, it.daemon():
        it.add_nodes(node_object("n"))
        await asyncio.sleep(10)
        assert not writes(it)


async def test_the_longest_wait_of_a_queue_is_a_metric(tmp_path: Path) -> None:
    async with teams_and_daemon(tmp_path, queue("a", max={"cpu": 2}), queue("b")) as (it, daemon):
        it.add_pods(*several("a", 3), *several("b", 1))
        await it.until(lambda: len(placed(it, "a")) == 2 and len(placed(it, "b")) == 1)
        await asyncio.sleep(300)

        def shown(name: str, queue: str) -> float | None:
            return daemon.metrics.registry.get_sample_value(
                f"custom_scheduler_queue_{name}", {"queue": queue}
            )

        waited = shown("longest_wait_seconds", "a")
        assert waited is not None
        assert 295 < waited < 310
        assert shown("longest_wait_seconds", "b") == 0
        assert shown("used_share", "a") == shown("fair_share", "a") == 2 / 12
        it.server.store.delete("pods", min(placed(it, "a")), "a")
        await it.until(lambda: shown("longest_wait_seconds", "a") == 0)


async def test_only_the_leader_writes_and_exports_the_state_of_queues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = (EXAMPLE / "scheduler.yaml").read_text()
    async with cluster(tmp_path) as it, AsyncExitStack() as leading:
        await it.define(DEFINITION)
        leader = await leading.enter_async_context(it.daemon(leader_elect=True))
        await it.until(leader.leadership.is_leading)
        async with it.daemon(text, leader_elect=True) as follower:
            it.server.store.create(QUEUES, queue("a"))
            await asyncio.sleep(30)
            assert not writes(it)
            assert "could not be written" not in caplog.text  # it is not even tried
            shown = follower.metrics.registry.get_sample_value
            series = "custom_scheduler_queue_used_share", {"queue": "a"}
            assert shown(*series) is None
            await leading.aclose()
            await it.until(lambda: accepted(it, "a") == ("True", "Valid", ""))
            assert shown(*series) == 0


async def test_no_quota_status_is_written_after_the_plugin_is_disabled(tmp_path: Path) -> None:
    text = (quotas.EXAMPLE / "scheduler.yaml").read_text()
    async with cluster(tmp_path, kubelet=True) as it:
        await it.define(quotas.DEFINITION)
        async with it.daemon(text) as daemon:
            it.server.store.create(quotas.QUOTAS, quotas.quota("default", 1, 1))
            await it.until(lambda: it.server.store.get(quotas.QUOTAS, "default", "default").get("status"))
            await daemon.reload(parse((EXAMPLE / "scheduler.yaml").read_text(), "a test"))
            await asyncio.sleep(5)
            it.add_nodes(node_object("n"))
            it.add_pods(*several("default", 1))
            await it.until(lambda: placed(it, "default"))
            await asyncio.sleep(30)
            said = it.server.store.get(quotas.QUOTAS, "default", "default")["status"]
            assert said["used"] == {"cpu": "0"}


async def test_statuses_of_many_queues_are_written_at_a_bounded_rate_until_all_are_done(
    tmp_path: Path,
) -> None:
    async with teams(tmp_path, *(queue(f"q{number}") for number in range(220))) as it:
        written = [len(set(writes(it)))]
        while written[-1] < 220:
            await asyncio.sleep(1)
            written.append(len(writes(it)))
            assert len(written) < 60
        assert max(after - before for before, after in itertools.pairwise(written)) <= 100
        assert all(accepted(it, f"q{number}")[0] == "True" for number in range(220))


async def test_the_averages_continue_after_a_restart(tmp_path: Path) -> None:
    text = (EXAMPLE / "history.yaml").read_text()
    async with cluster(tmp_path, kubelet=True) as it:
        await it.define(DEFINITION)
        for name in ("a", "b"):
            it.server.store.create("namespaces", {"metadata": {"name": name}})
            it.server.store.create(QUEUES, queue(name))
        it.add_nodes(*(node_object(f"n{number}", cpu="4") for number in range(3)))

        def average(name: str) -> float:
            return float(status(it, name).get("averageShare", "0%").removesuffix("%"))

        async with it.daemon(text):
            it.add_pods(*several("a", 12))
            await it.until(lambda: len(placed(it, "a")) == 12)
            await asyncio.sleep(10)
            before = len(writes(it))
            await asyncio.sleep(3600)
            assert 2.0 < average("a") < 3.0  # 1 - 0.5 ** (1 / 24) is 2.8 %
            assert average("b") == 0
            assert len(writes(it)) - before <= 3600 / 300, "at most 256 times in a half-life"
        known = average("a")
        await asyncio.sleep(3600)
        async with it.daemon(text) as daemon:
            await it.until(lambda: daemon.has_synced)
            await it.until(lambda: average("a") > known)
            assert 5.0 < average("a") < 6.0  # the use lasted while no daemon ran
