"""The flags of where the configuration is, and whether it is followed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from scheduler.app.config_map import ConfigMapKey


def _config_map_key(text: str) -> ConfigMapKey:
    try:
        return ConfigMapKey.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


_option = partial(typer.Option, rich_help_panel="Configuration")

ConfigFileOption = Annotated[
    Path | None,
    _option(
        "--config",
        help="KubeSchedulerConfiguration file; without it and without --config-map, the default plugins.",
        metavar="FILE",
    ),
]
ConfigMapOption = Annotated[
    ConfigMapKey | None,
    _option(
        "--config-map",
        help="ConfigMap that holds the configuration, instead of a file, and plugin files (keys that end in .py); "
        "without KEY, its only other key.",
        metavar="NAMESPACE/NAME[:KEY]",
        parser=_config_map_key,
    ),
]
FollowConfig = Annotated[
    bool,
    _option(
        "--follow-config/--no-follow-config",
        help="Take a changed configuration, or plugin file of it, without a restart; what is wrong is refused with "
        "an event and the old one kept.",
    ),
]
WriteConfigTo = Annotated[
    Path | None,
    _option(help="Write the configuration in effect to a file, and end.", metavar="FILE"),
]
