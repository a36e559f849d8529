"""kubernetes_asyncio against the simulated API server; in real time, for it reads netrc in a thread."""

from __future__ import annotations

import asyncio
from typing import Any

import kubernetes_asyncio.client as k8s
import pytest
from kubernetes_asyncio import watch

from scheduler.simulator.clusters import heterogeneous
from scheduler.simulator.server import ApiServer


def a_pod(name: str) -> k8s.V1Pod:
    container = k8s.V1Container(name="c", image="nginx")
    return k8s.V1Pod(metadata=k8s.V1ObjectMeta(name=name), spec=k8s.V1PodSpec(containers=[container]))


def configuration(server: ApiServer) -> k8s.Configuration:
    made = k8s.Configuration(host=server.url)
    made.api_key = {"BearerToken": "Bearer secret"}
    return made


def in_real_time(test: Any):
    return lambda: asyncio.run(test())


@in_real_time
async def test_the_client_library_reads_and_writes():
    async with (
        ApiServer(token="secret") as server,
        k8s.ApiClient(configuration(server)) as api,
    ):
        for node in heterogeneous(20):
            server.store.create("nodes", node)
        core, apps = k8s.CoreV1Api(api), k8s.AppsV1Api(api)

        nodes = await core.list_node(limit=7)
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


@in_real_time
async def test_the_client_library_watches():
    async with (
        ApiServer(token="secret") as server,
        k8s.ApiClient(configuration(server)) as api,
        watch.Watch() as events,
    ):
        core = k8s.CoreV1Api(api)
        loop = asyncio.get_running_loop()
        for place, name in enumerate(("a", "b"), start=1):
            body = api.sanitize_for_serialization(a_pod(name))
            loop.call_later(place / 10, server.store.create, "pods", body)

        seen = []
        async for event in events.stream(core.list_namespaced_pod, "default", timeout_seconds=10):
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == 2:
                break

        assert seen == [("ADDED", "a"), ("ADDED", "b")]
