"""The heartbeats of nodes for a node lifecycle controller, in virtual time."""

from __future__ import annotations

import asyncio

from scheduler.simulator.node_agents.kubelet import KubeletOptions
from tests.support.virtual_time import LoopClock
from tests.support.virtual_time_test import virtually
from tests.unit.simulator.a_store import AStore, node
from tests.unit.simulator.definitions import running

LEASES = "leases.coordination.k8s.io"
NAMESPACE = "kube-node-lease"


def renewed(store: AStore, name: str) -> str:
    return str(store.get(LEASES, name, NAMESPACE)["spec"]["renewTime"])


def ready(status: str) -> dict[str, object]:
    return {"status": {"conditions": [{"type": "Ready", "status": status}]}}


@virtually
async def test_the_leases_of_nodes_are_renewed_unless_they_are_silent():
    store = AStore(clock=LoopClock())
    for name in ("n1", "n2"):
        store.create("nodes", node(name) | ready("True"))
    async with running(store, kubelet=KubeletOptions(heartbeat_seconds=10), controllers=False):
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


@virtually
async def test_the_status_of_a_node_is_written_every_five_minutes():
    store = AStore(clock=LoopClock())
    store.create("nodes", node("n1") | ready("True"))
    async with running(store, kubelet=KubeletOptions(heartbeat_seconds=10), controllers=False):
        await asyncio.sleep(301)
        (condition,) = store.get("nodes", "n1")["status"]["conditions"]
        assert condition["lastHeartbeatTime"] > "1971"


@virtually
async def test_leases_are_renewed_only_with_an_observer():
    store = AStore()
    store.create("nodes", node("n1"))
    async with running(store):
        await asyncio.sleep(100)
        assert store.list(LEASES) == []
