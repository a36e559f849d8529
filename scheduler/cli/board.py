"""`custom-scheduler board`: the board of a cluster in a file, or of one whose pods another scheduler places."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from datetime import UTC
from random import Random
from typing import TYPE_CHECKING

import click

from scheduler.cli.options import command, file_option, option, port_option, profiles_options
from scheduler.cli.process import run_in_loop, stop_on_signals
from scheduler.clock import SystemClock, rfc3339
from scheduler.daemon.app.server_version import ServerVersions
from scheduler.daemon.logs import LogFormat, configure_logging
from scheduler.tools.board.cluster_observer import WatchOnDemand
from scheduler.tools.board.file import FileBoard
from scheduler.tools.board.pages import board_of
from scheduler.tools.board.sign_in import serving_board
from scheduler.tools.whatif import cluster_file

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from datetime import datetime
    from pathlib import Path
    from typing import Any

    from scheduler.cli.options import GivenProfiles
    from scheduler.configuration.load import Configuration


@command()
@option(
    "--cluster",
    help="Nodes and pods as `kubectl get nodes,pods -A -o json` prints them, or as YAML; - is standard input.",
    metavar="FILE",
)
@file_option(
    "--kubeconfig", help="Watch this cluster instead. Any scheduler may place its pods; nothing is written."
)
@file_option(
    "--recording",
    help="Show the state of a recorded scheduler, at the end of the recording or at --at; DIR as of `run --record`.",
)
@option(
    "--at",
    type=click.DateTime(["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S.%fZ"]),
    metavar="TIME",
    help="With --recording: a time in UTC, for example 2026-11-22T03:04:05Z.",
)
@profiles_options
@port_option("--port", default=0, help="Port on 127.0.0.1; 0 for any free port.")
def board(
    cluster: str | None,
    kubeconfig: Path | None,
    recording: Path | None,
    at: datetime | None,
    profiles: GivenProfiles,
    port: int,
) -> None:
    """Show a cluster in the browser: its nodes, its pending pods with reasons, and which nodes fit each pod."""
    if sum(each is not None for each in (cluster, kubeconfig, recording)) != 1:
        raise click.UsageError("one of --cluster FILE, --kubeconfig FILE and --recording DIR is needed")
    if at is not None and recording is None:
        raise click.UsageError("--at needs --recording")
    configure_logging(logging.WARNING, LogFormat.TEXT)
    if recording is not None:
        run_in_loop(_of_recording(recording, at, port))
        return
    if not cluster:
        versions = ServerVersions(profiles.features)
        run_in_loop(_of_cluster(kubeconfig, profiles.read(version=None), versions, port))
        return
    run_in_loop(_of_file(cluster, profiles.configuration(), port))


def _of_file(cluster: str, configuration: Configuration, port: int) -> Coroutine[Any, Any, None]:
    # Here, because its plugins fetch data in an event loop of their own.
    shown = FileBoard(cluster_file.load(cluster), configuration)

    async def serve() -> None:
        stop = stop_on_signals()
        async with serving_board(board_of(shown.subject), port) as url:
            click.echo(f"Board: {url}")
            judging = asyncio.create_task(shown.judge(), name="judging")
            await stop.wait()
            judging.cancel()
            await asyncio.wait({judging})

    return serve()


def _of_recording(folder: Path, at: datetime | None, port: int) -> Coroutine[Any, Any, None]:
    from scheduler.tools.board.recorded import of_recording  # few record

    # Here, because it runs an event loop of its own.
    subject, moment = of_recording(folder, None if at is None else at.replace(tzinfo=UTC))

    async def serve() -> None:
        stop = stop_on_signals()
        async with serving_board(board_of(subject), port) as url:
            click.echo(f"Board: {url}, as of {rfc3339(moment)}")
            await stop.wait()

    return serve()


async def _of_cluster(
    kubeconfig: Path | None, read: Configuration, versions: ServerVersions, port: int
) -> None:
    stop = stop_on_signals()
    watched = WatchOnDemand(str(kubeconfig), read, versions, clock=SystemClock(), random=Random())
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(watched.running())
        url = await stack.enter_async_context(serving_board(watched, port))
        click.echo(f"Board: {url}")
        await stop.wait()
