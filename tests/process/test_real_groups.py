"""The way in which scenarios of pod groups are played on a real API server, at the simulated one: processes, and real time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from scheduler.tools.simulator.access.authentication import write_kubeconfig
from scheduler.tools.simulator.server import ApiServer
from tests.conformance.real_groups import play_all

if TYPE_CHECKING:
    from pathlib import Path


def test_a_scenario_is_played_by_processes_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def play() -> int:
        async with ApiServer(token="owner") as server:
            kubeconfig = tmp_path / "kubeconfig"
            write_kubeconfig(kubeconfig, server.url, "owner", "owner")
            wrong = await play_all(kubeconfig, ["gang-fits"], tries=1)
            for kind in ("nodes", "pods", "podgroups.scheduling.k8s.io"):
                assert server.store.list(kind) == []
        return wrong

    assert asyncio.run(play()) == 0
    assert capsys.readouterr().out.split() == ["equal", "gang-fits"]


def test_a_server_with_nodes_is_refused(tmp_path: Path) -> None:
    async def play() -> None:
        async with ApiServer(token="owner") as server:
            kubeconfig = tmp_path / "kubeconfig"
            write_kubeconfig(kubeconfig, server.url, "owner", "owner")
            server.store.create("nodes", {"metadata": {"name": "somebody"}})
            await play_all(kubeconfig, ["gang-fits"], tries=1)

    with pytest.raises(SystemExit, match="has nodes already"):
        asyncio.run(play())
