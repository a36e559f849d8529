"""Plugins that cannot be stopped, in processes of their own: they are named, and Ctrl-C ends the process all the same."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.commands.test_explain import a_cluster, answer
from tests.integration.configuration.test_reload_processes import Run, running, serving
from tests.integration.daemon.test_over_budget_processes import CONFIGURATION, ENDLESS
from tests.support.builders import node_object, pod_object
from tests.support.processes import started, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.run(by=asyncio.run)

ROOT = Path(__file__).parents[3]

HEAD = """\
import signal
from scheduler.framework import FilterPlugin


class Endless(FilterPlugin):
    name = "Endless"
    api_version = 1

"""
NO_INIT = "    def __init__(self):\n        while True:\n            pass\n\n    def filter_node(self, *_):\n        pass\n"
UNSTOPPABLE = """\
    def filter_node(self, state, pod, node):
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        self.go_on()

    def go_on(self):
        while True:
            pass
"""
IN_C = "    def filter_node(self, state, pod, node):\n        return sum(range(10**12))\n"

SHORTER = """\
import sys
from scheduler.daemon.app import loop_watch
loop_watch._SILENT_SECONDS = 1.0
from scheduler.cli import main
main()
"""
"""The command, and the interpreter says after a second where it is."""


def written(folder: Path, plugin: str) -> Path:
    (folder / "endless.py").write_text(plugin)
    config = folder / "config.yaml"
    config.write_text(CONFIGURATION)
    return config


def the_cluster(folder: Path) -> Path:
    path = folder / "cluster.json"
    path.write_bytes(a_cluster(node_object("a"), pod_object("web", labels={"evil": "yes"})))
    return path


@asynccontextmanager
async def begun(log: Path, *arguments: str | Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a command; what is left of it at the end is killed."""
    environment = {**os.environ, "COLUMNS": "1000"}
    with log.open("wb") as stderr:
        async with started(
            sys.executable, "-c", SHORTER, *arguments, stderr=stderr, cwd=ROOT, env=environment
        ) as process:
            yield process


async def interrupted(process: asyncio.subprocess.Process) -> int:
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(10):
        return await process.wait()


async def no_answer(run: Run) -> None:
    """Wait until a probe is not answered within its second."""
    while True:
        try:
            async with asyncio.timeout(1):
                await run.page("/readyz")
        except TimeoutError:
            return


def catches(pid: int, name: signal.Signals) -> bool:
    """Say whether a process has a handler for a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    [caught] = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")]
    return bool(int(caught, 16) >> (name - 1) & 1)


@pytest.mark.parametrize(
    ("plugin", "expected"),
    [
        pytest.param(HEAD + NO_INIT, r"plugin Endless at its constructor.*endless\.py:10", id="constructor"),
        pytest.param("while True:\n    pass\n", r"import of endless\.py.*endless\.py:1", id="import"),
        pytest.param(HEAD + UNSTOPPABLE, r"plugin Endless at Filter.*in go_on", id="unstoppable"),
        pytest.param(HEAD + IN_C, r"Timeout.*endless\.py\", line 10 in filter_node", id="a call into C"),
    ],
)
async def test_explain_names_an_endless_plugin_and_ends_by_one_interrupt(
    tmp_path: Path, plugin: str, expected: str
) -> None:
    config, cluster, log = written(tmp_path, plugin), the_cluster(tmp_path), tmp_path / "log"

    async with begun(log, "explain", "--cluster", cluster, "--config", config) as process:
        await until(lambda: re.search(expected, log.read_text(), re.DOTALL))
        assert await interrupted(process) == -signal.SIGINT


def test_explain_reports_a_stopped_plugin_as_the_daemon_would(tmp_path: Path) -> None:
    [found] = answer("--cluster", the_cluster(tmp_path), "--config", written(tmp_path, ENDLESS))

    assert found["result"] == "error"
    assert found["message"] == (
        'running "Endless" filter plugin: over budget: stopped: more than 0.1s had passed'
    )


@pytest.mark.parametrize("body", [UNSTOPPABLE, IN_C], ids=["unstoppable", "a call into C"])
async def test_a_daemon_blocked_by_a_plugin_is_not_ready_and_ends_by_the_second_interrupt(
    tmp_path: Path, body: str
) -> None:
    config = written(tmp_path, HEAD + body)

    async with serving(tmp_path) as (kubeconfig, it):
        # Of a forked program, the pid would be that of its client.
        real = [sys.executable, "-m", "scheduler"]
        async with running(kubeconfig, tmp_path / "log", "--config", str(config), program=real) as run:
            await until(lambda: run.said("Scheduling"))
            assert await run.page("/readyz") == "ok"
            it.store.create("pods", pod_object("web"))
            if body == UNSTOPPABLE:
                await until(lambda: run.said("The loop is held"))
                [line] = run.said("The loop is held")
                assert line["holder"] == "attempt at pod default/web, plugin Endless at Filter"
                assert "in go_on" in line["stack"]
            await no_answer(run)
            run.process.send_signal(signal.SIGINT)
            await until(lambda: not catches(run.process.pid, signal.SIGINT))
            assert await interrupted(run.process) == -signal.SIGINT


async def test_a_suspended_plugin_makes_the_daemon_not_ready(tmp_path: Path) -> None:
    config = written(tmp_path, ENDLESS)

    async with serving(tmp_path) as (kubeconfig, it):
        for number in range(3):
            it.store.create("pods", pod_object(f"evil-{number}", labels={"evil": "yes"}))
        async with running(kubeconfig, tmp_path / "log", "--config", str(config)) as run:
            await until(lambda: run.said("Plugin was stopped again and again, and rests"))
            assert "stopped again and again, and at rest: Endless" in await run.page("/readyz/plugins")
            assert await run.page("/livez") == "ok"
            await until(lambda: len(run.said("Error scheduling pod; retrying")) == 3)
            assert len([line for line in run.said("Over budget") if "exc_info" in line]) == 1
