"""`custom-scheduler replay`: replays a recording, with its own configuration or with others."""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from scheduler.cli.options import Output, command, fail, features_options, file_option, option, output_option
from scheduler.cli.workload_options import processes_option
from scheduler.clock import rfc3339_micro
from scheduler.configuration.load import load
from scheduler.configuration.overrides import GivenFeatures, with_features
from scheduler.daemon.recording.recording_files import SECOND, Note
from scheduler.engine.cycle.explanation import explain
from scheduler.engine.cycle.verdict import with_verdict
from scheduler.errors import SchedulerError
from scheduler.tools.whatif.backtest.backtest_run import material_of
from scheduler.tools.whatif.backtest.parallel_backtests import backtest_all
from scheduler.tools.whatif.backtest.recorded_history import history_of
from scheduler.tools.whatif.replay.replay import Replay
from scheduler.tools.whatif.replay.script import Script, stretches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.configuration.load import Configuration
    from scheduler.tools.whatif.backtest.result import Backtest
    from scheduler.tools.whatif.replay.replayed_ports import Difference
    from scheduler.tools.whatif.replay.script import Stretch

_WORDS = {
    Note.STARTED: "task started:",
    Note.RESUMED: "task resumed:",
    Note.OBSERVED: "end of a time slice, or another recorded branch:",
}


class Wanted(NamedTuple):
    """The decisions to explain.

    Attributes:
        key: `namespace/name` of the pod.
        attempt: number of the attempt; None for all.
        all_nodes: whether to show every node.
    """

    key: str
    attempt: int | None
    all_nodes: bool


def exactly(found: Sequence[Stretch], wanted: Wanted | None) -> int:
    """Replay all sessions, and print the result; return the exit status."""
    logging.disable(logging.CRITICAL)  # do not log the recorded run again
    status, explained = 0, 0
    for stretch in found:
        script = Script(stretch.notes())
        while script.peek() is not None:
            replay = Replay(stretch.header, script)
            began = time.monotonic()
            if wanted is None:
                replay.run()
            else:
                watch = _Watch(wanted)
                replay.run(watch)
                explained += watch.explained
            status = max(status, _tell(stretch, replay, time.monotonic() - began))
            if status or (wanted is not None and wanted.attempt and explained):
                break
            script.skip_to(Note.STATE)
        for path in stretch.torn:
            click.echo(f"{path}: its end is missing; replayed up to there")
    if wanted is not None and not explained:
        click.echo(f"error: the recording has no such decision about pod {wanted.key}", err=True)
        return 1
    return status


