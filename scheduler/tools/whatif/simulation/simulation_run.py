"""One simulation: a workload with one configuration, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from scheduler.tools.whatif.simulation.simulation_measures import Attempts, Measures
from scheduler.tools.whatif.simulation.virtual_daemon import VirtualDaemon
from scheduler.tools.whatif.simulation.virtual_time import VirtualTimeLoop, run
from scheduler.tools.whatif.simulation.workload import served_by
from scheduler.tools.whatif.simulation.workload_player import Player

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.configuration.load import Configuration
    from scheduler.tools.whatif.simulation.simulation_measures import Result
    from scheduler.tools.whatif.simulation.workload import Workload


def simulate(
    workload: Workload,
    configuration: Configuration,
    *,
    seed: int,
    first_of_equals: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Result:
    """Simulate a workload, and return the result.

    The scheduler is the daemon's: its queue, cycles, preemption, groups and bindings. Its work takes no virtual time.

    Args:
        workload: the workload; pods of unknown schedulerNames get the first profile's.
        configuration: the configuration; settings for an API server have no effect.
        seed: seed for the choice among the best nodes.
        first_of_equals: choose the smallest name among the best nodes, instead of a random one.
        progress: called from time to time with the number of pods that arrived since the last call.

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
    workload = served_by(workload, list(daemon.active.frameworks))
    daemon.fill(workload.cluster)
    measures = Measures(workload, daemon.parts.cache, attempts)
    player = Player(workload, daemon, measures, progress=progress)
    await daemon.run(player.play())
    return measures.result(loop.time(), waiting=len(player.waiting))


class _First(Random):
    """Chooses the first of several rows; rows are in the order in which nodes were added."""

    def randrange(self, *_args: int) -> int:  # type: ignore[override]  # the only method that is used
        return 0
