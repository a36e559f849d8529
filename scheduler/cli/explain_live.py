"""Requests the explanation of a pod from a running daemon, and shows it."""

from __future__ import annotations

import ssl
import sys
import urllib.error
import urllib.request
from http.client import HTTPException, InvalidURL
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from scheduler.errors import SchedulerError
from scheduler.urls import shown_text, shown_url

if TYPE_CHECKING:
    from pathlib import Path

_PATIENCE_SECONDS = 10.0
_OUTSIDE = "outside"
GROUPS = "groups"
"""First segment of the path of a group."""


class AskingError(SchedulerError):
    """The daemon does not answer, or does not know the pod."""


def ask(server: str, key: str, *, token_file: Path | None, skip_tls_verify: bool) -> dict[str, Any]:
    """Return a daemon's `/debug/explain` answer about a pod or group.

    Args:
        server: URL of the daemon's HTTP endpoints.
        key: `namespace/name` of a pod, or `groups/namespace/name`.
        token_file: file with the bearer token; None for none.
        skip_tls_verify: accept any certificate, for example a self-signed one.

    Raises:
        AskingError: no answer, or not a valid one; the message names the URL.
    """
    url = f"{server.rstrip('/')}/debug/explain/{quote(key)}"
    if not url.startswith(("http://", "https://")):
        raise AskingError(f"--server must begin with http:// or https://, was {shown_url(server)}")
    headers = {}
    try:
        if token_file is not None:
            headers["Authorization"] = f"Bearer {token_file.read_text().strip()}"
        context = ssl.create_default_context()
        if skip_tls_verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - http or https, see above
        with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS, context=context) as answer:  # noqa: S310
            explanation: dict[str, Any] = msgspec.json.decode(answer.read())
    except urllib.error.HTTPError as error:
        said = error.read().decode(errors="replace").strip()
        raise AskingError(f"GET {shown_url(url)}: {error.code} {error.reason}: {said}") from error
    except InvalidURL:
        # Its own words repeat a part of the URL, with a password perhaps.
        problem = f"--server: {shown_url(server)}: its host or port cannot be part of a URL"
        raise AskingError(problem) from None
    except (OSError, HTTPException, msgspec.DecodeError) as error:
        raise AskingError(f"GET {shown_url(url)}: {shown_text(str(error), url)}") from error
    return explanation


def show_live(answer: dict[str, Any], *, as_json: bool, all_nodes: bool) -> None:
    """Print an answer as JSON or as text."""
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n")
        return
    from rich.console import Console  # not for JSON, where it would be half of the start
    from rich.text import Text

    from scheduler.cli.shadow_lines import disagreement
    from scheduler.tools.whatif.explanation_text import show
    from scheduler.tools.whatif.group_table import member_of
    from scheduler.tools.whatif.text_lines import filled

    console = Console(highlight=False)
    console.print(Text(f"{answer['pod']} {_where(answer)}"), style="bold", soft_wrap=True)
    for move in answer["history"]:
        line = f"{move['at']}  {move['from']} -> {move['to']}: {move['why']}"
        console.print(Text(filled(line, console.width, indent=2, hanging=4)), style="dim", soft_wrap=True)
    if group := answer.get("group"):  # older daemons omit the field
        console.print(Text(filled(member_of(group), console.width, hanging=2)), soft_wrap=True)
    for found in answer.get("shadow", ()):
        console.print(Text(filled(disagreement(found), console.width, hanging=2)), soft_wrap=True)
    attempt = answer["attempt"]
    if gates := answer.get(
        "schedulingGates"
    ):  # the history has only past gates; older daemons omit the field
        console.print(f"waiting for scheduling gates: [{' '.join(gates)}]", markup=False, soft_wrap=True)
    elif attempt is None:
        console.print("No attempt yet, or it is no longer in memory.")
    else:
        console.print(f"Attempt {attempt['number']} at {attempt['at']}")
        show(console, attempt, all_nodes=all_nodes, drawn=True)
    if answer["now"] is not None:
        show(console, answer["now"], all_nodes=all_nodes)


def _where(answer: dict[str, Any]) -> str:
    if answer["node"]:
        return f"is on node {answer['node']}"
    return "is not in the queue" if answer["place"] == _OUTSIDE else f"is in the queue ({answer['place']})"
