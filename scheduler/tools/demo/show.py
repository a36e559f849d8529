"""Starts the simulated cluster and the daemon, applies the workload, and shows the result."""

from __future__ import annotations

import asyncio
import os
import shlex
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.text import Text

from scheduler.clock import SystemClock
from scheduler.configuration.overrides import with_leader_election
from scheduler.daemon.app.daemon import Daemon
from scheduler.daemon.app.live_explain import live_explanation
from scheduler.daemon.app.loop_watch import watching_loop
from scheduler.daemon.server.http_server import application, serving
from scheduler.kube.client.connect import connect
from scheduler.simulator.scenarios.clusters import heterogeneous
from scheduler.simulator.server import ApiServer
from scheduler.tools.board.pages import PATH, board_of, board_pages
from scheduler.tools.board.sign_in import LocalOnly
from scheduler.tools.board.subject import of_daemon
from scheduler.tools.demo.cluster_view import ClusterView
from scheduler.tools.demo.terminal_view import (
    event_line,
    nodes_with_their_load,
    pods_and_reasons,
    refusals,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import Console

    from scheduler.configuration.load import Configuration
    from scheduler.tools.demo.demo_workload import DemoWorkload

_PATIENCE_SECONDS = 60.0
_NODES = 30
_FRAMES_A_SECOND = 8


async def show(
    console: Console,
    configuration: Configuration,
    workload: DemoWorkload,
    stop: asyncio.Event,
    *,
    program: str,
    exit_when_settled: bool,
) -> int:
    """Run the demo.

    Args:
        console: the console; a terminal shows a live view, anything else lines of text.
        configuration: the daemon's configuration.
        workload: the objects to apply.
        stop: event that ends the demo.
        program: the command line of this program, for the commands that are shown.
        exit_when_settled: end when every pod is where it should be.

    Returns:
        The exit status: 0 if every pod was where it should be.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="custom-scheduler-demo-")))
        clock = SystemClock()
        server = await stack.enter_async_context(ApiServer(clock=clock, kubelet=True, controllers=True))
        for node in heterogeneous(_NODES, seed=7):
            server.store.create("nodes", node)
        kubeconfig = folder / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        connection = await stack.enter_async_context(connect(str(kubeconfig)))
        alone = with_leader_election(configuration, leader_elect=False)
        daemon = Daemon(connection, alone, clock=clock, random=Random())
        daemon.parts.budget.take_clock()
        stack.callback(daemon.parts.budget.give_clock_back)
        await stack.enter_async_context(watching_loop(daemon.metrics.loop))
        routes = application(
            metrics=daemon.metrics.pieces,
            live={},
            ready={},
            explain=lambda key: live_explanation(daemon, key, clock),
            access=LocalOnly(),
            more=board_pages(board_of(of_daemon(daemon, clock))),
        )
        port = await stack.enter_async_context(serving(routes, "127.0.0.1", 0))
        daemon_url = f"http://127.0.0.1:{port}"
        console.print(
            _introduction(workload.commands(program, daemon_url), server.url, kubeconfig, daemon_url),
            soft_wrap=True,
        )
        profiles = [profile.scheduler_name for profile in configuration.settings.profiles]
        strangers = sorted(workload.scheduler_names.difference(profiles))
        if strangers:
            console.print(_nobody_for(strangers, profiles), style="yellow", soft_wrap=True)

        cluster = ClusterView(profiles)
        await stack.enter_async_context(cluster.watching(connection))
        async with asyncio.TaskGroup() as tasks:
            end = asyncio.Event()
            running = tasks.create_task(daemon.run(end), name="daemon")
            applying = tasks.create_task(workload.apply(server), name="workload")
            shown = tasks.create_task(_show(console, cluster, end), name="picture")

            def outstanding() -> list[str]:
                still = [] if applying.done() else ["not all objects are applied yet"]
                return still + workload.outstanding(cluster.pods, cluster.nodes)

            settled = await _wait(outstanding, stop, exit_when_settled=exit_when_settled)
            why = live_explanation(daemon, f"default/{workload.puzzle}", clock)
            end.set()
            await asyncio.gather(running, shown)
            applying.cancel()
        if why is not None and why["attempt"] is not None:
            _say_why(console, workload.puzzle, why)
        return _verdict(console, [] if settled else outstanding())


async def _wait(
    outstanding: Callable[[], list[str]], stop: asyncio.Event, *, exit_when_settled: bool
) -> bool:
    """Return when the demo ends: whether every pod was where it should be at some time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE_SECONDS
    settled = False
    while not stop.is_set():
        settled = settled or not outstanding()
        if exit_when_settled and (settled or loop.time() > deadline):
            break
        try:
            async with asyncio.timeout(1 / _FRAMES_A_SECOND):
                await stop.wait()
        except TimeoutError:
            continue
    return settled


async def _show(console: Console, cluster: ClusterView, end: asyncio.Event) -> None:
    if not console.is_terminal:
        cluster.on_event = lambda happening: console.print(event_line(happening), soft_wrap=True)
        await end.wait()
        console.print(nodes_with_their_load(cluster, console.width))
        console.print(pods_and_reasons(cluster))
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while not end.is_set():
            live.update(whole(cluster, console.width, console.height), refresh=True)
            await asyncio.sleep(1 / _FRAMES_A_SECOND)
        live.update(whole(cluster, console.width, console.height), refresh=True)


def _nobody_for(strangers: Sequence[str], profiles: Sequence[str]) -> str:
    return (
        f"No scheduler here serves these pods: their schedulerName is {' or '.join(strangers)}; "
        f"the profiles of the configuration are {', '.join(profiles)}.\n"
    )


def _introduction(tries: Sequence[str], url: str, kubeconfig: Path, daemon: str) -> Text:
    text = Text.assemble(
        ("custom-scheduler", "bold"),
        f" places pods on a simulated cluster of {_NODES} nodes. The board in a browser:\n\n",
        (f"    {daemon}{PATH}\n", "cyan"),
        "\nCommands for another terminal:\n\n",
    )
    commands = (
        f"export KUBECONFIG={shlex.quote(str(kubeconfig))}",
        "kubectl get nodes,pods -o wide",
        *tries,
        f"curl -s {daemon}/metrics | grep scheduler_",
        f"curl -s {url}/api/v1/nodes",
    )
    for command in commands:
        text.append(f"    {command}\n", style="cyan")
    return text


def _say_why(console: Console, pod: str, why: Mapping[str, Any]) -> None:
    console.print(
        Text.assemble(
            "\nWhy does ",
            (pod, "bold"),
            " wait? `custom-scheduler explain` shows its last attempt:",
        )
    )
    console.print(refusals(why))
    console.print(
        "A larger node or a smaller request would help; the daemon then retries by itself.\n"
        "Preemption would not help: the nodes are too small even without pods.\n",
        soft_wrap=True,
    )


def _verdict(console: Console, missing: list[str]) -> int:
    if not missing:
        console.print("Every pod is where it should be.", style="bold green")
        return os.EX_OK
    console.print("Not every pod is where it should be:", style="bold red")
    for line in missing:
        console.print(f"  {line}", soft_wrap=True)
    return 1
