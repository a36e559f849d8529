"""The schedulers as processes: ours of this checkout, and kube-scheduler."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp

from tests.hostile.api import connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from tests.hostile.api import Api

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-m", "scheduler")
NAME = "hostile"
"""The schedulerName of the profile under test, and its lease's name."""
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{NAME}"
PATHS = "/healthz,/readyz,/livez,/metrics"
READY_SECONDS = 90.0
_ENDS_SECONDS = 20.0
_PAGE_SECONDS = 60.0


class Server(NamedTuple):
    """Where an API server is, and who we are there."""

    url: str
    token: str
    kubeconfig: Path


class Usage(NamedTuple):
    """What a process and its children take.

    Attributes:
        peak: the most resident memory that one of them had, all of them together, in MiB.
        cpu: seconds.
    """

    peak: float
    cpu: float


def usage(pid: int) -> Usage:
    """Return what a process takes; zeros if it has ended."""
    peak = cpu = 0.0
    pids = [str(pid)]
    for each in pids:
        with suppress(OSError, IndexError):  # one that has just ended has no memory
            for task in Path(f"/proc/{each}/task").iterdir():
                pids += (task / "children").read_text().split()
            peak += int(re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{each}/status").read_text())[0]) / 1024
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            cpu += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return Usage(peak, cpu)


def configuration(server: Server, profiles: Sequence[Json], more: Mapping[str, Any]) -> Json:
    """Return a KubeSchedulerConfiguration that both schedulers take."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {
            "leaderElect": True, "leaseDuration": "15s", "renewDeadline": "10s", "retryPeriod": "2s",
            "resourceLock": "leases", "resourceName": NAME, "resourceNamespace": "kube-system",
        },
        "clientConnection": {"kubeconfig": str(server.kubeconfig), "qps": 5000, "burst": 5000},
        "profiles": list(profiles),
        **more,
    }  # fmt: skip


class Scheduler:
    """A scheduler at work.

    Args:
        who: "ours" or "kube-scheduler".
        binary: of kube-scheduler; not used for ours.
        folder: where its configuration and its log are kept.
        config: its KubeSchedulerConfiguration.
        program: the command that is ours, without arguments.
        flags: further flags.
        prefix: a command that runs it.
        restarts: whether it is started again whenever it ends, as a kubelet does.

    Attributes:
        config_path: of its configuration.
        port: of its pages, HTTPS.
        ends: the exit statuses of processes that ended by themselves.
    """

    def __init__(
        self,
        who: str,
        folder: Path,
        config: Json,
        *,
        program: Sequence[str] = PROGRAM,
        binary: str = "",
        flags: Sequence[str] = (),
        prefix: Sequence[str] = (),
        restarts: bool = False,
    ) -> None:
        self.who = who
        self.ends: list[int] = []
        self.config_path = folder / "config.yaml"
        self.config_path.write_text(json.dumps(config))
        self._log = folder / "log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        common = [
            "--config",
            str(self.config_path),
            "--secure-port",
            str(self.port),
            "--bind-address=127.0.0.1",
        ]
        allowed = f"--authorization-always-allow-paths={PATHS}"
        if who == "ours":
            self._command = [*prefix, *program, "run", *common, allowed]
            self._command += ["--logging-format=json", *flags]
        else:
            self._command = [*prefix, binary, *common, allowed, "--authentication-skip-lookup=true", *flags]
        self._restarts = restarts
        self._is_over = False
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=log, cwd=ROOT)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def lines(self) -> list[Json]:
        """What ours has logged."""
        return [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]

    def look(self) -> None:
        """Note if it has ended by itself, and start it again if it is to be."""
        status = self._process.poll()
        if status is None or self._is_over:
            return
        self.ends.append(status)
        if self._restarts:
            self._process = self._start()
        else:
            self._is_over = True

    async def page(self, api: Api, path: str) -> tuple[int, str]:
        """Return the status and text of one of its pages; 0 if it does not answer."""
        with suppress(OSError, TimeoutError, aiohttp.ClientError):
            async with (
                asyncio.timeout(_PAGE_SECONDS),
                api.session.get(f"https://127.0.0.1:{self.port}{path}") as answer,
            ):
                return answer.status, await answer.text()
        return 0, ""

    async def ready(self, api: Api) -> bool:
        """Wait until it is ready; whether it is."""
        began = time.monotonic()
        while time.monotonic() - began < READY_SECONDS and (self.is_alive or self._restarts):
            self.look()
            if (await self.page(api, "/readyz"))[0] == 200:
                return True
            await asyncio.sleep(0.1)
        return False

    async def end(self) -> None:
        """End it in order, or by force where that does not work."""
        self.look()
        self._restarts = False
        if self.is_alive:
            self._process.terminate()
            try:
                await asyncio.to_thread(self._process.wait, _ENDS_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()


def process(log: Path, *words: str) -> subprocess.Popen[bytes]:
    """Run a command of this checkout's `custom-scheduler`."""
    with log.open("wb") as stream:
        return subprocess.Popen([*PROGRAM, *words], stdout=stream, stderr=stream, cwd=ROOT)


@asynccontextmanager
async def simulated(folder: Path) -> AsyncIterator[Server]:
    """Run `custom-scheduler api-server`, without nodes."""
    kubeconfig = folder / "kubeconfig"
    server = process(folder / "api-server.log", "api-server", "--nodes=0", f"--kubeconfig={kubeconfig}")
    try:
        began = time.monotonic()
        while not (kubeconfig.exists() and kubeconfig.read_text().endswith("}")):
            assert time.monotonic() - began < READY_SECONDS, "the simulated API server does not start"
            await asyncio.sleep(0.05)
        url = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        async with connected(url, "") as api:
            await api.get("/version")
        yield Server(url, "", kubeconfig)
    finally:
        server.kill()
        server.wait()
