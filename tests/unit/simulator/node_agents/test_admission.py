"""Rejections by simulated kubelets, in virtual time on a store without HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.simulator.node_agents.pod_status import RUN_SECONDS
from tests.support.virtual_time_test import virtually
from tests.unit.simulator.a_store import AStore, node, pod
from tests.unit.simulator.definitions import running


def with_port(name: str, port: int) -> dict[str, Any]:
    made = pod(name)
    made["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
    return made


CASES = [
    pytest.param(
        pod("p", requests={"cpu": "5"}),
        "OutOfcpu",
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 5000, used: 0, capacity: 4000",
        id="cpu",
    ),
    pytest.param(
        pod("p", requests={"memory": "9Gi"}),
        "OutOfmemory",
        "Pod was rejected: Node didn't have enough resource: memory, requested: 9663676416, used: 0, "
        "capacity: 8589934592",
        id="memory",
    ),
    pytest.param(
        pod("p", nodeSelector={"disk": "ssd"}),
        "NodeAffinity",
        "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        id="node selector",
    ),
    pytest.param(
        with_port("p", 80),
        "NodePorts",
        "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
        id="port",
    ),
]


@pytest.mark.parametrize(("made", "reason", "message"), CASES)
def test_a_pod_that_its_node_cannot_run_fails_with_the_message_of_the_kubelet(
    made: dict[str, Any], reason: str, message: str
):
    @virtually
    async def test() -> None:
        store = AStore()
        store.create("nodes", node("n1"))
        async with running(store):
            store.create("pods", with_port("first", 80))
            store.bind("first", "n1")
            await asyncio.sleep(2)
            store.create("pods", made)
            store.bind("p", "n1")
            await asyncio.sleep(2)

        status = store.get("pods", "p")["status"]
        assert (status["phase"], status["reason"], status["message"]) == ("Failed", reason, message)
        (event,) = store.list("events")
        assert (event["reason"], f"Pod was rejected: {event['message']}") == (reason, message)
        assert store.get("pods", "first")["status"]["phase"] == "Running"

    test()


@virtually
async def test_a_pod_above_the_limit_of_a_node_is_rejected():
    store = AStore()
    small = node("n1")
    small["status"]["capacity"]["pods"] = "1"
    store.create("nodes", small)
    async with running(store):
        for name in ("first", "second"):
            store.create("pods", pod(name))
            store.bind(name, "n1")
            await asyncio.sleep(2)

    status = store.get("pods", "second")["status"]
    assert (status["reason"], status["message"]) == (
        "OutOfpods",
        "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1",
    )


@virtually
async def test_a_silent_kubelet_neither_starts_nor_ends_pods():
    store = AStore()
    store.create("nodes", node("n1"))
    async with running(store):
        silent = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
        store.patch("nodes", "n1", silent, subresource="status")
        store.create("pods", pod("p"))
        store.bind("p", "n1")
        await asyncio.sleep(10)
        assert store.get("pods", "p")["status"]["phase"] == "Pending"

        back = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        store.patch("nodes", "n1", back, subresource="status")
        await asyncio.sleep(10)
        assert store.get("pods", "p")["status"]["phase"] == "Running"


@virtually
async def test_a_pod_may_be_deleted_at_the_time_of_its_transition(
    caplog: pytest.LogCaptureFixture,
):
    """It is taken in, it starts, it ends: its kubelet has not been told then that it is gone."""
    for seconds in (0.05, 1.05, 3.05):
        store = AStore()
        store.create("nodes", node("n1"))
        async with running(store):
            made = pod("p", restartPolicy="Never")
            made["metadata"]["annotations"] = {RUN_SECONDS: "2"}
            store.create("pods", made)
            store.bind("p", "n1")
            bound_at = asyncio.get_running_loop().time()
            await asyncio.sleep(seconds - 0.01)
            loop = asyncio.get_running_loop()
            loop.call_at(
                bound_at + seconds - 1e-10,
                lambda s=store: s.remove(s.get("pods", "p"), grace_period_seconds=0),
            )
            await asyncio.sleep(10)
            assert not store.list("pods")

    assert not caplog.records
