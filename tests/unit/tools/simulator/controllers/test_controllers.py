"""The simulated controllers, in virtual time on a store without HTTP."""

from __future__ import annotations

import asyncio

from scheduler.tools.simulator.external_controllers import KubeletOptions
from tests.unit.tools.simulator.a_store import AStore, deployment, node, pod
from tests.unit.tools.simulator.definitions import running


def phases(store: AStore) -> list[str]:
    return [one["status"]["phase"] for one in store.list("pods")]


def bind_all(store: AStore) -> None:
    for one in store.list("pods", fields="spec.nodeName="):
        store.bind(one["metadata"]["name"], "n1")


async def test_a_deployment_creates_pods_that_it_owns(store: AStore):
    async with running(store):
        made = store.create("deployments", deployment("web", 3, schedulerName="mine"))
        await asyncio.sleep(1)

        (replica_set,) = store.list("replicasets")
        pods = store.list("pods")
        assert len(pods) == 3
        assert {one["spec"]["schedulerName"] for one in pods} == {"mine"}
        assert replica_set["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
        assert {one["metadata"]["ownerReferences"][0]["uid"] for one in pods} == {
            replica_set["metadata"]["uid"]
        }
        (hash_label,) = {one["metadata"]["labels"]["pod-template-hash"] for one in pods}
        assert replica_set["metadata"]["name"] == f"web-{hash_label}"


async def test_a_deployment_is_scaled_up_and_down_and_counts_its_pods(store: AStore):
    async with running(store, node("n1")):
        store.create("deployments", deployment("web", 250))
        await asyncio.sleep(5)
        assert len(store.list("pods")) == 250

        store.scale("deployments", "web", 2)
        await asyncio.sleep(5)
        bind_all(store)
        await asyncio.sleep(5)

        assert phases(store) == ["Running", "Running"]
        status = store.get("deployments", "web")["status"]
        assert (status["replicas"], status["readyReplicas"], status["availableReplicas"]) == (2, 2, 2)
        assert {one["type"]: one["status"] for one in status["conditions"]} == {
            "Available": "True",
            "Progressing": "True",
        }


async def test_scaling_down_deletes_pods_without_a_node_first(store: AStore):
    async with running(store, node("n1")):
        store.create("deployments", deployment("web", 4))
        await asyncio.sleep(1)
        oldest_first = sorted(store.list("pods"), key=lambda one: int(one["metadata"]["resourceVersion"]))
        kept = sorted(one["metadata"]["name"] for one in oldest_first[:2])
        for name in kept:
            store.bind(name, "n1")
        store.scale("deployments", "web", 2)
        await asyncio.sleep(1)

        assert sorted(one["metadata"]["name"] for one in store.list("pods")) == kept


async def test_scaling_down_deletes_pods_with_the_lowest_deletion_cost_first(store: AStore):
    async with running(store, node("n1")):
        store.create("deployments", deployment("web", 4))
        await asyncio.sleep(1)
        bind_all(store)
        await asyncio.sleep(5)
        names = sorted(one["metadata"]["name"] for one in store.list("pods"))
        for name, cost in zip(names, ("-1", "7", "many", "10"), strict=True):
            annotations = {"controller.kubernetes.io/pod-deletion-cost": cost}
            store.patch("pods", name, {"metadata": {"annotations": annotations}})
        store.scale("deployments", "web", 2)
        await asyncio.sleep(60)

        assert sorted(one["metadata"]["name"] for one in store.list("pods")) == [names[1], names[3]]


async def test_a_replica_set_gets_the_annotations_of_its_deployment(store: AStore):
    async with running(store):
        made = deployment("web", 1)
        made["metadata"]["annotations"] = {
            "example.com/team": "a",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
        }
        store.create("deployments", made)
        await asyncio.sleep(1)
        (replica_set,) = store.list("replicasets")
        expected = {"example.com/team": "a", "deployment.kubernetes.io/revision": "1"}
        assert replica_set["metadata"]["annotations"] == expected

        store.patch("deployments", "web", {"metadata": {"annotations": {"example.com/team": "b"}}})
        await asyncio.sleep(1)
        (replica_set,) = store.list("replicasets")
        assert replica_set["metadata"]["annotations"] == {**expected, "example.com/team": "b"}
        assert len(store.list("pods")) == 1


async def test_a_new_template_rolls_out_without_losing_more_than_a_quarter(store: AStore):
    async with running(store, node("n1")):
        store.create("deployments", deployment("web", 4))
        await asyncio.sleep(1)
        bind_all(store)
        await asyncio.sleep(5)

        store.patch(
            "deployments",
            "web",
            {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}}},
        )
        least = most = 4
        for _ in range(60):
            await asyncio.sleep(0.2)
            live = [one for one in store.list("pods") if "deletionTimestamp" not in one["metadata"]]
            most = max(most, len(live))
            least = min(least, sum(one["status"]["phase"] == "Running" for one in live))
            bind_all(store)

        assert (least, most) == (3, 5)
        assert {one["spec"]["containers"][0]["image"] for one in store.list("pods")} == {"nginx:2"}
        old, new = sorted(store.list("replicasets"), key=lambda one: one["metadata"]["creationTimestamp"])
        assert (old["spec"]["replicas"], new["spec"]["replicas"]) == (0, 4)


