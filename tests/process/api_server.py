"""A simulated API server in a process of its own: `python -m tests.process.api_server TOKEN...`, told what to do by lines.

Its objects outlive a restart, as etcd's do; what they were before does not, as in a real server's watch cache.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from typing import Any

from scheduler.clock import SystemClock
from scheduler.tools.simulator.access.rbac import User
from scheduler.tools.simulator.server import ApiServer
from tests.support.builders import node_object, pod_object
from tests.support.replicas import LEASES

NODES, PODS_A_NODE = 100, 5
NAMESPACE, NAME = "default", "custom-scheduler"
CONFIGURATION = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


class Commands:
    """What a test may ask for; each answers with JSON."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._clock = SystemClock()
        self._creating: asyncio.Task[None] | None = None

    async def port(self) -> int:
        return int(self._server.url.rpartition(":")[2])

    async def create(self, pods: int, rate: float) -> None:
        """Create pods, so many a second, from now on."""
        self._creating = asyncio.create_task(self._create(pods, rate))

    async def restart(self, away_seconds: float, refusing_seconds: float) -> dict[str, float]:
        """Go without a word, come back later, and then refuse everything for a while; when it went, and was well."""
        gone = self._clock.monotonic()
        await self._die()
        self._server.faults.compact()
        await asyncio.sleep(away_seconds)
        refusal = self._server.faults.refuse(403, lambda info: info.path != "/readyz")
        unready = self._server.faults.refuse(500, lambda info: info.path == "/readyz")
        await self._server.start()
        await asyncio.sleep(refusing_seconds)
        self._server.faults.remove(refusal)
        self._server.faults.remove(unready)
        return {"gone": gone, "well": self._clock.monotonic()}

    async def _die(self) -> None:
        listener = self._server._listener
        assert listener is not None
        for connection in list(listener._connections):
            listener._close(connection)
        await self._server.stop()

    async def state(self) -> dict[str, Any]:
        """What became of everything so far."""
        pods = self._server.store.list("pods")
        on_node = Counter(pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName"))
        return {
            "pods": len(pods),
            "placed": on_node.total(),
            "excess": sum(max(0, count - PODS_A_NODE) for count in on_node.values()),
            "leases": self._server.store.list(LEASES),
            **self._told(),
        }

    def _told(self) -> dict[str, Any]:
        holder, holders = "", []
        bound: list[float] = []
        twice: Counter[str] = Counter()
        late: list[tuple[str, str]] = []  # who sent it, path
        refused = 0
        for each in self._server.requests:
            if each.path.endswith(f"/leases/{NAME}") or each.path.endswith("/leases"):
                if (
                    each.method in {"PUT", "POST"}
                    and each.status < 300
                    and each.json["spec"]["holderIdentity"]
                ):
                    if holder != each.user:
                        holders.append((each.at_seconds, each.user))
                    holder = each.user
            elif each.path.endswith("/binding"):
                if each.user != holder:
                    late.append((each.user, each.path))
                refused += each.status == 409
                if each.status == 201:
                    bound.append(each.at_seconds)
                    twice[each.path] += 1
        return {
            "holder": holder,
            "holders": holders,
            "bound": bound,
            "late": late,
            "refused": refused,
            "double": sum(count > 1 for count in twice.values()),
        }

    async def _create(self, pods: int, rate: float) -> None:
        there = len(self._server.store.list("pods"))
        for number in range(there, there + pods):
            self._server.store.create("pods", pod_object(f"p-{number}", cpu="1"))
            await asyncio.sleep(1 / rate)


async def main(tokens: list[str]) -> None:
    users = {token: User(token, groups=("system:masters", "system:authenticated")) for token in tokens}
    server = ApiServer(token="owner", users=users, logged_requests=100_000)
    for number in range(NODES):
        server.store.create("nodes", node_object(f"n-{number}", cpu=str(PODS_A_NODE), pods=110))
    config_map = {"metadata": {"name": NAME, "namespace": NAMESPACE}, "data": {"config.yaml": CONFIGURATION}}
    server.store.create("configmaps", config_map)
    async with server:
        commands = Commands(server)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while line := await reader.readline():
            name, arguments = json.loads(line)
            sys.stdout.write(json.dumps(await getattr(commands, name)(**arguments)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
