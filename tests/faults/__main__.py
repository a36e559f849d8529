"""`python -m tests.faults --seeds FROM-TO`: play campaigns; the last line counts runs and failures."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from functools import partial

import click

from tests.faults.campaign import run
from tests.faults.text_report import told, whole

_PROGRESS_SEEDS = 10
"""The number of seeds between two lines of progress, if the output is not a terminal."""


class _Seeds(click.ParamType):
    name = "FROM-TO"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> range:
        first, _, last = str(value).partition("-")
        try:
            return range(int(first), int(last or first) + 1)
        except ValueError:
            self.fail(f"{value!r} is not like 1-500", param, ctx)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("seed", type=int, required=False)
@click.option(
    "--pod", "pods", multiple=True, metavar="NAME", help="With SEED: a pod to tell more of; may be repeated."
)
@click.option("--seeds", type=_Seeds(), help="Play all of these, and tell of those that break a promise.")
@click.option(
    "--kind",
    type=click.Choice(["pods", "groups", "plugins", "shards"]),
    default="pods",
    show_default=True,
    help="What campaigns are about.",
)
@click.option(
    "--jobs", default=os.cpu_count() or 1, show_default=True, help="With --seeds: so many at a time."
)
@click.option("--in-parts", is_flag=True, help="Do all work in the smallest parts, whatever a seed means.")
def main(
    seed: int | None, pods: tuple[str, ...], seeds: range | None, kind: str, jobs: int, *, in_parts: bool
) -> None:
    """Play one campaign and tell its story, or many. The exit status is 1 if a promise was broken."""
    logging.basicConfig(level=logging.WARNING, handlers=[logging.NullHandler()])
    if (seed is None) == (seeds is None):
        raise click.UsageError("give a SEED, or --seeds FROM-TO")
    if seeds is not None:
        sys.exit(_soak(seeds, kind, jobs, in_parts=in_parts))
    assert seed is not None
    report = run(seed, kind, is_all_in_parts=in_parts)
    for line in whole(report, pods):
        sys.stdout.write(f"{line}\n")
    sys.exit(1 if report.findings else 0)


def _soak(seeds: range, kind: str, jobs: int, *, in_parts: bool) -> int:
    began, failed = time.monotonic(), 0
    acts: Counter[str] = Counter()
    with multiprocessing.Pool(jobs, maxtasksperchild=50) as pool:
        played = pool.imap_unordered(partial(_play, kind, in_parts), seeds)
        for number, (seed, story, its_acts) in enumerate(played, start=1):
            acts += its_acts
            if story:
                failed += 1
                click.echo(f"seed {seed} failed{story}")
            progress = f"{number} of {len(seeds)}, {failed} failed"
            if sys.stderr.isatty():
                click.echo(f"\r{progress}", nl=False, err=True)
            elif number % _PROGRESS_SEEDS == 0:
                click.echo(progress, err=True)
    for what, count in sorted(acts.items()):
        click.echo(f"{count:7} {what}")
    seconds = time.monotonic() - began
    click.echo(f"seeds {seeds[0]}-{seeds[-1]}: {len(seeds)} runs, {failed} failures, {seconds:.0f} s")
    return 1 if failed else 0


def _play(kind: str, in_parts: bool, seed: int) -> tuple[int, str, Counter[str]]:
    """Return the seed, what there is to tell of it, nothing if all was well, and how often each actor acted."""
    try:
        report = run(seed, kind, is_all_in_parts=in_parts)
    except Exception as error:
        logging.getLogger(__name__).exception("Campaign ended", extra={"seed": seed})
        return seed, f"\nit did not come to its end: {type(error).__name__}: {error}", Counter()
    return seed, told(report) if report.findings else "", report.acts


if __name__ == "__main__":
    main()
