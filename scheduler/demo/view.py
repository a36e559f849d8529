"""How the demo's picture looks on a terminal of 80 columns or more."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from scheduler.demo.workload import why_it_waits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import RenderableType

    from scheduler.demo.picture import Happening, Picture
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

ZONE = "topology.kubernetes.io/zone"
_NODE_WIDTH = 28
"""Columns of text that one node takes."""
_LEVELS = " ▁▂▃▄▅▆▇█"
_TAINTED, _CORDONED = "magenta", "red"


def whole(picture: Picture, width: int) -> RenderableType:
    """Return the screen, for a terminal of so many columns."""
    return Group(
        nodes_with_their_load(picture, width), pods_and_reasons(picture), latest_events(picture.happenings)
    )


def nodes_with_their_load(picture: Picture, width: int) -> RenderableType:
    """Return for each node how much of its cpu and memory is asked for, and how many pods it has."""
    nodes = list(picture.nodes.values())
    counts = dict.fromkeys(picture.nodes, 0)
    for pod in picture.pods.values():
        if pod.node_name in counts:
            counts[pod.node_name] += 1
    cpu, memory = picture.taken("cpu"), picture.taken("memory")
    table = Table(box=None, padding=(0, 1, 0, 0))
    side_by_side = max(1, width // _NODE_WIDTH)
    for _ in range(side_by_side):
        table.add_column("node", no_wrap=True)
        table.add_column("cpu", no_wrap=True)
        table.add_column("mem", no_wrap=True)
        table.add_column("pods", justify="right", no_wrap=True, min_width=4)
    length = -(-len(nodes) // side_by_side)
    for row in range(length):
        cells: list[RenderableType] = []
        for node in nodes[row::length]:
            name = node.name
            cells += [
                Text(name, style=_style(node)),
                _load(cpu[name], node.allocatable.get("cpu", 0)),
                _load(memory[name], node.allocatable.get("memory", 0)),
                str(counts[name] or ""),
            ]
        table.add_row(*cells)
    legend = Text.assemble(("tainted", _TAINTED), "  ", ("cordoned", _CORDONED))
    return Panel(
        table, title=f"{len(nodes)} nodes", subtitle=legend, title_align="left", subtitle_align="right"
    )


def pods_and_reasons(picture: Picture) -> RenderableType:
    """Return a line for each pod that stands alone, one for all replicas, and why who waits does."""
    table = Table(box=None, padding=(0, 1, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    together: dict[str, list[PodInfo]] = {}
    for pod in picture.pods.values():
        together.setdefault(_owner(pod), []).append(pod)
    for owner, replicas in sorted(together.items(), key=lambda item: not item[0]):
        if owner:
            table.add_row(f"{owner}, {len(replicas)} replicas", *_placed(replicas, picture.nodes))
    for pod in together.get("", ()):
        table.add_row(pod.name, pod.node_name or Text("waits", style="yellow"), _reason(pod))
    return Panel(table, title="Pods", title_align="left")


def latest_events(happenings: Iterable[Happening]) -> RenderableType:
    """Return the latest scheduling events, one line each."""
    lines = [event_line(happening) for happening in happenings]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Panel(Group(*lines), title="Events", title_align="left")


def event_line(happening: Happening) -> Text:
    """Return one event."""
    style = "green" if happening.reason == "Scheduled" else "yellow"
    return Text.assemble((f"{happening.reason:17}", style), f"{happening.pod}  ", (happening.note, "dim"))


def _owner(pod: PodInfo) -> str:
    """Return the name of what the pod is a replica of; "" if it stands alone."""
    metadata = pod.pod.metadata
    owner = next((owner.name for owner in metadata.owner_references if owner.controller), "")
    # A Deployment's ReplicaSets are called after it and a hash of the template.
    return owner.removesuffix(f"-{metadata.labels.get('pod-template-hash', '')}")


def _placed(replicas: Sequence[PodInfo], nodes: Mapping[str, NodeObject]) -> tuple[str, str]:
    placed = [pod for pod in replicas if pod.node_name]
    count = len({pod.node_name for pod in placed})
    waiting = next((_reason(pod) for pod in replicas if not pod.node_name), "")
    zones = Counter(nodes[pod.node_name].labels.get(ZONE, "") for pod in placed if pod.node_name in nodes)
    spread = ", ".join(f"{number} in {zone}" for zone, number in sorted(zones.items()))
    return f"{len(placed)} on {count} nodes", waiting or spread


def refusals(explanation: Mapping[str, Any]) -> RenderableType:
    """Return how many nodes were refused for each reason at a pod's last attempt.

    Args:
        explanation: as `/debug/explain` gives it.
    """
    nodes = explanation["attempt"]["nodes"].values()
    counted = Counter((node["plugin"], *node["reasons"]) for node in nodes if not node["feasible"])
    table = Table(box=None, padding=(0, 2, 0, 2), show_header=False)
    for (plugin, *reasons), number in counted.most_common():
        table.add_row(f"{number} node(s)", plugin, ", ".join(reasons))
    return table


def _load(taken: int, allocatable: int) -> Text:
    share = min(taken / allocatable, 1.0) if allocatable else 0.0
    style = "red" if share > 0.9 else "yellow" if share > 0.6 else "green"
    return Text(f"{_LEVELS[round(share * 8)]}{share:4.0%}" if taken else "", style=style)


def _style(node: NodeObject) -> str:
    return _CORDONED if node.unschedulable else _TAINTED if node.taints else ""


def _reason(pod: PodInfo) -> str:
    gates = " ".join(gate.name for gate in pod.pod.spec.scheduling_gates)
    return f"waits for its scheduling gate {gates}" if gates and not pod.node_name else why_it_waits(pod)