async def test_recreate_deletes_all_old_pods_before_it_creates_new_ones(store: AStore):
    async with running(store, node("n1")):
        made = deployment("web", 2)
        made["spec"]["strategy"] = {"type": "Recreate"}
        store.create("deployments", made)
        await asyncio.sleep(1)
        bind_all(store)
        await asyncio.sleep(5)

        store.patch(
            "deployments",
            "web",
            {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}}},
        )
        images = set()
        for _ in range(50):
            await asyncio.sleep(0.1)
            live = [one for one in store.list("pods") if "deletionTimestamp" not in one["metadata"]]
            images.add(frozenset(one["spec"]["containers"][0]["image"] for one in live))

        assert frozenset({"nginx:1", "nginx:2"}) not in images
        assert frozenset({"nginx:2"}) in images


async def test_objects_owned_by_a_deployment_are_deleted_with_it(store: AStore):
    async with running(store):
        store.create("deployments", deployment("web", 3))
        await asyncio.sleep(1)
        store.delete("deployments", "web")
        await asyncio.sleep(1)

        assert store.list("replicasets") == store.list("pods") == []


async def test_orphans_are_kept(store: AStore):
    async with running(store):
        store.create("deployments", deployment("web", 3))
        await asyncio.sleep(1)
        store.delete("deployments", "web", propagation_policy="Orphan")
        await asyncio.sleep(1)

        assert store.list("deployments") == []
        (replica_set,) = store.list("replicasets")
        assert "ownerReferences" not in replica_set["metadata"]
        assert len(store.list("pods")) == 3


async def test_foreground_deletion_waits_for_the_dependents(store: AStore):
    async with running(store, node("n1"), kubelet=KubeletOptions(stop_seconds=10)):
        store.create("deployments", deployment("web", 1))
        await asyncio.sleep(1)
        bind_all(store)
        await asyncio.sleep(5)

        store.delete("deployments", "web", propagation_policy="Foreground")
        await asyncio.sleep(1)
        assert store.list("deployments") != []
        await asyncio.sleep(20)

        assert store.list("deployments") == store.list("replicasets") == store.list("pods") == []


async def test_a_bound_pod_runs_after_a_delay(store: AStore):
    async with running(store, node("n1"), kubelet=KubeletOptions(start_seconds=3)):
        store.create("pods", pod("a"))
        store.bind("a", "n1")
        await asyncio.sleep(2)
        assert phases(store) == ["Pending"]
        await asyncio.sleep(2)

        status = store.get("pods", "a")["status"]
        assert status["phase"] == "Running"
        assert {one["type"] for one in status["conditions"] if one["status"] == "True"} == {
            "PodReadyToStartContainers",
            "Initialized",
            "Ready",
            "ContainersReady",
            "PodScheduled",
        }
        assert status["containerStatuses"][0]["ready"]
        assert status["podIP"]


async def test_an_unbound_pod_does_not_run(store: AStore):
    async with running(store, node("n1")):
        store.create("pods", pod("a"))
        await asyncio.sleep(100)

        assert phases(store) == ["Pending"]


