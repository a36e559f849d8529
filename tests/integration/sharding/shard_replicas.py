"""Several ShardReplicas against the simulated API server, and a judge: no two of them ever use a bucket at the same time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from copy import deepcopy
from random import Random
from typing import TYPE_CHECKING, Any

import yaml

from scheduler.configuration.types import KubeSchedulerConfiguration, Sharding
from scheduler.daemon.app.rights import rights_of
from scheduler.daemon.sharding.replica import ShardReplica
from scheduler.engine.sharding.buckets import BUCKETS
from scheduler.engine.sharding.holding import BucketState
from scheduler.kube.client.connection import ApiConnection
from scheduler.kube.client.reflector import Reflector
from scheduler.kube.client.resources import PODS
from scheduler.kube.http.endpoint import Endpoint
from scheduler.objects.decode import decode_pod
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.server import ApiServer
from tests.support.builders import pod_object
from tests.support.daemon_accounts import Account, token_users
from tests.support.frozen_processes import Freezer
from tests.support.manifests import MANIFESTS
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

CRDS = "customresourcedefinitions.apiextensions.k8s.io"
LEASES = "leases.coordination.k8s.io"
KIND = "shardassignments.custom-scheduler.io"
NAME = "custom-scheduler"
SPACE = "kube-system"
DEFINITION = yaml.safe_load((MANIFESTS / "crds" / "shardassignments.yaml").read_text())
SETTINGS = KubeSchedulerConfiguration(sharding=Sharding(enabled=True))
RIGHTS = rights_of((), SETTINGS, config_map=None)
PROCESSES = 7
LEASE_SECONDS, DEADLINE_SECONDS, RETRY_SECONDS = 15.0, 9.0, 2.0


class PodHandler:
    """Ignores all changes of pods."""

    def on_add(self, obj: object) -> None: ...

    def on_update(self, old: object, new: object) -> None: ...

    def on_delete(self, old: object) -> None: ...

    def on_undecodable(self, identity: object, error: object) -> None: ...


class Process:
    """A process with a ShardReplica.

    Attributes:
        replica: its replica.
        freezer: stops it as SIGSTOP does.
        is_gone: whether it was killed, or ended.
    """

    def __init__(self, cluster: Shards, identity: str, connection: ApiConnection, *, in_pod: bool) -> None:
        self.identity = identity
        self.freezer = Freezer()
        self.is_gone = False
        self._connection = connection
        self._cluster = cluster
        self._pods = Reflector(
            connection, PODS, decode=decode_pod, handler=PodHandler(), random=Random(identity)
        )
        environment = {"POD_NAMESPACE": SPACE, "POD_NAME": identity} if in_pod else {}
        if in_pod:
            cluster.server.store.create("pods", pod_object(identity, namespace=SPACE))
        self.replica = ShardReplica(
            connection,
            SETTINGS.leader_election,
            identity=f"{identity}_1",
            clock=LoopClock(),
            random=Random(identity),
            pods_version=lambda: int(self._pods.resource_version or 0),
            changed=cluster.judge,
            environment=environment,
        )
        with self.freezer.inside():
            self._watching = asyncio.create_task(self._pods.run())
            self.task = asyncio.create_task(self._live())

    async def _live(self) -> None:
        await self._pods.wait_synced()
        await self.replica.acquire()
        await self.replica.keep()
        self.is_gone = True  # a daemon ends

    def in_state(self, state: BucketState = BucketState.IN_USE) -> set[int]:
        """The buckets in a state, which is not that of buckets of others."""
        if self.is_gone:
            return set()
        now = asyncio.get_running_loop().time()
        holder = self.replica.holder
        return {bucket for bucket in holder._claims if holder.state(bucket, now) is state}

    async def kill(self) -> None:
        """End it as SIGKILL does."""
        self.freezer.thaw()
        self.is_gone = True
        for task in (self.task, self._watching):
            task.cancel()
        await asyncio.wait({self.task, self._watching})
        await self._connection.close()

    async def stop(self) -> None:
        """End it in good order."""
        self.task.cancel()
        await asyncio.wait({self.task})
        await self.replica.release()
        await self.kill()


class Shards:
    """A server, and processes."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.processes: list[Process] = []
        # All are granted their rights now: a server that is restored from a backup has forgotten later grants.
        self._accounts = [Account(server, number) for number in range(PROCESSES)]
        for account in self._accounts:
            account.grant(RIGHTS)

    @asynccontextmanager
    async def process(self, identity: str, *, in_pod: bool = True) -> AsyncIterator[Process]:
        """Run a process; what is left of it at the end is killed."""
        assert self.server.socket_path is not None
        account = self._accounts[len(self.processes)]
        connection = ApiConnection(
            Endpoint("http://localhost", unix_socket=self.server.socket_path), authorization=account
        )
        process = Process(self, identity, connection, in_pod=in_pod)
        self.processes.append(process)
        try:
            yield process
        finally:
            await process.kill()
            account.settle()
            if not process.task.cancelled() and process.task.exception() is not None:
                raise process.task.exception()  # type: ignore[misc]

    def judge(self) -> None:
        """Check that no two replicas use a bucket."""
        users: dict[int, str] = {}
        for process in self.processes:
            for bucket in process.in_state():
                other = users.setdefault(bucket, process.identity)
                assert other == process.identity, f"{other} and {process.identity} use bucket {bucket}"

    def all_in_use(self, *processes: Process) -> bool:
        """Whether the processes, and nobody else, use all buckets."""
        used = [process.in_state() for process in processes]
        return sum(map(len, used)) == BUCKETS and all(used)

    @property
    def object(self) -> dict[str, Any]:
        """The assignment; empty if it does not exist."""
        try:
            return self.server.store.get(KIND, NAME)
        except (StatusError, KeyError):  # the kind is served a moment after its definition was created
            return {}

    def write(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the assignment by hand."""
        obj = deepcopy(self.object)
        change(obj)
        self.server.store.update(KIND, obj)

    @property
    def held(self) -> Mapping[str, str]:
        """Replica -> the buckets that it holds."""
        return {each["name"]: each["held"] for each in self.object["spec"]["replicas"] if each["held"]}

    def leases(self) -> dict[str, str]:
        """Lease of a replica -> holder."""
        found = self.server.store.list(LEASES)
        return {
            each["metadata"]["name"]: each["spec"].get("holderIdentity", "")
            for each in found
            if each["metadata"]["name"] != NAME
        }

    async def until(self, holds: Callable[[], object], *, seconds: float = 60.0) -> float:
        """Wait until something holds, and judge each tenth of a second; return the time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not holds():
            assert loop.time() < deadline, (
                f"it does not hold after {seconds} s; held: {self.object.get('spec')}"
            )
            await asyncio.sleep(0.1)
            self.judge()
        return loop.time()


@asynccontextmanager
async def shards(folder: Path) -> AsyncIterator[Shards]:
    """Run a server that knows the kind."""
    async with ApiServer(
        clock=LoopClock(), socket_path=folder / "s", rbac=True, users=token_users()
    ) as server:
        server.store.create(CRDS, DEFINITION)
        yield Shards(server)
