"""Declaration of commands and options; `--help` shows the options by section."""

from __future__ import annotations

from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from scheduler.cli.go_flags import GoFlagsCommand
from scheduler.configuration.feature_gates import written_gates
from scheduler.objects.durations import Duration

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

_WIDEST_HELP = 100


class _Option(click.Option):
    """An option in a section of the help."""

    def __init__(self, *arguments: Any, section: str = "Options", **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.section = section


class _Command(GoFlagsCommand):
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                sections.setdefault(getattr(parameter, "section", "Options"), []).append(record)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records)


command = partial(
    click.command, cls=_Command, context_settings={"max_content_width": _WIDEST_HELP, "show_default": True}
)
option = partial(click.option, cls=_Option)
file_option = partial(option, type=click.Path(path_type=Path), metavar="FILE")
port_option = partial(option, type=click.IntRange(0, 65535), metavar="PORT")


class _Values(click.Choice[Enum]):
    """A member of an Enum, by its value."""

    def normalize_choice(self, choice: Any, ctx: click.Context | None) -> str:
        return str(choice.value if isinstance(choice, Enum) else choice)


def choice_option(kind: type[Enum], *names: str, **more: Any) -> Callable[[F], F]:
    """Return an option that accepts the values of an Enum."""
    return option(*names, type=_Values(list(kind)), **more)


def flags_of(context: click.Context) -> dict[str, str]:
    """Return the flags of a running command as Kubernetes' components show them: name without dashes -> value.

    A flag without value and default is "".
    """
    return {
        max(parameter.opts, key=len).lstrip("-"): _as_text(context.params[parameter.name])
        for parameter in context.command.params
        if parameter.name in context.params
    }


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return written_gates(value)
    return str(value.value if isinstance(value, Enum) else value)


def _duration(text: str | Duration) -> Duration:
    """Read a duration in Go's notation, for example `1m30s`."""
    try:
        return text if isinstance(text, Duration) else Duration.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


duration_option = partial(option, type=_duration, metavar="DURATION")
