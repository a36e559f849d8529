"""`custom-scheduler check`: validates and converts a configuration, and prints the access rights it needs."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final

import click

from scheduler.cli.check_live import check_live
from scheduler.cli.checked import checked
from scheduler.cli.feature_gates import feature_gates_option
from scheduler.cli.options import command, file_option, option
from scheduler.cli.process import kubeconfig_option, run_in_loop
from scheduler.configuration.types import API_VERSION
from scheduler.configuration.write import converted_yaml
from scheduler.daemon.app.plugin_watch import watching_plugins
from scheduler.daemon.app.rights import Named
from scheduler.daemon.app.roles import roles_yaml
from scheduler.daemon.app.size import ClusterSize, size_patch
from scheduler.daemon.logs import LogFormat, configure_logging
from scheduler.errors import ConfigurationError, FieldError

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.configuration.load import Configuration

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
@feature_gates_option
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
    feature_gates: dict[str, bool],
    convert: bool,
    policy_config_map: Path | None,
    rbac: bool,
    size: ClusterSize | None,
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
        for flag, given in (("--convert", convert), ("--rbac", rbac), ("--size", size), ("--live", live))
        if given
    ]
    if len(asked) > 1:
        raise ConfigurationError([FieldError(asked[1], f"cannot be combined with {asked[0]}")])
    if size is not None:
        sys.stdout.write(size_patch(size, account))
        return
    click.get_current_context().with_resource(watching_plugins())
    found = checked(str(config) if config else file, policy_config_map, feature_gates)
    configuration = found.configuration
    if convert:
        sys.stdout.write(converted_yaml(configuration))
        return
    if not rbac and not live:
        click.echo(_verdict(configuration))
        return
    rights = found.rights(config_map, scheduler_profiles=scheduler_profiles, shadow=shadow)
    if rbac:
        sys.stdout.write(roles_yaml(rights, account))
        return
    path = str(kubeconfig) if kubeconfig else None
    sys.exit(run_in_loop(check_live(configuration, rights, kubeconfig=path, account=account, user=user)))


def _verdict(configuration: Configuration) -> str:
    names = ", ".join(profile.scheduler_name for profile in configuration.settings.profiles)
    verdict = f"{configuration.source or _DEFAULTS}: valid, profiles {names}"
    if configuration.api_version == API_VERSION:
        return verdict
    return f"{verdict}; apiVersion {configuration.api_version}, --convert prints it as {API_VERSION}"
