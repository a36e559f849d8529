"""`custom-scheduler check`: is a configuration right, what does an old one look like today, and what does it take."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final

import click

from scheduler.app.plugin_watch import watching_plugins
from scheduler.app.rights import Named
from scheduler.app.roles import roles_yaml
from scheduler.app.size import ClusterSize, size_patch
from scheduler.cli.check_live import check_live
from scheduler.cli.checked import checked
from scheduler.cli.feature_gates import feature_gates_option
from scheduler.cli.options import command, file_option, option
from scheduler.cli.process import kubeconfig_option, run_in_loop
from scheduler.configuration.types import API_VERSION
from scheduler.configuration.write import converted_yaml
from scheduler.errors import ConfigurationError, FieldError
from scheduler.logs import LogFormat, configure_logging

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
    """Read NAMESPACE/NAME; nothing is nothing."""
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
    help="KubeSchedulerConfiguration of any version, or Policy, as YAML or JSON, or a ConfigMap that holds one beside its "
    "plugin files; - is standard input. Without it, the default configuration.",
)
@file_option("--config", help="The same as FILE, by the name that `run` has for it.")
@feature_gates_option
@option("--convert", is_flag=True, help=f"Print what the file says as {API_VERSION}, in YAML.")
@file_option(
    "--policy-config-map",
    help="The ConfigMap that algorithmSource.policy.configMap names, as `kubectl get configmap -o yaml` prints it, or the "
    "policy alone.",
)
@option(
    "--rbac",
    is_flag=True,
    help="Print the roles that the daemon needs with this configuration, and their bindings, to be applied.",
    section=_CLUSTER,
)
@option(
    "--size",
    type=_size,
    metavar="NODES[,PODS]",
    help="Print which requests and limits fit a cluster of that size, as a patch for kustomize.",
    section=_CLUSTER,
)
@option(
    "--live",
    is_flag=True,
    help="Ask the API server whether the rights are there, and whether another scheduler has the lease or the name.",
    section=_CLUSTER,
)
@kubeconfig_option
@option(
    "--as",
    "user",
    default="",
    help="Whose rights are asked for, as system:serviceaccount:NAMESPACE:NAME; without it, one's own.",
    metavar="USER",
    section=_CLUSTER,
)
@option(
    "--service-account",
    "account",
    type=_named,
    default=_ACCOUNT,
    help="What the daemon runs as.",
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
    help="The daemon follows SchedulerProfiles as well; which plugins those have is for FILE to say.",
    section=_CLUSTER,
)
@option(
    "--shadow",
    is_flag=True,
    help="With --rbac or --live: what `run --shadow` takes, which only reads.",
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
    """Say whether a configuration can be run: every field, every plugin and its arguments.

    Exit status: 0 it can; 1 the API server cannot be asked; 2 the configuration or a flag is at fault; 3 a right is
    missing; 4 another scheduler has the lease or the name.
    """
    configure_logging(logging.ERROR, LogFormat.TEXT)  # what is left out is told with the notes
    if file is not None and config is not None:
        raise ConfigurationError([FieldError("--config", "cannot be given beside FILE")])
    asked = [
        flag
        for flag, given in (("--convert", convert), ("--rbac", rbac), ("--size", size), ("--live", live))
        if given
    ]
    if len(asked) > 1:
        raise ConfigurationError([FieldError(asked[1], f"cannot be given beside {asked[0]}")])
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
    verdict = f"{configuration.source or _DEFAULTS}: can be run, with the profiles {names}"
    if configuration.api_version == API_VERSION:
        return verdict
    return f"{verdict}; it is of {configuration.api_version}, --convert prints it as {API_VERSION}"
