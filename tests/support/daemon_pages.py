"""A daemon as a process, whose pages need rights of the API server's RBAC: real sockets."""

from __future__ import annotations

import ssl
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

from scheduler.tools.simulator.server import ApiServer
from tests.support.builders import node_object, pod_object
from tests.support.ports import free_port
from tests.support.processes import started, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

RBAC = "rbac.authorization.k8s.io"
_ADMINISTRATOR = "root"
_LEASE_RULES = [
    {
        "verbs": ["get", "update", "list", "watch", "create"],
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
    }
]


@dataclass(frozen=True, slots=True)
class Pages:
    """What the daemon serves.

    Attributes:
        server: where its tokens come from.
        url: of its pages.
        reader: a token of somebody who may read some of them.
        stranger: of somebody who may not.
    """

    server: ApiServer
    url: str
    reader: str
    stranger: str

    async def answer(self, path: str, token: str) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.url}{path}", headers=headers, ssl=False) as response,
        ):
            found: dict[str, Any] = await response.json()
            return found

    async def status(self, path: str, token: str = "", method: str = "GET") -> int:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"{self.url}{path}", headers=headers, ssl=False) as response,
        ):
            return response.status


@asynccontextmanager
async def pages_of_a_daemon(folder: Path, *flags: str, readable: tuple[str, ...]) -> AsyncIterator[Pages]:
    """Run a daemon until the block ends, which begins when it has placed the pod `web`."""
    async with ApiServer(tls=True, rbac=True, token=_ADMINISTRATOR) as server:
        daemon, reader, stranger = [
            await _token_of(server, name) for name in ("daemon", "reader", "stranger")
        ]
        rules = [{"verbs": ["get"], "nonResourceURLs": list(readable)}]
        for name, granted in (("leases", _LEASE_RULES), ("pages", rules)):
            server.store.create(f"clusterroles.{RBAC}", {"metadata": {"name": name}, "rules": granted})
        for role in ("system:kube-scheduler", "system:volume-scheduler", "leases"):
            give(server, "daemon", role)
        give(server, "reader", "pages")
        server.store.create("nodes", node_object("n1", cpu="8"))
        server.store.create("pods", pod_object("web", cpu="1", memory="1Gi"))
        kubeconfig = server.write_kubeconfig(folder / "kubeconfig", token=daemon, user="daemon")
        port = free_port()
        where = ("--kubeconfig", str(kubeconfig), "--bind-address", "127.0.0.1", "--secure-port", str(port))

        async def is_placed() -> bool:
            return bool(server.store.get("pods", "web")["spec"].get("nodeName"))

        async with started(sys.executable, "-m", "scheduler", "run", *where, *flags):
            await until(is_placed)
            yield Pages(server, f"https://127.0.0.1:{port}", reader, stranger)


def give(server: ApiServer, account: str, role: str) -> None:
    """Bind a ClusterRole to a ServiceAccount of kube-system."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "kube-system"}
    binding = {"roleRef": {"kind": "ClusterRole", "name": role}, "subjects": [subject]}
    name = f"{account}-{role.replace(':', '-')}"
    server.store.create(f"clusterrolebindings.{RBAC}", {"metadata": {"name": name}, **binding})


async def _token_of(server: ApiServer, account: str) -> str:
    """Create a ServiceAccount, and ask for a token of its as an administrator does."""
    server.store.create("serviceaccounts", {"metadata": {"name": account, "namespace": "kube-system"}})
    url = f"{server.url}/api/v1/namespaces/kube-system/serviceaccounts/{account}/token"
    trusting = ssl.create_default_context(cadata=server.authority.decode())
    headers = {"Authorization": f"Bearer {_ADMINISTRATOR}"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json={"spec": {}}, headers=headers, ssl=trusting) as response,
    ):
        answer: dict[str, Any] = await response.json()
        assert response.status == 201, answer
        return str(answer["status"]["token"])
