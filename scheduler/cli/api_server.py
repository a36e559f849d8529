"""`custom-scheduler api-server`: the simulated API server on its own."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import Annotated

import typer

from scheduler.clock import SystemClock
from scheduler.logs import configure_logging
from scheduler.simulator.clusters import heterogeneous
from scheduler.simulator.server import ApiServer


def api_server(
    nodes: Annotated[int, typer.Option(help="How many nodes of mixed shapes the cluster has.", min=0)] = 30,
    kubeconfig: Annotated[Path, typer.Option(help="Where to write how to reach it.", metavar="FILE")] = Path(
        "custom-scheduler.kubeconfig"
    ),
    port: Annotated[
        int, typer.Option(help="Port on 127.0.0.1; 0 takes any that is free.", metavar="PORT")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Which mixed cluster.")] = 7,
) -> None:
    """Serve the API of a simulated cluster: kubectl and schedulers can use it as a real one."""
    configure_logging(logging.INFO)
    asyncio.run(_serve(nodes, kubeconfig.absolute(), port, seed))


async def _serve(nodes: int, kubeconfig: Path, port: int, seed: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    async with ApiServer(clock=SystemClock(), port=port, kubelet=True, controllers=True) as server:
        for node in heterogeneous(nodes, seed=seed):
            server.store.create("nodes", node)
        written = server.write_kubeconfig(kubeconfig)
        typer.echo(f"{server.url} serves {nodes} nodes\nexport KUBECONFIG={written}")
        await stop.wait()
