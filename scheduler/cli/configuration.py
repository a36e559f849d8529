"""The flags of where the configuration is, and whether it is followed."""

from __future__ import annotations

import click

from scheduler.app.config_map import ConfigMapKey
from scheduler.cli.options import file_option, option

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
    "without KEY, its only other key.",
    metavar="NAMESPACE/NAME[:KEY]",
    section=_SECTION,
)
follow_config = option(
    "--follow-config/--no-follow-config",
    default=True,
    help="Take a changed configuration, or plugin file of it, without a restart; what is wrong is refused with an event "
    "and the old one kept.",
    section=_SECTION,
)
scheduler_profiles = option(
    "--scheduler-profiles",
    is_flag=True,
    help="Run the profiles of the cluster's SchedulerProfiles besides those of the configuration.",
    section=_SECTION,
)
last_good_config = file_option(
    "--last-good-config",
    help="Keep the configuration in force in this file, and begin with it when the one that is given is found to be wrong; "
    "and in FILE.attempt at which pod an attempt is, to put it aside if that ends the process.",
    section=_SECTION,
)
write_config_to = file_option(
    "--write-config-to", help="Write the configuration in effect to a file, and end.", section=_SECTION
)
