"""kubernetes_asyncio against the simulated API server; in real time, for it reads netrc in a thread."""

from __future__ import annotations

import asyncio
from typing import Any

import kubernetes_asyncio.client as k8s
import pytest
from kubernetes_asyncio import watch

from scheduler.tools.simulator.scenarios.clusters import heterogeneous
from scheduler.tools.simulator.server import ApiServer
from tests.support.errors import raises
from tests.unit.tools.simulator.definitions import definition, widget, with_spec


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
    async with ApiServer(token="secret") as server, k8s.ApiClient(configuration(server)) as api:
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
        with raises(k8s.ApiException, status=404):
            await core.read_namespaced_pod("absent", "default")


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


@in_real_time
async def test_the_client_library_patches_and_lists_with_models():
    async with (
        ApiServer(token="secret", controllers=True) as server,
        k8s.ApiClient(configuration(server)) as api,
    ):
        core, apps, batch = k8s.CoreV1Api(api), k8s.AppsV1Api(api), k8s.BatchV1Api(api)
        template = k8s.V1PodTemplateSpec(
            metadata=k8s.V1ObjectMeta(labels={"app": "web"}),
            spec=k8s.V1PodSpec(containers=[k8s.V1Container(name="c", image="nginx")]),
        )
        spec = k8s.V1DeploymentSpec(
            replicas=2, selector=k8s.V1LabelSelector(match_labels={"app": "web"}), template=template
        )
        await apps.create_namespaced_deployment(
            "default", k8s.V1Deployment(metadata=k8s.V1ObjectMeta(name="web"), spec=spec)
        )
        await asyncio.sleep(0.1)
        pods = await core.list_namespaced_pod("default", label_selector="app=web")
        patched = await core.patch_namespaced_pod(
            pods.items[0].metadata.name, "default", {"metadata": {"labels": {"tier": "front"}}}
        )
        scaled = await apps.patch_namespaced_deployment_scale("web", "default", {"spec": {"replicas": 5}})
        job = k8s.V1Job(
            metadata=k8s.V1ObjectMeta(name="j"),
            spec=k8s.V1JobSpec(
                template=k8s.V1PodTemplateSpec(
                    spec=k8s.V1PodSpec(
                        restart_policy="Never", containers=[k8s.V1Container(name="c", image="busybox")]
                    )
                )
            ),
        )
        made = await batch.create_namespaced_job("default", job)

        assert len(pods.items) == 2
        assert patched.metadata.labels["tier"] == "front"
        assert scaled.spec.replicas == 5
        assert made.spec.completions == 1


@in_real_time
async def test_the_client_library_evicts_and_meets_budgets():
    async with (
        ApiServer(token="secret", controllers=True, kubelet=True) as server,
        k8s.ApiClient(configuration(server)) as api,
    ):
        core, policy = k8s.CoreV1Api(api), k8s.PolicyV1Api(api)
        pod = a_pod("web")
        pod.metadata.labels = {"app": "web"}
        await core.create_namespaced_pod("default", pod)
        server.store.create("nodes", heterogeneous(1)[0])
        server.store.bind("web", server.store.list("nodes")[0]["metadata"]["name"])
        budget = k8s.V1PodDisruptionBudget(
            metadata=k8s.V1ObjectMeta(name="web"),
            spec=k8s.V1PodDisruptionBudgetSpec(
                min_available=1, selector=k8s.V1LabelSelector(match_labels={"app": "web"})
            ),
        )
        await policy.create_namespaced_pod_disruption_budget("default", budget)
        await asyncio.sleep(1.5)
        eviction = k8s.V1Eviction(metadata=k8s.V1ObjectMeta(name="web"))
        with pytest.raises(k8s.ApiException) as caught:
            await core.create_namespaced_pod_eviction("web", "default", eviction)
        status = (await policy.read_namespaced_pod_disruption_budget("web", "default")).status

        assert caught.value.status == 429
        assert (status.expected_pods, status.current_healthy, status.disruptions_allowed) == (1, 1, 0)


@in_real_time
async def test_the_client_library_defines_and_uses_custom_resources():
    async with ApiServer(token="secret") as server, k8s.ApiClient(configuration(server)) as api:
        extensions, custom = k8s.ApiextensionsV1Api(api), k8s.CustomObjectsApi(api)
        await extensions.create_custom_resource_definition(
            definition(schema=with_spec(size={"type": "integer", "minimum": 1}))
        )
        place = {"group": "example.com", "version": "v1", "namespace": "default", "plural": "widgets"}
        await custom.create_namespaced_custom_object(**place, body=widget("w", spec={"size": 1, "odd": 2}))
        with pytest.raises(k8s.ApiException) as caught:
            await custom.create_namespaced_custom_object(**place, body=widget("x", spec={"size": 0}))
        listed = await custom.list_namespaced_custom_object(**place)

        assert caught.value.status == 422
        assert [(one["kind"], one["spec"]) for one in listed["items"]] == [("Widget", {"size": 1})]
