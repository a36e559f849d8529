"""Controllers and kubelets record the events of a real cluster, in virtual time on a store without HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

from scheduler.tools.simulator.node_agents.pod_status import EXIT_CODE, RUN_SECONDS
from tests.support.virtual_time import LoopClock
from tests.unit.tools.simulator.a_store import AStore, deployment, node, pod
from tests.unit.tools.simulator.controllers.test_daemons_and_stateful_sets import (
    daemon_set,
    stateful_set,
    wanted_node,
)
from tests.unit.tools.simulator.controllers.test_jobs import job, play
from tests.unit.tools.simulator.definitions import running
from tests.unit.tools.simulator.storage_objects import claim

HOUR = 3600.0


def new_store() -> AStore:
    """Return a store with one node, in the time of the running loop."""
    made = AStore(clock=LoopClock(), normal_events=True)
    made.create("nodes", node("n1"))
    return made


def shown(store: AStore, name: str) -> list[str]:
    """Return the events about an object: source, reason, message and, if repeated, count, in the order of creation."""
    found = store.list("events", fields=f"involvedObject.name={name}")
    return [
        f"{one['source']['component']} {one['reason']}: {one['message']}"
        + (f" x{one['count']}" if one["count"] > 1 else "")
        for one in sorted(found, key=lambda one: one["metadata"]["name"])
    ]


async def test_a_deployment_records_how_it_scales_its_replica_sets() -> None:
    store = new_store()
    async with running(store):
        store.create("deployments", deployment("web", 2))
        await play(store, 5)
        (old,) = (one["metadata"]["name"] for one in store.list("replicasets"))
        store.scale("deployments", "web", 3)
        await play(store, 5)
        store.scale("deployments", "web", 1)
        await play(store, 5)

        name = f"deployment-controller ScalingReplicaSet: Scaled %s replica set {old} from %s"
        assert shown(store, "web") == [
            name % ("up", "0 to 2"),
            name % ("up", "2 to 3"),
            name % ("down", "3 to 1"),
        ]


async def test_a_replica_set_records_which_pods_it_creates_and_deletes() -> None:
    store = new_store()
    async with running(store):
        store.create("deployments", deployment("web", 1))
        await play(store, 1)
        (created,) = (one["metadata"]["name"] for one in store.list("pods"))
        store.scale("deployments", "web", 0)
        await play(store, 5)

        (replica_set,) = (one["metadata"]["name"] for one in store.list("replicasets"))
        assert shown(store, replica_set) == [
            f"replicaset-controller SuccessfulCreate: Created pod: {created}",
            f"replicaset-controller SuccessfulDelete: Deleted pod: {created}",
        ]


async def test_a_replica_set_over_its_quota_records_why_in_few_events() -> None:
    store = new_store()
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}}
    store.create("resourcequotas", quota)
    async with running(store):
        store.create("deployments", deployment("web", 1))
        await asyncio.sleep(10 * 60)

        (replica_set,) = (one["metadata"]["name"] for one in store.list("replicasets"))
        (first, *_) = shown(store, replica_set)
        assert "FailedCreate: Error creating: pods" in first
        assert "exceeded quota: few, requested: pods=1, used: pods=0, limited: pods=0" in first
        assert len(store.list("events", fields=f"involvedObject.name={replica_set}")) <= 10


async def test_a_stateful_set_records_its_claims_and_pods() -> None:
    store = new_store()
    templates = [{"metadata": {"name": "data"}, "spec": claim("data")["spec"]}]
    async with running(store):
        store.create("statefulsets", stateful_set("db", 1, volumeClaimTemplates=templates))
        await play(store, 2)
        store.scale("statefulsets", "db", 0)
        await play(store, 5)

        source = "statefulset-controller"
        assert shown(store, "db") == [
            f"{source} SuccessfulCreate: Create Claim data-db-0 Pod db-0 in StatefulSet db success",
            f"{source} SuccessfulCreate: Create Pod db-0 in StatefulSet db successful",
            f"{source} SuccessfulDelete: Delete Pod db-0 in StatefulSet db successful",
        ]


async def test_a_daemon_set_records_a_pod_that_failed() -> None:
    store = new_store()
    async with running(store):
        store.create("daemonsets", daemon_set("agent"))
        await asyncio.sleep(1)
        (found,) = store.list("pods")
        name = found["metadata"]["name"]
        store.bind(name, wanted_node(found))
        await asyncio.sleep(0.01)
        store.patch("pods", name, {"status": {"phase": "Failed"}}, subresource="status")
        await asyncio.sleep(0.01)

        problem = f"Found failed daemon pod default/{name} on node n1, will try to kill it"
        assert shown(store, "agent")[:3] == [
            f"daemonset-controller SuccessfulCreate: Created pod: {name}",
            f"daemonset-controller FailedDaemonPod: {problem}",
            f"daemonset-controller SuccessfulDelete: Deleted pod: {name}",
        ]


async def test_a_job_records_its_pods_and_its_end() -> None:
    store = new_store()
    async with running(store):
        store.create("jobs", job("good", ["true"]))
        store.create("jobs", job("bad", ["false"], backoffLimit=0))
        await play(store, 10)

        pods = {
            one["metadata"]["ownerReferences"][0]["name"]: one["metadata"]["name"]
            for one in store.list("pods")
        }
        assert shown(store, "good") == [
            f"job-controller SuccessfulCreate: Created pod: {pods['good']}",
            "job-controller Completed: Job completed",
        ]
        assert shown(store, "bad") == [
            f"job-controller SuccessfulCreate: Created pod: {pods['bad']}",
            "job-controller BackoffLimitExceeded: Job has reached the specified backoff limit",
        ]


async def test_a_job_records_that_it_is_suspended_and_resumed() -> None:
    store = new_store()
    async with running(store):
        store.create("jobs", job("j", ["sleep", "60"], suspend=True))
        await play(store, 5)
        store.patch("jobs", "j", {"spec": {"suspend": False}})
        await play(store, 5)

        assert shown(store, "j")[:2] == [
            "job-controller Suspended: Job suspended",
            "job-controller Resumed: Job resumed",
        ]


def of_container(store: AStore, name: str) -> list[tuple[str, str, int]]:
    """Return the reason, message and count of the events about a pod's container, each with the right source."""
    found = sorted(store.list("events"), key=lambda one: one["metadata"]["name"])
    found = [one for one in found if one["involvedObject"].get("fieldPath") == f"spec.containers{{{name}}}"]
    assert {(one["source"]["component"], one["source"]["host"]) for one in found} <= {("kubelet", "n1")}
    return [(one["reason"], one["message"], one["count"]) for one in found]


