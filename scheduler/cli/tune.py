"""`custom-scheduler tune`: searches the weights and arguments of a profile that serve a workload best."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from scheduler.cli.options import (
    Output,
    choice_option,
    command,
    fail,
    features_options,
    file_option,
    option,
    output_option,
)
from scheduler.cli.workload_options import (
    arrivals_option,
    processes_option,
    seeds_option,
    workload_by_kind_options,
)
from scheduler.configuration.load import default, load
from scheduler.configuration.overrides import with_features
from scheduler.errors import SchedulerError
from scheduler.tools.board.tune_page import page_of
from scheduler.tools.whatif.simulation.workload import part_ends
from scheduler.tools.whatif.tuning import phrases
from scheduler.tools.whatif.tuning.comparison import tune as tuned
from scheduler.tools.whatif.tuning.objectives import Objective
from scheduler.tools.whatif.tuning.parameters import TunedProfile
from scheduler.tools.whatif.tuning.profile_files import file_of
from scheduler.tools.whatif.tuning.search import Pruner, Sampler, Search

if TYPE_CHECKING:
    from scheduler.cli.workload_options import GivenSource
    from scheduler.configuration.load import Configuration
    from scheduler.configuration.overrides import GivenFeatures
    from scheduler.tools.whatif.simulation.workload import Workload
    from scheduler.tools.whatif.tuning.comparison import Tuned
    from scheduler.tools.whatif.tuning.parameters import Parameter

_INTERRUPTED: Final = 130
_JOURNAL: Final = "study.journal"
_PAGE: Final = "comparison.html"
_PROFILE: Final = "profile.yaml"
_OBJECTIVES: Final = ", ".join(each.value for each in Objective)
_STUDY: Final = "Study"
_HELD_OUT: Final = "Seeds and parts"


@command()
@workload_by_kind_options
@file_option(
    "--config", help="Today's KubeSchedulerConfiguration; without it, kube-scheduler's default plugins."
)
@option(
    "--profile", default="", metavar="NAME", help="The schedulerName of the profile, if there are several."
)
@features_options
@option(
    "--objective",
    "objectives",
    multiple=True,
    type=click.Choice([each.value for each in Objective]),
    metavar="NAME",
    help=f"What should become less: {_OBJECTIVES}. May be given several times: then the result is a Pareto front.  "
    "[default: nodes]",
)
@option(
    "--parameter",
    "requests",
    multiple=True,
    metavar="NAME=VALUES",
    help="Fix a parameter (NAME=VALUE, NAME=today) or bound it (NAME=LOW..HIGH, NAME=A|B). NAME may have * and ?. May be "
    "given several times.",
)
@option("--show-parameters", is_flag=True, help="Print all parameters, and exit.")
@option(
    "--trials",
    type=click.IntRange(1),
    default=100,
    help="Number of trials of the study, with those of earlier runs.",
)
@option(
    "--candidates",
    type=click.IntRange(1, 20),
    default=3,
    help="Number of the best trials that are compared with today's profile.",
)
@processes_option("simulations")
@file_option("--out", default=Path("tuned"), help="Folder of the study and of the results.")
@output_option()
@option(
    "--seed",
    type=int,
    default=1,
    help="First seed of the trials, and seed of the sampler.",
    section=_HELD_OUT,
)
@seeds_option(default=2, help="Number of seeds of each trial.", section=_HELD_OUT)
@option(
    "--held-out-seeds",
    type=click.IntRange(2, 1000),
    default=5,
    help="Number of other seeds, for the comparison.",
    section=_HELD_OUT,
)
@option(
    "--parts",
    type=click.IntRange(2, 1000),
    default=12,
    help="Number of parts into which the workload is divided by time, with the same number of pods in each.",
    section=_HELD_OUT,
)
@option(
    "--held-out-parts",
    type=click.IntRange(1, 999),
    default=4,
    help="Number of parts at the end that no trial plays: only the comparison does.",
    section=_HELD_OUT,
)
@arrivals_option(section=_HELD_OUT)
@option(
    "--storage",
    metavar="URL",
    help="Database of the study, for several machines: sqlite:///FILE, postgresql://HOST/NAME.  [default: "
    f"{_JOURNAL} in --out]",
    section=_STUDY,
)
@option("--study", default="tune", metavar="NAME", help="Name of the study in its storage.", section=_STUDY)
@choice_option(Sampler, "--sampler", default=Sampler.TPE, help="Optuna's sampler.", section=_STUDY)
@choice_option(
    Pruner, "--pruner", default=Pruner.MEDIAN, help="Optuna's pruner, with one objective.", section=_STUDY
)
def tune(
    source: GivenSource,
    config: Path | None,
    profile: str,
    features: GivenFeatures,
    objectives: tuple[str, ...],
    requests: tuple[str, ...],
    show_parameters: bool,
    trials: int,
    candidates: int,
    processes: int | None,
    out: Path,
    output: Output,
    seed: int,
    seeds: int,
    held_out_seeds: int,
    parts: int,
    held_out_parts: int,
    arrivals: int | None,
    storage: str | None,
    study: str,
    sampler: Sampler,
    pruner: Pruner,
) -> None:
    """Search the weights and arguments of a profile that serve a workload best, and compare them with today's.

    A trial is a simulation. The last parts of the workload and other seeds are held out for the comparison. The same command
    continues an interrupted search.
    """
    logging.basicConfig(level=logging.WARNING)
    if held_out_parts >= parts:
        fail("--held-out-parts must be less than --parts")
    read = default() if config is None else load(config, version=features.version)
    configuration = with_features(read, features)
    try:
        subject = TunedProfile(configuration, profile)
        parameters = subject.searched(requests)
        if show_parameters:
            _show_parameters(subject, parameters)
            return
        workload = source.read()
        number = _parts(workload, parts, arrivals)
        out.mkdir(parents=True, exist_ok=True)
        search = Search(
            workload=workload,
            profile=subject,
            parameters=parameters,
            objectives=[Objective(name) for name in dict.fromkeys(objectives)] or [Objective.NODES],
            parts=number,
            played=max(1, number - held_out_parts),
            seeds=range(seed, seed + seeds),
            arrivals=arrivals,
            trials=trials,
            seed=seed,
            storage=storage or str(out / _JOURNAL),
            study=study,
            sampler=sampler,
            pruner=pruner,
        )
        result, configurations = tuned(
            search,
            source.name,
            range(seed + seeds, seed + seeds + held_out_seeds),
            candidates=candidates,
            processes=processes or os.cpu_count() or 1,
            show=True,
        )
        _write(out, result, configurations)
    except KeyboardInterrupt:
        click.echo(
            "Interrupted: the complete trials are kept, and the same command continues the search.", err=True
        )
        sys.exit(_INTERRUPTED)
    except (SchedulerError, OSError) as error:
        fail(str(error))
    if output is Output.JSON:
        click.echo(msgspec.json.format(msgspec.json.encode(result), indent=2))
        return
    from rich.console import Console

    from scheduler.tools.whatif.tuning.report import show

    show(Console(highlight=False), result)
    click.echo(f"\nWritten to {out}: {', '.join(_written(result))}")


def _parts(workload: Workload, parts: int, arrivals: int | None) -> int:
    """Return the number of parts that a workload has: pods that arrive at the same time are in one part."""
    if not workload.arrivals:
        fail("the workload has no pods to place")
    return parts if arrivals is not None else len(part_ends(workload, parts))


def _show_parameters(subject: TunedProfile, searched: dict[str, Parameter]) -> None:
    from rich.console import Console

    from scheduler.tools.whatif.tuning.report import show_parameters

    show_parameters(Console(highlight=False), {**subject.parameters, **searched}.values(), searched)


def _written(result: Tuned) -> list[str]:
    """Return the names of the files of a result."""
    files = [_file(each.name) for each in result.candidates]
    return [*([_PROFILE] if result.recommended else []), *files, _PAGE]


def _file(candidate: str) -> str:
    return f"{candidate.replace(' ', '-')}.yaml"


def _write(out: Path, result: Tuned, configurations: dict[str, Configuration]) -> None:
    """Write the page, and a file for each candidate; remove the files of an earlier result."""
    for stale in (*out.glob("candidate-*.yaml"), out / _PROFILE):
        stale.unlink(missing_ok=True)
    for candidate in result.candidates:
        text = file_of(configurations[candidate.name], out, phrases.heading(result, candidate))
        (out / _file(candidate.name)).write_text(text, encoding="utf-8")
        if candidate.name == result.recommended:
            (out / _PROFILE).write_text(text, encoding="utf-8")
    (out / _PAGE).write_text(page_of(result), encoding="utf-8")
