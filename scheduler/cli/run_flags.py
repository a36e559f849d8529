"""The flags of `run`, named like those of kube-scheduler: configuration, leader election, recording, HTTP endpoints.

Source:
    component-base v1.36, config/options/leaderelectionconfig.go, BindLeaderElectionFlags.
    apiserver v1.36, pkg/server/options/serving.go, SecureServingOptions, and authorization.go.
"""

from __future__ import annotations

from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from scheduler.cli.options import duration_option, file_option, option, port_option
from scheduler.configuration.overrides import with_leader_election
from scheduler.daemon.app.config_map import ConfigMapKey
from scheduler.daemon.recording import RecordingLimits
from scheduler.daemon.server import ALWAYS_ALLOWED
from scheduler.objects.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable

_CONFIGURATION = "Configuration"


def _config_map_key(text: str) -> ConfigMapKey:
    try:
        return ConfigMapKey.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


config = file_option(
    "--config",
    help="KubeSchedulerConfiguration file; without it and without --config-map, the default plugins.",
    section=_CONFIGURATION,
)
config_map = option(
    "--config-map",
    type=_config_map_key,
    help="ConfigMap that holds the configuration, instead of a file, and plugin files (keys that end in .py); "
    "KEY may be omitted if there is only one other key.",
    metavar="NAMESPACE/NAME[:KEY]",
    section=_CONFIGURATION,
)
follow_config = option(
    "--follow-config/--no-follow-config",
    default=True,
    help="Apply a changed configuration or plugin file without a restart. An invalid one is rejected with an event, and "
    "the active configuration stays.",
    section=_CONFIGURATION,
)
scheduler_profiles = option(
    "--scheduler-profiles",
    is_flag=True,
    help="Also run the profiles of the cluster's SchedulerProfile objects.",
    section=_CONFIGURATION,
)
last_good_config = file_option(
    "--last-good-config",
    help="Keep the active configuration in this file, and start with it if the given one is invalid. FILE.attempt names "
    "the pod of the running attempt, so that a pod that ends the process is quarantined after the restart.",
    section=_CONFIGURATION,
)
write_config_to = file_option(
    "--write-config-to",
    help="Write the configuration with all defaults to a file, and exit.",
    section=_CONFIGURATION,
)


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


_SMALLEST: Final = 2**20


class _RoomType(click.ParamType[RecordingLimits]):
    name = "DIR[,size=1Gi,hours=24]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> RecordingLimits:
        if isinstance(value, RecordingLimits):
            return value
        folder, *limits = str(value).split(",")
        given: dict[str, float] = {}
        for limit in limits:
            name, equals, text = limit.partition("=")
            if name not in {"size", "hours"} or not equals:
                self.fail(f"{limit!r} must be size=SIZE or hours=NUMBER", param, ctx)
            try:
                given[name] = parse_quantity(text).value() if name == "size" else float(text)
            except ValueError:
                self.fail(f"{limit!r}: {text!r} is not a number", param, ctx)
        if not folder:
            self.fail("a directory is needed", param, ctx)
        room = RecordingLimits(Path(folder))
        if "size" in given:
            if given["size"] < _SMALLEST:
                self.fail("size: at least 1Mi is needed", param, ctx)
            room = RecordingLimits(room.folder, int(given["size"]), room.max_seconds)
        if "hours" in given:
            if not given["hours"] > 0:
                self.fail("hours: more than 0 is needed", param, ctx)
            room = RecordingLimits(room.folder, room.max_bytes, given["hours"] * 3600.0)
        return room


ROOM: Final = _RoomType()


LOOPBACK = "127.0.0.1"
_ENDPOINTS = "Serving /metrics and health"

bind_address = option(
    "--bind-address",
    default="0.0.0.0",  # noqa: S104 - probes, metrics and requests come from outside the pod
    help="Address to listen on, such as 127.0.0.1; 0.0.0.0 and :: are all addresses.",
    metavar="ADDRESS",
    section=_ENDPOINTS,
)
secure_port = port_option(
    "--secure-port",
    default=10259,
    help="Port of HTTPS, where the API server authorizes each request; 0 for none.",
    section=_ENDPOINTS,
)
http_port = port_option(
    "--http-port",
    default=0,
    help=f"Port of plain HTTP without authorization, on {LOOPBACK} unless --bind-address is given; 0 for none.",
    section=_ENDPOINTS,
)
tls_cert_file = file_option(
    "--tls-cert-file",
    help="Certificate of HTTPS, PEM, with its chain; reloaded when it changes. Without it, one is generated.",
    section=_ENDPOINTS,
)
tls_private_key_file = file_option(
    "--tls-private-key-file", help="Private key of the certificate, PEM.", section=_ENDPOINTS
)
authorization_always_allow_paths = option(
    "--authorization-always-allow-paths",
    default=",".join(ALWAYS_ALLOWED),
    help="Comma-separated paths that need no authorization over HTTPS; /* for all paths.",
    metavar="PATHS",
    section=_ENDPOINTS,
)
board = option(
    "--board",
    is_flag=True,
    help="Serve a page at /board that shows the cluster and its pending pods; over HTTPS, with authorization for that path.",
    section=_ENDPOINTS,
)
whatif = option(
    "--whatif",
    is_flag=True,
    help="Answer what-if requests at /v1/whatif: where pods would go, also with fewer or more nodes; over HTTPS, with "
    "authorization for that path.",
    section=_ENDPOINTS,
)
