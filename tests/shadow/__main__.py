"""`python -m tests.shadow`: a shadow beside a real kube-scheduler, on a real control plane that has nothing on it.

It makes nodes, starts `custom-scheduler run --shadow` and the scheduler given, creates pods of many kinds at a rate, deletes
some, starts the others as kubelets would and changes nodes meanwhile, waits until nothing moves, and prints how often both decided alike, by cause. The
scheduler is to be called default-scheduler and look at all nodes unless --sampling says otherwise:

    python -m tests.shadow --kubeconfig FILE --config packing.yaml -- kube-scheduler --config FILE
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from scheduler.errors import ApiError
from scheduler.kube.client.connect import connect
from scheduler.kube.http.request import MERGE_PATCH, Request
from tests.shadow import workload

_PODS = "/api/v1/namespaces/default/pods"
_NODES = "/api/v1/nodes"
_PORT = 18259
_DAY = datetime(2026, 1, 1, tzinfo=UTC)
_SCHEDULER = "default-scheduler"


class Driver:
    """Does to the cluster what its users would."""

    def __init__(self, connection: Any, options: argparse.Namespace) -> None:
        self._connection = connection
        self._options = options
        self._random = Random(options.seed)
        self._limit = asyncio.Semaphore(32)
        self.changes = 0

    async def send(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        raw = None if body is None else json.dumps(body).encode()
        async with self._limit:
            try:
                answer = await self._connection.send(Request(method, path, raw, content_type=kind))
            except ApiError as error:
                if error.status not in {404, 409}:
                    raise
                return None
        return json.loads(answer.body)

    async def prepare(self) -> None:
        for path, obj in workload.others():
            await self.send("POST", path, obj)
        nodes = [workload.node(number) for number in range(self._options.nodes)]
        await asyncio.gather(*(self.send("POST", _NODES, node) for node in nodes))

    async def create(self) -> None:
        rate, began = self._options.rate, time.monotonic()
        under_way = []
        for number in range(self._options.pods):
            pod = workload.pod(number, _SCHEDULER, self._random)
            under_way.append(asyncio.create_task(self.send("POST", _PODS, pod)))
            wait = began + number / rate - time.monotonic()
            await asyncio.sleep(max(0.0, wait))
        await asyncio.gather(*under_way)

    async def disturb(self) -> None:
        """Change something every so often, until cancelled."""
        random = Random(self._options.seed + 1)
        while True:
            await asyncio.sleep(self._options.every)
            number = random.randrange(self._options.nodes)
            path = f"{_NODES}/node-{number:04d}"
            what = random.choice(
                ["pod", "pod", "pod", "label", "cordon", "taint", "size", "node", "pod label"]
            )
            if what == "pod":
                found = f"{_PODS}/pod-{random.randrange(self._options.pods):05d}"
                await self.send("DELETE", found)
            elif what == "pod label":
                found = f"{_PODS}/pod-{random.randrange(self._options.pods):05d}"
                labels = {"app": f"app-{random.randrange(40)}"}
                await self.send("PATCH", found, {"metadata": {"labels": labels}}, MERGE_PATCH)
            elif what == "label":
                labels = {"pool": f"p{random.randrange(10)}"}
                await self.send("PATCH", path, {"metadata": {"labels": labels}}, MERGE_PATCH)
            elif what == "cordon":
                await self.send("PATCH", path, {"spec": {"unschedulable": True}}, MERGE_PATCH)
                await asyncio.sleep(self._options.every)
                await self.send("PATCH", path, {"spec": {"unschedulable": None}}, MERGE_PATCH)
            elif what == "taint":
                taints = [
                    {
                        "key": "now",
                        "value": "yes",
                        "effect": random.choice(["NoSchedule", "PreferNoSchedule"]),
                    }
                ]
                before = workload.node(number)["spec"]["taints"]
                await self.send("PATCH", path, {"spec": {"taints": [*before, *taints]}}, MERGE_PATCH)
                await asyncio.sleep(self._options.every)
                await self.send("PATCH", path, {"spec": {"taints": before}}, MERGE_PATCH)
            elif what == "size":
                sizes = {"cpu": str(random.choice([4, 8, 16, 32]))}
                await self.send("PATCH", f"{path}/status", {"status": {"allocatable": sizes}}, MERGE_PATCH)
            else:
                await self.send("DELETE", path)
                await self.send("POST", _NODES, workload.node(number))
            self.changes += 1

    async def start_pods(self) -> None:
        """Say of pods on nodes that they run, as kubelets would, each since another second; until cancelled."""
        started = 0
        request = Request("GET", _PODS, params={"watch": "1", "fieldSelector": "status.phase=Pending"})
        under_way = set()
        async for written in self._connection.stream(request, silence_seconds=3600):
            for line in written:
                event = json.loads(line)
                pod = event["object"]
                if event["type"] == "DELETED" or not pod["spec"].get("nodeName"):
                    continue
                started += 1
                since = (_DAY + timedelta(seconds=started)).strftime("%Y-%m-%dT%H:%M:%SZ")
                path = f"{_PODS}/{pod['metadata']['name']}/status"
                status = {"status": {"phase": "Running", "startTime": since}}
                telling = asyncio.create_task(self.send("PATCH", path, status, MERGE_PATCH))
                under_way.add(telling)
                telling.add_done_callback(under_way.discard)

    async def wait_still(self) -> tuple[int, int]:
        """Wait until pods move no more; return how many are on nodes, and how many wait."""
        before: Any = None
        deadline = time.monotonic() + self._options.patience
        while True:
            await asyncio.sleep(4)
            pods = (await self.send("GET", _PODS))["items"]
            placed = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
            waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
            told = all(pod["status"].get("conditions") for pod in waiting)
            now = (placed, len(waiting))
            if (now == before and told) or time.monotonic() > deadline:
                return now
            before = now


async def _page(what: str) -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", _PORT)
    writer.write(f"GET {what} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    if b"chunked" in head.lower():
        whole = b""
        while body:
            size, _, body = body.partition(b"\r\n")
            whole += body[: int(size, 16)]
            body = body[int(size, 16) + 2 :]
        body = whole
    return body


async def _until(what: str, holds: Any) -> Any:
    deadline = time.monotonic() + 120.0
    while True:
        try:
            found = await _page(what)
            if holds(found):
                return found
        except OSError:
            found = b""
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: {found[:500]!r}")
        await asyncio.sleep(0.5)


async def _play(options: argparse.Namespace) -> dict[str, Any]:
    options.logs.mkdir(parents=True, exist_ok=True)
    ours_log, their_log = (options.logs / "shadow.log").open("wb"), (options.logs / "theirs.log").open("wb")
    ours = [sys.executable, "-m", "scheduler", "run", "--shadow", _SCHEDULER]
    ours += ["--shadow-sampling", str(options.sampling), "--kubeconfig", str(options.kubeconfig)]
    ours += ["--secure-port", "0", "--http-port", str(_PORT), "--bind-address", "127.0.0.1"]
    ours += ["--config", str(options.config)] if options.config else []
    async with connect(str(options.kubeconfig)) as connection:
        driver = Driver(connection, options)
        await driver.prepare()
        run = asyncio.create_subprocess_exec
        shadow = await run(*ours, stdout=ours_log, stderr=ours_log, env=os.environ)
        theirs = None
        try:
            await _until("/readyz", lambda body: body.startswith(b"ok"))
            theirs = await run(*options.command, stdout=their_log, stderr=their_log)
            await asyncio.sleep(3)
            began = time.monotonic()
            kubelets = asyncio.create_task(driver.start_pods())
            disturbing = asyncio.create_task(driver.disturb() if options.every else asyncio.sleep(0))
            await driver.create()
            created = time.monotonic() - began
            disturbing.cancel()
            placed, waiting = await driver.wait_still()
            kubelets.cancel()
            found = json.loads(await _until("/debug/shadow", lambda body: json.loads(body)["underWay"] == 0))
        finally:
            for process in (theirs, shadow):
                if process is not None and process.returncode is None:
                    process.send_signal(signal.SIGTERM)
                    await process.wait()
    return {
        "placed": placed,
        "waiting": waiting,
        "changes": driver.changes,
        "created_seconds": round(created, 1),
        **found,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.shadow",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kubeconfig", type=Path, required=True, help="of an administrator")
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--rate", type=float, default=100.0, help="pods a second")
    parser.add_argument(
        "--every", type=float, default=0.1, help="seconds between two disturbances; 0 for none"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sampling", type=int, default=100, help="percentageOfNodesToScore of the scheduler")
    parser.add_argument("--config", type=Path, help="the profile that would be ours")
    parser.add_argument("--patience", type=float, default=180.0, help="seconds to wait until nothing moves")
    parser.add_argument(
        "--logs", type=Path, default=Path("shadow-logs"), help="where logs and findings are kept"
    )
    parser.add_argument("command", nargs="+", help="the scheduler")
    options = parser.parse_args()
    found = asyncio.run(_play(options))
    (options.logs / "findings.json").write_text(json.dumps(found, indent=1))
    disagreements = found.pop("disagreements")
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    for each in disagreements[:20]:
        sys.stdout.write(json.dumps(each) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
