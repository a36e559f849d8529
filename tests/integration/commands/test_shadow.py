"""`custom-scheduler run --shadow` as a process: it reads, answers, and prints a summary at the end."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING

import aiohttp
import pytest

from scheduler.kube.client.connect import connect
from scheduler.kube.http.request import Request
from scheduler.tools.simulator.server import ApiServer
from tests.support.builders import node_object, pod_object
from tests.support.commands import forked_program
from tests.support.ports import free_port
from tests.support.processes import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)

THEIRS = "default-scheduler"
BINDING = "/api/v1/namespaces/default/pods/web/binding"


async def test_it_reports_a_pod_that_another_scheduler_placed_and_prints_a_summary(tmp_path: Path) -> None:
    async with ApiServer() as server, aiohttp.ClientSession() as session:
        server.store.create("nodes", node_object("a"))
        server.store.create("nodes", node_object("b", cpu="500m"))
        kubeconfig = str(server.write_kubeconfig(tmp_path / "kubeconfig"))
        url = f"http://127.0.0.1:{free_port()}"
        flags = ("--kubeconfig", kubeconfig, "--secure-port", "0", "--bind-address", "127.0.0.1")
        pipe = asyncio.subprocess.PIPE
        shadow = await asyncio.create_subprocess_exec(
            forked_program(), "run", "--shadow", THEIRS, *flags, "--http-port", url.rpartition(":")[2], stdout=pipe
        )  # fmt: skip

        async def answers(path: str, text: str) -> bool:
            try:
                async with session.get(f"{url}{path}") as answer:
                    return answer.ok and text in await answer.text()
            except aiohttp.ClientError:
                return False

        try:
            await until(lambda: answers("/readyz", "ok"))
            server.store.create("pods", pod_object("web", cpu="1", scheduler_name=THEIRS))
            await _bind(kubeconfig, "b")
            await until(lambda: answers("/debug/shadow?output=text", "1 decisions, 0 agree"))
            asked = ("explain", "--server", url, "--pod", "default/web")
            explain = await asyncio.create_subprocess_exec(forked_program(), *asked, stdout=pipe)
            reported, _ = await explain.communicate()
        finally:
            shadow.send_signal(signal.SIGTERM)
            said, _ = await shadow.communicate()
        assert "placed, refused; theirs b (Insufficient cpu); ours a" in " ".join(reported.decode().split())
        assert shadow.returncode == 0
        assert said.decode().splitlines()[0] == "default: 1 decisions, 0 agree (0.00 %), 0 cannot be known"
        assert [each.path for each in server.requests if each.method != "GET"] == [BINDING]


async def _bind(kubeconfig: str, node: str) -> None:
    binding = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": node}}
    async with connect(kubeconfig) as connection:
        await connection.send(Request("POST", BINDING, json.dumps(binding).encode()))


@pytest.mark.parametrize("flag", ["--config-map=kube-system/custom-scheduler", "--scheduler-profiles"])
async def test_it_reads_its_configuration_from_a_file_only(flag: str) -> None:
    pipe = asyncio.subprocess.PIPE
    asked = await asyncio.create_subprocess_exec(
        forked_program(), "run", "--shadow", THEIRS, flag, stderr=pipe
    )
    _, said = await asked.communicate()
    assert asked.returncode == 2
    assert "--shadow: cannot be combined with --config-map and --scheduler-profiles" in " ".join(
        said.decode().split()
    )