STARTED = [
    ("Pulled", 'Container image "nginx" already present on machine and can be accessed by the pod', 1),
    ("Created", "Container created", 1),
    ("Started", "Container started", 1),
]


async def test_a_kubelet_records_how_each_container_starts_and_stops() -> None:
    store = new_store()
    two = pod("p")
    two["spec"]["containers"].append({"name": "side", "image": "nginx"})
    async with running(store):
        store.create("pods", two)
        store.bind("p", "n1")
        await asyncio.sleep(5)
        assert of_container(store, "c") == of_container(store, "side") == STARTED

        store.delete("pods", "p")
        await asyncio.sleep(5)
        assert of_container(store, "c")[3:] == [("Killing", "Stopping container c", 1)]
        assert of_container(store, "side")[3:] == [("Killing", "Stopping container side", 1)]


async def test_a_kubelet_records_containers_that_fail_and_restart() -> None:
    store = new_store()
    made: dict[str, Any] = pod("p", restartPolicy="OnFailure")
    made["metadata"]["annotations"] = {RUN_SECONDS: "0", EXIT_CODE: "1"}
    async with running(store):
        uid = store.create("pods", made)["metadata"]["uid"]
        store.bind("p", "n1")
        await asyncio.sleep(25)

        waiting = f"Back-off restarting failed container c in pod p_default({uid})"
        assert of_container(store, "c") == [
            *((reason, message, 2) for reason, message, _ in STARTED),
            ("BackOff", waiting, 2),
        ]


async def test_a_pod_that_never_started_is_not_stopped() -> None:
    store = new_store()
    async with running(store):
        store.create("pods", pod("p"))
        store.bind("p", "n1")
        await asyncio.sleep(0.2)
        store.delete("pods", "p")
        await asyncio.sleep(5)

        assert of_container(store, "c") == []


async def test_a_pod_that_restarts_for_an_hour_has_few_events() -> None:
    store = new_store()
    made: dict[str, Any] = pod("p", restartPolicy="OnFailure")
    made["metadata"]["annotations"] = {RUN_SECONDS: "0", EXIT_CODE: "1"}
    async with running(store):
        store.create("pods", made)
        store.bind("p", "n1")
        await asyncio.sleep(HOUR - 60)

        assert len(of_container(store, "c")) == 4
