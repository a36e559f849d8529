"""Recordings of simulated clusters, for backtests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from scheduler.configuration.load import parse
from scheduler.tools.whatif.backtest.backtest_run import backtest, material_of
from scheduler.tools.whatif.backtest.recorded_history import HistoryReader
from tests.recording.memory_recording import Taped
from tests.support import virtual_time
from tests.support.builders import pod_object
from tests.support.daemon_harness import cluster
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from scheduler.tools.whatif.backtest.backtest_run import Material
    from scheduler.tools.whatif.backtest.result import BacktestRun
    from tests.support.daemon_harness import Cluster

    Story = Callable[[Cluster], Awaitable[None]]

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def profile(strategy: str, name: str = "custom-scheduler") -> str:
    return (
        HEAD
        + f"""
profiles:
- schedulerName: {name}
  pluginConfig:
  - name: NodeResourcesFit
    args: {{scoringStrategy: {{type: {strategy}, resources: [{{name: cpu, weight: 1}}]}}}}
  plugins:
    multiPoint:
      enabled: [{{name: NodeResourcesFit, weight: 10}}]
"""
    )


SPREADING, PACKING = profile("LeastAllocated"), profile("MostAllocated")


def material(
    folder: Path,
    *stories: Story,
    configuration: str = SPREADING,
    unheard: Story | None = None,
    controllers: bool = False,
    only_last: bool = False,
) -> Material:
    """Record scenarios one after another on one cluster, each with a daemon of its own; `unheard` is not recorded.

    With `only_last`, the recordings of the others are lost.
    """
    tapes: list[Taped] = []

    async def main() -> None:
        async with cluster(folder, kubelet=True, controllers=controllers) as it:
            for story in stories:
                tapes.append(Taped(LoopClock()))
                async with it.daemon(configuration, ports=tapes[-1].recorder) as daemon:
                    tapes[-1].recorder.daemon = daemon
                    await asyncio.sleep(1.0)
                    await story(it)
                if unheard is not None and story is not stories[-1]:
                    await unheard(it)

    virtual_time.run(main())
    reader = HistoryReader("the recording")
    for tape in tapes[-1:] if only_last else tapes:
        reader.read(tape.header.wall, tape.notes())
    return material_of(reader.history())


def under(recorded: Material, configuration: str) -> BacktestRun:
    return backtest(recorded, parse(configuration), "another")


def delete(it: Cluster, name: str) -> None:
    it.server.store.delete("pods", name, "default")


def owned(name: str, owner: str, kind: str = "ReplicaSet", **fields: Any) -> dict[str, Any]:
    pod = pod_object(name, **fields)
    reference = {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "name": owner,
        "uid": owner,
        "controller": True,
    }
    pod["metadata"]["ownerReferences"] = [reference]
    return pod
