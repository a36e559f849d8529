"""Two replicas work with the shipped roles and use every right."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml

from scheduler.kube.client.resources import SHARD_ASSIGNMENTS
from scheduler.testing.devices import claims_of, device_class, resource_claim, resource_slice, unsaved
from scheduler.testing.samples import claim, mounted, storage_class, volume
from scheduler.tools.simulator.faults import binds, requests, streamed_lists
from scheduler.tools.simulator.server import ApiServer
from tests.integration.configuration.test_reload_processes import Run, end, running
from tests.support.builders import node_object, pod_object
from tests.support.daemon_accounts import keep_account
from tests.support.kubectl import Kubectl
from tests.support.manifests import MANIFESTS
from tests.support.ports import free_port
from tests.support.processes import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)

ACCOUNT = "system:serviceaccount:kube-system:custom-scheduler"
ROLES = (
    "ClusterRole/custom-scheduler",
    "Role/kube-system/custom-scheduler",
    "ClusterRole/system:auth-delegator",
)
NAMED = ("custom-scheduler", "--namespace", "kube-system")
FOLLOWED = ("--config-map", "kube-system/custom-scheduler")
BRIEF = {"leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms"}
"""So that a renewal does not take as long as in a cluster."""


class Shipped:
    """A cluster with RBAC to which manifests/base was applied."""

    def __init__(self, server: ApiServer, kubectl: Kubectl, account: Path) -> None:
        self.server = server
        self.account = account
        self.kubectl = kubectl

    async def configure(self, **settings: Any) -> None:
        """Change fields of the configuration that is shipped."""
        shipped = yaml.safe_load((MANIFESTS / "base" / "config.yaml").read_text())
        shipped["leaderElection"] |= BRIEF
        patch = {"data": {"config.yaml": json.dumps(shipped | settings)}}
        await self.kubectl("patch", "configmap", *NAMED, "--patch", json.dumps(patch))

    def used(self) -> set[tuple[str, str]]:
        """Resource, subresource included, and verb of every grant that the account made use of."""
        granted = [grant.permission for grant in self.server.grants.used(ACCOUNT)]
        return {(permission.resource, permission.verb) for permission in granted}

    def unused(self) -> dict[str, list[Any]]:
        return {role: self.server.grants.unused(role, ACCOUNT) for role in ROLES}

    def node_of(self, pod: str) -> str:
        found = [each for each in self.server.store.list("pods") if each["metadata"]["name"] == pod]
        return str(found[0]["spec"].get("nodeName", "")) if found else ""


@asynccontextmanager
async def shipped(folder: Path) -> AsyncIterator[Shipped]:
    async with ApiServer(tls=True, rbac=True, kubelet=True, controllers=True) as server:
        for number in range(3):
            server.store.create("nodes", node_object(f"n{number}", cpu="4"))
        kubectl = Kubectl(server.write_kubeconfig(folder / "admin"), folder)
        account = folder / "account"
        it = Shipped(server, kubectl, account)
        await it.kubectl("apply", "-k", str(MANIFESTS / "base"))
        token = (await it.kubectl("create", "token", *NAMED)).strip()
        server.write_kubeconfig(account, token=token, user="account")
        await it.configure(featureGates={"DRADeviceTaintRules": True})
        yield it


async def test_two_replicas_with_the_shipped_roles_work_and_use_every_grant(tmp_path: Path) -> None:
    async with shipped(tmp_path) as it:
        port = free_port()
        first_flags = (*FOLLOWED, "--secure-port", str(port), "-v", "2")
        async with running(it.account, tmp_path / "first", *first_flags) as first:
            await until(lambda: first.said("Successfully acquired lease"))
            # The other replica meets a server that cannot send a first list in a watch.
            it.server.faults.refuse(400, streamed_lists)
            async with running(it.account, tmp_path / "second", *FOLLOWED) as second:
                await until(lambda: ("poddisruptionbudgets", "list") in it.used())
                await until(lambda: ("leases", "watch") in it.used())
                await places_pods_though_an_answer_is_lost(it)
                await is_read_by_prometheus(it, port)
                await preempts(it)
                await has_volumes_bound_and_made(it)
                await gives_devices_in_spite_of_conflicts_and_refusals(it)
                await places_a_gang(it)
                await counts_what_it_says_again(it, first)
                await until(lambda: ("leases", "update") in it.used())

                await replicas_placed_pods_before(it)
                assert await end(first) == 0
                await until(lambda: second.said("Successfully acquired lease"))
                held = lambda: it.server.store.get(ASSIGNMENTS, "custom-scheduler")["spec"]["replicas"]  # noqa: E731
                await until(lambda: not held())
                it.server.store.create("pods", pod_object("later", cpu="10m"))
                await until(lambda: it.node_of("later"))
                await it.configure(emulatedVersion="1.35")  # whose groups are parts of Workloads

                await until(lambda: not any(it.unused().values()) or it.server.grants.refused_to(ACCOUNT))
                assert it.unused() == {role: [] for role in ROLES}
                assert await end(second) == 0
        assert it.server.grants.refused_to(ACCOUNT) == []
        keep_account(it.server, ACCOUNT)


ASSIGNMENTS = "shardassignments.custom-scheduler.io"


async def replicas_placed_pods_before(it: Shipped) -> None:
    """The next leader ends their use of buckets."""
    await it.kubectl("apply", "-f", str(MANIFESTS / "crds" / "shardassignments.yaml"))
    await it.kubectl("wait", "--for=condition=Established", f"crd/{ASSIGNMENTS}")
    assignment = {
        "apiVersion": SHARD_ASSIGNMENTS.api_version,
        "kind": SHARD_ASSIGNMENTS.kind,
        "metadata": {"name": "custom-scheduler"},
        "spec": {
            "summary": "1 replica, 0 buckets move",
            "namespace": "kube-system",
            "replicas": [{"name": "former", "wanted": "0-255", "held": "0-255"}],
        },
    }
    it.server.store.create(ASSIGNMENTS, assignment)


async def places_pods_though_an_answer_is_lost(it: Shipped) -> None:
    """The daemon has to ask what became of the pod."""
    it.server.faults.lose_answers(binds, times=1)
    await it.kubectl("apply", "-f", str(MANIFESTS / "examples" / "nginx.yaml"))
    await it.kubectl("rollout", "status", "deployment/nginx", "--timeout=50s")


async def places_a_gang(it: Shipped) -> None:
    """What became of it is written to its PodGroup."""
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": "default"},
    }
    it.server.store.create(
        "podgroups.scheduling.k8s.io", {**group, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    )
    for number in range(2):
        member = pod_object(f"gang-{number}", cpu="10m")
        member["spec"]["schedulingGroup"] = {"podGroupName": "gang"}
        it.server.store.create("pods", member)
    await until(lambda: it.node_of("gang-0") and it.node_of("gang-1"))


async def has_volumes_bound_and_made(it: Shipped) -> None:
    """A volume is bound to one claim of a pod, and one is made for the other."""
    create = it.server.store.create
    for name, provisioner in (("local", "kubernetes.io/no-provisioner"), ("made", "disk.example.com")):
        create("storageclasses.storage.k8s.io", storage_class(name, provisioner=provisioner))
        create("persistentvolumeclaims", claim(name, class_name=name))
    create("persistentvolumes", volume("local", storageClassName="local"))
    create("pods", pod_object("with-volumes", cpu="10m", volumes=mounted("local", "made")))
    await until(lambda: it.node_of("with-volumes"))


async def gives_devices_in_spite_of_conflicts_and_refusals(it: Shipped) -> None:
    """A claim that changed is read again; what cannot be bound gives its claim back, and has one that was made deleted."""
    created = {
        "deviceclasses": device_class(extended_resource="example.com/gpu"),
        "resourceslices": resource_slice("n0", 2),
        "resourceclaims": resource_claim("one"),
    }
    for plural, each in created.items():
        it.server.store.create(f"{plural}.resource.k8s.io", unsaved(each))
    it.server.faults.refuse(409, requests(verb="update", resource="resourceclaims"), times=1)
    it.server.faults.refuse(500, binds, times=1)
    it.server.store.create("pods", pod_object("claiming", cpu="10m", resourceClaims=claims_of("one")))
    await until(lambda: it.node_of("claiming"))
    it.server.faults.refuse(500, binds, times=1)
    amounts = {"limits": {"example.com/gpu": "1"}, "requests": {"example.com/gpu": "1"}}
    containers = [{"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": amounts}]
    it.server.store.create("pods", pod_object("asking", containers=containers))
    await until(lambda: it.node_of("asking"))


async def is_read_by_prometheus(it: Shipped, port: int) -> None:
    """Who may read is asked of the API server with the account's own rights."""
    await it.kubectl(
        "create", "clusterrolebinding", "prometheus", "--clusterrole=custom-scheduler-metrics-reader",
        "--serviceaccount=default:default",
    )  # fmt: skip
    reader = (await it.kubectl("create", "token", "default")).strip()
    page = f"https://127.0.0.1:{port}/metrics"
    async with aiohttp.ClientSession() as session:
        answer = await session.get(page, ssl=False, headers={"Authorization": f"Bearer {reader}"})
        assert answer.status == 200
        assert "scheduler_schedule_attempts_total" in await answer.text()
        assert (await session.get(page, ssl=False)).status == 403


