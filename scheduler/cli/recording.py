"""`custom-scheduler recording`: summarizes a recording."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from scheduler.cli.options import Output, command, fail, output_option
from scheduler.errors import SchedulerError
from scheduler.tools.whatif.replay.script import Summary, stretches, summary


@command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@output_option()
def recording(folder: Path, output: Output) -> None:
    """Show a summary of a recording: when, which cluster, which decisions, and what is missing."""
    try:
        summaries = [summary(stretch) for stretch in stretches(folder)]
    except (SchedulerError, OSError) as error:
        fail(str(error))
    if output is Output.JSON:
        click.echo(msgspec.json.format(msgspec.json.encode(summaries), indent=2))
        return
    for each in summaries:
        _show(each)


def _show(recorded: Summary) -> None:
    click.echo(
        f"{recorded.began} to {recorded.ended}, {recorded.seconds:,.0f} s, by {recorded.by}, run {recorded.run}"
    )
    files = "1 file" if recorded.files == 1 else f"{recorded.files} files"
    click.echo(f"  {files}, {_size(recorded.bytes)}, {recorded.notes:,} entries{_begins(recorded)}")
    click.echo(
        f"  profiles {', '.join(recorded.profiles) or '(none)'}; {recorded.configurations} "
        f"configuration{'' if recorded.configurations == 1 else 's'}"
    )
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in recorded.objects.items())
    click.echo(f"  objects at the end: {kinds or 'none'}; {recorded.events:,} watch events")
    click.echo(
        f"  {recorded.decisions:,} decisions: {recorded.placed:,} placed, {recorded.failed:,} not; "
        f"{recorded.preemptions:,} preemptions"
    )
    for path in recorded.torn:
        click.echo(f"  truncated: {path}: its end is missing (the process was killed); read up to there")
    if recorded.lost:
        click.echo(f"  {recorded.lost:,} entries could not be written: the recording ends there")


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:,.1f} MiB" if n_bytes >= 2**20 else f"{n_bytes / 2**10:,.1f} KiB"


def _begins(recorded: Summary) -> str:
    return (
        ""
        if recorded.is_from_the_start
        else "; the first files of the run are deleted, it begins with a saved state"
    )
