"""Output of `kubectl why`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scheduler.cli.explain_live import show_live
from scheduler.tools.whatif.explanation_text import reason_codes, show, show_reasons, show_verdict, some

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.tools.whatif.pending_causes import PendingByCause

_NAMES_SHOWN: Final = 3
_NODES_SHOWN: Final = 10


def show_pod(answer: dict[str, Any], *, node: str | None, as_json: bool, all_nodes: bool) -> None:
    """Show the answer about one pod, or about one node for it."""
    when = "attempt" if answer["attempt"] else "now"
    judged = answer[when]
    if as_json:
        if node is not None and judged is not None:
            wanted = {node, judged.get("chosen") or _best(judged["nodes"])}
            shown = {name: verdict for name, verdict in judged["nodes"].items() if name in wanted}
            answer = {**answer, when: {**judged, "nodes": shown}}
        write_json(answer)
        return
    console = console_for_people()
    if answer["decidedBy"] is None:
        show_verdict(console, answer)
    elif node is not None and judged is not None:
        _show_node(console, judged, node)
        return
    elif answer["place"] is not None:
        show_live(answer, as_json=False, all_nodes=all_nodes, source=f"From {answer['decidedBy']}:")
    else:
        show_verdict(console, answer)
        console.print(Text(f"Evaluated now with {answer['decidedBy']}.", style="italic"))
        show_reasons(console, judged, all_nodes=all_nodes)
        if answer["lastMessage"]:
            console.print(Text(f"Last message of its scheduler: {answer['lastMessage']}"), soft_wrap=True)
    _show_coming_node(console, answer)


def _show_coming_node(console: Console, answer: dict[str, Any]) -> None:
    """Show what autoscalers do for a pending pod."""
    if name := answer["missingNode"]:
        text = (
            f"The pod is nominated to node {name}, which does not exist: it is still to come, or was deleted."
        )
        console.print(Text(text), soft_wrap=True)
    if found := answer["autoscaler"]:
        about = ", ".join(filter(None, (found["reason"], found["at"])))
        console.print(Text(f"{found['meaning']} ({about}): {found['message']}"), soft_wrap=True)


def _best(nodes: dict[str, Any]) -> str:
    ranked = {name: verdict["total"] for name, verdict in nodes.items() if "total" in verdict}
    return max(sorted(ranked), key=lambda name: ranked[name], default="")


def _show_node(console: Console, attempt: dict[str, Any], node: str) -> None:
    """Show one node's result; for a node that fits, its scores beside the chosen node's."""
    nodes: dict[str, Any] = attempt["nodes"]
    verdict = nodes.get(node)
    if verdict is None:
        reason = attempt["message"] or "there is no such node"
        console.print(Text(f"{node} was not examined for {attempt['pod']}: {reason}"), soft_wrap=True)
        return
    if not verdict["feasible"]:
        reasons = ", ".join(verdict["reasons"])
        codes = ", ".join([verdict["code"], *verdict.get("reasonCodes", ())])
        console.print(Text(f"{node} does not fit {attempt['pod']}: {reasons}"), soft_wrap=True)
        console.print(Text(f"Rejected by {verdict['plugin']} ({codes})."))
        for detail in verdict.get("details", ()):
            console.print(Text(f"  {detail}"), soft_wrap=True)
        return
    if "total" not in verdict:
        console.print(Text(f"{node} fits {attempt['pod']}; the feasible nodes were not scored."))
        return
    totals = sorted((each["total"] for each in nodes.values() if "total" in each), reverse=True)
    place = totals.index(verdict["total"]) + 1
    console.print(Text(f"{node} fits {attempt['pod']}: rank {place} of {len(totals)}"))
    other = attempt.get("chosen") or _best(nodes)
    columns = [node] if other == node else [node, other]
    table = Table()
    table.add_column("Score")
    for name in columns:
        table.add_column(Text(name), justify="right")
    for plugin in verdict.get("scores", {}):
        table.add_row(plugin, *(str(nodes[name]["scores"][plugin]) for name in columns))
    table.add_row("Total", *(str(nodes[name]["total"]) for name in columns), style="bold")
    console.print(table)


def show_waiting(groups: Sequence[PendingByCause], *, as_json: bool) -> None:
    """Show pending pods by cause."""
    if as_json:
        write_json([_plain(group) for group in groups])
        return
    console = console_for_people()
    if not groups:
        console.print("There are no pending pods.")
    for group in groups:
        count = len(group.pods)
        head = f"{count} pod{'s' if count > 1 else ''} of {group.scheduler}, pending since {group.since}"
        console.print(Text(head, style="bold"))
        if group.verdict:
            console.print(Text(f"  {group.verdict}"), soft_wrap=True)
        for cause, (low, high) in zip(group.causes, group.nodes, strict=True):
            counted = f"{low} to {high}" if low != high else str(high)
            console.print(Text(f"  {counted} of {group.of} nodes: {cause}" if high else f"  {cause}"))
        if codes := reason_codes(group.reason_codes):
            console.print(Text(f"  {codes}"), soft_wrap=True)
        if group.is_expected:
            console.print("  preemption is in progress for them on a node")
        console.print(Text(f"  {some(group.pods, _NAMES_SHOWN)}", style="dim"), soft_wrap=True)


def _plain(group: PendingByCause) -> dict[str, Any]:
    causes = [
        {"cause": cause, "fewestNodes": low, "mostNodes": high}
        for cause, (low, high) in zip(group.causes, group.nodes, strict=True)
    ]
    return {
        "verdict": group.verdict or None,
        "remedies": group.remedies,
        "scheduler": group.scheduler,
        "causes": causes,
        "reasonCodes": group.reason_codes,
        "ofNodes": group.of,
        "isExpected": group.is_expected,
        "since": group.since,
        "pods": group.pods,
    }


def show_outcomes(
    answer: Mapping[str, Any] | None, source: str, *, of_nodes: bool, as_json: bool, all_nodes: bool
) -> None:
    """Show what objects that are not created yet, fewer nodes or more nodes would do.

    Args:
        answer: a what-if answer; None if there is nothing to evaluate.
        source: says what evaluated it.
        of_nodes: whether nodes are removed or added.
        as_json: whether to print JSON: the whole answer if nodes are removed or added, else its workloads.
        all_nodes: whether to show all nodes.
    """
    workloads: Sequence[Mapping[str, Any]] = () if answer is None else answer["workloads"]
    if as_json:
        write_json(answer if of_nodes else workloads)
        return
    console = console_for_people()
    if answer is None:
        console.print("No object in it creates pods.")
        return
    console.print(Text(source, style="italic"))
    if of_nodes:
        console.print(Text(answer["verdict"]), soft_wrap=True)
    for refused in (answer["removed"] or {}).get("refused", ()):
        console.print(
            Text(f"  the eviction of {refused['pod']} is refused: it {refused['why']}"), soft_wrap=True
        )
    for workload in workloads:
        _show_workload(console, workload, all_nodes=all_nodes)


def _show_workload(console: Console, workload: Mapping[str, Any], *, all_nodes: bool) -> None:
    name = f"{workload['kind']} {workload['namespace']}/{workload['name']}"
    if workload["problem"]:
        console.print(Text.assemble((name, "bold"), f": no pods: {workload['problem']}"), soft_wrap=True)
        return
    verdict = f"{workload['starting']} of {workload['pods']} pods would start now"
    console.print(Text.assemble((name, "bold"), f": {verdict}"))
    nodes = [f"{count} on {node}" for node, count in workload["nodes"].items()]
    if nodes:
        console.print(Text(f"  {some(nodes, None if all_nodes else _NODES_SHOWN)}"), soft_wrap=True)
    if workload["victims"]:
        victims = [f"{victim['pod']} ({victim['node']})" for victim in workload["victims"]]
        shown = some(victims, None if all_nodes else _NODES_SHOWN)
        console.print(Text(f"  pods that would be evicted: {len(victims)}: {shown}"), soft_wrap=True)
    for waiting in workload["waiting"]:
        console.print(Text(f"  {waiting['pods']} would wait: {waiting['message']}"), soft_wrap=True)
    if workload["firstWaiting"] is not None:
        show(console, {**workload["firstWaiting"], "message": None}, all_nodes=all_nodes)


def console_for_people() -> Console:
    """Return the console for tables."""
    return Console(highlight=False)


def write_json(value: Any) -> None:
    """Print a value as JSON."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
    sys.stdout.flush()  # a program may read line by line
