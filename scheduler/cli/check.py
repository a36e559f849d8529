"""`custom-scheduler check`: is a configuration right, and what does an old one look like today."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scheduler.app.in_tree import IN_TREE
from scheduler.cli.options import command, file_option, option
from scheduler.configuration.default_plugins import UPSTREAM_PLUGINS
from scheduler.configuration.defaults import enabled_names
from scheduler.configuration.load import examine, not_below, read_file
from scheduler.configuration.notes import Note
from scheduler.configuration.types import API_VERSION
from scheduler.configuration.versions.algorithm_source import POLICY_KEY, PolicyConfigMap
from scheduler.configuration.write import converted_yaml
from scheduler.configuration.yaml_text import read
from scheduler.errors import ConfigurationError, FieldError
from scheduler.logs import LogFormat, configure_logging
from scheduler.whatif.cluster_file import STANDARD_INPUT, ClusterFile
from scheduler.whatif.offline import OfflineScheduler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.configuration.load import Configuration, Examined

_STANDARD_INPUT = "standard input"
_HINT = "--policy-config-map FILE gives it to check"


@command()
@click.argument(
    "file",
    metavar="FILE",
    help="KubeSchedulerConfiguration of any version, or Policy, as YAML or JSON; - is standard input.",
)
@option("--convert", is_flag=True, help=f"Print what the file says as {API_VERSION}, in YAML.")
@file_option(
    "--policy-config-map",
    help="The ConfigMap that algorithmSource.policy.configMap names, as `kubectl get configmap -o yaml` prints it, or the "
    "policy alone.",
)
def check(file: str, convert: bool, policy_config_map: Path | None) -> None:
    """Say whether a configuration can be run: every field, every plugin and its arguments; status 2 if it cannot."""
    configure_logging(logging.ERROR, LogFormat.TEXT)  # what is left out is told with the notes
    source, folder, text = _text_of(file)
    examined = examine(text, source, folder)
    if examined.missing is not None:
        examined = _with_policy(text, source, folder, examined, policy_config_map)
    elif policy_config_map is not None:
        fault = FieldError("--policy-config-map", "is not needed: the configuration names no ConfigMap")
        raise ConfigurationError([*examined.errors, fault], source)
    errors = list(examined.errors)
    if examined.configuration is not None:
        errors.extend(not_below(errors, _plugin_faults(examined.configuration)))
        for note in (*examined.configuration.notes, *_left_out(examined.configuration)):
            click.echo(f"{source}: {note.path}: {note.text}", err=True)
    if errors or examined.configuration is None:
        raise ConfigurationError(errors, source)
    if convert:
        sys.stdout.write(converted_yaml(examined.configuration))
    else:
        click.echo(_verdict(examined.configuration))


def _text_of(file: str) -> tuple[str, Path, str]:
    """Return what messages call it, what its relative paths start from, and what it says."""
    if file != STANDARD_INPUT:
        return file, Path(file).parent, read_file(file)
    try:
        return _STANDARD_INPUT, Path(), sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            [FieldError("", f"not UTF-8: byte {error.start}")], _STANDARD_INPUT
        ) from error


def _with_policy(text: str, source: str, folder: Path, examined: Examined, file: Path | None) -> Examined:
    """Read the configuration once more, with the policy; without it say how to give it."""
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


def _plugin_faults(configuration: Configuration) -> list[FieldError]:
    """Build every profile, and return what is wrong with its plugins, at their places in the file."""
    try:
        OfflineScheduler(ClusterFile(), configuration, refresh=False)
    except ConfigurationError as error:
        return list(error.errors)
    return []


def _left_out(configuration: Configuration) -> Iterator[Note]:
    """Yield the plugins of kube-scheduler that are enabled and not here."""
    for i, profile in enumerate(configuration.settings.profiles):
        names = [
            name
            for name in enabled_names(profile.plugins)
            if name in UPSTREAM_PLUGINS and name not in IN_TREE
        ]
        if names:
            path = configuration.place(f"profiles[{i}].plugins")
            yield Note(path, f"without effect, for this scheduler does not have them yet: {', '.join(names)}")


def _verdict(configuration: Configuration) -> str:
    names = ", ".join(profile.scheduler_name for profile in configuration.settings.profiles)
    verdict = f"{configuration.source}: can be run, with the profiles {names}"
    if configuration.api_version == API_VERSION:
        return verdict
    return f"{verdict}; it is of {configuration.api_version}, --convert prints it as {API_VERSION}"
