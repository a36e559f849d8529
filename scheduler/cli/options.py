"""Declaration of commands, options, boolean flags and feature gates, and errors of usage."""

from __future__ import annotations

import sys
from enum import Enum
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

import click

from scheduler.configuration.feature_gates import parse_gates, parse_version, written_gates
from scheduler.configuration.overrides import GivenFeatures, with_features
from scheduler.objects.wording import GO_BOOLEANS, Duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scheduler.configuration.load import Configuration


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


_BAD_INPUT: Final = 2


def fail(message: str) -> NoReturn:
    """Print an error message, line by line, and exit with status 2."""
    for line in message.splitlines():
        click.echo(f"error: {line}", err=True)
    sys.exit(_BAD_INPUT)


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


_LONGEST_SENTENCE: Final = 1000


class CommandGroup(click.Group):
    """A group that lists its commands with the whole first sentences of their help."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, "" if command is None else command.get_short_help_str(limit=_LONGEST_SENTENCE))
                    for name, command in (
                        (each, self.get_command(ctx, each)) for each in self.list_commands(ctx)
                    )
                ]
            )


HELP_NAMES: Final = ["-h", "--help"]
command = partial(
    click.command,
    cls=_Command,
    context_settings={
        "max_content_width": _WIDEST_HELP,
        "show_default": True,
        "help_option_names": HELP_NAMES,
    },
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
    if isinstance(more.get("default"), Enum):
        more["default"] = more["default"].value  # the help shows the default as it is written
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
longest_wait_option = duration_option(
    "--pod-max-in-unschedulable-pods-duration",
    default="5m",
    help="How long a rejected pod waits for an event that requeues it before it is tried again without one.",
)


def _gates(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, bool]:
    try:
        return parse_gates(",".join(given))
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def _version(context: click.Context, parameter: click.Parameter, given: str) -> str:
    try:
        return parse_version(given) if given else ""
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


_emulated_version = option(
    "--emulated-version",
    default="",
    callback=_version,
    help="Decide as the kube-scheduler of this Kubernetes version does; overrides emulatedVersion of the file.",
    metavar="MAJOR.MINOR",
    section="Configuration",
)


def feature_gates_option(text: str, section: str = "Options") -> Callable[[F], F]:
    """Return the option `--feature-gates` with a help text."""
    made: Callable[[F], F] = option(
        "--feature-gates",
        multiple=True,
        callback=_gates,
        help=text,
        metavar="GATE=true|false,...",
        section=section,
    )
    return made


_feature_gates = feature_gates_option(
    "Enable or disable features; overrides featureGates of the file. Groups of pods are on by default: GenericWorkload, "
    "GangScheduling, TopologyAwareWorkloadScheduling and WorkloadAwarePreemption.",
    "Configuration",
)


def features_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--emulated-version` and `--feature-gates`, as its argument `features`."""

    @wraps(function)
    def with_features(*args: Any, emulated_version: str, feature_gates: dict[str, bool], **more: Any) -> Any:
        return function(*args, features=GivenFeatures(emulated_version, feature_gates), **more)

    return _emulated_version(_feature_gates(with_features))


class Output(Enum):
    """The format of results."""

    TABLE = "table"
    JSON = "json"


output_option = partial(choice_option, Output, "--output", "-o", default=Output.TABLE, help="Output format.")

_UPSTREAM_NAME: Final = "default-scheduler"


class GivenProfiles(NamedTuple):
    """The profiles that a command evaluates pods with.

    Attributes:
        config: configuration with the profiles; None for the default plugins.
        features: emulated version and gates that override the configuration's.
        scheduler_name: schedulerName of the default plugins; None for that of kube-scheduler.
    """

    config: Path | None
    features: GivenFeatures
    scheduler_name: str | None

    @property
    def names(self) -> list[str]:
        """The schedulerNames that get the default plugins; empty with a configuration."""
        return [] if self.config is not None else [self.scheduler_name or _UPSTREAM_NAME]

    def read(self, *, version: str | None) -> Configuration:
        """Return the configuration for a version of Kubernetes; None for any.

        Raises:
            ConfigurationError: it is wrong.
        """
        from scheduler.configuration.load import (
            default,
            load,
        )  # takes a while to import, and --help none of it

        return default(*self.names) if self.config is None else load(self.config, version=version)

    def configuration(self) -> Configuration:
        """Return the configuration with the given features.

        Raises:
            ConfigurationError: it is wrong.
        """
        return with_features(self.read(version=self.features.version), self.features)


def profiles_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--config`, `--emulated-version`, `--feature-gates` and `--scheduler-name`, as its argument `profiles`."""

    @wraps(function)
    def with_profiles(
        *args: Any, config: Path | None, features: GivenFeatures, scheduler_name: str | None, **more: Any
    ) -> Any:
        if config is not None and scheduler_name is not None:
            fail("--scheduler-name is for the default plugins: with --config, the profiles define the names")
        return function(*args, profiles=GivenProfiles(config, features, scheduler_name), **more)

    with_name = option(
        "--scheduler-name",
        help=f"Without --config: evaluate the pods of this spec.schedulerName, {_UPSTREAM_NAME} by default.",
        metavar="NAME",
    )(with_profiles)
    return file_option(
        "--config",
        help="KubeSchedulerConfiguration file with the profiles to use; without it, kube-scheduler's default plugins.",
    )(features_options(with_name))
