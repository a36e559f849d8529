"""`python -m tests.process.steady -- COMMAND`: a scheduler under steady work on an API server, and what it takes of memory.

So many pods are created a second, and each is deleted a while after it was bound: plain ones, spread ones, some that keep
away from their like, and some that no node can hold. Meanwhile nodes are replaced, and their labels change. One line a
minute; the last one says what was lost, bound twice, or kept on growing, and the exit status is 1 if anything was.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.support.builders import node_object, pod_object

if TYPE_CHECKING:
    from collections.abc import Sequence

_SCHEDULER = "custom-scheduler"
_NAMESPACE = "steady"
_PATIENCE_SECONDS = 30.0
"""A pod that fits and waited for longer is lost."""
_REPLACED_NODES_A_MINUTE = 6
_GROWTH = 1.03
"""What the last tenth's memory may be of the tenth's before it: in an hour all that has a bound has reached it."""
_UNPLACEABLE = 0.02
_PAGE_SIZE, _TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Process:
    """What the system says of a process."""

    pid: int

    @property
    def megabytes(self) -> float:
        """Resident memory."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE_SIZE / 1e6

    @property
    def cpu_seconds(self) -> float:
        """CPU time since its start."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


@dataclass(slots=True)
class Tally:
    """What became of the pods."""

    created: dict[str, float] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    double: int = 0
    lost: int = 0
    total: int = 0


class Steady:
    """The load, and what is seen of it.

    Args:
        session: of the API server.
        options: as given on the command line.
    """

    def __init__(self, session: aiohttp.ClientSession, options: argparse.Namespace) -> None:
        self._session = session
        self._options = options
        self._random = random.Random(options.seed)
        self._tally = Tally()
        self._tasks = set[asyncio.Task[Any]]()
        self._refused = Counter[int]()

    async def _ask(self, method: str, path: str, body: object = None, **headers: str) -> int:
        async with self._session.request(
            method, self._options.server + path, data=None if body is None else json.dumps(body),
            headers={"Content-Type": "application/json", **headers},
        ) as response:  # fmt: skip
            await response.read()
            if response.status >= 400 and response.status not in {404, 409}:
                self._refused[response.status] += 1
            return response.status

    async def prepare(self) -> None:
        """Create the namespace and the nodes."""
        await self._ask(
            "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}
        )  # fmt: skip
        for begin in range(0, self._options.nodes, 50):
            numbers = range(begin, min(begin + 50, self._options.nodes))
            await asyncio.gather(*(self._create_node(number) for number in numbers))

    async def _create_node(self, number: int) -> None:
        labels = {
            "topology.kubernetes.io/zone": f"zone-{number % 3}",
            "kubernetes.io/hostname": f"node-{number}",
        }
        node = node_object(f"node-{number}", cpu="8", memory="32Gi", labels=labels)
        if await self._ask("POST", "/api/v1/nodes", node) == 201:
            await self._ask("PUT", f"/api/v1/nodes/node-{number}/status", node)

    def _pod(self, number: int) -> dict[str, Any]:
        kind, app = self._random.random(), f"app-{number % 20}"
        labels = {"app": app}
        like = {"labelSelector": {"matchLabels": labels}}
        spec: dict[str, Any] = {"schedulerName": _SCHEDULER}
        if kind < _UNPLACEABLE:
            labels["cannot"] = "fit"
            return pod_object(
                f"pod-{number}", namespace=_NAMESPACE, labels=labels, cpu="100", memory="1Gi", **spec
            )
        if kind < 0.2:
            term = {**like, "topologyKey": "kubernetes.io/hostname"}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        elif kind < 0.4:
            rule = {**like, "maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone"}
            spec["topologySpreadConstraints"] = [{**rule, "whenUnsatisfiable": "ScheduleAnyway"}]
        cpu = self._random.choice(("50m", "100m", "200m"))
        return pod_object(
            f"pod-{number}", namespace=_NAMESPACE, labels=labels, cpu=cpu, memory="128Mi", **spec
        )

    def _later(self, seconds: float, path: str) -> None:
        async def delete() -> None:
            await asyncio.sleep(seconds)
            await self._ask("DELETE", path + "?gracePeriodSeconds=0")

        task = asyncio.create_task(delete())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def create(self, until: float) -> None:
        """Create pods at the rate, until then."""
        begin, number = time.monotonic(), 0
        path = f"/api/v1/namespaces/{_NAMESPACE}/pods"
        while (now := time.monotonic()) < until:
            if (wait := begin + number / self._options.rate - now) > 0:
                await asyncio.sleep(wait)
            pod = self._pod(number)
            name = pod["metadata"]["name"]
            if "cannot" in pod["metadata"]["labels"]:
                self._later(_PATIENCE_SECONDS, f"{path}/{name}")
            else:
                self._tally.created[name] = time.monotonic()
            task = asyncio.create_task(self._ask("POST", path, pod))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            number += 1
            self._tally.total = number

    async def first_pod(self, daemon: asyncio.subprocess.Process) -> None:
        """Create a pod, and wait until it is bound or the daemon has ended: its start is not part of the time."""
        pod = pod_object("first", namespace=_NAMESPACE, cpu="50m", schedulerName=_SCHEDULER)
        await self._ask("POST", f"/api/v1/namespaces/{_NAMESPACE}/pods", pod)
        while "first" not in self._tally.bound and daemon.returncode is None:  # noqa: ASYNC110 - in another process
            await asyncio.sleep(0.05)

    async def replace_nodes(self) -> None:
        """Change nodes, for ever: one goes and comes back under its name, the next gets another label."""
        while True:
            await asyncio.sleep(60 / _REPLACED_NODES_A_MINUTE)
            number = self._random.randrange(self._options.nodes)
            if self._random.random() < 0.5:
                await self._ask("DELETE", f"/api/v1/nodes/node-{number}")
                await self._create_node(number)
            else:
                patch = {"metadata": {"labels": {"turn": str(self._random.randrange(3))}}}
                kind = {"Content-Type": "application/merge-patch+json"}
                await self._ask("PATCH", f"/api/v1/nodes/node-{number}", patch, **kind)

    async def watch(self) -> None:
        """See what is bound, and where, for ever."""
        path = f"/api/v1/namespaces/{_NAMESPACE}/pods"
        while True:
            query = "?watch=1&fieldSelector=spec.nodeName!%3D&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
            endless = aiohttp.ClientTimeout(total=None)
            async with self._session.get(self._options.server + path + query, timeout=endless) as response:
                async for line in response.content:
                    self._seen(json.loads(line))

    def _seen(self, event: dict[str, Any]) -> None:
        pod, tally = event["object"], self._tally
        name = pod["metadata"].get("name", "")
        if event["type"] == "DELETED":
            tally.bound.pop(name, None)
        elif node_name := pod.get("spec", {}).get("nodeName"):
            before = tally.bound.setdefault(name, node_name)
            tally.double += before != node_name
            if (at := tally.created.pop(name, None)) is not None:
                tally.seconds.append(time.monotonic() - at)
                lifetime = self._options.lifetime * self._random.uniform(0.5, 1.5)
                self._later(lifetime, f"/api/v1/namespaces/{_NAMESPACE}/pods/{name}")

    def close(self) -> None:
        """Leave what is still to be deleted."""
        for task in self._tasks:
            task.cancel()

    async def tell(self, process: Process, until: float) -> list[float]:
        """Print a line a minute, until then.

        Returns:
            Megabytes at each of them.
        """
        curve: list[float] = []
        sys.stdout.write("minute  pods  running  waiting  p50 ms  p99 ms  worst ms  CPU %  MB\n")
        begin, cpu = time.monotonic(), process.cpu_seconds
        while (now := time.monotonic()) < until:
            await asyncio.sleep(min(60.0, until - now))
            tally, since = self._tally, time.monotonic() - now
            for name in [n for n, at in tally.created.items() if at < now - _PATIENCE_SECONDS]:
                del tally.created[name]
                tally.lost += 1
            milliseconds = sorted(1000 * each for each in tally.seconds) or [0.0]
            tally.seconds = []
            share, cpu = (process.cpu_seconds - cpu) / since, process.cpu_seconds
            curve.append(process.megabytes)
            sys.stdout.write(
                f"{(time.monotonic() - begin) / 60:6.1f} {tally.total:6d} {len(tally.bound):7d} {len(tally.created):7d} "
                f"{statistics.median(milliseconds):8.1f} {milliseconds[int(len(milliseconds) * 0.99)]:7.1f} "
                f"{milliseconds[-1]:9.1f} {100 * share:6.1f} {curve[-1]:5.0f}\n"
            )
            sys.stdout.flush()
        return curve

    def broken(self, curve: Sequence[float], ended: int | None) -> int:
        """Print the last line; whether a promise was broken."""
        grew, tally = growth(curve), self._tally
        sys.stdout.write(
            f"{tally.total} pods; lost {tally.lost}, double {tally.double}, memory of the last tenth {grew:.2f} times that "
            f"of the tenth before; refused {dict(self._refused)}; ended by itself: {'no' if ended is None else ended}\n"
        )
        return int(bool(tally.lost or tally.double or grew > _GROWTH or ended is not None))


def growth(curve: Sequence[float]) -> float:
    """Return what the last tenth of a curve is of the tenth before it."""
    tenth = max(1, len(curve) // 10)
    return statistics.mean(curve[-tenth:]) / statistics.mean(curve[-2 * tenth : -tenth] or curve)


async def run(options: argparse.Namespace) -> int:
    """Run it; the exit status."""
    connector = aiohttp.TCPConnector(limit=64, ssl=False)
    headers = {"Authorization": f"Bearer {options.token}"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        steady = Steady(session, options)
        await steady.prepare()
        with options.log.open("wb") as log:
            daemon = await asyncio.create_subprocess_exec(*options.command, stdout=log, stderr=log)
        background = [asyncio.create_task(steady.watch()), asyncio.create_task(steady.replace_nodes())]
        try:
            await steady.first_pod(daemon)
            until = time.monotonic() + options.minutes * 60
            _, curve = await asyncio.gather(steady.create(until), steady.tell(Process(daemon.pid), until))
        finally:
            steady.close()
            for task in background:
                task.cancel()
            ended = daemon.returncode
            if ended is None:
                daemon.terminate()
                await daemon.wait()
        return steady.broken(curve, ended)


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.process.steady", description=__doc__)
    parser.add_argument("--server", required=True, help="URL of the API server")
    parser.add_argument("--token", required=True, help="of somebody who may do everything")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=50.0, help="pods a second")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--lifetime", type=float, default=60.0, help="seconds a bound pod stays, on average")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, default=Path("steady.log"), help="of the scheduler")
    parser.add_argument("command", nargs="+", help="the scheduler; its name is custom-scheduler")
    return parser


if __name__ == "__main__":
    sys.exit(asyncio.run(run(parser().parse_args())))
