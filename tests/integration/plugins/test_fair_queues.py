"""FairQueues in a running daemon: teams get their shares, borrow, take back, and wait no longer than promised; time is virtual."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.fair_queues import DEFINITION, EXAMPLE, QUEUES, placed, queue, several, teams, told

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_team_borrows_idle_capacity_and_returns_it(tmp_path: Path) -> None:
    async with teams(tmp_path, queue("a"), queue("b", weight=2)) as it:
        it.add_pods(*several("a", 14, priority=1000))
        await it.until(lambda: len(placed(it, "a")) == 12)

        it.add_pods(*several("b", 14))
        await it.until(lambda: len(placed(it, "b")) == 8)
        assert len(placed(it, "a")) == 4
        await it.until(lambda: any("of its fair 8 cpu" in each for each in told(it, "b")))
        await asyncio.sleep(120)
        assert (len(placed(it, "a")), len(placed(it, "b"))) == (4, 8)


async def test_a_lower_demand_of_a_team_requeues_the_waiting_pods_of_others(tmp_path: Path) -> None:
    async with teams(tmp_path, queue("a"), queue("b")) as it:
        it.add_pods(*several("b", 12))
        it.add_pods(*several("a", 12))
        await it.until(lambda: len(placed(it, "a")) == 6 and len(placed(it, "b")) == 6)

        for pod in it.pods():
            if pod["metadata"]["namespace"] == "b":
                it.server.store.delete("pods", pod["metadata"]["name"], "b")
        await it.until(lambda: len(placed(it, "a")) == 12, seconds=60)


async def test_a_max_is_never_exceeded_and_a_change_of_it_requeues_waiting_pods(tmp_path: Path) -> None:
    async with teams(tmp_path, queue("a", max={"cpu": 2})) as it:
        it.add_pods(*several("a", 4))
        await it.until(lambda: any("queue a has 2 of its max 2 cpu" in each for each in told(it, "a")))
        await asyncio.sleep(180)
        assert len(placed(it, "a")) == 2
        it.server.store.patch(QUEUES, "a", {"spec": {"max": {"cpu": 3}}})
        await it.until(lambda: len(placed(it, "a")) == 3, seconds=30)


async def test_a_large_pod_is_not_starved_by_a_stream_of_small_ones(tmp_path: Path) -> None:
    async with teams(tmp_path, queue("a"), queue("b"), longest_wait_seconds=30) as it:
        number = 0

        async def small_ones() -> None:
            nonlocal number
            while True:
                it.add_pods(*several("b", 1, first=number))
                number += 1
                await asyncio.sleep(5)
                old = sorted(placed(it, "b"), key=lambda name: int(name[1:]))
                if len(old) >= 6:
                    it.server.store.delete("pods", old[0], "b")

        it.add_pods(*several("b", 6))
        number = 6
        it.add_pods(*several("a", 3, cpu="1"))
        await it.until(lambda: len(placed(it, "a")) == 3)
        coming = asyncio.create_task(small_ones())
        it.add_pods(pod_object("large", namespace="a", cpu="3"))
        await it.until(lambda: "large" in placed(it, "a"), seconds=30 + 60)
        coming.cancel()


LONG, SETTLED = 200, 50


async def test_in_the_long_run_shares_are_fair(tmp_path: Path) -> None:
    """Three teams of weights 1, 2 and 3 whose pods come and go, more than there is room for."""
    random = Random(1)
    weights, most = {"a": 1, "b": 2, "c": 3}, 14
    queues = [queue("a"), queue("b", weight=2), queue("c", weight=3, max={"cpu": most})]
    async with teams(tmp_path, *queues, nodes=6) as it:
        ends: dict[tuple[str, str], float] = {}
        asked: dict[tuple[str, str], float] = {}
        waits: list[float] = []
        cpus = dict.fromkeys(weights, 0.0)
        samples, number = 0, 0
        loop = asyncio.get_running_loop()
        for second in range(LONG):
            pods = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in it.pods()}
            now = loop.time()
            for key, pod in pods.items():
                if pod["spec"].get("nodeName") and key not in ends:
                    ends[key] = now + random.uniform(30, 90)
                    waits.append(now - asked[key])
                if ends.get(key, now + 1) <= now:
                    it.server.store.delete("pods", key[1], key[0])
            for namespace in weights:
                used = sum(
                    1 for key, pod in pods.items() if key[0] == namespace and pod["spec"].get("nodeName")
                )
                assert namespace != "c" or used <= most
                if second >= SETTLED:
                    cpus[namespace] += used
                waiting = sum(
                    1 for key, pod in pods.items() if key[0] == namespace and not pod["spec"].get("nodeName")
                )
                for _ in range(max(0, random.randint(1, 3) - waiting)):
                    name = f"{namespace}{number}"
                    number += 1
                    asked[namespace, name] = now
                    it.add_pods(pod_object(name, namespace=namespace, cpu="1"))
            samples += second >= SETTLED
            await asyncio.sleep(1)
        mean = {namespace: total / samples for namespace, total in cpus.items()}
        fair = {namespace: 24 * weight / 6 for namespace, weight in weights.items()}
        for namespace in weights:
            assert mean[namespace] == pytest.approx(fair[namespace], rel=0.05)
        # Its own longest wait, and then one pod of each that began to wait before has its time.
        assert max(waits) <= 60 + 2 * 90


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"weight": 0}, "spec.weight"),
        ({"min": {"cpu": "many"}}, "spec.min.cpu"),
        ({"max": {"cpu": True}}, "spec.max.cpu"),
        ({"max": {"cpu": "-1"}}, "spec.max.cpu"),
        ({"namespaces": ["a", "a"]}, "spec.namespaces"),
        ({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}, "spec.podSelector"),
    ],
    ids=["no weight", "no quantity", "no amount", "a negative amount", "twice", "no operator"],
)
async def test_an_invalid_queue_is_refused_at_its_field(tmp_path: Path, spec: Any, field: str) -> None:
    async with cluster(tmp_path) as it:
        await it.define(DEFINITION)
        with pytest.raises(StatusError, match=field):
            it.server.store.create(QUEUES, {**queue("team"), "spec": spec})


async def test_the_example_is_accepted_and_shares_are_divided_in_two_levels(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it:
        await it.define(DEFINITION)
        for each in yaml.safe_load_all((EXAMPLE / "queues.yaml").read_text()):
            it.server.store.create("namespaces" if each["kind"] == "Namespace" else QUEUES, each)
        it.add_nodes(*(node_object(f"n{number}", cpu="4") for number in range(3)))
        async with it.daemon((EXAMPLE / "scheduler.yaml").read_text()):
            catalysts = [
                pod_object(f"c{number}", namespace="chemistry", cpu="1", labels={"project": "catalysts"})
                for number in range(12)
            ]
            teams = ("astronomy", "biology", "chemistry")
            it.add_pods(*catalysts, *(pod for team in teams for pod in several(team, 12)))
            await it.until(lambda: [len(placed(it, team)) for team in teams] == [2, 4, 6])
            assert len({name for name in placed(it, "chemistry") if name.startswith("chemistry")}) == 4
