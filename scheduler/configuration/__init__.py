"""KubeSchedulerConfiguration: read strictly, completed with defaults, written back, expanded.

`load`, `parse` and `default` give a `Configuration`; `expand_profiles` says which plugins run where.
"""

from scheduler.configuration.args import decode_args, find_args
from scheduler.configuration.default_plugins import DEFAULT_ARGS, DEFAULT_PLUGINS, UPSTREAM_PLUGINS
from scheduler.configuration.defaults import DEFAULT_SCHEDULER_NAME, enabled_names
from scheduler.configuration.expand import EnabledPlugin, expand, expand_profiles
from scheduler.configuration.load import Configuration, default, load, parse
from scheduler.configuration.notes import Note
from scheduler.configuration.types import (
    ClientConnection,
    Extender,
    ExtenderTLS,
    KubeSchedulerConfiguration,
    LeaderElection,
    ManagedResource,
    Plugin,
    PluginConfig,
    Plugins,
    PluginSet,
    Profile,
)
from scheduler.configuration.validation import leader_election_faults
from scheduler.configuration.write import to_yaml

__all__ = [
    "DEFAULT_ARGS",
    "DEFAULT_PLUGINS",
    "DEFAULT_SCHEDULER_NAME",
    "UPSTREAM_PLUGINS",
    "ClientConnection",
    "Configuration",
    "EnabledPlugin",
    "Extender",
    "ExtenderTLS",
    "KubeSchedulerConfiguration",
    "LeaderElection",
    "ManagedResource",
    "Note",
    "Plugin",
    "PluginConfig",
    "PluginSet",
    "Plugins",
    "Profile",
    "decode_args",
    "default",
    "enabled_names",
    "expand",
    "expand_profiles",
    "find_args",
    "leader_election_faults",
    "load",
    "parse",
    "to_yaml",
]
