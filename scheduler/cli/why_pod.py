"""Why a pod waits: the leading daemon's answer, or an evaluation in this process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from scheduler.cli.why_output import show_pod
from scheduler.daemon.app.leader import NoLeaderError, at_url, leader
from scheduler.errors import ApiError, ConfigurationError, FieldError, SchedulerError
from scheduler.kube.client.resources import PODS
from scheduler.kube.http.request import Request
from scheduler.objects.decode import decode_pod
from scheduler.tools.whatif.evaluation import evaluate_each
from scheduler.tools.whatif.pending_by_cause import said

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.cli.why_lookup import Lookup
    from scheduler.daemon.app.rights import Named
    from scheduler.kube.client.connection import ApiConnection
    from scheduler.objects.pod import PodInfo

_NOT_FOUND: Final = 404
_ASK_AGAIN_SECONDS: Final = 2.0
_DECIDE_AGAIN_SECONDS: Final = 10.0
"""Longer, because every evaluation lists all nodes and pods."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The daemon to ask, and the token to send.

    Attributes:
        lease: the lease that it holds.
        server: URL of its HTTP endpoints; None for a forwarded port.
        token_file: file with the token; None for the token of `app.leader`.
    """

    lease: Named
    server: str | None
    token_file: Path | None


class NoSuchPodError(SchedulerError):
    """There is no pod of that name."""


async def look_at_pod(look: Lookup, name: str, ask: Ask | None, *, node: str | None, watch: bool) -> None:
    """Show why a pod waits, or its node; with `watch` until it is on a node or deleted.

    Args:
        look: the cluster.
        name: name of the pod, or `namespace/name`.
        ask: the daemon; None to ask none.
        node: show only this node.
        watch: whether to go on until the pod is on a node.

    Raises:
        SchedulerError: the cluster cannot be read, or there is no such pod.
    """
    token = token_of(ask)
    async with look.connect() as (connection, namespace):
        key = name if "/" in name else f"{namespace}/{name}"
        shown: object = None
        noted = ""
        while True:
            try:
                pod = await _read(connection, key)
            except NoSuchPodError:
                if shown is None:
                    raise
                click.echo(f"pod {key} is deleted", err=True)
                return
            answer, note = await _asked(connection, ask, token, key)
            if note not in {"", noted}:
                click.echo(f"no daemon answers: {note}", err=True)
            noted = note
            answer = {"said": said(pod), **(answer or await _decided(look, connection, pod))}
            if _without_times(answer) != shown:
                shown = _without_times(answer)
                show_pod(answer, node=node, as_json=look.as_json, all_nodes=look.all_nodes)
            if not watch or pod.node_name or pod.is_terminal:
                return
            await asyncio.sleep(_ASK_AGAIN_SECONDS if answer["history"] else _DECIDE_AGAIN_SECONDS)


def token_of(ask: Ask | None) -> str:
    """Return the token for the daemon; "" for the token of `app.leader`."""
    if ask is None or ask.token_file is None:
        return ""
    try:
        return ask.token_file.read_text(encoding="utf-8").strip()
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise ConfigurationError([FieldError("", problem)], str(ask.token_file)) from error


async def _read(connection: ApiConnection, key: str) -> PodInfo:
    try:
        answer = await connection.send(Request("GET", PODS.path(*key.split("/", 1))))
    except ApiError as error:
        if error.status == _NOT_FOUND:
            raise NoSuchPodError(f"there is no pod {key}") from error
        raise
    return decode_pod(answer.body)


async def _asked(
    connection: ApiConnection, ask: Ask | None, token: str, key: str
) -> tuple[dict[str, Any] | None, str]:
    """Return the leading daemon's answer about a pod, if it knows the pod, or why no daemon answers."""
    if ask is None:
        return None, ""
    reached = at_url(ask.server, token) if ask.server is not None else leader(connection, ask.lease, token)
    try:
        async with reached as daemon:
            answer = await daemon.explain(key)
            if answer is None or not (answer["attempt"] or answer["history"] or answer.get("now")):
                return None, ""
            return {"decidedBy": daemon.name, "now": None, **answer}, ""
    except NoLeaderError as error:
        return None, str(error)


async def _decided(look: Lookup, connection: ApiConnection, pod: PodInfo) -> dict[str, Any]:
    """Evaluate a pod in this process, and return it in the form of a daemon's answer; an ended or terminating pod is not evaluated."""
    answer: dict[str, Any] = {
        "decidedBy": None,
        "pod": pod.key,
        "node": pod.node_name or None,
        "place": None,
        "history": [],
        "schedulingGates": [gate.name for gate in pod.pod.spec.scheduling_gates],
        "attempt": None,
        "now": None,
    }
    if pod.is_terminal or pod.is_terminating:
        return answer
    scheduler, _ = await look.scheduler(connection, [pod.scheduler_name])
    (judged,) = await asyncio.to_thread(lambda: [*evaluate_each(scheduler, [pod])])
    when = "now" if pod.node_name else "attempt"
    return {**answer, "decidedBy": look.plugins, when: judged.explanation}


def _without_times(answer: dict[str, Any]) -> object:
    """Return the parts of an answer that make it new; the times differ a little each time."""
    history = [{key: value for key, value in move.items() if key != "at"} for move in answer["history"]]
    return {**answer, "history": history}
