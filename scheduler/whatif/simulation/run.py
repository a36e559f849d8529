"""One simulation: a workload under one configuration, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from scheduler.whatif.simulation.loop import VirtualTimeLoop, run
from scheduler.whatif.simulation.measures import Attempts, Measures
from scheduler.whatif.simulation.player import Player
from scheduler.whatif.simulation.virtual_daemon import VirtualDaemon
from scheduler.whatif.simulation.workload import served_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.configuration.load import Configuration
    from scheduler.whatif.simulation.measures import Result
    from scheduler.whatif.simulation.workload import Workload


def simulate(
    workload: Workload,
    configuration: Configuration,
    *,
    seed: int,
    first_of_equals: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Result:
    """Let pods come and go, and say what became of them.

    The scheduler is the daemon's: its queue, cycles, preemption, groups and bindings. What it does takes no time.

    Args:
        workload: of which pods under other schedulers' names are under the first profile's.
        configuration: whose settings hold, as far as they are not about an API server.
        seed: of the choice among the best nodes.
        first_of_equals: the one of the smallest name is taken of the best nodes, instead of any.
        progress: is told from time to time how many more pods came.

    Raises:
        ConfigurationError: a plugin is unknown, broken, or has bad arguments.
        ObjectError: an object that a plugin needs is malformed.
    """
    if first_of_equals:
        cluster = replace(workload.cluster, nodes=sorted(workload.cluster.nodes, key=lambda node: node.name))
        workload = replace(workload, cluster=cluster)
    random = _First(seed) if first_of_equals else Random(seed)
    return run(_simulate(workload, configuration, random, progress))


async def _simulate(
    workload: Workload, configuration: Configuration, random: Random, progress: Callable[[int], None]
) -> Result:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    attempts = Attempts()
    daemon = VirtualDaemon(loop, configuration, random=random, observer=attempts)
    workload = served_by(workload, list(daemon.frameworks))
    daemon.fill(workload.cluster)
    measures = Measures(workload, daemon.parts.cache, attempts)
    player = Player(workload, daemon, measures, progress=progress)
    await daemon.run(player.play())
    return measures.result(loop.time(), waiting=len(player.waiting))


class _First(Random):
    """Takes the first of several; rows are in the order in which nodes came."""

    def randrange(self, *_args: int) -> int:  # type: ignore[override]  # what is asked of it here
        return 0
