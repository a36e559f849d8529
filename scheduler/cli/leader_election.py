"""The flags of leader election, named and meant as kube-scheduler's; what is not given, the file says.

Source:
    component-base v1.36, config/options/leaderelectionconfig.go, BindLeaderElectionFlags.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from scheduler.objects.durations import Duration


def duration(text: str) -> Duration:
    """Read a duration as Go writes it, `1m30s`."""
    try:
        return Duration.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


_option = partial(typer.Option, rich_help_panel="Leader election (over the configuration file)")
_duration = partial(_option, metavar="DURATION", parser=duration)

LeaderElect = Annotated[
    bool | None,
    _option(
        "--leader-elect/--no-leader-elect",
        help="Work only while holding the lease, so that of several replicas one does; on by default.",
        show_default=False,
    ),
]
LeaseDuration = Annotated[
    Duration | None,
    _duration(
        help="How long others wait after the last renewal they saw before they take over. 15s by default."
    ),
]
RenewDeadline = Annotated[
    Duration | None,
    _duration(help="How long the leader tries to renew before it stops working. 10s by default."),
]
RetryPeriod = Annotated[Duration | None, _duration(help="How long to wait between two tries. 2s by default.")]
ResourceName = Annotated[
    str | None, _option(help="The lease's name. custom-scheduler by default.", metavar="NAME")
]
ResourceNamespace = Annotated[
    str | None, _option(help="The lease's namespace. kube-system by default.", metavar="NAMESPACE")
]
