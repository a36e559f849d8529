"""DaemonSets and StatefulSets, in virtual time on a store without HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.virtual_time import LoopClock
from tests.unit.tools.simulator.a_store import AStore, deployment, node
from tests.unit.tools.simulator.definitions import one_node, running
from tests.unit.tools.simulator.storage_objects import claim, storage_class


def daemon_set(name: str, **pod_spec: Any) -> dict[str, Any]:
    made = deployment(name, 0, **pod_spec)
    del made["spec"]["replicas"]
    return made


def stateful_set(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    made = deployment(name, replicas)
    made["spec"] |= {"serviceName": name, **spec}
    return made


def wanted_node(pod: dict[str, Any]) -> str:
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    ((field,),) = [term["matchFields"] for term in required["nodeSelectorTerms"]]
    assert (field["key"], field["operator"]) == ("metadata.name", "In")
    (name,) = field["values"]
    return str(name)


def bind_daemons(store: AStore) -> None:
    for one in store.list("pods", fields="spec.nodeName="):
        store.bind(one["metadata"]["name"], wanted_node(one))


def bind_all(store: AStore) -> None:
    for one in store.list("pods", fields="spec.nodeName="):
        store.bind(one["metadata"]["name"], "n1")


def nodes_of(store: AStore) -> list[str]:
    return sorted(wanted_node(one) for one in store.list("pods"))


async def test_a_daemon_set_creates_a_pod_for_every_node_and_the_scheduler_places_it(store: AStore):
    async with running(store, *(node(name) for name in ("n1", "n2", "n3"))):
        store.create("daemonsets", daemon_set("agent"))
        await asyncio.sleep(1)
        assert nodes_of(store) == ["n1", "n2", "n3"]
        assert all("nodeName" not in one["spec"] for one in store.list("pods"))

        bind_daemons(store)
        await asyncio.sleep(3)
        status = store.get("daemonsets", "agent")["status"]
        assert (status["desiredNumberScheduled"], status["numberReady"]) == (3, 3)


async def test_daemons_follow_added_and_deleted_nodes():
    async with one_node() as store:
        store.create("daemonsets", daemon_set("agent"))
        await asyncio.sleep(1)
        store.create("nodes", node("n2"))
        await asyncio.sleep(1)
        assert nodes_of(store) == ["n1", "n2"]

        bind_daemons(store)
        await asyncio.sleep(3)
        store.delete("nodes", "n1")
        await asyncio.sleep(1)
        left = [one for one in store.list("pods") if "deletionTimestamp" not in one["metadata"]]
        assert [wanted_node(one) for one in left] == ["n2"]


async def test_taints_and_selectors_exclude_daemons_but_a_cordon_does_not():
    store = AStore(clock=LoopClock())
    store.create("nodes", node("plain", labels={"disk": "ssd"}))
    store.create("nodes", node("cordoned", labels={"disk": "ssd"}, unschedulable=True))
    store.create("nodes", node("other", labels={"disk": "hdd"}))
    taint = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    async with running(store, node("tainted", labels={"disk": "ssd"}, taints=[taint])):
        store.create("daemonsets", daemon_set("agent", nodeSelector={"disk": "ssd"}))
        await asyncio.sleep(1)

        assert nodes_of(store) == ["cordoned", "plain"]


async def test_a_new_template_replaces_daemons_one_after_the_other(store: AStore):
    async with running(store, *(node(name) for name in ("n1", "n2", "n3"))):
        store.create("daemonsets", daemon_set("agent"))
        await asyncio.sleep(1)
        bind_daemons(store)
        await asyncio.sleep(3)
        containers = [{"name": "c", "image": "nginx:2"}]
        store.patch("daemonsets", "agent", {"spec": {"template": {"spec": {"containers": containers}}}})
        least = 3
        for _ in range(60):
            await asyncio.sleep(0.25)
            bind_daemons(store)
            least = min(least, store.get("daemonsets", "agent")["status"]["numberReady"])

        assert least == 2
        assert {one["spec"]["containers"][0]["image"] for one in store.list("pods")} == {"nginx:2"}
        assert store.get("daemonsets", "agent")["status"]["updatedNumberScheduled"] == 3


async def test_a_stateful_set_creates_its_pods_in_order_and_deletes_them_in_reverse():
    async with one_node() as store:
        store.create("statefulsets", stateful_set("db", 3))
        seen = []
        for _ in range(3):
            await asyncio.sleep(3)
            bind_all(store)
            seen.append([one["metadata"]["name"] for one in store.list("pods")])
        await asyncio.sleep(3)
        assert seen == [["db-0"], ["db-0", "db-1"], ["db-0", "db-1", "db-2"]]
        assert store.get("statefulsets", "db")["status"]["readyReplicas"] == 3

        store.scale("statefulsets", "db", 1)
        await asyncio.sleep(0.5)
        going = [
            one["metadata"]["name"] for one in store.list("pods") if "deletionTimestamp" in one["metadata"]
        ]
        assert going == ["db-2"]
        await asyncio.sleep(5)
        assert [one["metadata"]["name"] for one in store.list("pods")] == ["db-0"]


async def test_a_parallel_stateful_set_creates_all_its_pods_at_once(store: AStore):
    async with running(store):
        store.create("statefulsets", stateful_set("db", 3, podManagementPolicy="Parallel"))
        await asyncio.sleep(1)

        assert len(store.list("pods")) == 3


async def test_a_new_template_replaces_the_last_pod_of_a_stateful_set_first():
    async with one_node() as store:
        store.create("statefulsets", stateful_set("db", 2, podManagementPolicy="Parallel"))
        await asyncio.sleep(1)
        bind_all(store)
        await asyncio.sleep(3)
        containers = [{"name": "c", "image": "nginx:2"}]
        store.patch("statefulsets", "db", {"spec": {"template": {"spec": {"containers": containers}}}})
        await asyncio.sleep(0.5)
        going = [
            one["metadata"]["name"] for one in store.list("pods") if "deletionTimestamp" in one["metadata"]
        ]
        assert going == ["db-1"]
        for _ in range(20):
            await asyncio.sleep(1)
            bind_all(store)

        assert {one["spec"]["containers"][0]["image"] for one in store.list("pods")} == {"nginx:2"}


async def test_a_rollback_makes_the_old_replica_set_the_newest(store: AStore):
    async with running(store):
        store.create("deployments", deployment("web", 1))
        await asyncio.sleep(1)
        for image in ("nginx:2", "nginx:1"):
            containers = [{"name": "c", "image": image}]
            store.patch("deployments", "web", {"spec": {"template": {"spec": {"containers": containers}}}})
            await asyncio.sleep(1)

        note = "deployment.kubernetes.io/revision"
        revisions = {
            one["spec"]["template"]["spec"]["containers"][0]["image"]: one["metadata"]["annotations"][note]
            for one in store.list("replicasets")
        }
        assert revisions == {"nginx:1": "3", "nginx:2": "2"}
        assert store.get("deployments", "web")["metadata"]["annotations"][note] == "3"


async def test_a_stalled_rollout_fails():
    store = AStore(clock=LoopClock())
    async with running(store):
        made = deployment("web", 1)
        made["spec"]["progressDeadlineSeconds"] = 60
        store.create("deployments", made)
        await asyncio.sleep(50)
        progressing = {one["type"]: one for one in store.get("deployments", "web")["status"]["conditions"]}
        assert progressing["Progressing"]["status"] == "True"
        await asyncio.sleep(20)

        conditions = {one["type"]: one for one in store.get("deployments", "web")["status"]["conditions"]}
        assert conditions["Progressing"]["reason"] == "ProgressDeadlineExceeded"


async def test_the_number_of_kept_old_replica_sets_is_limited(store: AStore):
    async with running(store):
        made = deployment("web", 0)
        made["spec"]["revisionHistoryLimit"] = 2
        store.create("deployments", made)
        for tag in range(2, 7):
            await asyncio.sleep(1)
            containers = [{"name": "c", "image": f"nginx:{tag}"}]
            store.patch("deployments", "web", {"spec": {"template": {"spec": {"containers": containers}}}})
        await asyncio.sleep(1)

        assert len(store.list("replicasets")) == 3


def with_claims(name: str, replicas: int, **retention: str) -> dict[str, Any]:
    template = claim("data", storageClassName="plain")
    template["metadata"]["labels"] = {"disk": "yes"}
    policy = {"persistentVolumeClaimRetentionPolicy": retention} if retention else {}
    return stateful_set(name, replicas, volumeClaimTemplates=[template], **policy)


def claims_of(store: AStore) -> list[str]:
    return sorted(one["metadata"]["name"] for one in store.list("persistentvolumeclaims"))


async def test_each_pod_of_a_stateful_set_has_its_own_claim_that_outlives_it(store: AStore):
    async with running(store, node("n1")):
        store.create("storageclasses", storage_class("plain"))
        store.create("statefulsets", with_claims("db", 2))
        for _ in range(2):
            await asyncio.sleep(3)
            bind_all(store)
        await asyncio.sleep(3)
        assert claims_of(store) == ["data-db-0", "data-db-1"]
        made = store.get("persistentvolumeclaims", "data-db-1")
        assert made["metadata"]["labels"] == {"disk": "yes", "app": "db"}
        assert "ownerReferences" not in made["metadata"]
        (volume,) = store.get("pods", "db-1")["spec"]["volumes"]
        assert volume == {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-1"}}

        store.delete("statefulsets", "db")
        await asyncio.sleep(10)
        assert store.list("pods") == []
        assert claims_of(store) == ["data-db-0", "data-db-1"]


async def test_claims_are_deleted_with_a_stateful_set_if_its_policy_says_delete(store: AStore):
    async with running(store):
        store.create("storageclasses", storage_class("plain"))
        store.create("statefulsets", with_claims("db", 1, whenDeleted="Delete"))
        await asyncio.sleep(1)
        (owner,) = store.get("persistentvolumeclaims", "data-db-0")["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("StatefulSet", "db")
        store.delete("statefulsets", "db")
        await asyncio.sleep(5)
        assert claims_of(store) == []


async def test_claims_are_deleted_with_scaled_down_pods_if_the_policy_says_delete(store: AStore):
    async with running(store, node("n1")):
        store.create("storageclasses", storage_class("plain"))
        store.create("statefulsets", with_claims("db", 2, whenScaled="Delete"))
        for _ in range(2):
            await asyncio.sleep(3)
            bind_all(store)
        await asyncio.sleep(3)
        store.scale("statefulsets.apps", "db", 1)
        await asyncio.sleep(10)
        assert claims_of(store) == ["data-db-0"]
