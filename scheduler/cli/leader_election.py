"""The flags of leader election, named and meant as kube-scheduler's; what is not given, the file says.

Source:
    component-base v1.36, config/options/leaderelectionconfig.go, BindLeaderElectionFlags.
"""

from __future__ import annotations

from typing import Annotated

import typer

from scheduler.objects.durations import Duration


def duration(text: str) -> Duration:
    """Read a duration as Go writes it, `1m30s`."""
    try:
        return Duration.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


_PANEL = "Leader election (over the configuration file)"

LeaderElect = Annotated[
    bool | None,
    typer.Option(
        "--leader-elect/--no-leader-elect",
        help="Work only while holding the lease, so that of several replicas one does; on by default.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
LeaseDuration = Annotated[
    Duration | None,
    typer.Option(
        help="How long others wait after the last renewal they saw before they take over. 15s by default.",
        metavar="DURATION",
        parser=duration,
        rich_help_panel=_PANEL,
    ),
]
RenewDeadline = Annotated[
    Duration | None,
    typer.Option(
        help="How long the leader tries to renew before it stops working. 10s by default.",
        metavar="DURATION",
        parser=duration,
        rich_help_panel=_PANEL,
    ),
]
RetryPeriod = Annotated[
    Duration | None,
    typer.Option(
        help="How long to wait between two tries. 2s by default.",
        metavar="DURATION",
        parser=duration,
        rich_help_panel=_PANEL,
    ),
]
ResourceName = Annotated[
    str | None,
    typer.Option(
        help="The lease's name. custom-scheduler by default.", metavar="NAME", rich_help_panel=_PANEL
    ),
]
ResourceNamespace = Annotated[
    str | None,
    typer.Option(
        help="The lease's namespace. kube-system by default.", metavar="NAMESPACE", rich_help_panel=_PANEL
    ),
]