class _Watch:
    """Finds decisions about a pod, and explains each in the state in which it was made."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._noted = 0
        self.explained = 0

    def __call__(self, replay: Replay) -> bool:
        attempts = replay.daemon.cycles.attempts
        if attempts.noted == self._noted:
            return False
        fresh = attempts.since(self._noted, attempts.noted - self._noted)
        self._noted = attempts.noted
        for attempt in fresh:
            if attempt.decision.pod.key == self._wanted.key and self._wanted.attempt in {
                None,
                attempt.number,
            }:
                self.explained += 1
                click.echo(f"{rfc3339_micro(attempt.at)}, attempt {attempt.number}")
                _show(
                    with_verdict({"pod": self._wanted.key, **explain(attempt.decision, attempt.names)}),
                    self._wanted.all_nodes,
                )
        return self._wanted.attempt is not None and self.explained > 0


def _show(explanation: dict[str, Any], all_nodes: bool) -> None:
    from rich.console import Console

    from scheduler.tools.whatif.explanation_text import show

    show(Console(highlight=False), explanation, all_nodes=all_nodes, drawn=True)


def _tell(stretch: Stretch, replay: Replay, seconds: float) -> int:
    difference = replay.difference
    what = f"run {stretch.header.run}: {replay.n_steps:,} steps, {replay.decisions:,} decisions"
    if difference is None:
        end = f", until {replay.ended}" if replay.ended else ""
        click.echo(f"{what}, identical to the recording{end} ({seconds:.1f} s)")
        return 0
    at = datetime.fromtimestamp(stretch.header.wall + difference.at / SECOND, UTC)
    click.echo(f"{what}; at {rfc3339_micro(at)} differs from the recording:")
    click.echo(f"  recorded: {_words(difference.recorded, replay)}")
    click.echo(f"  replayed: {_words(difference.here, replay)}")
    _explain_here(difference, replay)
    return 1


def _words(note: Sequence[Any] | None, replay: Replay) -> str:
    if note is None:
        return "the end"
    kind, *fields = note
    match kind:
        case Note.DECIDED:
            uid, node, message, nominated = fields
            room = f"; nominated node {nominated}" if nominated else ""
            goes = f"assigned to {node}" if node else f"not scheduled: {message}{room}"
            description = f"pod {_key(uid, replay)} {goes}"
        case Note.ASKED:
            description = f"external call: {fields[1]}"
        case Note.TOLD:
            description = f"watch event: {fields[1]} {fields[3]}"
        case int():
            description = f"{_WORDS.get(Note(kind), Note(kind).name)} {fields}"
        case _:
            description = ", ".join(map(str, note))
    return description


def _key(uid: str, replay: Replay) -> str:
    return next((pod.key for pod in replay.daemon.parts.pods.values() if pod.uid == uid), uid)


def _explain_here(difference: Difference, replay: Replay) -> None:
    """Show the explanation of the replayed decision, if the difference is one."""
    if difference.here[0] != Note.DECIDED:
        return
    key = _key(difference.here[1], replay)
    attempt = replay.daemon.cycles.attempts.last(key)
    if attempt is not None:
        _show({"pod": key, **explain(attempt.decision, attempt.names)}, all_nodes=False)


class Asked(NamedTuple):
    """A request for a backtest.

    Attributes:
        configs: configuration files; the recorded configuration if there are none.
        features: emulated version and gates of these configurations.
        seed: seed for ties that the recording does not decide.
        processes: number of configurations that run at a time; None for one per CPU.
        output: output format.
        html: file for a page of charts; None for none.
    """

    configs: Sequence[Path]
    features: GivenFeatures
    seed: int
    processes: int | None
    output: Output
    html: Path | None


def backtested(found: Sequence[Stretch], source: str, asked: Asked) -> None:
    """Backtest configurations, and show the results.

    Raises:
        SchedulerError: the recording or a configuration cannot be used.
        OSError: the recording cannot be read, or the page cannot be written.
    """
    logging.basicConfig(level=logging.WARNING)
    features = asked.features
    # Errors are reported before anything runs.
    read = [load(path, version=features.version or None) for path in asked.configs]
    if asked.html is not None:
        asked.html.touch()
    material = material_of(history_of(found, source))
    recorded = material.recorded.features.version
    configs = [with_features(each, features, server=recorded) for each in read]
    if not configs:
        configs.append(_with_other_features(material.recorded, features))
    result = backtest_all(material, configs, seed=asked.seed, processes=asked.processes, show=True)
    if asked.html is not None:
        _write_page(asked.html, result)
    if asked.output is Output.JSON:
        click.echo(msgspec.json.format(msgspec.json.encode(result), indent=2))
        return
    from rich.console import Console

    from scheduler.tools.whatif.backtest.report import show

    show(Console(highlight=False), result)


def _with_other_features(recorded: Configuration, given: GivenFeatures) -> Configuration:
    """Return the recorded configuration as after an upgrade: gates that another version does not accept are left out."""
    version = given.version or recorded.features.version
    unnamed = msgspec.structs.replace(recorded.settings, emulated_version="")
    gates = (f"{gate}={str(value).lower()}" for gate, value in sorted(given.gates.items()))
    source = ", ".join([f"recorded configuration as Kubernetes {version}", *gates])
    return with_features(
        replace(recorded, settings=unnamed, source=source), given._replace(version=""), server=version
    )


def _write_page(path: Path, result: Backtest) -> None:
    from scheduler.tools.board.backtest_page import page_of

    path.write_text(page_of(result), encoding="utf-8")


_BACKTEST = "With another configuration"


@command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@option(
    "--pod", metavar="NS/NAME", help="Stop at each decision about this pod, and explain it at that moment."
)
@option("--attempt", type=click.IntRange(1), metavar="N", help="With --pod: only the Nth decision.")
@option(
    "--all-nodes", is_flag=True, help="With --pod: show every node, also nodes rejected for the same reason."
)
@file_option(
    "--config",
    multiple=True,
    help="Show what another KubeSchedulerConfiguration would have done: pods arrive and leave as recorded, and this "
    "configuration places them. May be given several times.",
    section=_BACKTEST,
)
@features_options
@file_option("--html", help="Also write an HTML page with charts to this file.", section=_BACKTEST)
@output_option(section=_BACKTEST)
@option(
    "--seed", type=int, default=1, help="Seed for ties that the recording does not decide.", section=_BACKTEST
)
@processes_option("configurations", section=_BACKTEST)
def replay(
    folder: Path,
    pod: str | None,
    attempt: int | None,
    all_nodes: bool,
    config: tuple[Path, ...],
    features: GivenFeatures,
    html: Path | None,
    output: Output,
    seed: int,
    processes: int | None,
) -> None:
    """Replay a recording: the same code, with the same input in the same order, must make the same decisions.

    If it does not, the first difference is shown and the exit status is 1. With --config, show what another
    configuration would have done, as the recorded Kubernetes version. With --emulated-version or --feature-gates, show what
    another version would have done; without --config, with the recorded configuration.
    """
    is_backtest = bool(config or features.version or features.gates)
    if is_backtest and pod is not None:
        fail(
            "--pod shows the recording: it cannot be combined with --config, --emulated-version or --feature-gates"
        )
    if pod is None and (attempt is not None or all_nodes):
        fail("--attempt and --all-nodes need --pod")
    if not is_backtest and (html is not None or output is not Output.TABLE):
        fail("--html and --output need --config, --emulated-version or --feature-gates")
    try:
        found = stretches(folder)
        if is_backtest:
            backtested(found, str(folder), Asked(config, features, seed, processes, output, html))
            return
        wanted = None if pod is None else Wanted(pod if "/" in pod else f"default/{pod}", attempt, all_nodes)
        sys.exit(exactly(found, wanted))
    except BrokenPipeError:
        raise  # the reader of the output is gone: click exits
    except (SchedulerError, OSError) as error:
        fail(str(error))