async def test_a_terminating_pod_is_removed_by_its_kubelet(store: AStore):
    async with running(store, node("n1"), kubelet=KubeletOptions(stop_seconds=5)):
        for name, grace in (("patient", 30), ("hasty", 2)):
            store.create("pods", pod(name, terminationGracePeriodSeconds=grace))
            store.bind(name, "n1")
        await asyncio.sleep(5)
        for name in ("patient", "hasty"):
            store.delete("pods", name)
        await asyncio.sleep(3)
        assert [one["metadata"]["name"] for one in store.list("pods")] == ["patient"]
        await asyncio.sleep(3)

        assert store.list("pods") == []


async def test_a_pod_that_does_not_fit_is_rejected_by_the_kubelet(store: AStore):
    tiny = node("n1")
    tiny["status"]["capacity"] = {"cpu": "1", "memory": "1Gi", "pods": "3"}
    store.create("nodes", tiny)
    async with running(store):
        for name, requests in (
            ("fits", {"cpu": "800m"}),
            ("cpu", {"cpu": "300m"}),
            ("memory", {"memory": "2Gi"}),
            ("last", {"cpu": "200m", "memory": "1Gi"}),
            ("small", {}),
            ("one-too-many", {}),
        ):
            store.create("pods", pod(name, requests=requests))
            store.bind(name, "n1")
            await asyncio.sleep(5)

        statuses = {one["metadata"]["name"]: one["status"] for one in store.list("pods")}
        assert {name: status.get("reason", status["phase"]) for name, status in statuses.items()} == {
            "fits": "Running",
            "cpu": "OutOfcpu",
            "memory": "OutOfmemory",
            "last": "Running",
            "small": "Running",
            "one-too-many": "OutOfpods",
        }
        assert statuses["cpu"]["phase"] == "Failed"
        assert statuses["cpu"]["message"] == (
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 300, used: 800, capacity: 1000"
        )
        assert {event["reason"] for event in store.list("events")} == {"OutOfcpu", "OutOfmemory", "OutOfpods"}


async def test_the_resources_of_a_finished_pod_are_free(store: AStore):
    async with running(store, node("n1")):
        for name, end in (("first", "deleted"), ("second", "succeeded"), ("third", "")):
            store.create("pods", pod(name, requests={"cpu": "4"}))
            store.bind(name, "n1")
            await asyncio.sleep(5)
            assert store.get("pods", name)["status"]["phase"] == "Running"
            if end == "deleted":
                store.delete("pods", name)
            elif end:
                store.patch("pods", name, {"status": {"phase": "Succeeded"}}, subresource="status")
            await asyncio.sleep(5)


async def test_the_kubelet_ignores_a_device_that_the_node_does_not_know(store: AStore):
    async with running(store, node("n1")):
        container = {"name": "c", "image": "i", "resources": {"limits": {"example.com/widget": "1"}}}
        store.create("pods", pod("a", containers=[container]))
        store.bind("a", "n1")
        await asyncio.sleep(5)

        assert phases(store) == ["Running"]


async def test_a_rejected_pod_of_a_deployment_is_replaced_with_a_delay(store: AStore):
    tiny = node("n1")
    tiny["status"]["capacity"] = {"cpu": "1", "memory": "1Gi", "pods": "1"}
    store.create("nodes", tiny)
    async with running(store):
        store.create("deployments", deployment("web", 2, nodeName="n1"))
        await asyncio.sleep(2)

        assert phases(store).count("Running") == 1
        assert phases(store).count("Failed") > 3


