"""Starts the simulated cluster and the daemon, applies the workload, and shows what becomes of it."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.text import Text

from scheduler.app.daemon import Daemon
from scheduler.app.live_explain import live_explanation
from scheduler.client.connect import connect
from scheduler.clock import SystemClock
from scheduler.configuration.overrides import with_leader_election
from scheduler.demo.picture import Picture
from scheduler.demo.view import event_line, nodes_with_their_load, pods_and_reasons, refusals, whole
from scheduler.demo.workload import (
    BATCH,
    NODES,
    TOO_BIG,
    harder_pods,
    nginx,
    outstanding,
    trainer,
    urgent_class,
)
from scheduler.server.http_server import application, serving
from scheduler.simulator.clusters import heterogeneous
from scheduler.simulator.server import ApiServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from scheduler.configuration.load import Configuration

_PATIENCE_SECONDS = 60.0
_BETWEEN_STEPS_SECONDS = 1.0
_FRAMES_A_SECOND = 8


async def show(
    console: Console, configuration: Configuration, stop: asyncio.Event, *, exit_when_settled: bool
) -> int:
    """Run the demo.

    Args:
        console: where to show it; a terminal gets a live picture, anything else lines of text.
        configuration: what the daemon runs.
        stop: set it to end the demo.
        exit_when_settled: end by itself once every pod is where it should be.

    Returns:
        The exit status: 0 if every pod is, or came to be, where it should be.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="custom-scheduler-demo-")))
        clock = SystemClock()
        server = await stack.enter_async_context(ApiServer(clock=clock, kubelet=True, controllers=True))
        for node in heterogeneous(NODES, seed=7):
            server.store.create("nodes", node)
        kubeconfig = folder / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        connection = await stack.enter_async_context(connect(str(kubeconfig)))
        alone = with_leader_election(configuration, leader_elect=False)
        daemon = Daemon(connection, alone, clock=clock, random=Random())
        routes = application(
            metrics=daemon.metrics.text,
            live={},
            ready={},
            explain=lambda key: live_explanation(daemon, key, clock),
        )
        port = await stack.enter_async_context(serving(routes, "127.0.0.1", 0))
        console.print(_introduction(server.url, kubeconfig, port), soft_wrap=True)

        picture = Picture()
        await stack.enter_async_context(picture.watching(connection))
        async with asyncio.TaskGroup() as tasks:
            end = asyncio.Event()
            running = tasks.create_task(daemon.run(end), name="daemon")
            applying = tasks.create_task(_apply(server), name="workload")
            shown = tasks.create_task(_show(console, picture, end), name="picture")
            settled = await _wait(picture, applying, stop, exit_when_settled=exit_when_settled)
            why = live_explanation(daemon, f"default/{TOO_BIG}", clock)
            end.set()
            await asyncio.gather(running, shown)
            applying.cancel()
        if why is not None and why["attempt"] is not None:
            _say_why(console, why)
        return _verdict(console, picture, settled=settled)


async def _apply(server: ApiServer) -> None:
    await asyncio.sleep(_BETWEEN_STEPS_SECONDS)
    server.store.create("deployments.apps", nginx())
    for pod in harder_pods():
        await asyncio.sleep(_BETWEEN_STEPS_SECONDS)
        server.store.create("pods", pod)
    while not all(server.store.get("pods", name)["spec"].get("nodeName") for name in BATCH):  # noqa: ASYNC110
        await asyncio.sleep(1 / _FRAMES_A_SECOND)
    await asyncio.sleep(_BETWEEN_STEPS_SECONDS)
    server.store.create("priorityclasses.scheduling.k8s.io", urgent_class())
    server.store.create("pods", trainer())


async def _wait(
    picture: Picture, applying: asyncio.Task[None], stop: asyncio.Event, *, exit_when_settled: bool
) -> bool:
    """Return once the demo is to end: whether everything was where it should be at any time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE_SECONDS
    settled = False
    while not stop.is_set():
        settled = settled or (applying.done() and not outstanding(picture.pods, picture.nodes))
        if exit_when_settled and (settled or loop.time() > deadline):
            break
        try:
            async with asyncio.timeout(1 / _FRAMES_A_SECOND):
                await stop.wait()
        except TimeoutError:
            continue
    return settled


async def _show(console: Console, picture: Picture, end: asyncio.Event) -> None:
    if not console.is_terminal:
        picture.told = lambda happening: console.print(event_line(happening), soft_wrap=True)
        await end.wait()
        console.print(nodes_with_their_load(picture, console.width))
        console.print(pods_and_reasons(picture))
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while not end.is_set():
            live.update(whole(picture, console.width), refresh=True)
            await asyncio.sleep(1 / _FRAMES_A_SECOND)
        live.update(whole(picture, console.width), refresh=True)


def _introduction(url: str, kubeconfig: Path, port: int) -> Text:
    text = Text.assemble(
        ("custom-scheduler", "bold"),
        f" places pods on a simulated cluster of {NODES} nodes. Look at it from another terminal:\n\n",
    )
    commands = (
        f"export KUBECONFIG={kubeconfig}",
        "kubectl get nodes,pods -o wide",
        f"custom-scheduler explain --server http://127.0.0.1:{port} --pod {TOO_BIG}    # why it waits, node by node",
        f"kubectl describe pod {TOO_BIG}                    # the same in one event",
        "kubectl scale deployment nginx --replicas=40",
        """kubectl patch pod gated --type=json -p '[{"op": "remove", "path": "/spec/schedulingGates"}]'""",
        f"curl -s http://127.0.0.1:{port}/metrics | grep scheduler_",
        f"curl -s {url}/api/v1/nodes",
    )
    for command in commands:
        text.append(f"    {command}\n", style="cyan")
    return text


def _say_why(console: Console, why: Mapping[str, Any]) -> None:
    console.print(
        Text.assemble(
            "\nWhy does ",
            (TOO_BIG, "bold"),
            " wait? What `custom-scheduler explain` says of its last attempt:",
        )
    )
    console.print(refusals(why))
    console.print(
        "A larger node would help, or a smaller request; the daemon tries again by itself when one comes.\n"
        "No pod of lower priority could make room: a node is too small even when it is empty.\n",
        soft_wrap=True,
    )


def _verdict(console: Console, picture: Picture, *, settled: bool) -> int:
    missing = [] if settled else outstanding(picture.pods, picture.nodes)
    if not missing:
        console.print("Every pod is where it should be.", style="bold green")
        return os.EX_OK
    console.print("Not everything is as it should be:", style="bold red")
    for line in missing:
        console.print(f"  {line}")
    return 1
