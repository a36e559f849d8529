"""How much memory and CPU the daemon takes beside a large cluster: `python -m tests.bench.process_size`.

A process of its own, as in a container, against the simulated API server in this one. Two replicas run, so that the
standby's size is seen too. What the requests of manifests/base are based on.
"""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from scheduler.tools.simulator.scenarios.clusters import heterogeneous
from scheduler.tools.simulator.server import ApiServer
from tests.support.builders import pod_object

if TYPE_CHECKING:
    from collections.abc import Callable

_TICKS = os.sysconf("SC_CLK_TCK")
_MIB = 2**20
_PATIENCE_SECONDS = 600.0


@dataclass(frozen=True)
class Usage:
    """What a process has taken.

    Attributes:
        cpu_seconds: since it started, user and system.
        resident_bytes: now.
        peak_bytes: the most it was.
    """

    cpu_seconds: float
    resident_bytes: int
    peak_bytes: int


def usage_of(pid: int | str) -> Usage:
    """Read what Linux keeps of a process."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = {line.partition(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
    ticks = int(after_name[11]) + int(after_name[12])
    return Usage(ticks / _TICKS, int(kib["VmRSS"]) * 1024, int(kib["VmHWM"]) * 1024)


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while not holds():  # noqa: ASYNC110 - what is waited for is in another process
            await asyncio.sleep(0.2)


def _tell(what: str, pid: int, since: Usage, seconds: float) -> None:
    now = usage_of(pid)
    cores = (now.cpu_seconds - since.cpu_seconds) / seconds
    sys.stdout.write(
        f"{what:<44} {now.resident_bytes / _MIB:5.0f} MiB, most {now.peak_bytes / _MIB:5.0f} MiB, "
        f"{cores * 1000:5.0f} milliCPU over {seconds:.0f} s\n"
    )
    sys.stdout.flush()


async def measure(nodes: int, pods: int, quiet_seconds: float) -> None:
    """Run two replicas beside a cluster and print what each takes, with no pods, while placing them, and after."""
    loop = asyncio.get_running_loop()
    with TemporaryDirectory() as folder:
        async with ApiServer(kubelet=True) as server:
            for node in heterogeneous(nodes, seed=7):
                server.store.create("nodes", node)
            kubeconfig = server.write_kubeconfig(Path(folder) / "kubeconfig")
            command = (
                sys.executable,
                "-m",
                "scheduler",
                "run",
                "--kubeconfig",
                str(kubeconfig),
                "--secure-port",
                "0",
            )
            replicas = []
            for _ in range(2):
                replicas.append(
                    await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
                )
                await asyncio.sleep(10)
            try:
                leader, standby = (replica.pid for replica in replicas)

                async def quiet(what: str) -> None:
                    before = {pid: usage_of(pid) for pid in (leader, standby)}
                    await asyncio.sleep(quiet_seconds)
                    _tell(f"leader, {what}", leader, before[leader], quiet_seconds)
                    _tell(f"standby, {what}", standby, before[standby], quiet_seconds)

                await quiet("no pods")
                began, before = loop.time(), usage_of(leader)
                for number in range(pods):
                    server.store.create("pods", pod_object(f"web-{number}", cpu="250m", memory="256Mi"))
                    if number % 100 == 99:
                        await asyncio.sleep(0)
                names = [f"web-{number}" for number in range(pods)]
                await _until(lambda: _bound(server, names))
                taken = loop.time() - began
                _tell(f"leader, placing {pods} pods", leader, before, taken)
                await quiet(f"{pods} pods running")
            finally:
                for replica in replicas:
                    replica.terminate()
                await asyncio.gather(*(replica.wait() for replica in replicas))


def _bound(server: ApiServer, names: list[str]) -> bool:
    """Say whether all are on nodes; what is found to be is asked no more."""
    while names and server.store.get("pods", names[-1])["spec"].get("nodeName"):
        names.pop()
    return not names


def main() -> None:
    """Read the arguments and measure."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--quiet-seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.nodes, arguments.pods, arguments.quiet_seconds))


if __name__ == "__main__":
    main()
