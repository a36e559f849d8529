"""Explanations for people: the verdict, the nodes by rank, and the refused ones by reason."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from scheduler.cycle.explanation import Explanation

_STYLES = {"schedulable": "green", "unschedulable": "red", "gated": "yellow", "error": "red"}
_RANKED_SHOWN = 10
_NAMES_SHOWN = 3
_DETAILS_SHOWN = 5
_NOT_ANY_MORE = "nothing is in the way any more; it was when this was decided"
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[^A-Z]+")


def show(console: Console, explanation: Explanation, *, all_nodes: bool) -> None:
    """Print one explanation, with every node by name or just the first few of each sort."""
    nodes = explanation["nodes"]
    feasible = {name: verdict for name, verdict in nodes.items() if verdict["feasible"]}
    refused = {name: verdict for name, verdict in nodes.items() if not verdict["feasible"]}
    console.print(_verdict(explanation, len(feasible), len(nodes)))
    if "wakes" in explanation:
        console.print("The event wakes it." if explanation["wakes"] else "It sleeps on after the event.")
    if explanation["message"]:
        console.print(Text(explanation["message"]), soft_wrap=True)
    if explanation["preFilter"]:
        plugin = explanation["preFilter"]["plugin"]
        console.print(Text(f"{plugin} refuses the pod, whatever the node."))
        _show_details(console, explanation["preFilter"].get("details", ()))
    if "preFilterNodes" in explanation:
        names = _some(explanation["preFilterNodes"], all_nodes=all_nodes)
        console.print(Text(f"Only these nodes come into question: {names}"), soft_wrap=True)
    if any("total" in verdict for verdict in feasible.values()):
        _show_ranking(console, feasible, explanation.get("chosen"), all_nodes=all_nodes)
    elif feasible:
        console.print(Text(f"Not ranked: {_some(list(feasible), all_nodes=all_nodes)}"), soft_wrap=True)
    if refused:
        console.print(_refusals(refused, all_nodes=all_nodes))
        _show_all_details(console, refused, all_nodes=all_nodes)
    console.print()


def _verdict(explanation: Explanation, feasible: int, judged: int) -> Text:
    result = explanation["result"]
    text = Text.assemble((explanation["pod"], "bold"), ": ", (result, f"bold {_STYLES[result]}"))
    if judged:
        text.append(f", {feasible} of {judged} nodes can run it")
    if explanation.get("chosen"):
        ties = len(explanation.get("best", ()))  # what a daemon chose, it chose at random
        text.append(f", goes to {explanation['chosen']}")
        text.append(f", the first of {ties} with the same total" if ties > 1 else "")
    return text


def _show_ranking(console: Console, feasible: dict[str, Any], chosen: str | None, *, all_nodes: bool) -> None:
    ranked = sorted(feasible.items(), key=lambda item: (-item[1]["total"], item[0]))
    plugins = list(ranked[0][1].get("scores", {}))
    table = Table(title="Nodes by rank", title_justify="left", title_style="italic")
    table.add_column("Node", no_wrap=True)
    table.add_column("Total", justify="right")
    for plugin in plugins:
        table.add_column(Text("\n".join(_WORDS.findall(plugin))), justify="right")
    shown = ranked if all_nodes else ranked[:_RANKED_SHOWN]
    for name, verdict in shown:
        scores = (str(verdict["scores"][plugin]) for plugin in plugins)
        table.add_row(
            Text(name), str(verdict["total"]), *scores, style="bold green" if name == chosen else ""
        )
    console.print(table)
    if len(ranked) > len(shown):
        console.print(Text(f"and {len(ranked) - len(shown)} more: --all-nodes shows them", style="dim"))


def _refusals(refused: dict[str, Any], *, all_nodes: bool) -> Table:
    groups: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for name, verdict in refused.items():
        key = (verdict["plugin"], verdict["code"], tuple(verdict["reasons"]))
        groups.setdefault(key, []).append(name)
    table = Table(title="Nodes refused", title_justify="left", title_style="italic")
    for heading in ("Plugin", "Reason", "Code"):
        table.add_column(heading, overflow="fold")
    table.add_column("Nodes", justify="right")
    table.add_column("", overflow="fold")
    for (plugin, code, reasons), names in sorted(groups.items(), key=lambda item: -len(item[1])):
        which = Text(_some(names, all_nodes=all_nodes))
        table.add_row(Text(plugin), Text(", ".join(reasons)), code, str(len(names)), which)
    return table


def _show_all_details(console: Console, refused: dict[str, Any], *, all_nodes: bool) -> None:
    """Tell of nodes what plugins say of them, those together of which they say the same."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name, verdict in refused.items():
        if "details" in verdict:
            groups.setdefault((verdict["plugin"], tuple(verdict["details"])), []).append(name)
    shown = list(groups.items())[: None if all_nodes else _DETAILS_SHOWN]
    for (plugin, details), names in shown:
        which = _some(names, all_nodes=all_nodes)
        console.print(Text.assemble((f"{plugin} on {which}:", "bold")), soft_wrap=True)
        _show_details(console, details or (_NOT_ANY_MORE,))
    if len(groups) > len(shown):
        told = f"and more of {len(groups) - len(shown)} other kinds of nodes: --all-nodes shows it"
        console.print(Text(told, style="dim"))


def _show_details(console: Console, details: Iterable[str]) -> None:
    for detail in details:
        console.print(Text(f"  {detail}"), soft_wrap=True)


def _some(names: Sequence[str], *, all_nodes: bool) -> str:
    shown = names if all_nodes else names[:_NAMES_SHOWN]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
