"""A daemon's pages over HTTPS, its clients and itself known to an API server with RBAC: real time, real sockets."""

from __future__ import annotations

import asyncio
import ssl
import sys
from typing import TYPE_CHECKING, Any

import aiohttp

from scheduler.simulator.server import ApiServer
from tests.builders import node_object, pod_object
from tests.integration.test_prometheus import free_port, process, until

if TYPE_CHECKING:
    from pathlib import Path

RBAC = "rbac.authorization.k8s.io"
LEASE_RULES = [
    {
        "verbs": ["get", "update", "list", "watch", "create"],
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
    }
]
METRICS_RULES = [{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]


def give(server: ApiServer, account: str, role: str) -> None:
    """Bind a ClusterRole to a ServiceAccount of kube-system."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "kube-system"}
    binding = {"roleRef": {"kind": "ClusterRole", "name": role}, "subjects": [subject]}
    name = f"{account}-{role.replace(':', '-')}"
    server.store.create(f"clusterrolebindings.{RBAC}", {"metadata": {"name": name}, **binding})


async def token_of(server: ApiServer, session: aiohttp.ClientSession, account: str, admin: str) -> str:
    """Create a ServiceAccount, and ask for a token of its as an administrator does."""
    server.store.create("serviceaccounts", {"metadata": {"name": account, "namespace": "kube-system"}})
    url = f"{server.url}/api/v1/namespaces/kube-system/serviceaccounts/{account}/token"
    trusting = ssl.create_default_context(cadata=server.authority.decode())
    headers = {"Authorization": f"Bearer {admin}"}
    async with session.post(url, json={"spec": {}}, headers=headers, ssl=trusting) as response:
        answer: dict[str, Any] = await response.json()
        assert response.status == 201, answer
        return str(answer["status"]["token"])


def test_metrics_are_for_those_whom_a_role_lets_read_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            ApiServer(tls=True, rbac=True, token="root") as server,
            aiohttp.ClientSession() as session,
        ):
            daemon, reader, stranger = [
                await token_of(server, session, name, "root") for name in ("daemon", "reader", "stranger")
            ]
            for name, rules in (("leases", LEASE_RULES), ("metrics", METRICS_RULES)):
                server.store.create(f"clusterroles.{RBAC}", {"metadata": {"name": name}, "rules": rules})
            for role in ("system:kube-scheduler", "system:volume-scheduler", "leases"):
                give(server, "daemon", role)
            give(server, "reader", "metrics")
            server.store.create("nodes", node_object("n1", cpu="8"))
            server.store.create("pods", pod_object("web", cpu="1", memory="1Gi"))
            kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig", token=daemon, user="daemon")
            port = free_port()

            async def status(token: str) -> int:
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                url = f"https://127.0.0.1:{port}/metrics"
                async with session.get(url, headers=headers, ssl=False) as response:
                    return response.status

            async def is_placed() -> bool:
                return bool(server.store.get("pods", "web")["spec"].get("nodeName"))

            command = ("-m", "scheduler", "run", "--kubeconfig", str(kubeconfig))
            where = ("--bind-address", "127.0.0.1", "--secure-port", str(port))
            async with process(sys.executable, *command, *where):
                await until(is_placed)

                assert await status(reader) == 200
                assert await status(stranger) == 403
                assert await status("") == 403
                assert await status("made-up") == 401
            used = server.grants.used("system:serviceaccount:kube-system:daemon")
            binding = [grant.role for grant in used if grant.permission.resource == "pods/binding"]
            assert binding == ["ClusterRole/system:kube-scheduler"]

    asyncio.run(scenario())
