"""kubectl against the simulated API server with TLS and RBAC, in real time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from scheduler.tools.simulator.access.rbac import User
from scheduler.tools.simulator.server import ApiServer
from tests.support.commands import forked_program
from tests.support.kubectl import Kubectl
from tests.support.processes import started, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)

WEB = "system:serviceaccount:default:web"
ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: wide}
rules:
- {apiGroups: [""], resources: [secrets], verbs: [get, list]}
"""


class Access:
    """A server with a ServiceAccount, and kubectl as several users.

    Attributes:
        kubectl: as the administrator.
    """

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server = server
        self._folder = folder
        self.kubectl = self.as_user("admin", "")

    def as_user(self, name: str, token: str) -> Kubectl:
        kubeconfig = self.server.write_kubeconfig(self._folder / f"{name}.config", token=token, user=name)
        home = self._folder / name
        home.mkdir()
        return Kubectl(kubeconfig, home)


@asynccontextmanager
async def access(folder: Path) -> AsyncIterator[Access]:
    async with ApiServer(tls=True, rbac=True, users={"ann-token": User("ann")}) as server:
        server.store.create("serviceaccounts", {"metadata": {"name": "web"}})
        yield Access(server, folder)


async def test_kubectl_shows_the_current_user_over_tls(tmp_path: Path) -> None:
    async with access(tmp_path) as cluster:
        said = await cluster.kubectl("auth", "whoami")
        assert [line.split(maxsplit=1) for line in said.splitlines()] == [
            ["ATTRIBUTE", "VALUE"],
            ["Username", "admin"],
            ["Groups", "[system:masters system:authenticated]"],
        ]


async def test_kubectl_creates_a_token_with_the_rights_of_its_account(tmp_path: Path) -> None:
    async with access(tmp_path) as cluster:
        token = (await cluster.kubectl("create", "token", "web", "--duration=20m")).strip()
        web = cluster.as_user("web", token)
        assert WEB in await web("auth", "whoami")

        assert await web.refused("get", "pods") == (
            f'Error from server (Forbidden): pods is forbidden: User "{WEB}" cannot list resource "pods" in API '
            'group "" in the namespace "default"\n'
        )
        bind = ("create", "rolebinding", "v", "--clusterrole=view", "--serviceaccount=default:web")
        await cluster.kubectl(*bind)
        await web("get", "pods")
        await web.refused("get", "pods", "--all-namespaces")


async def test_kubectl_shows_the_rights_of_a_user(tmp_path: Path) -> None:
    async with access(tmp_path) as cluster:
        ask = ("auth", "can-i", "--as", WEB)
        assert (await cluster.kubectl.run(*ask, "get", "pods")).out == "no\n"
        await cluster.kubectl("create", "role", "r", "--verb=get", "--resource=pods", "--resource-name=a")
        await cluster.kubectl("create", "rolebinding", "b", "--role=r", f"--user={WEB}")

        assert await cluster.kubectl(*ask, "get", "pods/a") == "yes\n"
        assert (await cluster.kubectl.run(*ask, "get", "pods")).out == "no\n"
        assert await cluster.kubectl("auth", "can-i", "*", "*") == "yes\n"
        listed = (await cluster.kubectl(*ask, "--list")).splitlines()
        assert ["pods", "[]", "[a]", "[get]"] in [line.split() for line in listed]


async def test_kubectl_cannot_apply_a_role_that_its_user_does_not_have(tmp_path: Path) -> None:
    async with access(tmp_path) as cluster:
        rules = ("--verb=get,create,patch", "--resource=roles.rbac.authorization.k8s.io")
        await cluster.kubectl("create", "clusterrole", "author", *rules)
        bind = ("create", "clusterrolebinding", "author", "--clusterrole=author", "--user=ann")
        await cluster.kubectl(*bind)
        ann = cluster.as_user("ann", "ann-token")

        assert (
            'roles.rbac.authorization.k8s.io "wide" is forbidden: user "ann" '
            '(groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
            '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}'
        ) in await ann.refused("apply", "-f", "-", stdin=ROLE)
        await cluster.kubectl("apply", "-f", "-", stdin=ROLE)


async def test_kubectl_without_the_authority_trusts_no_server(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with access(tmp_path) as cluster, access(tmp_path / "other") as other:
        wrong = await cluster.kubectl.refused("get", "pods", "--server", other.server.url)
        assert "x509: certificate signed by unknown authority" in wrong


async def test_the_command_serves_a_cluster_with_rbac(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubectl = Kubectl(kubeconfig, tmp_path)

    async def is_up() -> bool:
        return kubeconfig.exists() and (await kubectl.run("get", "--raw", "/readyz")).out == "ok"

    command = (forked_program(), "api-server", "--rbac", "--nodes", "1")
    async with started(*command, "--kubeconfig", str(kubeconfig)):
        await until(is_up)
        assert "system:masters" in await kubectl("auth", "whoami")
        await kubectl.refused("get", "nodes", "--as", "somebody")
        await kubectl("get", "nodes")


async def test_https_accepts_the_token_of_the_kubeconfig(tmp_path: Path) -> None:
    async with ApiServer(tls=True) as server:
        kubectl = Kubectl(server.write_kubeconfig(tmp_path / "config"), tmp_path)
        assert "namespace/default" in (await kubectl("get", "namespaces", "-o", "name")).splitlines()
        stranger = await kubectl.refused("get", "namespaces", "--token=another")
        assert "You must be logged in to the server (Unauthorized)" in stranger
