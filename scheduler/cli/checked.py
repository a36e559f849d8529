"""Reads a configuration, builds it, and reports everything that is wrong with it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import click

from scheduler.configuration.default_plugins import UPSTREAM_PLUGINS
from scheduler.configuration.defaults import enabled_names
from scheduler.configuration.load import Examined, default, examine, not_below, read_file
from scheduler.configuration.notes import ConfigurationNote
from scheduler.configuration.overrides import with_feature_gates
from scheduler.configuration.versions.algorithm_source import POLICY_KEY, PolicyConfigMap
from scheduler.configuration.yaml_text import read
from scheduler.daemon.app.config_map import CONFIG_MAPS, ConfigMapKey, ConfigMapSource
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.daemon.app.rights import Named, Right, rights_of, rights_of_shadow
from scheduler.daemon.config_watch.config_map import ConfigMap
from scheduler.engine.runtime.checking import constructor_wants
from scheduler.errors import ConfigurationError, FieldError
from scheduler.framework import ApiGet, ApiWrite
from scheduler.objects.wording import quoted
from scheduler.tools.whatif.cluster_file import STANDARD_INPUT, ClusterFile
from scheduler.tools.whatif.offline import OfflineScheduler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scheduler.configuration.load import Configuration
    from scheduler.engine.runtime.framework import Framework

_STANDARD_INPUT: Final = "standard input"
_HINT: Final = "--policy-config-map FILE gives it to check"


@dataclass(frozen=True, slots=True)
class Checked:
    """A valid configuration.

    Attributes:
        profiles: the profiles built from it.
        policy: the ConfigMap with its Policy, if it names one.
    """

    configuration: Configuration
    profiles: Iterable[Framework]
    policy: Named | None

    def rights(
        self, config_map: Named | None, *, scheduler_profiles: bool = False, shadow: bool = False
    ) -> dict[Right, str]:
        """Return the rights that the daemon, or a shadow of another scheduler, needs -> the reason.

        Raises:
            ConfigurationError: a right in a plugin's `needs` is malformed.
        """
        settings = self.configuration.settings
        for name in self._silent():
            click.echo(
                f"warning: plugin {name} sends requests to the API server, but its `needs` list no rights",
                err=True,
            )
        try:
            if shadow:
                defaults = OfflineScheduler(ClusterFile(), default(), refresh=False).frameworks.values()
                return rights_of_shadow([*defaults, *self.profiles])
            return rights_of(
                self.profiles,
                settings,
                config_map=config_map,
                policy=self.policy,
                scheduler_profiles=scheduler_profiles,
            )
        except ValueError as error:
            fault = FieldError("profiles", f"needs of a plugin: {error}")
            raise ConfigurationError([fault], self.configuration.source) from error

    def _silent(self) -> list[str]:
        """Return the third-party plugins that may call the API server and declare no rights."""
        plugins = [plugin for profile in self.profiles for plugin in profile.plugins.all()]
        callers = [
            each for each in plugins if {ApiGet, ApiWrite} & set(constructor_wants(type(each)).values())
        ]
        return sorted({each.name for each in callers if not each.needs.rights} - IN_TREE.keys())


def checked(file: str | None, policy_config_map: Path | None, feature_gates: Mapping[str, bool]) -> Checked:
    """Read a file, or the defaults without one, and build its profiles.

    Raises:
        ConfigurationError: everything that is wrong with it.
    """
    source, folder, text = ("", Path(), "") if file is None else _text_of(file)
    examined = Examined(default(), []) if file is None else examine(text, source, folder)
    missing = examined.missing
    if missing is not None:
        examined = _with_policy(text, source, folder, examined, policy_config_map)
    elif policy_config_map is not None:
        fault = FieldError("--policy-config-map", "is not needed: the configuration names no ConfigMap")
        raise ConfigurationError([*examined.errors, fault], source)
    errors, configuration = list(examined.errors), examined.configuration
    profiles: list[Framework] = []
    if configuration is not None:
        try:
            configuration = with_feature_gates(configuration, feature_gates)
            profiles.extend(OfflineScheduler(ClusterFile(), configuration, refresh=False).frameworks.values())
        except ConfigurationError as error:
            errors.extend(not_below(errors, error.errors))
        for note in (
            *configuration.notes,
            *_left_out(configuration),
            *_args_in_vain(configuration, profiles),
        ):
            click.echo(f"warning: {source}: {note.path}: {note.text}", err=True)
    if errors or configuration is None:
        raise ConfigurationError(errors, source)
    return Checked(configuration, profiles, Named(missing.namespace, missing.name) if missing else None)


def _text_of(file: str) -> tuple[str, Path, str]:
    """Return the name for messages, the folder of relative paths, and the text."""
    if file == STANDARD_INPUT:
        source, folder, text = _STANDARD_INPUT, Path(), _standard_input()
    else:
        source, folder, text = file, Path(file).parent, read_file(file)
    document = read(text).value
    if isinstance(document, dict) and document.get("kind") == CONFIG_MAPS.kind:
        return _unpacked(_config_map(document, source))
    return source, folder, text


def _config_map(document: dict[str, Any], source: str) -> ConfigMap:
    """Read a ConfigMap as `kubectl get -o yaml` and `helm template` print it."""
    parts: dict[str, dict[str, str]] = {"metadata": {}, "data": {}}
    for name in parts:
        part = document.get(name)
        if not isinstance(part, dict):
            raise ConfigurationError([FieldError(name, "keys with values are expected")], source)
        parts[name] = {key: value for key, value in part.items() if isinstance(value, str)}
    return ConfigMap.of(parts | {"metadata": {"namespace": "", "name": ""} | parts["metadata"]})


def _unpacked(config_map: ConfigMap) -> tuple[str, Path, str]:
    """Write the plugin files of a ConfigMap into a folder, which is removed when the command ends."""
    folder = Path(click.get_current_context().with_resource(TemporaryDirectory()))
    where = ConfigMapKey(config_map.namespace, config_map.name)
    text, source = ConfigMapSource(where, folder).unpacked(config_map)
    return source, folder, text


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            [FieldError("", f"not UTF-8: byte {error.start}")], _STANDARD_INPUT
        ) from error


def _with_policy(text: str, source: str, folder: Path, examined: Examined, file: Path | None) -> Examined:
    """Read the configuration again with the policy; without a file, raise an error that names the flag."""
    assert examined.missing is not None
    if file is None:
        raise ConfigurationError([*examined.errors, FieldError("", _HINT)], source)
    return examine(text, source, folder, policies={examined.missing: _policy_in(file, examined.missing)})


def _policy_in(file: Path, wanted: PolicyConfigMap) -> str:
    text = read_file(file)
    document = read(text).value
    if not isinstance(document, dict) or document.get("kind") != "ConfigMap":
        return text
    metadata, data = document.get("metadata"), document.get("data")
    if isinstance(metadata, dict):
        named = PolicyConfigMap(
            metadata.get("namespace") or wanted.namespace, metadata.get("name") or wanted.name
        )
        if named != wanted:
            problem = f"must be {wanted}, which the configuration names, was {named}"
            raise ConfigurationError([FieldError("metadata", problem)], str(file))
    policy = data.get(POLICY_KEY) if isinstance(data, dict) else None
    if not isinstance(policy, str):
        has = ", ".join(sorted(data)) if isinstance(data, dict) and data else "none"
        raise ConfigurationError([FieldError("data", f"has no key {POLICY_KEY}; it has {has}")], str(file))
    return policy


def _left_out(configuration: Configuration) -> Iterator[ConfigurationNote]:
    """Yield the enabled plugins of kube-scheduler that this scheduler does not have."""
    for i, profile in enumerate(configuration.settings.profiles):
        names = [
            name
            for name in enabled_names(profile.plugins)
            if name in UPSTREAM_PLUGINS and name not in IN_TREE
        ]
        if names:
            path = configuration.place(f"profiles[{i}].plugins")
            yield ConfigurationNote(path, f"has no effect, this scheduler does not have: {', '.join(names)}")


def _args_in_vain(configuration: Configuration, built: Iterable[Framework]) -> Iterator[ConfigurationNote]:
    """Yield the arguments of plugins that a profile does not enable."""
    names = {each.profile: {plugin.name for plugin in each.plugins.all()} for each in built}
    for i, profile in enumerate(configuration.settings.profiles):
        if profile.scheduler_name not in names:
            continue  # it could not be built
        enabled = names[profile.scheduler_name] | {*enabled_names(profile.plugins)}
        for j, config in enumerate(profile.plugin_config):
            if config.name not in enabled:
                path = configuration.place(f"profiles[{i}].pluginConfig[{j}]")
                yield ConfigurationNote(
                    path, f"has no effect: the profile does not enable {quoted(config.name)}"
                )
