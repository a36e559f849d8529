"""The flag of feature gates, named and read as kube-scheduler's; what it does not name, the file says."""

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
    help="Switch features on or off, over featureGates of the file: GenericWorkload, GangScheduling, "
    "TopologyAwareWorkloadScheduling and WorkloadAwarePreemption, all of them on by default.",
    metavar="GATE=true|false,...",
    section="Configuration",
)
"""Gives a command `feature_gates`: gate -> whether it is on, of those that are named."""
