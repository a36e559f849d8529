"""Simulations in parallel processes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from scheduler.tools.whatif.processes import Bar, given, progress, side_by_side
from scheduler.tools.whatif.simulation.simulation_run import simulate
from scheduler.tools.whatif.simulation.workload import drawn, inflated

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scheduler.configuration.load import Configuration
    from scheduler.tools.whatif.simulation.simulation_measures import Result
    from scheduler.tools.whatif.simulation.workload import Workload


@dataclass(frozen=True, slots=True)
class SimulationJob:
    """One configuration with one seed.

    Attributes:
        config: path of its file, which was read before.
        seed: seed for ties and random samples.
        inflate: share of the GPU capacity up to which pods arrive; None keeps the workload.
        arrivals: number of pods to draw; None keeps the workload.
        first_of_equals: choose the smallest name among the best nodes.
    """

    config: str
    seed: int
    inflate: float | None = None
    arrivals: int | None = None
    first_of_equals: bool = False

    def workload(self, given: Workload) -> Workload:
        """Return the workload of this job."""
        if self.inflate is not None:
            return inflated(given, self.inflate, self.seed)
        return given if self.arrivals is None else drawn(given, self.arrivals, self.seed)

    def number(self, given: Workload) -> int:
        """Return the number of pods that arrive."""
        return len(self.workload(given).arrivals) if self.arrivals is None else self.arrivals


class Jobs(list[SimulationJob]):
    """Jobs, their configurations, and their common workload."""

    def __init__(
        self, jobs: Iterable[SimulationJob], configs: Iterable[Configuration], workload: Workload
    ) -> None:
        super().__init__(jobs)
        self.configs = {each.source: each for each in configs}
        self.workload = workload


def jobs_of(
    workload: Workload,
    configs: Sequence[Configuration],
    seeds: Iterable[int],
    *,
    inflate: float | None = None,
    arrivals: int | None = None,
    first_of_equals: bool = False,
) -> Jobs:
    """Return a job for each configuration and seed.

    Raises:
        ValueError: the workload cannot be inflated, or has no pods to draw from.
    """
    seeds = list(seeds)
    if arrivals is not None and not workload.arrivals:
        raise ValueError("nothing to draw from: the workload has no pods")
    if inflate is not None:
        inflated(workload, inflate, seeds[0])
    return Jobs(
        [
            SimulationJob(config.source, seed, inflate, arrivals, first_of_equals)
            for config in configs
            for seed in seeds
        ],
        configs,
        workload,
    )


def run_all(
    jobs: Jobs, *, processes: int | None = None, show: bool = False
) -> list[tuple[SimulationJob, Result]]:
    """Run simulations, some at a time, and return their results in the order of the jobs.

    Args:
        jobs: which.
        processes: number of processes; None for one per CPU.
        show: whether to show a progress bar on standard error.

    Raises:
        OtherProcessError: a plugin is unknown, broken, or has bad arguments; an object that a plugin needs is malformed.
    """
    bar = Bar("pods", sum(job.number(jobs.workload) for job in jobs)) if show else None
    futures = side_by_side(jobs, [partial(_run, job) for job in jobs], processes=processes, bar=bar)
    return [(job, future.result()) for job, future in zip(jobs, futures, strict=True)]


def _run(job: SimulationJob) -> Result:
    jobs: Jobs = given()
    return simulate(
        job.workload(jobs.workload),
        jobs.configs[job.config],
        seed=job.seed,
        first_of_equals=job.first_of_equals,
        progress=progress,
    )
