"""The flag of feature gates, named and parsed like kube-scheduler's; it overrides the file."""

from __future__ import annotations

import click

from scheduler.cli.options import option
from scheduler.configuration.feature_gates import parse_gates


def _gates(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, bool]:
    try:
        return parse_gates(",".join(given))
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


feature_gates_option = option(
    "--feature-gates",
    multiple=True,
    callback=_gates,
    help="Enable or disable features; overrides featureGates of the file: GenericWorkload, GangScheduling, "
    "TopologyAwareWorkloadScheduling and WorkloadAwarePreemption, all of them on by default.",
    metavar="GATE=true|false,...",
    section="Configuration",
)
"""Gives a command `feature_gates`: gate -> whether it is enabled, for the gates that are named."""
