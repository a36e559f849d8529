"""The flags of leader election, named like kube-scheduler's; a flag that is not given keeps the file's value.

Source:
    component-base v1.36, config/options/leaderelectionconfig.go, BindLeaderElectionFlags.
"""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from scheduler.cli.options import duration_option, option
from scheduler.configuration.overrides import with_leader_election

if TYPE_CHECKING:
    from collections.abc import Callable

_of_section = partial(partial, section="Leader election (overrides the configuration file)")
_FLAGS = {  # field -> its flag, without the field's name
    "leader_elect": _of_section(
        option,
        "--leader-elect/--no-leader-elect",
        default=None,
        help="Work only while holding the lease, so that one of several replicas is active; enabled by default.",
    ),
    "lease_duration": _of_section(
        duration_option,
        "--leader-elect-lease-duration",
        help="How long other replicas wait after the last renewal they saw before they try to take over. 15s by default.",
    ),
    "renew_deadline": _of_section(
        duration_option,
        "--leader-elect-renew-deadline",
        help="How long the leader tries to renew before it stops working. 10s by default.",
    ),
    "retry_period": _of_section(
        duration_option,
        "--leader-elect-retry-period",
        help="How long to wait between two attempts. 2s by default.",
    ),
    "resource_name": _of_section(
        option,
        "--leader-elect-resource-name",
        help="The lease's name. custom-scheduler by default.",
        metavar="NAME",
    ),
    "resource_namespace": _of_section(
        option,
        "--leader-elect-resource-namespace",
        help="The lease's namespace. kube-system by default.",
        metavar="NAMESPACE",
    ),
}


def leader_election_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags, and as `overriding` a function that applies them to a configuration."""

    @wraps(command)
    def with_flags(**given: Any) -> None:
        flags = {name: given.pop(name) for name in _FLAGS}
        command(**given, overriding=partial(with_leader_election, **flags))

    for name, flag in reversed(_FLAGS.items()):
        with_flags = flag(name)(with_flags)
    return with_flags
