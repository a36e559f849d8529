"""The demo's view on a terminal of at least 80 columns and 24 lines."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from scheduler.tools.demo.demo_workload import why_it_waits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import RenderableType

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.demo.cluster_view import ClusterView, ShownEvent

ZONE = "topology.kubernetes.io/zone"
_BESIDE_NAME = 17
"""Columns of a node after its name: cpu, memory and pods."""
_FRAME = 2
"""Lines, and columns, of a panel's border."""
_WRAPPED = 6
"""Additional lines for long reasons."""
_LEVELS = " ▁▂▃▄▅▆▇█"
_TAINTED, _CORDONED = "magenta", "red"


def whole(cluster: ClusterView, width: int, height: int) -> RenderableType:
    """Return the screen for a terminal of this size; if it is small, the nodes are still shown whole."""
    side_by_side = _side_by_side(cluster, width)
    left = height - (-(-len(cluster.nodes) // side_by_side) + 1 + _FRAME)
    lines = _pod_lines(cluster)
    wraps = left >= len(lines) + 2 * _FRAME + _WRAPPED
    pods = _pods(lines, left - _FRAME, wraps=wraps)
    left -= min(len(lines), left - _FRAME) + _FRAME + (_WRAPPED if wraps else 0)
    happenings = list(cluster.happenings)
    events = [latest_events(happenings[_FRAME - left :])] if left > _FRAME else []
    return Group(nodes_with_their_load(cluster, width), pods, *events)


def _side_by_side(cluster: ClusterView, width: int) -> int:
    """Return how many nodes fit side by side."""
    each = max(map(len, cluster.nodes), default=0) + _BESIDE_NAME
    return max(1, (width - _FRAME) // each)


def nodes_with_their_load(cluster: ClusterView, width: int) -> RenderableType:
    """Return the requested share of cpu and memory of each node, and its number of pods."""
    nodes = list(cluster.nodes.values())
    counts = dict.fromkeys(cluster.nodes, 0)
    for pod in cluster.pods.values():
        if pod.node_name in counts:
            counts[pod.node_name] += 1
    cpu, memory = cluster.taken("cpu"), cluster.taken("memory")
    table = Table(box=None, padding=(0, 1, 0, 0))
    side_by_side = _side_by_side(cluster, width)
    for _ in range(side_by_side):
        table.add_column("node", no_wrap=True)
        table.add_column("cpu", no_wrap=True, min_width=5)
        table.add_column("mem", no_wrap=True, min_width=5)
        table.add_column("pod", justify="right", no_wrap=True)
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
    return _panel(table, title=f"{len(nodes)} nodes", subtitle=legend)


def pods_and_reasons(cluster: ClusterView) -> RenderableType:
    """Return a line for each single pod, one for all replicas, and why pending pods wait."""
    lines = _pod_lines(cluster)
    return _pods(lines, len(lines), wraps=True)


def _pods(lines: Sequence[tuple[str | Text, ...]], most: int, *, wraps: bool) -> RenderableType:
    table = Table(box=None, padding=(0, 1, 0, 0), show_header=False, expand=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1, no_wrap=not wraps, overflow="fold" if wraps else "ellipsis")
    shown = lines if len(lines) <= most else lines[: max(0, most - 1)]
    for line in shown:
        table.add_row(*line)
    if len(shown) < len(lines):
        table.add_row(f"and {len(lines) - len(shown)} more", "", "")
    return _panel(table, title="Pods")


def _pod_lines(cluster: ClusterView) -> list[tuple[str | Text, ...]]:
    """Return the name, the node, and why the pod waits or, for replicas, their zones."""
    together: dict[str, list[PodInfo]] = {}
    for pod in cluster.pods.values():
        together.setdefault(_owner(pod), []).append(pod)
    alone = together.pop("", [])
    lines: list[tuple[str | Text, ...]] = [
        (f"{len(replicas)} {owner}", *_placed(replicas, cluster))
        for owner, replicas in sorted(together.items())
    ]
    waits = Text("pending", style="yellow")
    return lines + [(pod.name, pod.node_name or waits, _reason(pod, cluster)) for pod in alone]


def latest_events(happenings: Iterable[ShownEvent]) -> RenderableType:
    """Return the latest scheduling events, one line each."""
    lines = [event_line(happening) for happening in happenings]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return _panel(Group(*lines), title="Events")


def _panel(content: RenderableType, *, title: str, subtitle: Text | None = None) -> Panel:
    return Panel(
        content, title=title, subtitle=subtitle, title_align="left", subtitle_align="right", padding=0
    )


def event_line(happening: ShownEvent) -> Text:
    """Return one event as a line."""
    style = "green" if happening.reason == "Scheduled" else "yellow"
    return Text.assemble((f"{happening.reason:17}", style), f"{happening.pod}  ", (happening.note, "dim"))


def _owner(pod: PodInfo) -> str:
    """Return the name of a replica's owner; "" for a single pod."""
    metadata = pod.pod.metadata
    owner = next((owner.name for owner in metadata.owner_references if owner.controller), "")
    # The name of a Deployment's ReplicaSet is the Deployment's with a hash of the template.
    return owner.removesuffix(f"-{metadata.labels.get('pod-template-hash', '')}")


def _placed(replicas: Sequence[PodInfo], cluster: ClusterView) -> tuple[str, str]:
    nodes = cluster.nodes
    placed = [pod for pod in replicas if pod.node_name]
    count = len({pod.node_name for pod in placed})
    waiting = next((_reason(pod, cluster) for pod in replicas if not pod.node_name), "")
    zones = Counter(nodes[pod.node_name].labels.get(ZONE, "") for pod in placed if pod.node_name in nodes)
    spread = ", ".join(f"{number} in {zone}" for zone, number in sorted(zones.items()))
    return f"{len(placed)} on {count} nodes", waiting or spread


def refusals(explanation: Mapping[str, Any]) -> RenderableType:
    """Return how many nodes were rejected for each reason in a pod's last attempt.

    Args:
        explanation: the answer of `/debug/explain`.
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


def _reason(pod: PodInfo, cluster: ClusterView) -> str:
    if not pod.node_name and pod.scheduler_name not in cluster.profiles:
        return f"no profile has its schedulerName {pod.scheduler_name}"
    gates = " ".join(gate.name for gate in pod.pod.spec.scheduling_gates)
    return f"scheduling gate {gates}" if gates and not pod.node_name else why_it_waits(pod)
