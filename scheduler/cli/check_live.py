"""The part of `custom-scheduler check` that asks a live cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from scheduler.app.live_names import LiveNames
from scheduler.app.live_rights import missing_rights
from scheduler.app.roles import rules_yaml
from scheduler.client.connect import connect
from scheduler.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.app.rights import Named, Right
    from scheduler.configuration.load import Configuration

UNANSWERED: Final = 1
"""Exit status: the API server cannot be asked. The larger of several is the one that a process ends with."""
RIGHTS_MISSING: Final = 3
"""Exit status: a right is missing."""
NAME_TAKEN: Final = 4
"""Exit status: another scheduler has the lease, or places pods of the same schedulerName."""


async def check_live(
    configuration: Configuration,
    rights: Mapping[Right, str],
    *,
    kubeconfig: str | None,
    account: Named,
    user: str,
) -> int:
    """Print what a live cluster lacks for a configuration, and who else is at work; return the exit status.

    Args:
        configuration: that is to run there.
        rights: that it takes, and what for.
        kubeconfig: path of the file; None for a pod's ServiceAccount.
        account: what it runs as there.
        user: whose rights are asked for; "" for who asks.

    Raises:
        ConfigurationError: the kubeconfig is missing or broken, or this is no pod.
    """
    async with connect(kubeconfig) as connection:
        try:
            lacking = await missing_rights(connection, rights, user=user)
            _tell_rights(rights, lacking, account)
            found = [told async for told in LiveNames(connection, account).look(configuration)]
        except ApiError as error:
            click.echo(f"error: the API server cannot be asked: {error}", err=True)
            return UNANSWERED
    for told in found:
        click.echo(told.text, err=not told.is_taken)
    is_taken = any(told.is_taken for told in found)
    if not found:
        click.echo("names: nobody else has the lease or places pods of these schedulerNames")
    return NAME_TAKEN if is_taken else RIGHTS_MISSING if lacking else 0


def _tell_rights(rights: Mapping[Right, str], lacking: list[Right], account: Named) -> None:
    click.echo(f"rights: {len(lacking)} of {len(rights)} are missing" if lacking else "rights: all are there")
    for place in sorted({right.namespace for right in lacking}):
        here = {right: rights[right] for right in lacking if right.namespace == place}
        for right, reason in here.items():
            click.echo(f"missing: {right} ({reason})")
        role = f"Role {account.name} in {place}" if place else f"ClusterRole {account.name}"
        click.echo(
            f"add to the rules of the {role}, or apply all that --rbac prints:\n{rules_yaml(here)}", nl=False
        )