async def preempts(it: Shipped) -> None:
    """Who has to go is on the only node the other may use."""
    it.server.store.create("nodes", node_object("small", cpu="1", labels={"room": "small"}))
    it.server.store.create("pods", pod_object("humble", cpu="1", node_selector={"room": "small"}))
    await until(lambda: it.node_of("humble") == "small")
    await it.kubectl("create", "priorityclass", "grand", "--value=100")
    first: dict[str, Any] = {
        "node_selector": {"room": "small"},
        "priority_class_name": "grand",
        "priority": 100,
    }
    it.server.store.create("pods", pod_object("grand", cpu="1", **first))
    await until(lambda: it.node_of("grand") == "small")
    assert not it.node_of("humble")


async def counts_what_it_says_again(it: Shipped, run: Run) -> None:
    """Have a pod refused until an event is counted instead of written once more.

    Every waiting pod is tried again with a new configuration. The first refusal changed the pod's status, so the third
    is the first that says the same of the same version.
    """
    it.server.store.create("pods", pod_object("big", cpu="99"))
    await until(partial(has_refused, run, "big", 1))
    for seconds in (3, 4):
        await it.configure(podMaxBackoffSeconds=seconds)
        await until(partial(has_refused, run, "big", seconds - 1))
    await until(lambda: ("events", "patch") in it.used())


def has_refused(run: Run, pod: str, times: int) -> bool:
    said = run.said("Unable to schedule pod; no fit; waiting")
    return sum(line["pod"] == f"default/{pod}" for line in said) >= times
