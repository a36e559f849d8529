"""Why a group waits: the leading daemon's answer, or an evaluation in this process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from scheduler.cli.why_output import console_for_people, write_json
from scheduler.cli.why_pod import token_of
from scheduler.daemon.app.leader import NoLeaderError, at_url, leader
from scheduler.errors import SchedulerError
from scheduler.kube.client.resources import PODS
from scheduler.objects.decode import decode_pod
from scheduler.tools.whatif.evaluation import is_pending
from scheduler.tools.whatif.group_evaluation import GroupEvaluator
from scheduler.tools.whatif.group_table import show_group
from scheduler.tools.whatif.live_cluster import read_objects

if TYPE_CHECKING:
    from scheduler.cli.why_lookup import Lookup
    from scheduler.cli.why_pod import Ask
    from scheduler.kube.client.connection import ApiConnection


class NoSuchGroupError(SchedulerError):
    """There is no pending pod of a group of that name."""


async def look_at_group(look: Lookup, name: str, ask: Ask | None) -> None:
    """Show why a group waits.

    Args:
        look: the cluster.
        name: name of the group, or `namespace/name`.
        ask: the daemon; None to ask none.

    Raises:
        SchedulerError: the cluster cannot be read, or there is no pending pod of the group.
    """
    token = token_of(ask)
    async with look.connect() as (connection, namespace):
        key = name if "/" in name else f"{namespace}/{name}"
        found, who = await _asked(connection, ask, token, key)
        if found is None:
            found, who = await _decided(look, connection, key), None
    if look.as_json:
        write_json({"decidedBy": who or look.plugins, "groups": found})
        return
    console = console_for_people()
    description = f"From {who}:" if who else f"Evaluated now with {look.plugins}:"
    console.print(Text(description, style="italic"))
    for explanation in found:
        show_group(console, explanation, all_nodes=look.all_nodes)


async def _asked(
    connection: ApiConnection, ask: Ask | None, token: str, key: str
) -> tuple[list[dict[str, Any]] | None, str | None]:
    """Return the leading daemon's answer about a group and its name; None for both if it does not know the group."""
    if ask is None:
        return None, None
    reached = at_url(ask.server, token) if ask.server is not None else leader(connection, ask.lease, token)
    try:
        async with reached as daemon:
            answer = await daemon.explain_group(key)
            return (None, None) if answer is None else (answer["groups"], daemon.name)
    except NoLeaderError as error:
        click.echo(f"no daemon answers: {error}", err=True)
        return None, None


async def _decided(look: Lookup, connection: ApiConnection, key: str) -> list[dict[str, Any]]:
    namespace = key.partition("/")[0]
    pods = await read_objects(connection, PODS, decode_pod, namespace=namespace)
    names = [
        pod.scheduler_name
        for pod in pods.values()
        if is_pending(pod) and pod.group is not None and pod.group.key == key
    ]
    if not names:
        raise NoSuchGroupError(f"there is no pending pod of group {key}")
    scheduler, _ = await look.scheduler(connection, names)

    def judged() -> list[dict[str, Any]]:
        judge = GroupEvaluator(scheduler)
        return [judge.judge(each).explanation for each in judge.named(key)]

    return await asyncio.to_thread(judged)
