"""kubernetes_asyncio against the simulated API server, in virtual time."""

from __future__ import annotations

import asyncio

import kubernetes_asyncio.client as k8s
import pytest
from kubernetes_asyncio import watch

from scheduler.simulator.clusters import heterogeneous
from scheduler.simulator.server import ApiServer
from tests.virtual_time import LoopClock
from tests.virtually import virtually


def a_pod(name: str) -> k8s.V1Pod:
    container = k8s.V1Container(name="c", image="nginx")
    return k8s.V1Pod(metadata=k8s.V1ObjectMeta(name=name), spec=k8s.V1PodSpec(containers=[container]))


def configuration(server: ApiServer) -> k8s.Configuration:
    made = k8s.Configuration(host=server.url)
    made.api_key = {"BearerToken": "Bearer secret"}
    return made


@virtually
async def test_the_client_library_reads_and_writes():
    async with (
        ApiServer(clock=LoopClock(), token="secret") as server,
        k8s.ApiClient(configuration(server)) as api,
    ):
        for node in heterogeneous(20):
            server.store.create("nodes", node)
        core, apps = k8s.CoreV1Api(api), k8s.AppsV1Api(api)

        nodes = await core.list_node(label_selector="kubernetes.io/os=linux", limit=7)
        created = await core.create_namespaced_pod("default", a_pod("web"))
        target = k8s.V1ObjectReference(kind="Node", name=nodes.items[0].metadata.name)
        binding = k8s.V1Binding(
            metadata=k8s.V1ObjectMeta(name="web", uid=created.metadata.uid), target=target
        )
        await core.create_namespaced_pod_binding("web", "default", binding, _preload_content=False)
        bound = await core.read_namespaced_pod("web", "default")

        assert (len(nodes.items), nodes.metadata.remaining_item_count) == (7, 13)
        assert bound.spec.node_name == nodes.items[0].metadata.name
        assert (await apps.list_deployment_for_all_namespaces()).items == []
        with pytest.raises(k8s.ApiException) as caught:
            await core.read_namespaced_pod("absent", "default")
        assert caught.value.status == 404


@virtually
async def test_the_client_library_watches():
    async with (
        ApiServer(clock=LoopClock(), token="secret") as server,
        k8s.ApiClient(configuration(server)) as api,
        watch.Watch() as events,
    ):
        core = k8s.CoreV1Api(api)
        loop = asyncio.get_running_loop()
        for second, name in enumerate(("a", "b"), start=1):
            body = api.sanitize_for_serialization(a_pod(name))
            loop.call_later(second * 30, server.store.create, "pods", body)

        seen = []
        async for event in events.stream(core.list_namespaced_pod, "default", timeout_seconds=100):
            seen.append((event["type"], event["object"].metadata.name, loop.time() > 20))
            if len(seen) == 2:
                break

        assert seen == [("ADDED", "a", True), ("ADDED", "b", True)]
