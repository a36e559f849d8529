"""`custom-scheduler recording`: summarizes a recording."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from scheduler.cli.options import command, fail, option
from scheduler.errors import SchedulerError
from scheduler.tools.whatif.replay.script import Summary, stretches, summary


@command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@option("--json", "as_json", is_flag=True, help="Print JSON.")
def recording(folder: Path, as_json: bool) -> None:
    """Show a summary of a recording: when, which cluster, which decisions, and what is missing."""
    try:
        told = [summary(stretch) for stretch in stretches(folder)]
    except (SchedulerError, OSError) as error:
        fail(str(error))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(told), indent=2))
        return
    for each in told:
        _show(each)


def _show(told: Summary) -> None:
    click.echo(f"{told.began} to {told.ended}, {told.seconds:,.0f} s, by {told.by}, run {told.run}")
    files = "1 file" if told.files == 1 else f"{told.files} files"
    click.echo(f"  {files}, {told.bytes / 2**20:,.1f} MiB, {told.notes:,} entries{_begins(told)}")
    click.echo(f"  profiles {', '.join(told.profiles) or '(none)'}; {told.configurations} configurations")
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in told.objects.items())
    click.echo(f"  objects at the end: {kinds or 'none'}; {told.events:,} watch events")
    click.echo(
        f"  {told.decisions:,} decisions: {told.placed:,} placed, {told.failed:,} not; "
        f"{told.preemptions:,} preemptions"
    )
    for path in told.torn:
        click.echo(f"  truncated: {path}: its end is missing (the process was killed); read up to there")
    if told.lost:
        click.echo(f"  {told.lost:,} entries could not be written: the recording ends there")


def _begins(told: Summary) -> str:
    return (
        ""
        if told.is_from_the_start
        else "; the first files of the run are deleted, it begins with a saved state"
    )
