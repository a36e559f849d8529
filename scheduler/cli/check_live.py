"""The part of `custom-scheduler check` that reads a live cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from scheduler.daemon.app.live_names import LiveNames
from scheduler.daemon.app.live_rights import missing_rights
from scheduler.daemon.app.roles import rules_yaml
from scheduler.errors import ApiError
from scheduler.kube.client.connect import connect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.rights import Named, Right

UNANSWERED: Final = 1
"""Exit status: the API server does not answer. If several statuses apply, the largest is returned."""
RIGHTS_MISSING: Final = 3
"""Exit status: a right is missing."""
NAME_TAKEN: Final = 4
"""Exit status: another scheduler uses the lease, or places pods of the same schedulerName."""


async def check_live(
    configuration: Configuration,
    rights: Mapping[Right, str],
    *,
    kubeconfig: str | None,
    account: Named,
    user: str,
) -> int:
    """Print the rights that are missing in a live cluster, and other schedulers there; return the exit status.

    Args:
        configuration: the configuration that is to run there.
        rights: the rights that it needs -> the reason.
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
            found = [told async for told in LiveNames(connection, account).look(configuration)]
        except ApiError as error:
            click.echo(f"error: the API server does not answer: {error}", err=True)
            return UNANSWERED
    for told in found:
        click.echo(told.text, err=not told.is_taken)
    is_taken = any(told.is_taken for told in found)
    if not found:
        click.echo("names: no other scheduler uses the lease or these schedulerNames")
    return NAME_TAKEN if is_taken else RIGHTS_MISSING if lacking else 0


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
