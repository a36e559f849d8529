"""`custom-scheduler explain`: what would be decided, and why, for the pending pods of a cluster in a file."""

from __future__ import annotations

import gc
import logging
import sys
from collections import Counter
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from scheduler.configuration.load import Configuration, default, load
from scheduler.whatif import cluster_file
from scheduler.whatif.cluster_file import ClusterFile, ClusterFileError
from scheduler.whatif.judging import explain_each, explain_sequence, is_pending
from scheduler.whatif.offline import OfflineScheduler

_UPSTREAM_NAME = "default-scheduler"
_BAD_INPUT = 2


class Output(Enum):
    """How explanations are written."""

    TABLE = "table"
    JSON = "json"


def explain(
    cluster: Annotated[
        str,
        typer.Option(
            help="Nodes, pods and what else there is, as `kubectl get ... -o json` or YAML; - is standard input.",
            metavar="FILE",
        ),
    ],
    config: Annotated[
        Path | None,
        typer.Option(
            help="KubeSchedulerConfiguration file, whose profiles' pods are judged; "
            "without it, kube-scheduler's default plugins.",
            metavar="FILE",
        ),
    ] = None,
    scheduler_name: Annotated[
        str | None,
        typer.Option(
            help=f"Without --config: judge the pods of this spec.schedulerName, {_UPSTREAM_NAME} by default.",
            metavar="NAME",
        ),
    ] = None,
    pod: Annotated[
        str | None,
        typer.Option(help="Show this pod only; NAME alone is in the namespace default.", metavar="NS/NAME"),
    ] = None,
    sequence: Annotated[
        bool,
        typer.Option(
            "--sequence",
            help="Place the pods one after another, by priority and then in the file's order, "
            "instead of judging each against the cluster as it is.",
        ),
    ] = False,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="For people or for programs.")
    ] = Output.TABLE,
    all_nodes: Annotated[
        bool, typer.Option("--all-nodes", help="Name every node in the table, however many there are.")
    ] = False,
) -> None:
    """Say for every pending pod which nodes could run it, how they rank, and why the others cannot."""
    if config is not None and scheduler_name is not None:
        raise typer.BadParameter("--scheduler-name goes without --config: a profile has its own name")
    logging.basicConfig(level=logging.WARNING, handlers=[_StartedWhenNeeded()])
    configuration = default(scheduler_name or _UPSTREAM_NAME) if config is None else load(config)
    gc.disable()  # what is read stays until the process ends: looking for garbage in it takes a third of the time
    try:
        found = cluster_file.load(cluster)
    except ClusterFileError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(_BAD_INPUT) from error
    wanted = _wanted(pod, found, configuration)
    scheduler = OfflineScheduler(found, configuration)
    gc.freeze()
    gc.enable()
    pods = [each for each in found.pods if is_pending(each) and each.scheduler_name in scheduler.frameworks]
    if not pods:
        _say_whose_pods_there_are(found, configuration)
    if wanted is not None and not sequence:
        pods = [each for each in pods if each.key == wanted]
    explanations = explain_sequence(scheduler, pods) if sequence else explain_each(scheduler, pods)
    shown = (each for each in explanations if wanted is None or each["pod"] == wanted)
    if output is Output.JSON:
        _write_json(shown)
    else:
        _write_tables(shown, all_nodes=all_nodes)


def _wanted(name: str | None, found: ClusterFile, configuration: Configuration) -> str | None:
    """Return the key of the pod to show, None for all of them; end with a message if it is not there to be judged."""
    if name is None:
        return None
    key = name if "/" in name else f"default/{name}"
    profiles = [profile.scheduler_name for profile in configuration.settings.profiles]
    problem = "is not in the file"
    for pod in found.pods:
        if pod.key == key:
            if is_pending(pod) and pod.scheduler_name in profiles:
                return key
            problem = _why_not_judged(pod, profiles)
    typer.echo(f"pod {key} {problem}", err=True)
    raise typer.Exit(_BAD_INPUT)


def _why_not_judged(pod: Any, profiles: list[str]) -> str:
    if pod.is_terminal:
        return f"has ended ({pod.pod.status.phase}), there is nothing to place"
    if pod.node_name:
        return f"is on node {pod.node_name} already"
    if pod.is_terminating:
        return "is being deleted"
    return f"names the scheduler {pod.scheduler_name}, the profiles here are {', '.join(profiles)}"


def _say_whose_pods_there_are(found: ClusterFile, configuration: Configuration) -> None:
    names = ", ".join(profile.scheduler_name for profile in configuration.settings.profiles)
    others = Counter(pod.scheduler_name for pod in found.pods if is_pending(pod))
    message = f"There is no pending pod whose spec.schedulerName is {names}."
    if others:
        counted = ", ".join(f"{count} of {name}" for name, count in sorted(others.items()))
        message += (
            f" Pending are {counted}: --scheduler-name NAME judges those with the default plugins, "
            "--config FILE with the plugins of a profile of that name."
        )
    typer.echo(message, err=True)


def _write_json(explanations: Iterable[dict[str, Any]]) -> None:
    # One at a time: a thousand pods on five thousand nodes are five million verdicts.
    out = sys.stdout
    separator = "[\n"
    for explanation in explanations:
        text = msgspec.json.format(msgspec.json.encode(explanation), indent=2).decode()
        out.write(f"{separator}{text}")
        separator = ",\n"
    out.write("[]\n" if separator == "[\n" else "\n]\n")


def _write_tables(explanations: Iterable[dict[str, Any]], *, all_nodes: bool) -> None:
    from rich.console import Console  # not for JSON, where it would be half of the start

    from scheduler.whatif.table import show

    width = None if sys.stdout.isatty() else _WIDTH_OF_A_FILE
    console = Console(width=width, highlight=False)
    for explanation in explanations:
        show(console, explanation, all_nodes=all_nodes)


_WIDTH_OF_A_FILE = 160


class _StartedWhenNeeded(logging.Handler):
    """Sets logging up with the first line there is; mostly there is none, and it takes a while."""

    def emit(self, record: logging.LogRecord) -> None:
        from scheduler.logs import LogFormat, configure_logging

        configure_logging(logging.WARNING, LogFormat.TEXT)
        logging.getLogger().handle(record)
