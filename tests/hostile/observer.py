"""Observes a scheduler from a separate process, so that neither the load nor the measurement distorts the results."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import aiohttp

from tests.hostile.api import UNVERIFIED, RefusedError, connected
from tests.hostile.schedulers import LEASE, usage

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from tests.hostile.api import Api
    from tests.hostile.schedulers import Scheduler, Server

_SPAWN = multiprocessing.get_context("spawn")
_EVERY_SECONDS = 0.05
_LOOK_SECONDS = 0.2


@dataclass(slots=True)
class Observed:
    """What was seen of one process.

    Attributes:
        health: per poll of /healthz, the seconds until it was answered, an answer that never came included.
        refused: how many of them were answered with an error.
        longest_without_renewal: in seconds.
        peak: resident memory in MiB, of the process and its children.
        cpu: seconds, from the beginning.
    """

    health: list[float] = field(default_factory=list)
    refused: int = 0
    longest_without_renewal: float = 0.0
    peak: float = 0.0
    cpu: float = 0.0


class Observer:
    """Polls /healthz every 50 ms, and looks at lease and memory five times a second, until it is asked what it saw."""

    def __init__(self, scheduler: Scheduler, server: Server, *, fresh_connections: bool = False) -> None:
        self._pipe, there = _SPAWN.Pipe()
        arguments = (there, scheduler.pid, scheduler.port, server.url, server.token, fresh_connections)
        self._process = _SPAWN.Process(target=_child, args=arguments, daemon=True)
        self._process.start()
        there.close()

    async def begun(self) -> None:
        """Wait until it polls."""
        await asyncio.to_thread(self._pipe.recv)

    async def ended(self) -> Observed:
        """Stop it, and return what it saw."""
        self._pipe.send("end")
        found: Observed = await asyncio.to_thread(self._pipe.recv)
        await asyncio.to_thread(self._process.join)
        return found


def _child(pipe: Connection, pid: int, port: int, url: str, token: str, fresh: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_observe(pipe, pid, port, url, token, fresh=fresh))


async def _observe(pipe: Connection, pid: int, port: int, url: str, token: str, *, fresh: bool) -> None:
    seen = Observed()
    before = usage(pid).cpu
    async with connected(url, token) as api:
        polling = asyncio.create_task(_poll(seen, port, fresh=fresh))
        pipe.send("begun")
        while not pipe.poll():
            taken = usage(pid)
            seen.peak, seen.cpu = max(seen.peak, taken.peak), max(seen.cpu, taken.cpu - before)
            with suppress(aiohttp.ClientError, OSError, KeyError, RefusedError, ValueError):
                await _look_at_lease(api, seen)
            await asyncio.sleep(_LOOK_SECONDS)
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
    pipe.send(seen)


async def _poll(seen: Observed, port: int, *, fresh: bool) -> None:
    connector = aiohttp.TCPConnector(ssl=UNVERIFIED, force_close=fresh)
    async with aiohttp.ClientSession(connector=connector) as session:
        while True:
            began = time.monotonic()
            is_well = False
            try:
                async with session.get(f"https://127.0.0.1:{port}/healthz") as answer:
                    await answer.read()
                    is_well = answer.status == 200
            except asyncio.CancelledError:
                is_well = True
                raise
            except (aiohttp.ClientError, OSError):
                is_well = False
            finally:  # also when it is cancelled: a stall that goes on counts
                took = time.monotonic() - began
                seen.health.append(took)
                seen.refused += not is_well
            await asyncio.sleep(max(0.0, _EVERY_SECONDS - took))


async def _look_at_lease(api: Api, seen: Observed) -> None:
    spec = (await api.get(LEASE))["spec"]
    age = time.time() - datetime.fromisoformat(spec["renewTime"]).timestamp()
    seen.longest_without_renewal = max(seen.longest_without_renewal, age)
