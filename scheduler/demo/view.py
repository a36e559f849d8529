"""How the demo's picture looks on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.columns import Columns
from rich.console import Group
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from scheduler.demo.workload import why_it_waits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from scheduler.demo.picture import Happening, Picture
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

_TABLES = 2  # so that thirty nodes fit on one screen


def nodes_with_their_load(picture: Picture) -> RenderableType:
    """Return a line for each node: how full it is, and what keeps pods away."""
    nodes = list(picture.nodes.values())
    cpu, memory = picture.taken("cpu"), picture.taken("memory")
    counts = dict.fromkeys(picture.nodes, 0)
    for pod in picture.pods.values():
        counts[pod.node_name] = counts.get(pod.node_name, 0) + 1
    length = -(-len(nodes) // _TABLES)
    tables = []
    for begin in range(0, len(nodes), length):
        table = Table(box=None, padding=(0, 1))
        for title in ("node", "cpu", "", "memory", "pods", ""):
            table.add_column(title, no_wrap=True)
        for node in nodes[begin : begin + length]:
            table.add_row(
                node.name,
                _bar(cpu[node.name], node.allocatable.get("cpu", 0)),
                f"{cpu[node.name] / 1000:g}/{node.allocatable.get('cpu', 0) / 1000:g}",
                _bar(memory[node.name], node.allocatable.get("memory", 0)),
                str(counts[node.name] or ""),
                _obstacle(node),
            )
        tables.append(table)
    return Panel(Columns(tables, padding=(0, 2)), title="Nodes", title_align="left")


def pods_and_reasons(picture: Picture) -> RenderableType:
    """Return a line for each pod that stands alone, one for all replicas, and why who waits does."""
    table = Table(box=None, padding=(0, 1))
    table.add_column("pod", no_wrap=True)
    table.add_column("node", no_wrap=True)
    table.add_column("why")
    replicas = [pod for name, pod in picture.pods.items() if name.startswith("nginx-")]
    if replicas:
        placed = [pod for pod in replicas if pod.node_name]
        on = len({pod.node_name for pod in placed})
        table.add_row(
            f"nginx, {len(replicas)} replicas", f"{len(placed)} placed on {on} nodes", _first_reason(replicas)
        )
    for name, pod in picture.pods.items():
        if not name.startswith("nginx-"):
            table.add_row(name, pod.node_name or Text("waits", style="yellow"), _reason(pod))
    return Panel(table, title="Pods", title_align="left")


def latest_events(happenings: Iterable[Happening]) -> RenderableType:
    """Return the latest scheduling events."""
    return Panel(
        Group(*(event_line(happening) for happening in happenings)), title="Events", title_align="left"
    )


def event_line(happening: Happening) -> Text:
    """Return one event in one line."""
    style = "green" if happening.reason == "Scheduled" else "yellow"
    return Text.assemble((f"{happening.reason:17}", style), f"{happening.pod}  ", (happening.note, "dim"))


def whole(picture: Picture) -> RenderableType:
    """Return the screen."""
    return Group(nodes_with_their_load(picture), pods_and_reasons(picture), latest_events(picture.happenings))


def _bar(taken: int, allocatable: int) -> ProgressBar:
    return ProgressBar(total=max(allocatable, 1), completed=min(taken, allocatable), width=10)


def _obstacle(node: NodeObject) -> Text:
    if node.unschedulable:
        return Text("cordoned", style="red")
    return Text(" ".join(f"{taint.key}={taint.value}" for taint in node.taints), style="magenta")


def _reason(pod: PodInfo) -> str:
    gates = " ".join(gate.name for gate in pod.pod.spec.scheduling_gates)
    return f"waits for its scheduling gate {gates}" if gates else why_it_waits(pod)


def _first_reason(pods: Iterable[PodInfo]) -> str:
    return next((reason for pod in pods if not pod.node_name and (reason := _reason(pod))), "")
