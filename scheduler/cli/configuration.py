"""The flags that say where the configuration is and whether changes are followed."""

from __future__ import annotations

import click

from scheduler.cli.options import file_option, option
from scheduler.daemon.app.config_map import ConfigMapKey

_SECTION = "Configuration"


def _config_map_key(text: str) -> ConfigMapKey:
    try:
        return ConfigMapKey.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


config = file_option(
    "--config",
    help="KubeSchedulerConfiguration file; without it and without --config-map, the default plugins.",
    section=_SECTION,
)
config_map = option(
    "--config-map",
    type=_config_map_key,
    help="ConfigMap that holds the configuration, instead of a file, and plugin files (keys that end in .py); "
    "KEY may be omitted if there is only one other key.",
    metavar="NAMESPACE/NAME[:KEY]",
    section=_SECTION,
)
follow_config = option(
    "--follow-config/--no-follow-config",
    default=True,
    help="Apply a changed configuration or plugin file without a restart. An invalid one is rejected with an event, and "
    "the active configuration stays.",
    section=_SECTION,
)
scheduler_profiles = option(
    "--scheduler-profiles",
    is_flag=True,
    help="Also run the profiles of the cluster's SchedulerProfile objects.",
    section=_SECTION,
)
last_good_config = file_option(
    "--last-good-config",
    help="Keep the active configuration in this file, and start with it if the given one is invalid. FILE.attempt names "
    "the pod of the running attempt, so that a pod that ends the process is quarantined after the restart.",
    section=_SECTION,
)
write_config_to = file_option(
    "--write-config-to",
    help="Write the configuration with all defaults to a file, and exit.",
    section=_SECTION,
)