async def test_taints_follow_the_conditions_of_nodes(store: AStore):
    async with running(store, node("n1", taints=[{"key": "mine", "effect": "NoSchedule"}])):
        store.patch("nodes", "n1", {"spec": {"unschedulable": True}})
        not_ready = [{"type": "Ready", "status": "False"}, {"type": "DiskPressure", "status": "True"}]
        store.patch("nodes", "n1", {"status": {"conditions": not_ready}}, subresource="status")
        await asyncio.sleep(1)
        assert [taint["key"] for taint in store.get("nodes", "n1")["spec"]["taints"]] == [
            "mine",
            "node.kubernetes.io/disk-pressure",
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unschedulable",
        ]

        store.patch("nodes", "n1", {"spec": {"unschedulable": False}})
        store.patch(
            "nodes",
            "n1",
            {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            subresource="status",
        )
        await asyncio.sleep(1)

        assert store.get("nodes", "n1")["spec"]["taints"] == [{"key": "mine", "effect": "NoSchedule"}]


async def test_a_terminating_namespace_is_emptied_and_removed(store: AStore):
    async with running(store, node("n1")):
        store.create("namespaces", {"metadata": {"name": "shop"}})
        store.create("configmaps", {"metadata": {"name": "c"}}, namespace="shop")
        store.create("deployments", deployment("web", 2), namespace="shop")
        await asyncio.sleep(1)
        for one in store.list("pods"):
            store.bind(one["metadata"]["name"], "n1", "shop")
        await asyncio.sleep(5)

        store.delete("namespaces", "shop")
        await asyncio.sleep(20)

        assert store.find("namespaces", "shop") is None
        assert store.list("pods") == store.list("deployments") == store.list("configmaps") == []


async def test_stopped_controllers_do_nothing(store: AStore):
    async with running(store, node("n1")):
        store.create("pods", pod("a"))
        store.bind("a", "n1")
        await asyncio.sleep(0.5)
    await asyncio.sleep(100)

    assert phases(store) == ["Pending"]


async def test_a_replication_controller_keeps_its_pods_until_it_is_deleted(store: AStore):
    made = deployment("web", 3)
    made["spec"]["selector"] = {"app": "web"}
    async with running(store):
        store.create("replicationcontrollers", made)
        await asyncio.sleep(1)
        store.delete("pods", store.list("pods")[0]["metadata"]["name"])
        await asyncio.sleep(1)
        assert len(store.list("pods", labels="app=web")) == 3
        store.scale("replicationcontrollers", "web", 1)
        await asyncio.sleep(1)
        assert len(store.list("pods")) == 1
        assert store.get("replicationcontrollers", "web")["status"]["replicas"] == 1

        store.delete("replicationcontrollers", "web", propagation_policy="Background")
        await asyncio.sleep(1)
        assert not store.list("pods")


async def test_the_status_of_a_quota_shows_what_pods_use():
    store = AStore()
    store.create(
        "resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5", "requests.cpu": "4"}}}
    )
    async with running(store):
        for name in ("a", "b"):
            store.create("pods", pod(name, requests={"cpu": "1500m"}))
        await asyncio.sleep(1)
        store.delete("pods", "b")
        await asyncio.sleep(60)

        assert store.get("resourcequotas", "q")["status"] == {
            "hard": {"pods": "5", "requests.cpu": "4"},
            "used": {"pods": "1", "requests.cpu": "1500m"},
        }


async def test_a_kubelet_reports_the_address_and_the_system_of_its_node():
    store = AStore()
    made = node("n1") | {
        "status": {
            "nodeInfo": {"kubeletVersion": "v1.35.0"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
    }
    store.create("nodes", made)
    async with running(store, kubelet=KubeletOptions(heartbeat_seconds=10.0)):
        await asyncio.sleep(1)

        status = store.get("nodes", "n1")["status"]
        assert [each["type"] for each in status["addresses"]] == ["InternalIP", "Hostname"]
        assert (status["nodeInfo"]["kubeletVersion"], status["nodeInfo"]["osImage"]) == (
            "v1.35.0",
            "simulated",
        )
        assert status["conditions"][0]["lastHeartbeatTime"]


async def test_the_usage_of_nodes_is_that_of_their_running_pods():
    store = AStore()
    async with running(store, node("n1"), kubelet=KubeletOptions(metrics=True)):
        await asyncio.sleep(1)
        idle = store.get("nodes.metrics.k8s.io", "n1")["usage"]
        store.create("pods", pod("p", requests={"cpu": "2", "memory": "1Gi"}))
        store.bind("p", "n1")
        await asyncio.sleep(5)
        busy, of_pod = store.get("nodes.metrics.k8s.io", "n1")["usage"], store.get("pods.metrics.k8s.io", "p")
        store.delete("pods", "p")
        await asyncio.sleep(60)

        milli_cpu = int(of_pod["containers"][0]["usage"]["cpu"].removesuffix("m"))
        assert 400 <= milli_cpu <= 1800
        assert idle == {"cpu": "100m", "memory": "524288Ki"}
        assert busy["cpu"] == f"{100 + milli_cpu}m"
        assert store.get("nodes.metrics.k8s.io", "n1")["usage"] == idle
        assert store.list("pods.metrics.k8s.io") == []
