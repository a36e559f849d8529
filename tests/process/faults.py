"""The faults and their effects: pods are created all the time, at a steady rate."""

from __future__ import annotations

import asyncio
import itertools
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.process.proxy import Way
from tests.process.world import USUAL, World, now, world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from tests.process.world import Times

PODS, RATE = 120, 20.0
_BEFORE_SECONDS = 2.0
_SETTLE_SECONDS = 1.0


@dataclass(frozen=True)
class Outcome:
    """What came of a fault, and of those before it in the same processes.

    Attributes:
        fault: its name.
        failover_seconds: from the fault, or for outages from when the server was well again, to the next pod that was bound;
            or the longest time after that without one.
        lost: pods that were not bound in the end.
        double: pods of which more than one Binding was accepted.
        excess: pods above what their nodes hold.
        late: Bindings from another than who held the lease when they were sent; the network may hold them back for long.
        refused: Bindings that met a 409.
        ends: exit statuses of daemons that ended by themselves.
    """

    fault: str
    failover_seconds: float
    lost: int
    double: int
    excess: int
    late: int
    refused: int
    ends: list[int]


async def killed(it: World) -> float:
    """The leader gets SIGKILL."""
    (await it.leader()).send(signal.SIGKILL)
    return now()


async def told_to_end(it: World) -> float:
    """The leader gets SIGTERM."""
    began = now()
    (await it.leader()).send(signal.SIGTERM)
    return began


async def stood_still(it: World) -> float:
    """The leader is stopped, and continues when another leads and places pods."""
    began, leader = now(), await it.leader()
    leader.send(signal.SIGTSTP)
    try:
        await it.until(lambda state: state["holder"] != leader.name and state["bound"][-1] > began)
    finally:
        leader.send(signal.SIGCONT)
    return began


async def stood_still_for_a_moment(it: World) -> float:
    """The leader is stopped, and continues in time."""
    leader = await it.leader()
    leader.send(signal.SIGTSTP)
    await asyncio.sleep((it.times.deadline - it.times.retry) / 2)
    leader.send(signal.SIGCONT)
    return now()


async def cut_off(it: World) -> float:
    """The leader's connections are closed, and it gets no new ones until another leads."""
    return await _without_network(it, Way.CUT)


async def eaten(it: World) -> float:
    """What the leader sends and is sent is lost without a word, until another leads."""
    return await _without_network(it, Way.EATEN)


async def held(it: World) -> float:
    """What the leader sends and is sent is held back until another leads, and then delivered."""
    return await _without_network(it, Way.HELD)


async def slow(it: World) -> float:
    """The leader's network becomes slow, and stays so."""
    await (await it.leader()).proxy.become(Way.SLOW)
    return now()


async def server_restarted(it: World) -> float:
    """The server goes, is back soon, and then refuses everything for a second."""
    return float((await it.server.do("restart", away_seconds=it.times.retry, refusing_seconds=1.0))["well"])


async def server_away(it: World) -> float:
    """The server is away for three times as long as a lease lasts; no daemon leads any more."""
    return float(
        (await it.server.do("restart", away_seconds=3 * it.times.lease, refusing_seconds=1.0))["well"]
    )


async def _without_network(it: World, way: Way) -> float:
    leader = await it.leader()
    await leader.proxy.become(way)
    began = now()
    await it.until(lambda state: state["holder"] != leader.name and state["bound"][-1] > began)
    await leader.proxy.become(Way.OPEN)
    return began


FAULTS: dict[str, Callable[[World], Awaitable[float]]] = {
    function.__name__.replace("_", " "): function
    for function in (
        killed,
        told_to_end,
        stood_still,
        stood_still_for_a_moment,
        cut_off,
        eaten,
        held,
        slow,
        server_restarted,
        server_away,
    )
}


def _was_in_time(it: World, state: dict[str, Any], name: str, path: str) -> bool:
    """Whether a Binding was sent while its sender held the lease."""
    sent = next(replica for replica in it.replicas if replica.name == name).proxy.bindings[path]
    holders = [holder for at, holder in state["holders"] if at <= sent]
    return holders[-1:] == [name]


async def play(folder: Path, *faults: str, replicas: int, times: Times = USUAL) -> AsyncIterator[Outcome]:
    """Let faults happen one after another while pods are created; wait each time until all of them are placed."""
    async with world(folder, replicas=replicas, times=times) as it:
        for number, fault in enumerate(faults, 1):
            await it.settle()
            await it.server.do("create", pods=PODS, rate=RATE)
            await asyncio.sleep(_BEFORE_SECONDS)
            since = await FAULTS[fault](it)
            await it.until(lambda state, since=since: state["bound"] and max(state["bound"]) > since)
            await it.until(lambda state, number=number: state["placed"] >= number * PODS)
            await asyncio.sleep(_SETTLE_SECONDS)  # for what comes late
            state = await it.state()
            moments = [since, *sorted(at for at in state["bound"] if at > since)]
            yield Outcome(
                fault,
                failover_seconds=max(after - before for before, after in itertools.pairwise(moments)),
                lost=state["pods"] - state["placed"],
                double=state["double"],
                excess=state["excess"],
                late=sum(not _was_in_time(it, state, name, path) for name, path in state["late"]),
                refused=state["refused"],
                ends=[status for replica in it.replicas for status in replica.ends],
            )
