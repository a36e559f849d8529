"""Requests the explanation of a pod from a running daemon, and shows it with the disagreements of a shadow."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.cli.process import run_in_loop
from scheduler.daemon.app.leader import NoLeaderError, at_url
from scheduler.urls import shown_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


def disagreement(found: Mapping[str, Any]) -> str:
    """Return both choices and, where the scores differ, both scores by plugin: theirs, then ours."""
    theirs, ours = found.get("theirs", {}), found.get("ours", {})
    return "; ".join(
        [
            f"{found['at']} {found['profile']}: {found['decision']}, {found['cause']}",
            *_choice("theirs", theirs),
            *_choice("ours", ours),
            *([found["message"]] if "message" in found else []),
            *_differences(theirs.get("scores", {}), ours.get("scores", {})),
        ]
    )


def _choice(whose: str, choice: Mapping[str, Any]) -> Iterator[str]:
    if not choice:
        return
    about = [f"{choice['total']} total score"] if "total" in choice else []
    about += [f"one of {choice['ties']} equal nodes"] if choice.get("ties", 1) > 1 else []
    about += [", ".join(choice["reasons"])] if "reasons" in choice else []
    about += [f"evicting {', '.join(choice['victims'])}"] if choice.get("victims") else []
    description = f" ({', '.join(about)})" if about else ""
    yield f"{whose} {choice['node']}{description}"


def _differences(theirs: Mapping[str, int], ours: Mapping[str, int]) -> Iterator[str]:
    for plugin in theirs:
        if theirs[plugin] != ours.get(plugin):
            yield f"{plugin} {theirs[plugin]} vs {ours.get(plugin)}"


_OUTSIDE = "outside"


def ask(
    server: str, pod: str | None, group: str | None, *, token_file: Path | None, skip_tls_verify: bool
) -> dict[str, Any]:
    """Return a daemon's `/debug/explain` answer about a pod or a group.

    Args:
        server: URL of the daemon's HTTP endpoints.
        pod: `namespace/name` of a pod; None for a group.
        group: `namespace/name` of a group.
        token_file: file with the bearer token; None for none.
        skip_tls_verify: accept any certificate, for example a self-signed one.

    Raises:
        NoLeaderError: no answer, not a valid one, or the pod is not known; the message names the server.
    """
    try:
        token = "" if token_file is None else token_file.read_text().strip()
    except OSError as error:
        raise NoLeaderError(str(error)) from error

    async def explanation() -> dict[str, Any] | None:
        async with at_url(server, token, verifies=not skip_tls_verify) as daemon:
            return await (daemon.explain(pod) if pod is not None else daemon.explain_group(group or ""))

    found = run_in_loop(explanation())
    if found is None:
        unknown = f"group {group}" if pod is None else f"pod {pod}"
        raise NoLeaderError(f"{shown_url(server)}: {unknown} is unknown here")
    return found


def show_live(answer: dict[str, Any], *, as_json: bool, all_nodes: bool, source: str = "") -> None:
    """Print an answer as JSON or as text: the verdict, the source, the reasons, and then the history in the queue."""
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n")
        return
    from rich.console import Console  # not for JSON, where it would be half of the start
    from rich.text import Text

    from scheduler.tools.whatif.explanation_text import filled, member_of, show, show_reasons, show_verdict

    console = Console(highlight=False)
    show_verdict(console, answer)
    if source:
        console.print(Text(source, style="italic"), soft_wrap=True)
    console.print(Text(f"{answer['pod']} {_where(answer)}"), soft_wrap=True)
    if group := answer.get("group"):
        console.print(Text(filled(member_of(group), console.width, hanging=2)), soft_wrap=True)
    for found in answer.get("shadow", ()):
        console.print(Text(filled(disagreement(found), console.width, hanging=2)), soft_wrap=True)
    attempt = answer["attempt"]
    if attempt is None:
        console.print("No attempt yet, or it is no longer in memory.")
    elif not answer["schedulingGates"]:
        console.print(f"Attempt {attempt['number']} at {attempt['at']}")
        is_new = answer["verdict"] != attempt["verdict"]
        (show if is_new else show_reasons)(console, attempt, all_nodes=all_nodes, drawn=True)
    if (now := answer["now"]) is not None:
        is_new = answer["verdict"] != now["verdict"]
        (show if is_new else show_reasons)(console, now, all_nodes=all_nodes)
    if answer["history"]:
        console.print(Text("History in the queue:"), style="dim")
    for move in answer["history"]:
        line = f"{move['at']}  {move['from']} -> {move['to']}: {move['why']}"
        console.print(Text(filled(line, console.width, indent=2, hanging=4)), style="dim", soft_wrap=True)


def _where(answer: dict[str, Any]) -> str:
    if answer["node"]:
        waits = "" if answer["place"] == _OUTSIDE else f", and waits for its resize ({answer['place']})"
        return f"is on node {answer['node']}{waits}"
    return "is not in the queue" if answer["place"] == _OUTSIDE else f"is in the queue ({answer['place']})"
