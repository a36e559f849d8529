"""Explanations as text: the result, the feasible nodes by rank, and the rejected nodes by reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from scheduler.tools.whatif.group_table import member_of
from scheduler.tools.whatif.preemption_text import preemption_lines
from scheduler.tools.whatif.ranking_table import ranking
from scheduler.tools.whatif.rejections_text import detailed, refusals
from scheduler.tools.whatif.text_lines import filled, some

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from scheduler.engine.cycle.explanation import Explanation

_STYLES = {"schedulable": "green", "unschedulable": "red", "gated": "yellow", "error": "red"}
_NAMES_SHOWN = 3


def show(console: Console, explanation: Explanation, *, all_nodes: bool, drawn: bool = False) -> None:
    """Print an explanation, with all nodes, or only the first ones of each kind.

    Args:
        console: the console.
        explanation: the explanation, from `judging` or a daemon.
        all_nodes: whether to show all nodes.
        drawn: whether the chosen node was drawn among the best ones, as a daemon does.
    """
    width = console.width
    nodes = explanation["nodes"]
    feasible = {name: verdict for name, verdict in nodes.items() if verdict["feasible"]}
    refused = {name: verdict for name, verdict in nodes.items() if not verdict["feasible"]}
    ranked = {name: verdict for name, verdict in feasible.items() if "total" in verdict}
    if "node" in explanation:
        where = f"{explanation['pod']} is on node {explanation['node']}; evaluated as if it were pending:"
        _print(console, [filled(where, width, hanging=2)])
    # One line, so that it can be searched; a terminal would break it within words.
    console.print(_verdict(explanation, len(feasible)), soft_wrap=not console.is_terminal)
    if "group" in explanation:
        _print(console, [filled(member_of(explanation["group"]), width, hanging=2)])
    if "wakes" in explanation:
        console.print(f"The event {'requeues' if explanation['wakes'] else 'does not requeue'} it.")
    if explanation["message"]:
        console.print(Text(explanation["message"]), soft_wrap=not console.is_terminal)
    goes = _goes(explanation, drawn=drawn)
    sentences = [
        *([goes] if goes else ()),
        *_where_it_is(explanation),
        *preemption_lines(explanation, all_nodes=all_nodes),
        *_left_out(explanation, all_nodes=all_nodes),
    ]
    _print(console, [filled(each, width, hanging=2) for each in sentences])
    if explanation["preFilter"]:
        details = explanation["preFilter"].get("details", ())
        description = (
            f"{explanation['preFilter']['plugin']} rejects the pod on every node{':' if details else '.'}"
        )
        _print(console, [filled(description, width), *detailed(details, width, 2)])
    chosen = explanation.get("chosen")
    if ranked:
        for line, name in ranking(ranked, explanation.get("weights", {}), width, all_nodes=all_nodes):
            style = "bold green" if name and name == chosen else "bold" if not name else ""
            console.print(Text(line, style=style), soft_wrap=True)
    _print(console, _not_ranked(feasible, ranked, chosen, width, all_nodes=all_nodes))
    if refused:
        console.print(Text("Rejected nodes:", style="bold"))
        _print(console, refusals(refused, width, all_nodes=all_nodes))
    console.print()


def _print(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def _verdict(explanation: Explanation, feasible: int) -> Text:
    result, judged = explanation["result"], len(explanation["nodes"])
    text = Text.assemble((explanation["pod"], "bold"), ": ", (result, f"bold {_STYLES[result]}"))
    if judged:
        which = "examined nodes" if "notExamined" in explanation else "nodes"
        counted = f"{feasible} of {judged}"
        text.append(f", {counted} {which} fit" if feasible else f", no node fits ({counted} {which})")
    return text


def _goes(explanation: Explanation, *, drawn: bool) -> str:
    """Return the chosen node, and how it was chosen among equal ones."""
    if "group" in explanation and explanation["result"] != "schedulable":
        return ""  # a node fits, but the pod waits for the others of its group
    chosen, best = explanation.get("chosen"), explanation.get("best", [])
    if chosen is None and len(best) > 1:
        return f"Chosen node: one of {some(best, _NAMES_SHOWN)}, at random among the {len(best)} with the highest total."
    if chosen is None:
        return f"Chosen node: {best[0]}." if best else ""
    if len(best) > 1:
        how = "at random among" if drawn else "the first of"
        return f"Chosen node: {chosen}, {how} the {len(best)} with the highest total."
    if "total" not in explanation["nodes"].get(chosen, {}) and explanation.get("nominatedNodeName") == chosen:
        return f"Chosen node: {chosen}, the nominated node."
    return f"Chosen node: {chosen}."


def _where_it_is(explanation: Explanation) -> Iterable[str]:
    """Compare the current node of a pod on a node with the result."""
    name, nodes = explanation.get("node"), explanation["nodes"]
    verdict = nodes.get(name)
    if verdict is None:
        return
    if not verdict["feasible"]:
        yield f"Its current node {name} would be rejected by {verdict['plugin']}: {', '.join(verdict['reasons'])}."
    elif (best := explanation.get("best")) and name not in best:
        yield f"Its current node {name} has a total that is {nodes[best[0]]['total'] - verdict['total']} lower."
    elif best:
        yield f"Its current node {name} is {'the same' if len(best) == 1 else 'one of them'}."


def _left_out(explanation: Explanation, *, all_nodes: bool) -> Iterable[str]:
    if "notExamined" in explanation:
        yield f"Nodes not examined: {explanation['notExamined']}."
    if "preFilterNodes" in explanation:
        names = some(explanation["preFilterNodes"], None if all_nodes else _NAMES_SHOWN)
        yield f"PreFilter limits the nodes to: {names}"


def _not_ranked(
    feasible: dict[str, Any], ranked: dict[str, Any], chosen: str | None, width: int, *, all_nodes: bool
) -> Iterable[str]:
    """Yield the feasible nodes without a total: those that were avoided, by reason, or all of them."""
    kinds: dict[str, list[str]] = {}
    for name, verdict in feasible.items():
        if name not in ranked and name != chosen:
            kinds.setdefault(verdict.get("avoided", ""), []).append(name)
    for why, names in kinds.items():
        description = f"Not scored{f', avoided ({why})' if why else ''}: "
        yield filled(description + some(names, None if all_nodes else _NAMES_SHOWN), width, hanging=2)
