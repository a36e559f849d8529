"""`custom-scheduler check`: validates and converts a configuration, and prints the access rights that it needs."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import click

from scheduler.cli.options import command, features_options, file_option, option
from scheduler.cli.process import kubeconfig_option, run_in_loop
from scheduler.configuration.defaults import UPSTREAM_PLUGINS, enabled_names
from scheduler.configuration.load import Examined, default, examine, not_below, read_file
from scheduler.configuration.notes import ConfigurationNote
from scheduler.configuration.overrides import with_features
from scheduler.configuration.types import API_VERSION
from scheduler.configuration.versions.algorithm_source import POLICY_KEY, PolicyConfigMap
from scheduler.configuration.write import converted_yaml
from scheduler.configuration.yaml_text import read
from scheduler.daemon.app.autoscalers import (
    CLUSTER_AUTOSCALER,
    KARPENTER,
    settings_yaml,
    unknown_rules,
)
from scheduler.daemon.app.config_map import CONFIG_MAPS, ConfigMapKey, ConfigMapSource
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.daemon.app.live_names import LiveNames
from scheduler.daemon.app.loop_watch import watching_plugins
from scheduler.daemon.app.needs import needs_of, resource_of
from scheduler.daemon.app.rights import (
    Named,
    Right,
    missing_rights,
    rights_of,
    rights_of_shadow,
    roles_yaml,
    rules_yaml,
)
from scheduler.daemon.app.size import ClusterSize, size_patch
from scheduler.daemon.config_watch.config_objects import ConfigMap
from scheduler.daemon.logs import LogFormat, configure_logging
from scheduler.daemon.sharding.assignment_object import decode
from scheduler.engine.runtime.plugin_classes import constructor_wants
from scheduler.engine.sharding.buckets import BUCKETS
from scheduler.errors import ApiError, ConfigurationError, FieldError, ObjectError
from scheduler.framework import ApiGet, ApiWrite, StatusWrite
from scheduler.framework.interface import ExtensionPoint
from scheduler.kube.client.connect import connect
from scheduler.kube.client.discovery import read_server_version, served_kinds
from scheduler.kube.client.resources import SHARD_ASSIGNMENTS
from scheduler.kube.http.request import Request
from scheduler.objects.wording import quoted
from scheduler.tools.whatif.cluster_file import STANDARD_INPUT, ClusterFile
from scheduler.tools.whatif.offline import OfflineScheduler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scheduler.configuration.load import Configuration
    from scheduler.configuration.overrides import GivenFeatures
    from scheduler.engine.runtime.framework import Framework
    from scheduler.kube.client.connection import ApiConnection

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
            each
            for each in plugins
            if {ApiGet, ApiWrite, StatusWrite} & set(constructor_wants(type(each)).values())
        ]
        return sorted({each.name for each in callers if not each.needs.rights} - IN_TREE.keys())


def checked(file: str | None, policy_config_map: Path | None, features: GivenFeatures) -> Checked:
    """Read a file, or the defaults without one, and build its profiles.

    Raises:
        ConfigurationError: everything that is wrong with it.
    """
    source, folder, text = ("", Path(), "") if file is None else _text_of(file)
    examined = (
        Examined(default(), []) if file is None else examine(text, source, folder, version=features.version)
    )
    missing = examined.missing
    if missing is not None:
        examined = _with_policy(text, source, folder, examined, policy_config_map, version=features.version)
    elif policy_config_map is not None:
        fault = FieldError("--policy-config-map", "is not needed: the configuration names no ConfigMap")
        raise ConfigurationError([*examined.errors, fault], source)
    errors, configuration = list(examined.errors), examined.configuration
    profiles: list[Framework] = []
    if configuration is not None:
        try:
            configuration = with_features(configuration, features)
            profiles.extend(OfflineScheduler(ClusterFile(), configuration, refresh=False).frameworks.values())
        except ConfigurationError as error:
            errors.extend(not_below(errors, error.errors))
        _warn(
            source, (*configuration.notes, *_left_out(configuration), *_args_in_vain(configuration, profiles))
        )
    if errors or configuration is None:
        raise ConfigurationError(errors, source)
    return Checked(configuration, profiles, Named(missing.namespace, missing.name) if missing else None)


def _warn(source: str, notes: Iterable[ConfigurationNote]) -> None:
    for note in notes:
        click.echo(f"warning: {source}: {note.path}: {note.text}", err=True)


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


def _with_policy(
    text: str, source: str, folder: Path, examined: Examined, file: Path | None, *, version: str
) -> Examined:
    """Read the configuration again with the policy; without a file, raise an error that names the flag."""
    assert examined.missing is not None
    if file is None:
        raise ConfigurationError([*examined.errors, FieldError("", _HINT)], source)
    policies = {examined.missing: _policy_in(file, examined.missing)}
    return examine(text, source, folder, policies=policies, version=version)


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
    """Yield the arguments of plugins that a profile does not enable, or not where the arguments count."""
    plugins = {each.profile: each.plugins for each in built}
    for i, profile in enumerate(configuration.settings.profiles):
        if profile.scheduler_name not in plugins:
            continue  # it could not be built
        its = plugins[profile.scheduler_name]
        enabled = {plugin.name for plugin in its.all()} | {*enabled_names(profile.plugins)}
        preempting = {plugin.name for plugin in its.at.get(ExtensionPoint.POST_FILTER, ())}
        for j, config in enumerate(profile.plugin_config):
            path = configuration.place(f"profiles[{i}].pluginConfig[{j}]")
            why = f"has no effect: the profile does not enable {quoted(config.name)}"
            if config.name not in enabled:
                yield ConfigurationNote(path, why)
            elif (
                config.name in IN_TREE
                and "protection" in (config.args or {})
                and config.name not in preempting
            ):
                yield ConfigurationNote(f"{path}.args.protection", f"{why} at postFilter")


UNANSWERED: Final = 1
"""Exit status: the API server does not answer. If several statuses apply, the largest is returned."""
RIGHTS_MISSING: Final = 3
"""Exit status: a right, or the definition of an object, is missing."""
NAME_TAKEN: Final = 4
"""Exit status: another scheduler uses the lease, or places pods of the same schedulerName."""


async def check_live(
    configuration: Configuration,
    rights: Mapping[Right, str],
    kinds: Iterable[str],
    *,
    kubeconfig: str | None,
    account: Named,
    user: str,
) -> int:
    """Print the rights that are missing in a live cluster, and other schedulers there; return the exit status.

    Args:
        configuration: the configuration that is to run there.
        rights: the rights that it needs -> the reason.
        kinds: the kinds that its plugins read.
        kubeconfig: path of the kubeconfig; None for a pod's ServiceAccount.
        account: the ServiceAccount that the daemon uses.
        user: the user whose rights are checked; "" for the current user.

    Raises:
        ConfigurationError: the kubeconfig is missing or broken, or this process runs in no pod.
    """
    async with connect(kubeconfig) as connection:
        try:
            lacking = await missing_rights(connection, rights, user=user)
            _tell_rights(rights, lacking, account)
            await _tell_kinds(connection, kinds)
            has_shards = not configuration.settings.sharding.enabled or await tell_shards(
                connection, configuration.settings.leader_election.resource_name
            )
            found = [finding async for finding in LiveNames(connection, account).look(configuration)]
        except ApiError as error:
            click.echo(f"error: the API server does not answer: {error}", err=True)
            return UNANSWERED
    for finding in found:
        click.echo(finding.text, err=not finding.is_taken)
    is_taken = any(finding.is_taken for finding in found)
    if not found:
        click.echo("names: no other scheduler uses the lease or these schedulerNames")
    return NAME_TAKEN if is_taken else RIGHTS_MISSING if lacking or not has_shards else 0


async def tell_shards(connection: ApiConnection, name: str) -> bool:
    """Print the buckets of each replica; return whether the API server serves the object that has them."""
    resource = SHARD_ASSIGNMENTS
    if (resource.group, resource.version, resource.plural) not in await served_kinds(
        connection.send, [resource.group]
    ):
        click.echo(
            f"sharding: the API server does not serve {resource}: apply manifests/crds/shardassignments.yaml"
        )
        return False
    try:
        answer = await connection.send(Request("GET", resource.path(name=name)))
        held = Counter(decode(answer.body).assignment.held)
    except ApiError as error:
        if error.status not in {403, 404}:
            raise
        click.echo(
            "sharding: no replica has run yet" if error.status == 404 else f"sharding: not looked at: {error}"
        )
    except ObjectError as error:
        click.echo(f"sharding: {error}")
    else:
        for replica, buckets in sorted(held.items()):
            click.echo(f"sharding: {replica or 'nobody'} has {buckets} of {BUCKETS} buckets")
    return True


async def _tell_kinds(connection: ApiConnection, kinds: Iterable[str]) -> None:
    """Print the version of the API server, and the kinds that it does not serve in any version that plugins can read."""
    server = (await read_server_version(connection.send)).git_version
    wanted = [resource for resource in map(resource_of, sorted(kinds)) if resource.group]
    served = await served_kinds(connection.send, [resource.group for resource in wanted])
    absent = [
        str(resource)
        for resource in wanted
        if not any(
            (resource.group, version, resource.plural) in served
            for version in resource.versions or (resource.version,)
        )
    ]
    said = f"does not serve {', '.join(absent)}: plugins find none of them" if absent else "serves them all"
    click.echo(f"kinds: the API server, {server}, {said}")


def _tell_rights(rights: Mapping[Right, str], lacking: list[Right], account: Named) -> None:
    click.echo(f"rights: {len(lacking)} of {len(rights)} are missing" if lacking else "rights: complete")
    for place in sorted({right.namespace for right in lacking}):
        here = {right: rights[right] for right in lacking if right.namespace == place}
        for right, reason in here.items():
            click.echo(f"missing: {right} ({reason})")
        role = f"Role {account.name} in {place}" if place else f"ClusterRole {account.name}"
        click.echo(
            f"add these rules to the {role}, or apply the output of --rbac:\n{rules_yaml(here)}", nl=False
        )


_ACCOUNT: Final = "kube-system/custom-scheduler"
_CLUSTER: Final = "Cluster"
_DEFAULTS: Final = "the default configuration"


def _size(text: str) -> ClusterSize:
    try:
        return ClusterSize.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _named(text: str) -> Named | None:
    """Read NAMESPACE/NAME; the empty text is None."""
    namespace, slash, name = text.partition("/")
    if text and not (namespace and slash and name and "/" not in name):
        raise click.BadParameter(f"NAMESPACE/NAME is expected, was {text!r}")
    return Named(namespace, name) if text else None


@command()
@click.argument(
    "file",
    type=click.Path(allow_dash=True),
    metavar="[FILE]",
    required=False,
    help="KubeSchedulerConfiguration of any version, or Policy, as YAML or JSON, or a ConfigMap with one and its "
    "plugin files; - is standard input. Without it, the default configuration.",
)
@file_option("--config", help="The same as FILE; `run` has this flag too.")
@features_options
@option("--convert", is_flag=True, help=f"Print the configuration as {API_VERSION}, in YAML.")
@file_option(
    "--policy-config-map",
    help="The ConfigMap that algorithmSource.policy.configMap names, as `kubectl get configmap -o yaml` prints it, or the "
    "policy alone.",
)
@option(
    "--rbac",
    is_flag=True,
    help="Print the roles that the daemon needs with this configuration, and their bindings, as manifests.",
    section=_CLUSTER,
)
@option(
    "--size",
    type=_size,
    metavar="NODES[,PODS]",
    help="Print requests and limits for a cluster of this size, as a patch for kustomize.",
    section=_CLUSTER,
)
@option(
    "--cluster-autoscaler",
    is_flag=True,
    help="Print the file for `--scheduler-config-file` of Cluster Autoscaler, and warn of rules that it does not know.",
    section=_CLUSTER,
)
@option(
    "--karpenter",
    is_flag=True,
    help="Print the value of `SCHEDULER_CONFIG` for Karpenter, and warn of rules that it does not know.",
    section=_CLUSTER,
)
@option(
    "--live",
    is_flag=True,
    help="Ask the API server whether the rights exist, and whether another scheduler uses the lease or the name.",
    section=_CLUSTER,
)
@kubeconfig_option
@option(
    "--as",
    "user",
    default="",
    help="Check the rights of this user, for example system:serviceaccount:NAMESPACE:NAME; without it, your own.",
    metavar="USER",
    section=_CLUSTER,
)
@option(
    "--service-account",
    "account",
    type=_named,
    default=_ACCOUNT,
    help="The ServiceAccount that the daemon uses.",
    metavar="NAMESPACE/NAME",
    section=_CLUSTER,
)
@option(
    "--config-map",
    type=_named,
    default=_ACCOUNT,
    help="The ConfigMap that the daemon follows; '' if it reads a file.",
    metavar="NAMESPACE/NAME",
    section=_CLUSTER,
)
@option(
    "--scheduler-profiles",
    is_flag=True,
    help="The daemon also follows SchedulerProfiles; FILE has to name the plugins that they use.",
    section=_CLUSTER,
)
@option(
    "--shadow",
    is_flag=True,
    help="With --rbac or --live: the rights of `run --shadow`, which only reads.",
    section=_CLUSTER,
)
def check(
    file: str | None,
    config: Path | None,
    features: GivenFeatures,
    convert: bool,
    policy_config_map: Path | None,
    rbac: bool,
    size: ClusterSize | None,
    cluster_autoscaler: bool,
    karpenter: bool,
    live: bool,
    kubeconfig: Path | None,
    user: str,
    account: Named,
    config_map: Named | None,
    scheduler_profiles: bool,
    shadow: bool,
) -> None:
    """Check a configuration: every field, every plugin and its arguments.

    Exit status: 0 the configuration is valid; 1 the API server does not answer; 2 the configuration or a flag is
    invalid; 3 a right is missing; 4 another scheduler uses the lease or the name.
    """
    configure_logging(logging.ERROR, LogFormat.TEXT)  # the notes name the plugins that are left out
    if file is not None and config is not None:
        raise ConfigurationError([FieldError("--config", "cannot be combined with FILE")])
    asked = [
        flag
        for flag, given in (
            ("--convert", convert),
            ("--rbac", rbac),
            ("--size", size),
            ("--cluster-autoscaler", cluster_autoscaler),
            ("--karpenter", karpenter),
            ("--live", live),
        )
        if given
    ]
    if len(asked) > 1:
        raise ConfigurationError([FieldError(asked[1], f"cannot be combined with {asked[0]}")])
    if size is not None:
        sys.stdout.write(size_patch(size, account))
        return
    click.get_current_context().with_resource(watching_plugins())
    found = checked(str(config) if config else file, policy_config_map, features)
    configuration = found.configuration
    if convert:
        sys.stdout.write(converted_yaml(configuration))
        return
    if cluster_autoscaler or karpenter:
        autoscaler = CLUSTER_AUTOSCALER if cluster_autoscaler else KARPENTER
        source = configuration.source or _DEFAULTS
        _warn(source, unknown_rules(autoscaler, configuration, found.profiles))
        sys.stdout.write(settings_yaml(autoscaler, configuration, found.profiles))
        return
    if not rbac and not live:
        click.echo(_verdict(configuration))
        return
    rights = found.rights(config_map, scheduler_profiles=scheduler_profiles, shadow=shadow)
    if rbac:
        sys.stdout.write(roles_yaml(rights, account))
        return
    path = str(kubeconfig) if kubeconfig else None
    kinds = needs_of(found.profiles).kinds
    sys.exit(
        run_in_loop(check_live(configuration, rights, kinds, kubeconfig=path, account=account, user=user))
    )


def _verdict(configuration: Configuration) -> str:
    names = ", ".join(profile.scheduler_name for profile in configuration.settings.profiles)
    verdict = f"{configuration.source or _DEFAULTS}: valid, profiles {names}"
    if configuration.api_version == API_VERSION:
        return verdict
    return f"{verdict}; apiVersion {configuration.api_version}, --convert prints it as {API_VERSION}"
