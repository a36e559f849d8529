"""Plays scenarios one after another on one API server."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import yaml

from tests.hostile.api import Api, RefusedError, connected
from tests.hostile.schedulers import PROGRAM, ROOT, simulated
from tests.hostile.stage import Pool, Stage, furnish

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from tests.hostile.result import Result
    from tests.hostile.scenario import Scenario
    from tests.hostile.schedulers import Server
    from tests.hostile.stage import Size


class Runner:
    """An API server with nodes, and the schedulers that are attacked there.

    Args:
        base: created what all scenarios share.
        server: where the API server is.
        size: how large everything is.
        folder: for files.
        pool: runs the schedulers.
        binary: of kube-scheduler.
    """

    def __init__(self, base: Api, server: Server, size: Size, folder: Path, pool: Pool, binary: str) -> None:
        self._base = base
        self._server = server
        self._size = size
        self._folder = folder
        self._pool = pool
        self._binary = binary
        self._count = 0
        self._defined: set[str] = set()

    async def _define(self, name: str) -> None:
        """Have the API server serve a kind, for this scenario and all that follow."""
        if name in self._defined:
            return
        self._defined.add(name)
        made = yaml.safe_load((ROOT / "manifests" / "crds" / f"{name}.yaml").read_text())
        await self._base.create(made)
        spec = made["spec"]
        version = f"{spec['group']}/{spec['versions'][0]['name']}"
        await self._base.collection(version, spec["names"]["kind"], "")

    async def play(self, scenario: Scenario, who: str = "ours") -> Result:
        """Play one scenario against one scheduler; what keeps it from being played is among what is broken."""
        self._count += 1
        for name in scenario.definitions:
            await self._define(name)
        folder = self._folder / f"{self._count:03d}-{scenario.name}"
        folder.mkdir()
        stage = Stage(
            scenario, who, api=Api(self._base.session, self._server.url, scenario.name),
            server=self._server, size=self._size, pool=self._pool, binary=self._binary, folder=folder,
        )  # fmt: skip
        try:
            return await stage.play()
        except (RefusedError, LookupError, OSError, aiohttp.ClientError, ExceptionGroup) as error:
            stage.expect(holds=False, words=f"not measured: {_said(error)}")
            return stage.result


@asynccontextmanager
async def running(
    size: Size,
    folder: Path,
    server: Server | None = None,
    *,
    binary: str = "",
    keeps: bool = False,
    program: Sequence[str] = PROGRAM,
) -> AsyncIterator[Runner]:
    """Prepare an API server.

    Args:
        size: how large everything is.
        folder: for files, the schedulers' logs among them.
        server: a real API server; without one, a simulated one is run.
        binary: of kube-scheduler.
        keeps: whether a scheduler goes on for the next scenario that wants the same configuration.
        program: the command that is our scheduler, without arguments.
    """
    if server is None:
        async with (
            simulated(folder) as made,
            running(size, folder, made, binary=binary, keeps=keeps, program=program) as it,
        ):
            yield it
        return
    async with connected(server.url, server.token) as base:
        await base.sweep()
        pool = Pool(folder / "schedulers", keeps=keeps, program=program)
        try:
            await furnish(base, size)
            yield Runner(base, server, size, folder, pool, binary)
        finally:
            await pool.end()
            await base.remove_all()


def _said(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
