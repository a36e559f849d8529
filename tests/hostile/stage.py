"""The parts of a scenario: one scheduler, an API server, innocent pods, and their measurements."""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.hostile.api import Api, RefusedError, each
from tests.hostile.observer import Observer
from tests.hostile.result import Result
from tests.hostile.schedulers import LEASE, NAME, PROGRAM, Scheduler, configuration
from tests.support.builders import node_object, pod_object

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from tests.hostile.scenario import Scenario
    from tests.hostile.schedulers import Server

Json = dict[str, Any]

INNOCENT = f"{NAME}-innocent"
"""The namespace of the innocent pods."""
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_LAG = re.compile(r'^custom_scheduler_loop_lag(_cpu)?_seconds_bucket\{le="([^"]+)"\} (\S+)', re.MULTILINE)
_OVER_BUDGET = re.compile(r"^custom_scheduler_attempts_over_budget_total\{.*\} (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Size:
    """How large everything is.

    Attributes:
        scale: multiplies what scenarios create.
        most: they create no more of one kind.
        nodes: of the cluster.
        innocents: pods that the scheduler must bind meanwhile.
        rate: so many of them a second.
        hold_seconds: how long is looked at least.
        patience_seconds: an innocent pod that is bound later counts as not bound.
        observes: whether an observer polls health, lease and memory.
        in_flight: the requests of one kind that wait for an answer at a time. The simulated API server closes
            connections that wait when there are more than 128.
    """

    scale: float
    most: int
    nodes: int
    innocents: int
    rate: float
    hold_seconds: float
    patience_seconds: float
    observes: bool
    in_flight: int


FULL = Size(1.0, 100_000, 5000, 20, 4.0, 20.0, 30.0, observes=True, in_flight=400)
SMALL = Size(0.02, 400, 40, 4, 20.0, 0.0, 60.0, observes=False, in_flight=32)


class Pool:
    """At most one configuration's schedulers at a time; with `keeps`, they go on until another is wanted.

    `program` is the command that is ours, without arguments; one with a prefix is run by the interpreter.
    """

    def __init__(self, folder: Path, *, keeps: bool = False, program: Sequence[str] = PROGRAM) -> None:
        self.keeps = keeps
        self._program = program
        self._folder = folder
        self._key = ""
        self._running: list[Scheduler] = []
        self._count = 0

    async def get(
        self, who: str, config: Json, replicas: int, *, fresh: bool, **options: Any
    ) -> list[Scheduler]:
        """Return schedulers that run by this configuration; `fresh` are those that no other scenario has used."""
        options["program"] = PROGRAM if options.get("prefix") else self._program
        key = json.dumps([who, config, replicas, {name: str(value) for name, value in options.items()}])
        if fresh or key != self._key or not all(each_.is_alive for each_ in self._running):
            await self.end()
            for _ in range(replicas):
                self._count += 1
                folder = self._folder / f"{self._count:03d}"
                folder.mkdir(parents=True)
                self._running.append(Scheduler(who, folder, config, **options))
            self._key = key
        return self._running

    async def end(self) -> None:
        await asyncio.gather(*(each_.end() for each_ in self._running))
        self._key, self._running = "", []


class Stage:
    """One scheduler in one scenario.

    Args:
        scenario: what is played.
        who: "ours" or "kube-scheduler".
        api: removes in the end what it created.
        server: where the API server is.
        size: how large everything is.
        pool: runs the schedulers.
        binary: of kube-scheduler.
        folder: for files of the scenario.

    Attributes:
        namespace: the tenant's.
        result: what came of it.
        schedulers: the processes; the first of them is measured.
        stack: is closed when all is measured.
    """

    def __init__(
        self,
        scenario: Scenario,
        who: str,
        *,
        api: Api,
        server: Server,
        size: Size,
        pool: Pool,
        binary: str,
        folder: Path,
    ) -> None:
        self.scenario = scenario
        self.who = who
        self.api = api
        self.server = server
        self.size = size
        self.folder = folder
        self.namespace = f"{NAME}-{scenario.name}"[:63].rstrip("-")
        self.result = Result(scenario.name, who, scenario.words)
        self.schedulers: list[Scheduler] = []
        self.stack = AsyncExitStack()
        self._pool = pool
        self._binary = binary
        self._observers: list[Observer] = []
        self._bound: dict[str, float] = {}
        self._began = time.monotonic()
        self._lags: Mapping[str, Mapping[float, float]] = {}
        self._over_budget = 0.0
        self._log_length = 0
        self._leader = ""

    # What is there.

    @property
    def is_small(self) -> bool:
        return self.size.scale < 1

    def n(self, count: int, least: int = 1) -> int:
        """Return a number at this scale."""
        return max(least, min(self.size.most, round(count * self.size.scale)))

    def node(self, number: int) -> str:
        """Return the name of a node of the cluster."""
        return f"{NAME}-{number % self.size.nodes:05d}"

    @property
    def scheduler(self) -> Scheduler:
        return self.schedulers[0]

    def pod(self, name: str, *, on: str = "", namespace: str = "", cpu: str = "10m", **fields: Any) -> Json:
        """Return a pod of the tenant's: for the scheduler under test, or, as tenants may create it, already on a node."""
        made = pod_object(
            name,
            namespace=namespace or self.namespace,
            cpu=cpu,
            memory="1Mi",
            scheduler_name="nobody" if on else NAME,
            node=on,
            **fields,
        )
        del made["metadata"]["uid"], made["spec"]["priority"], made["spec"]["preemptionPolicy"]
        made["spec"].setdefault("terminationGracePeriodSeconds", 0)
        return made

    async def own_nodes(self, names: Sequence[str], **fields: Any) -> None:
        """Create nodes that only the tenant's pods tolerate; see `own`."""
        taint = {"key": NAME, "value": self.scenario.name, "effect": "NoSchedule"}
        labels = {"own": self.scenario.name, **fields.pop("labels", {})}
        await self.api.create_all(
            cluster_node(name, number, taints=[taint], labels=labels, **fields)
            for number, name in enumerate(names)
        )

    def own(self) -> Json:
        """Return the fields of a pod that goes to the tenant's own nodes."""
        return {
            "tolerations": [{"key": NAME, "operator": "Equal", "value": self.scenario.name}],
            "nodeSelector": {"own": self.scenario.name},
        }

    # What is done.

    async def start(
        self,
        *,
        profile: Json | None = None,
        profiles: Sequence[Json] = (),
        more: Json | None = None,
        replicas: int = 1,
        restarts: bool = False,
        fresh: bool = False,
        fresh_connections: bool = False,
        flags: Sequence[str] = (),
        prefix: Sequence[str] = (),
        server: Server | None = None,
    ) -> None:
        """Start the scheduler, and wait until it has bound a first pod; from then on is measured.

        Args:
            profile: the profile under test, without its name.
            profiles: further ones.
            more: other fields of the configuration.
            replicas: how many processes; the first of them is measured.
            restarts: whether they are started again when they end.
            fresh: whether they must not have been used by another scenario.
            fresh_connections: whether each poll of /healthz comes over a new connection.
            flags: further flags of ours.
            prefix: a command that runs the scheduler.
            server: with another kubeconfig.
        """
        first = {"schedulerName": NAME, **(profile or {})}
        config = configuration(server or self.server, [first, *profiles], more or {})
        options: dict[str, Any] = {"binary": self._binary, "prefix": prefix, "restarts": restarts}
        if self.who == "ours":
            options["flags"] = flags
        fresh = fresh or not self._pool.keeps
        if not fresh:  # a busy machine may take longer than ten seconds to renew a lease
            config["leaderElection"] |= {"leaseDuration": "60s", "renewDeadline": "45s"}
        if fresh:
            await self._pool.end()
            await self._forget_lease()
        self.schedulers = await self._pool.get(self.who, config, replicas, fresh=fresh, **options)
        ready = await asyncio.gather(*(each_.ready(self.api) for each_ in self.schedulers))
        self.expect(all(ready), "the scheduler does not become ready")
        self.expect(
            None not in await self._bound_after(["warm"], self.size.rate), "no pod is bound before the attack"
        )
        if self.size.observes:
            self._observers = [
                Observer(each_, self.server, fresh_connections=fresh_connections) for each_ in self.schedulers
            ]
            await asyncio.gather(*(observer.begun() for observer in self._observers))
        self._lags, self._over_budget = await self._metrics()
        self._log_length = len(self.scheduler.log)
        self._leader = await self._holder()
        self._began = time.monotonic()

    async def end(self) -> None:
        """End the scheduler, which no other scenario can use."""
        await self._pool.end()

    async def innocents(self, rate: float = 0.0) -> None:
        """Create plain pods at a pace, and wait until all are bound, or late."""
        first = len(self.result.latencies)
        names = [f"innocent-{first + number}" for number in range(self.size.innocents)]
        self.result.latencies += await self._bound_after(names, rate or self.size.rate)

    async def _bound_after(self, names: Sequence[str], rate: float) -> list[float | None]:
        """Create plain pods; return for each the seconds until it was bound, or None if that took too long."""
        made: dict[str, float] = {}

        async def one(number: int) -> None:
            await self.api.create(self.pod(names[number], namespace=INNOCENT))
            made[names[number]] = time.monotonic()

        await self.paced(rate, len(names), one)
        await self.until(lambda: made.keys() <= self._bound.keys(), self.size.patience_seconds)
        return [
            max(0.0, self._bound[name] - began) if name in self._bound else None
            for name, began in made.items()
        ]

    async def paced(self, rate: float, count: int, function: Callable[[int], Awaitable[Any]]) -> float:
        """Call a function with 0, 1, ..., so many times a second, without waiting for the answers; how many it were."""
        began = time.monotonic()
        room = asyncio.Semaphore(self.size.in_flight)

        async def one(number: int) -> None:
            try:
                await function(number)
            finally:
                room.release()

        async with asyncio.TaskGroup() as group:
            for number in range(count):
                await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
                await room.acquire()
                group.create_task(one(number))
        return count / (time.monotonic() - began)

    @asynccontextmanager
    async def meanwhile(self, rate: float, function: Callable[[int], Awaitable[Any]]) -> AsyncIterator[None]:
        """Call a function with 0, 1, ..., so many times a second, while the block runs; refusals do not matter."""
        done = 0

        async def one(number: int) -> None:
            nonlocal done
            try:
                await function(number)
                done += 1
            except RefusedError:
                pass

        began = time.monotonic()
        task = asyncio.create_task(self.paced(rate, 10**9, one))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            self.expect(done > 0, "all that was to happen meanwhile is refused")
            if not self.is_small:
                self.figure(f"{done / (time.monotonic() - began):.0f} a second")

    async def innocents_while(
        self, rate: float, function: Callable[[int], Awaitable[Any]], seconds: float = 15
    ) -> None:
        """Create the innocents' pods while a function is called as in `meanwhile`, and for some seconds after it."""
        async with self.meanwhile(rate, function):
            await self.innocents()
            await self.pause(seconds)

    async def delete_all_pods(self) -> None:
        """Delete all pods of the hostile namespace at once, and create the innocents' pods meanwhile."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        deleting = asyncio.create_task(self.api.ask("DELETE", path, gracePeriodSeconds="0"))
        await self.innocents()
        await deleting

    async def relabel(self, number: int) -> None:
        """Change a label of a node."""
        label = {"metadata": {"labels": {"churn": str(number)}}}
        await self.api.patch(f"/api/v1/nodes/{self.node(number * 7)}", label)

    async def until(self, holds: Callable[[], object], seconds: float) -> float | None:
        """Wait until something holds while a scheduler lives; the seconds it took, or None."""
        began = time.monotonic()
        while not holds():
            for each_ in self.schedulers:
                each_.look()
            if time.monotonic() - began > seconds or not any(each_.is_alive for each_ in self.schedulers):
                return None
            await asyncio.sleep(0.005)
        return time.monotonic() - began

    async def pause(self, seconds: float) -> None:
        """Let the scheduler take in what was created."""
        await asyncio.sleep(seconds if not self.is_small else min(seconds, 0.3))

    async def pods_where(self, holds: Callable[[Json], object], namespace: str = "") -> list[Json]:
        path = f"/api/v1/namespaces/{namespace or self.namespace}/pods"
        return [pod for pod in await self.api.items(path) if holds(pod)]

    async def wait_for(
        self, name: str, holds: Callable[[Json], object], seconds: float, *, kind: str = "pods"
    ) -> float | None:
        """Wait until something holds of an object of the tenant's; the seconds it took, or None."""
        began = time.monotonic()
        path = f"/api/v1/namespaces/{self.namespace}/{kind}/{name}"
        while time.monotonic() - began < seconds:
            if holds(await self.api.get(path)):
                return time.monotonic() - began
            await asyncio.sleep(0.1)
        return None

    def errors(self) -> list[str]:
        """Return what our scheduler has logged since the attack began of something that went wrong."""
        found = []
        for line in self.scheduler.log[self._log_length :].splitlines():
            said = json.loads(line) if line.startswith("{") else {"message": line, "level": "ERROR"}
            if said["level"] in {"ERROR", "CRITICAL"}:
                found.append(said["message"])
        return found

    def expect(self, holds: object, words: str) -> None:
        """Note that something is not as it must be."""
        if not holds and words not in self.result.broken:
            self.result.broken.append(words)

    def figure(self, text: str) -> None:
        self.result.figures.append(text)

    # The runner's.

    async def play(self) -> Result:
        """Play the scenario, and measure."""
        following = asyncio.create_task(self._follow())
        try:
            await self.api.create(namespace_object(self.namespace))
            it = self.scenario
            if it.starts:
                await self.start(profile=it.profile)
            await it.attack(self)
            await self.until(
                lambda: time.monotonic() > self._began + self.size.hold_seconds, self.size.hold_seconds
            )
            await self._measure()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            for observer in self._observers:
                await observer.ended()
            if not self._pool.keeps:
                await self._pool.end()
            await self.stack.aclose()
            await self.api.remove_all()
        return self.result

    async def _measure(self) -> None:
        result = self.result
        seen = [await observer.ended() for observer in self._observers]
        self._observers = []
        if seen:
            result.seen = replace(
                seen[0],
                longest_without_renewal=0.0
                if self.scenario.forges_renewals
                else max(each_.longest_without_renewal for each_ in seen),
                peak=max(each_.peak for each_ in seen),
            )
        for each_ in self.schedulers:
            each_.look()
            result.ends += each_.ends
        if self.who != "ours" or not self.scheduler.is_alive:
            return
        lags, over_budget = await self._metrics()
        result.worst_turn, result.worst_turn_cpu = (
            _longest(self._lags.get(kind, {}), lags[kind]) for kind in ("", "_cpu")
        )
        result.put_aside = round(over_budget - self._over_budget)
        result.errors = self.errors()
        leader = await self._holder()
        if not self.scenario.leader_changes:
            self.expect(leader == self._leader, f"the lease goes from {self._leader!r} to {leader!r}")

    async def _metrics(self) -> tuple[Mapping[str, Mapping[float, float]], float]:
        """Return bound -> count of the delays of the loop and of their processor time, and the attempts over budget."""
        text = (await self.scheduler.page(self.api, "/metrics"))[1]
        lags: dict[str, dict[float, float]] = {"": {}, "_cpu": {}}
        for kind, bound, count in _LAG.findall(text):
            lags[kind][float(bound)] = float(count)
        return lags, sum(map(float, _OVER_BUDGET.findall(text)))

    async def _holder(self) -> str:
        try:
            return str((await self.api.get(LEASE))["spec"]["holderIdentity"])
        except RefusedError as error:
            if error.status != 404:
                raise
            return ""

    async def _forget_lease(self) -> None:
        try:
            await self.api.ask("DELETE", LEASE)
        except RefusedError as error:
            if error.status != 404:
                raise

    async def _follow(self) -> None:
        """Note when each innocent pod is first seen bound."""
        path = f"/api/v1/namespaces/{INNOCENT}/pods"
        version = (await self.api.get(path))["metadata"]["resourceVersion"]
        rest = b""
        while True:
            query = {"watch": "1", "resourceVersion": version}
            async with self.api.session.get(self.api.url(path), params=query) as answer:
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        found = json.loads(line)["object"]
                        version = found["metadata"]["resourceVersion"]
                        if found.get("spec", {}).get("nodeName"):
                            self._bound.setdefault(found["metadata"]["name"], time.monotonic())


def namespace_object(name: str, **labels: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def cluster_node(name: str, number: int, **fields: Any) -> Json:
    """Return a node of 4 cpus in one of three zones."""
    labels = {HOSTNAME: name, ZONE: f"zone-{number % 3}", **fields.pop("labels", {})}
    made = node_object(name, **{"cpu": "4", "memory": "32Gi", "pods": 110, **fields}, labels=labels)
    del made["metadata"]["uid"]
    return made


async def furnish(api: Api, size: Size) -> None:
    """Create the nodes of the cluster and the namespace of the innocent pods, as far as they are not there."""
    there = {found["metadata"]["name"] for found in await api.items("/api/v1/nodes")}
    missing = [(f"{NAME}-{number:05d}", number) for number in range(size.nodes)]
    await each(api.create, [cluster_node(name, number) for name, number in missing if name not in there])
    try:
        await api.create(namespace_object(INNOCENT))
    except RefusedError as error:
        if error.status != 409:
            raise


def preferred(terms: Iterable[Json]) -> Json:
    """Return preferred terms of affinity or anti-affinity to other pods."""
    return {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1 + number % 100, "podAffinityTerm": term} for number, term in enumerate(terms)
        ]
    }


def _longest(before: Mapping[float, float], now: Mapping[float, float]) -> float:
    """Return the bound of the bucket of the longest delay between two histograms; 0 without one."""
    counts = {bound: count - before.get(bound, 0.0) for bound, count in now.items()}
    total = max(counts.values())
    return min(bound for bound, count in counts.items() if count == total) if total else 0.0
