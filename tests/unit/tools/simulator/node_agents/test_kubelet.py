"""Simulated kubelets, in virtual time on a store without HTTP: rejections, heartbeats, run times of containers."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from scheduler.tools.simulator.node_agents.kubelet import KubeletOptions
from scheduler.tools.simulator.node_agents.pod_status import (
    ENDLESS,
    RUN_SECONDS,
    ContainerRun,
    run_of_command,
    runs_of,
)
from tests.support.virtual_time import LoopClock
from tests.unit.tools.simulator.a_store import AStore, node, pod
from tests.unit.tools.simulator.definitions import running


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
async def test_a_pod_that_its_node_cannot_run_fails_with_the_message_of_the_kubelet(
    store: AStore, made: dict[str, Any], reason: str, message: str
):
    async with running(store, node("n1")):
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


async def test_a_pod_above_the_limit_of_a_node_is_rejected(store: AStore):
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


async def test_a_silent_kubelet_neither_starts_nor_ends_pods(store: AStore):
    async with running(store, node("n1")):
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


async def test_a_pod_may_be_deleted_at_the_time_of_its_transition(caplog: pytest.LogCaptureFixture):
    """It is taken in, it starts, it ends: its kubelet has not been told then that it is gone."""
    for seconds in (0.05, 1.05, 3.05):
        store = AStore()
        async with running(store, node("n1")):
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


LEASES = "leases.coordination.k8s.io"
NAMESPACE = "kube-node-lease"


def renewed(store: AStore, name: str) -> str:
    return str(store.get(LEASES, name, NAMESPACE)["spec"]["renewTime"])


def ready(status: str) -> dict[str, object]:
    return {"status": {"conditions": [{"type": "Ready", "status": status}]}}


async def test_the_leases_of_nodes_are_renewed_unless_they_are_silent():
    store = AStore(clock=LoopClock())
    async with running(
        store,
        *(node(name) | ready("True") for name in ("n1", "n2")),
        kubelet=KubeletOptions(heartbeat_seconds=10),
        controllers=False,
    ):
        await asyncio.sleep(1)
        lease = store.get(LEASES, "n1", NAMESPACE)
        assert lease["spec"]["holderIdentity"] == "n1"
        assert lease["spec"]["leaseDurationSeconds"] == 40
        assert lease["metadata"]["ownerReferences"][0]["kind"] == "Node"
        annotations = store.get("nodes", "n1")["metadata"]["annotations"]
        assert annotations == {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
        before = renewed(store, "n1"), renewed(store, "n2")
        store.patch("nodes", "n2", ready("Unknown"), subresource="status")
        await asyncio.sleep(20)
        assert renewed(store, "n1") > before[0]
        assert renewed(store, "n2") == before[1]

        store.patch("nodes", "n2", ready("True"), subresource="status")
        await asyncio.sleep(1)
        assert renewed(store, "n2") > before[1]


async def test_the_status_of_a_node_is_written_every_five_minutes():
    store = AStore(clock=LoopClock())
    async with running(
        store, node("n1") | ready("True"), kubelet=KubeletOptions(heartbeat_seconds=10), controllers=False
    ):
        await asyncio.sleep(301)
        (condition,) = store.get("nodes", "n1")["status"]["conditions"]
        assert condition["lastHeartbeatTime"] > "1971"


async def test_leases_are_renewed_only_with_an_observer(store: AStore):
    async with running(store, node("n1")):
        await asyncio.sleep(100)
        assert store.list(LEASES) == []


@pytest.mark.parametrize(
    ("command", "run"),
    [
        pytest.param(["sleep", "5"], ContainerRun(5, 0), id="sleep"),
        pytest.param(["/bin/sleep", "1m", "30"], ContainerRun(90, 0), id="sleep with units"),
        pytest.param(["sleep", "infinity"], ContainerRun(math.inf, 0), id="sleep for ever"),
        pytest.param(["false"], ContainerRun(0, 1), id="false"),
        pytest.param(["sh", "-c", "sleep 2; exit 3"], ContainerRun(2, 3), id="a script that fails"),
        pytest.param(["bash", "-ec", "echo hello && sleep 1"], ContainerRun(1, 0), id="one after the other"),
        pytest.param(
            ["sh", "-c", "false && sleep 9"], ContainerRun(0, 1), id="the command after a failure is skipped"
        ),
        pytest.param(
            ["sh", "-c", "false || sleep 9"], ContainerRun(9, 0), id="the alternative after a failure runs"
        ),
        pytest.param(["nginx", "-g"], None, id="anything else"),
        pytest.param(["sh", "-c", "sleep 1; ./work"], None, id="anything else in a script"),
        pytest.param(["sh", "-c", "echo 'open"], None, id="a broken script"),
        pytest.param(["sleep", "soon"], None, id="no number"),
        pytest.param([], None, id="the image's own command"),
    ],
)
def test_a_command_sets_its_run_time(command: list[str], run: ContainerRun | None):
    assert run_of_command(command) == run


def of(pod_object: dict[str, Any]) -> list[ContainerRun]:
    return runs_of(pod_object, job_seconds=5)


def test_containers_that_always_restart_never_finish():
    assert of(pod("p", restartPolicy="Always")) == [ENDLESS]


def test_annotations_set_the_run_time_of_all_containers():
    made = pod("p", restartPolicy="Never")
    made["metadata"]["annotations"] = {"simulator/run-seconds": "2.5", "simulator/exit-code": "4"}

    assert of(made) == [ContainerRun(2.5, 4)]


def test_only_a_container_of_a_job_finishes_by_default():
    made = pod("p", restartPolicy="Never")
    assert of(made) == [ENDLESS]

    made["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j", "uid": "u", "controller": True}]
    assert of(made) == [ContainerRun(5, 0)]


async def test_extended_resources_of_the_capacity_become_allocatable(store: AStore):
    """An administrator adds, changes and removes one, as the documentation of Kubernetes shows."""
    store.create("nodes", node("n1"))

    async def allocatable(amount: str | None) -> str | None:
        patch = {"status": {"capacity": {"example.com/dongle": amount}}}
        store.patch("nodes", "n1", patch, subresource="status")
        await asyncio.sleep(1)
        found: str | None = store.get("nodes", "n1")["status"]["allocatable"].get("example.com/dongle")
        return found

    async with running(store):
        assert [await allocatable(amount) for amount in ("4", "2", None)] == ["4", "2", None]


async def test_devices_that_are_not_allocatable_stay_so(store: AStore):
    made = node("n1")
    made["status"]["capacity"]["example.com/gpu"] = "4"
    made["status"]["allocatable"] = {**made["status"]["capacity"], "example.com/gpu": "3"}
    store.create("nodes", made)
    async with running(store):
        store.patch("nodes", "n1", {"metadata": {"labels": {"a": "b"}}})
        await asyncio.sleep(1)

    assert store.get("nodes", "n1")["status"]["allocatable"]["example.com/gpu"] == "3"


@pytest.mark.parametrize(
    ("hook", "seconds"),
    [
        pytest.param({"sleep": {"seconds": 20}}, 21, id="sleep"),
        pytest.param({"exec": {"command": ["sh", "-c", "sleep 5"]}}, 6, id="command"),
        pytest.param({"exec": {"command": ["nginx", "-s", "quit"]}}, 1, id="unknown command"),
        pytest.param({"sleep": {"seconds": 100}}, 30, id="longer than the grace period"),
    ],
)
async def test_a_deleted_pod_stays_until_its_hooks_have_ended(
    store: AStore, hook: dict[str, Any], seconds: float
):
    async with running(store, node("n1")):
        made = pod("p", terminationGracePeriodSeconds=30)
        made["spec"]["containers"][0]["lifecycle"] = {"preStop": hook}
        store.create("pods", made)
        store.bind("p", "n1")
        await asyncio.sleep(2)
        store.delete("pods", "p")
        await asyncio.sleep(seconds - 0.1)
        assert store.find("pods", "p") is not None
        await asyncio.sleep(0.2)
        assert store.find("pods", "p") is None
