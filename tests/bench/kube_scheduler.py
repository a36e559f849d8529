"""Ours beside kube-scheduler, on this machine: `python -m tests.bench.kube_scheduler /path/to/kube-scheduler`.

Each binds the same pods on the same simulated cluster, over HTTP, in a process of its own. kube-scheduler runs twice:
as it comes, when it looks at a sample of the nodes of a large cluster, and told to score all, as ours does.

A decision is what the metric `scheduler_scheduling_algorithm_duration_seconds` says. How long all pods took includes the
simulated API server, which is Python, and slower than either scheduler.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import typer
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_OURS = (sys.executable, "-m", "scheduler")
_PATIENCE_SECONDS = 120.0
_SETTLE_SECONDS = 5.0
"""After a scheduler has read the nodes, so that none is measured while it starts."""


class Result(NamedTuple):
    """What one scheduler needed: seconds for all pods, and for a decision."""

    took_seconds: float
    decision_seconds: float


class Cluster:
    """The simulated API server, in a process of its own."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        found = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        where = urlsplit(found)
        self._connection = http.client.HTTPConnection(where.hostname or "", where.port)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask, and return the decoded answer."""
        headers = {"Content-Type": "application/json"}
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._connection.getresponse()
        content = answer.read()
        assert answer.status in {200, 201}, content
        return json.loads(content)

    def has_pending_pods(self) -> bool:
        return bool(self.ask("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3D&limit=1")["items"])


@contextmanager
def _running(command: Sequence[str | Path], log: Path) -> Iterator[None]:
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield
        finally:
            process.terminate()


def _wait_for(path: Path) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while not path.exists():
        assert time.monotonic() < end, f"{path} was not written"
        time.sleep(0.1)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _pod(number: int) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}
    return {"metadata": {"name": f"pod-{number}"}, "spec": {"containers": [container]}}


def _decision_seconds(port: int) -> float:
    """Return the mean of the decisions that the process has made so far."""
    trusting = ssl._create_unverified_context()  # noqa: S323 - its own certificate, on this machine
    page = urllib.request.urlopen(f"https://127.0.0.1:{port}/metrics", context=trusting).read().decode()
    name = "scheduler_scheduling_algorithm_duration_seconds"
    total, count = (
        sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(f"{name}_{part}"))
        for part in ("sum", "count")
    )
    return total / count


def _measure(command: Sequence[str], percentage: int, nodes: int, pods: int, folder: Path) -> Result:
    kubeconfig, configuration, port = folder / "kubeconfig", folder / "scheduler.yaml", _free_port()
    api_server: list[str | Path] = [*_OURS, "api-server", "--nodes", str(nodes), "--kubeconfig", kubeconfig]
    serving = ["--secure-port", str(port), "--authorization-always-allow-paths=/metrics"]
    configuration.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n"
        f"clientConnection: {{kubeconfig: {kubeconfig}, contentType: application/json, qps: 5000, burst: 10000}}\n"
        "leaderElection: {leaderElect: false}\n"
        f"percentageOfNodesToScore: {percentage}\n"
        "profiles: [{schedulerName: default-scheduler}]\n"
    )
    with _running(api_server, folder / "api-server.log"):
        _wait_for(kubeconfig)
        cluster = Cluster(kubeconfig)
        started = [*command, "--config", str(configuration), *serving]
        with _running(started, folder / "scheduler.log"):
            cluster.ask("POST", "/api/v1/namespaces/default/pods", _pod(0))
            while cluster.has_pending_pods():
                time.sleep(0.1)
            time.sleep(_SETTLE_SECONDS)
            begin = time.perf_counter()
            for number in range(1, pods + 1):
                cluster.ask("POST", "/api/v1/namespaces/default/pods", _pod(number))
            while cluster.has_pending_pods():
                time.sleep(0.05)
            return Result(time.perf_counter() - begin, _decision_seconds(port))


def main(
    kube_scheduler: Annotated[Path, typer.Argument(help="The binary.", exists=True)],
    nodes: Annotated[list[int] | None, typer.Option(help="How many nodes; may be given again.")] = None,
    pods: Annotated[int, typer.Option(help="How many pods are bound.")] = 2000,
) -> None:
    """Print how long a decision and all pods took, and the ratio to ours."""
    cases = {
        "ours, all nodes scored": ([*_OURS, "run", "--replace-default-scheduler"], 100),
        "kube-scheduler, as it comes": ([str(kube_scheduler)], 0),
        "kube-scheduler, all nodes scored": ([str(kube_scheduler)], 100),
    }
    print(f"{'':48}{'one decision':>14}{'':9}{f'{pods} pods':>11}")
    for size in nodes or [100, 1000, 5000]:
        ours: Result | None = None
        for label, (command, percentage) in cases.items():
            with TemporaryDirectory() as folder:
                found = _measure(command, percentage, size, pods, Path(folder))
            ours = ours or found
            print(
                f"{f'{size} nodes, {label}':48}{found.decision_seconds * 1e3:11.2f} ms"
                f"{found.decision_seconds / ours.decision_seconds:8.2f}x"
                f"{found.took_seconds:9.1f} s{found.took_seconds / ours.took_seconds:8.2f}x"
            )


if __name__ == "__main__":
    typer.run(main)
