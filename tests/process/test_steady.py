"""Three seconds of the soak on the simulated API server: its counters work."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from scheduler.tools.simulator.access.authentication import write_kubeconfig
from scheduler.tools.simulator.server import ApiServer
from tests.process import steady

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_pods_under_steady_work_are_placed_once_with_an_event(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def play() -> int:
        async with ApiServer(token="owner") as server:
            kubeconfig = tmp_path / "kubeconfig"
            write_kubeconfig(kubeconfig, server.url, "owner", "owner")
            command = [sys.executable, "-m", "scheduler", "run", "--kubeconfig", str(kubeconfig)]
            options = ["--server", server.url, "--token", "owner", "--nodes", "10", "--rate", "20"]
            load = ["--minutes", "0.05", "--lifetime", "1", "--log", str(tmp_path / "log")]
            flags = ["--leader-elect=false", "--secure-port=0"]
            return await steady.run(steady.parser().parse_args([*options, *load, "--", *command, *flags]))

    assert asyncio.run(play()) == 0

    *_, minute, summary = capsys.readouterr().out.splitlines()
    _, pods, running, *_ = minute.split()
    assert 0 < int(pods) <= 60  # a busy machine creates fewer
    assert int(running) > 0  # the first pod is not deleted
    assert "lost 0, double 0" in summary


def test_a_memory_leak_is_distinguished_from_memory_with_a_bound() -> None:
    filling = [min(235.0, 138.0 + 3 * minute) for minute in range(60)]
    leaking = [138.0 + 2 * minute for minute in range(60)]

    assert steady.growth(filling) == 1
    assert steady.growth(leaking) > steady._GROWTH
