"""Boolean flags as Go programs accept them: `--leader-elect=false`, as in scripts for kube-scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scheduler.objects.booleans import GO_BOOLEANS

if TYPE_CHECKING:
    from collections.abc import Iterable


class GoFlagsCommand(click.Command):
    """A command whose `--this/--no-this` flags also accept a value after `=`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [*_without_values(args, self._switches())])

    def _switches(self) -> dict[str, str]:
        """Return the flag that disables each flag: `--this` -> `--no-this`."""
        return {
            parameter.opts[0]: parameter.secondary_opts[0]
            for parameter in self.params
            if parameter.opts and parameter.secondary_opts
        }


def _without_values(args: Iterable[str], switches: dict[str, str]) -> Iterable[str]:
    for argument in args:
        flag, _, word = argument.partition("=")
        if flag not in switches or flag == argument:
            yield argument
        elif word in GO_BOOLEANS:
            yield flag if GO_BOOLEANS[word] else switches[flag]
        else:
            raise click.BadParameter(f"must be true or false, was {word!r}", param_hint=flag)
