"""The imports of a daemon before it places its first pod, as a process: real time, real sockets.

Each of these takes CPU time at every start, and is imported on first use: help, a terminal, a generated certificate; or
with the HTTP endpoints. To defer another module, add its name.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from scheduler.tools.simulator.server import ApiServer
from tests.support.builders import node_object, pod_object

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_SECONDS = 60.0
IMPORTED = re.compile(r"^import time: .*\| +(\S+)$", re.MULTILINE)

NOT_NEEDED = [
    "aiohttp",
    "cryptography",
    "kopf",
    "prometheus_client",
    "pydantic",
    "rich",
    "scheduler.tools.demo",
    "scheduler.tools.simulator",
    "scheduler.tools.whatif",
    "urllib.request",
    "wasmtime",
]


async def imported_by_the_first_pod(folder: Path) -> set[str]:
    async with ApiServer() as server:
        server.store.create("nodes", node_object("n1"))
        server.store.create("pods", pod_object("web", cpu="1"))
        kubeconfig = server.write_kubeconfig(folder / "kubeconfig")
        started = await asyncio.create_subprocess_exec(
            sys.executable, "-X", "importtime", "-m", "scheduler", "run", "--kubeconfig", str(kubeconfig),
            "--secure-port", "0", stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        reading = asyncio.create_task(started.communicate())
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not server.store.get("pods", "web")["spec"].get("nodeName"):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.05)
        finally:
            started.kill()
            _, log = await reading
        return set(IMPORTED.findall(log.decode()))


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return asyncio.run(imported_by_the_first_pod(tmp_path_factory.mktemp("start")))


def test_imports_are_recorded(imported: set[str]) -> None:
    assert {"numpy", "scheduler.daemon.app.daemon"} <= imported


FIRST_SCRAPE = """
import sys
import scheduler.daemon.app.pages
from scheduler.daemon.metrics import Metrics
before = set(sys.modules)
assert Metrics().text()
print(set(sys.modules) - before)
"""


def test_a_first_scrape_holds_the_loop_for_no_import() -> None:
    scraped = subprocess.run([sys.executable, "-c", FIRST_SCRAPE], capture_output=True, text=True, check=True)
    assert scraped.stdout == "set()\n"


@pytest.mark.parametrize("module", NOT_NEEDED)
def test_a_first_pod_does_not_wait_for_imports_that_it_does_not_need(module: str, imported: set[str]) -> None:
    assert module not in imported
