"""`custom-scheduler kubelets` as a process: nodes come and go; an error at the start is one line."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import pytest
from msgspec.json import decode, encode

from scheduler.configuration.yaml_text import read
from scheduler.kube.client.connect import connect
from scheduler.kube.client.resources import NODES, PODS, SERVICES
from scheduler.kube.client.watch import watch
from scheduler.kube.http.request import Request
from scheduler.tools.simulator.access.rbac import User
from scheduler.tools.simulator.server import ApiServer
from tests.support.commands import forked_program, run_command
from tests.support.manifests import ROOT
from tests.support.processes import started
from tests.unit.tools.simulator.a_store import node, pod

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)

END_SECONDS = 60.0
LEASES = "leases.coordination.k8s.io"
ROLE = (ROOT / "docs" / "kubelets.md").read_text().partition("```yaml\n")[2].partition("```")[0]


def kubelets(kubeconfig: Path, *flags: str) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    return command("kubelets", kubeconfig, *flags)


def command(
    name: str, kubeconfig: Path, *flags: str
) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    return started(forked_program(), name, "--kubeconfig", kubeconfig, *flags, stdout=pipe, stderr=pipe)


async def test_nodes_are_registered_run_pods_and_are_deleted_with_the_documented_rights(tmp_path: Path):
    users = {"agent": User("agent", groups=("system:authenticated",))}
    async with ApiServer(rbac=True, token="owner", users=users, controllers=True) as server:
        store = server.store
        store.apply(read(ROLE).value)
        store.create(
            "clusterrolebindings.rbac.authorization.k8s.io",
            {
                "metadata": {"name": "agent"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "simulated-kubelets",
                },
                "subjects": [{"kind": "User", "name": "agent"}],
            },
        )
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig", token="agent", user="agent")
        flags = ("--nodes=2", "--cpu=2", "--labels=disk=ssd", "--resources=example.com/gpu=1")
        taints = "--taints=dedicated=test:NoSchedule,other:PreferNoSchedule"
        async with kubelets(kubeconfig, *flags, taints, "--zones=a,b", "--delete-nodes") as process:
            assert process.stdout is not None
            line = await process.stdout.readline()
            assert line == b"Kubelets of 2 nodes run: simulated-0 to simulated-1\n"
            found = store.get("nodes", "simulated-1")
            assert (
                found["metadata"]["labels"].items()
                >= {"disk": "ssd", "topology.kubernetes.io/zone": "b"}.items()
            )
            amounts = {"cpu": "2", "memory": "16Gi", "pods": "110", "example.com/gpu": "1"}
            assert found["status"]["allocatable"].items() >= amounts.items()
            assert found["spec"]["taints"] == [
                {"key": "dedicated", "value": "test", "effect": "NoSchedule"},
                {"key": "other", "effect": "PreferNoSchedule"},
            ]

            for made in (pod("p"), pod("large", requests={"cpu": "3"})):
                store.create("pods", made)
                store.bind(made["metadata"]["name"], "simulated-0")
            await phases(server, p="Running", large="Failed")
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), END_SECONDS) == 0
        assert not store.list("nodes")
        assert not store.list(LEASES, namespace="kube-node-lease")
        assert not server.grants.refused


async def phases(server: ApiServer, **wanted: str) -> None:
    """Wait until pods are in the given phases."""
    changed = asyncio.Event()
    watch = server.store.watch("pods", changed.set)
    async with asyncio.timeout(END_SECONDS):
        while any(server.store.get("pods", name)["status"]["phase"] != wanted[name] for name in wanted):
            await changed.wait()
            changed.clear()
            watch.take()
    server.store.unwatch("pods", watch)


async def test_nodes_stay_without_the_flag_and_those_of_other_kubelets_are_refused(tmp_path: Path):
    async with ApiServer() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        async with kubelets(kubeconfig, "--nodes=1") as process:
            assert process.stdout is not None
            await process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert await asyncio.wait_for(process.wait(), END_SECONDS) == 0
        assert [each["metadata"]["name"] for each in server.store.list("nodes")] == ["simulated-0"]

        server.store.create("nodes", node("worker-0"))
        async with kubelets(kubeconfig, "--nodes=1", "--name-prefix=worker") as process:
            _, errors = await process.communicate()
        assert process.returncode == 1
        assert errors.decode().splitlines()[-1] == (
            "error: node worker-0 exists and has no label simulator/kubelet: another kubelet runs it; choose other "
            "names with --name-prefix"
        )


async def test_an_api_server_without_kubelets_leaves_pods_to_those_of_the_command(tmp_path: Path):
    """The pod on a node without a kubelet is older: a kubelet of the server would have started it first."""
    kubeconfig = tmp_path / "kubeconfig"
    flags = ("--nodes=0", "--no-kubelets")
    async with command("api-server", kubeconfig, *flags) as server:
        assert server.stdout is not None
        await server.stdout.readline()
        async with kubelets(kubeconfig, "--nodes=1") as process, connect(str(kubeconfig)) as connection:
            assert process.stdout is not None
            await process.stdout.readline()
            await connection.send(Request("GET", SERVICES.path("default", "kubernetes")))
            await connection.send(Request("POST", NODES.path(), encode(node("other"))))
            for name, on in (("older", "other"), ("newer", "simulated-0")):
                made = encode(pod(name, nodeName=on))
                await connection.send(Request("POST", PODS.path("default"), made))
            selected = {"fieldSelector": "metadata.name=newer,status.phase=Running"}
            running = asyncio.Event()
            watching = asyncio.create_task(
                watch(connection, PODS.path(), selected, lambda _: running.set(), seconds=60)
            )
            await asyncio.wait_for(running.wait(), END_SECONDS)
            watching.cancel()
            older = await connection.send(Request("GET", PODS.path("default", "older")))
            assert decode(older.body)["status"]["phase"] == "Pending"


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        pytest.param("--cpu=lots", 'error: --cpu: must be a quantity, was "lots"', id="amount"),
        pytest.param(
            "--resources=example.com/gpu=few",
            'error: --resources["example.com/gpu"]: must be a quantity, was "few"',
            id="resource",
        ),
        pytest.param("--name-prefix=A", "error: --name-prefix: a lowercase RFC 1123 subdomain", id="name"),
        pytest.param("--zones=,", "error: --zones: must name at least one zone", id="zones"),
        pytest.param(
            "--labels=disk", "Error: Invalid value for '--labels': must be NAME=VALUE, was 'disk'", id="label"
        ),
        pytest.param(
            "--taints=a=b", "Error: Invalid value for '--taints': must be KEY=VALUE:EFFECT", id="taint"
        ),
    ],
)
def test_a_wrong_value_of_a_flag_is_reported(flags: str, error: str):
    done = run_command("kubelets", flags)

    assert (done.returncode, done.stdout) == (2, b"")
    assert error in done.stderr.decode()
