"""Starts the simulated cluster and the daemon, applies the workload, and shows the result."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections import Counter, deque
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from scheduler.clock import SystemClock
from scheduler.configuration.overrides import with_leader_election
from scheduler.daemon.app.daemon import Daemon
from scheduler.daemon.app.live_explain import live_explanation
from scheduler.daemon.app.loop_watch import watching_loop
from scheduler.daemon.server.http_server import application, serving
from scheduler.kube.client.connect import connect
from scheduler.kube.client.reflector import Reflector
from scheduler.kube.client.resources import EVENTS, NODES, PODS
from scheduler.objects.decode import decode_node, decode_object, decode_pod
from scheduler.tools.board.pages import PATH, board_of, board_pages
from scheduler.tools.board.sign_in import LocalOnly
from scheduler.tools.board.subject import of_daemon
from scheduler.tools.demo.workloads import Suggestion, why_it_waits
from scheduler.tools.simulator.external_controllers import KubeletOptions
from scheduler.tools.simulator.scenarios.clusters import heterogeneous
from scheduler.tools.simulator.server import ApiServer
from scheduler.tools.whatif.explanation_text import refusals, show_verdict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence

    from rich.console import Console, RenderableType

    from scheduler.configuration.load import Configuration
    from scheduler.errors import ObjectError
    from scheduler.kube.client.connection import ApiConnection
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.demo.workloads import DemoWorkload

_EVENTS_KEPT = 8
_SHOWN = frozenset({"Scheduled", "FailedScheduling", "Preempted"})


class ShownEvent(NamedTuple):
    """One event, as `kubectl get events` shows it."""

    reason: str
    pod: str
    note: str


class ClusterView:
    """Nodes, pods and the latest events, kept current by watches.

    Args:
        profiles: schedulerNames of the daemon's profiles.

    Attributes:
        profiles: schedulerNames of the daemon's profiles.
        happenings: the latest scheduling events, oldest first.
        step: the latest step of the workload, for users.
        version: changes with every change of a node, of a pod, of the events and of the step.
        on_event: called with every new scheduling event.
        on_step: called with every step.
    """

    def __init__(self, profiles: Collection[str]) -> None:
        self.profiles = profiles
        self._pods: Mapping[str, PodInfo] = {}
        self._nodes: Mapping[str, NodeObject] = {}
        self.happenings: deque[ShownEvent] = deque(maxlen=_EVENTS_KEPT)
        self.version = 0
        self.on_event: Callable[[ShownEvent], None] = lambda _: None
        self.step = ""
        self.on_step: Callable[[str], None] = lambda _: None

    def narrate(self, step: str) -> None:
        """Set the step that is shown."""
        self.step = step
        self.version += 1
        self.on_step(step)

    @property
    def pods(self) -> dict[str, PodInfo]:
        """Name -> pod, sorted."""
        return dict(sorted((pod.name, pod) for pod in self._pods.values() if not pod.is_terminal))

    @property
    def nodes(self) -> dict[str, NodeObject]:
        """Name -> node, sorted."""
        return dict(sorted((node.name, node) for node in self._nodes.values()))

    def taken(self, resource: str) -> dict[str, int]:
        """Return node name -> requested amount of a resource: milli-cpu, bytes, or a count."""
        amounts = dict.fromkeys(self.nodes, 0)
        for pod in self.pods.values():
            if pod.node_name in amounts:
                amounts[pod.node_name] += pod.resources.taken.get(resource, 0)
        return amounts

    @asynccontextmanager
    async def watching(self, connection: ApiConnection) -> AsyncIterator[None]:
        """Watch while the block runs."""
        random = Random(0)
        counter = _Changes(self)
        pods = Reflector(connection, PODS, decode=decode_pod, handler=counter, random=random)
        nodes = Reflector(connection, NODES, decode=decode_node, handler=counter, random=random)
        events = Reflector(connection, EVENTS, decode=decode_object, handler=_Events(self), random=random)
        self._pods, self._nodes = pods.store, nodes.store
        async with asyncio.TaskGroup() as tasks:
            watches = [tasks.create_task(reflector.run()) for reflector in (pods, nodes, events)]
            await pods.wait_synced()
            await nodes.wait_synced()
            try:
                yield
            finally:
                for watch in watches:
                    watch.cancel()


class _Changes:
    """Counts the changes of pods and nodes: their stores have the objects."""

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster

    def on_add(self, obj: Any) -> None:
        self._cluster.version += 1

    def on_update(self, old: Any, new: Any) -> None:
        self._cluster.version += 1

    def on_delete(self, old: Any) -> None:
        self._cluster.version += 1

    def on_undecodable(self, identity: Any, error: ObjectError) -> None: ...


class _Events(_Changes):
    def on_add(self, obj: Any) -> None:
        if obj.get("reason") in _SHOWN:
            self._cluster.version += 1
            happening = ShownEvent(obj["reason"], obj["regarding"]["name"], obj.get("note", ""))
            self._cluster.happenings.append(happening)
            self._cluster.on_event(happening)


ZONE = "topology.kubernetes.io/zone"
_BESIDE_NAME = 17
"""Columns of a node after its name: cpu, memory and pods."""
_FRAME = 2
"""Lines, and columns, of a panel's border."""
_LONGEST_STEP = 3
"""Lines of a step."""
_WRAPPED = 6
"""Additional lines for long reasons."""
_LEVELS = " ▁▂▃▄▅▆▇█"
_TAINTED, _CORDONED = "magenta", "red"


def whole(cluster: ClusterView, width: int, height: int) -> RenderableType:
    """Return the screen for a terminal of this size; if it is small, the nodes are still shown whole."""
    side_by_side = _side_by_side(cluster, width)
    left = height - (-(-len(cluster.nodes) // side_by_side) + 1 + _FRAME)
    lines = _pod_lines(cluster)
    step = _step_lines(cluster, width, max(1, left - len(lines) - _FRAME))
    left -= len(step)
    wraps = left >= len(lines) + 2 * _FRAME + _WRAPPED
    pods = _pods(lines, left - _FRAME, wraps=wraps)
    left -= min(len(lines), left - _FRAME) + _FRAME + (_WRAPPED if wraps else 0)
    happenings = list(cluster.happenings)
    events = [latest_events(happenings[_FRAME - left :])] if left > _FRAME else []
    return Group(nodes_with_their_load(cluster, width), *step, pods, *events)


def _step_lines(cluster: ClusterView, width: int, most: int) -> list[Text]:
    """Return the step in at most this many lines."""
    lines = wrap(cluster.step, width, max_lines=min(most, _LONGEST_STEP), placeholder="…")
    return [Text(line, style="bold") for line in lines]


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


_PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS, _READING_SECONDS = 1.0, 4.0
"""Pause between the steps, and where a user reads them."""
_SETTLED = "Every pod is where it should be. Try the commands above. Ctrl-C ends the demo."
_NODES = 30
_FRAMES_A_SECOND = 8


async def show(
    console: Console,
    configuration: Configuration,
    workload: DemoWorkload,
    stop: asyncio.Event,
    *,
    program: str,
    exit_when_settled: bool,
) -> int:
    """Run the demo.

    Args:
        console: the console; a terminal shows a live view, anything else lines of text.
        configuration: the daemon's configuration.
        workload: the objects to apply.
        stop: event that ends the demo.
        program: the command line of this program, for the commands that are shown.
        exit_when_settled: end when every pod is where it should be.

    Returns:
        The exit status: 0 if every pod was where it should be.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="custom-scheduler-demo-")))
        clock = SystemClock()
        server = await stack.enter_async_context(
            ApiServer(
                clock=clock,
                kubelet=KubeletOptions(metrics=True),
                controllers=True,
                version=configuration.features.version,
                feature_gates=configuration.settings.feature_gates,
                normal_events=True,
            )
        )
        for node in heterogeneous(_NODES, seed=7):
            server.store.create("nodes", node)
        kubeconfig = folder / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        connection = await stack.enter_async_context(connect(str(kubeconfig)))
        alone = with_leader_election(configuration, leader_elect=False)
        daemon = Daemon(connection, alone, clock=clock, random=Random())
        daemon.parts.budget.take_clock()
        stack.callback(daemon.parts.budget.give_clock_back)
        await stack.enter_async_context(watching_loop(daemon.metrics.loop))
        routes = application(
            metrics=daemon.metrics.pieces,
            live={},
            ready={},
            explain=lambda key: live_explanation(daemon, key, clock),
            access=LocalOnly(),
            more=board_pages(board_of(of_daemon(daemon, clock))),
        )
        port = await stack.enter_async_context(serving(routes, "127.0.0.1", 0))
        daemon_url = f"http://127.0.0.1:{port}"
        console.print(
            _introduction(workload.suggestions(program, daemon_url), server.url, kubeconfig, daemon_url),
            soft_wrap=True,
        )
        profiles = [profile.scheduler_name for profile in configuration.settings.profiles]
        strangers = sorted(workload.scheduler_names.difference(profiles))
        if strangers:
            console.print(_nobody_for(strangers, profiles), style="yellow", soft_wrap=True)

        cluster = ClusterView(profiles)
        await stack.enter_async_context(cluster.watching(connection))
        async with asyncio.TaskGroup() as tasks:
            end = asyncio.Event()
            running = tasks.create_task(daemon.run(end), name="daemon")
            reads = console.is_terminal and not exit_when_settled
            pause_seconds = _READING_SECONDS if reads else _PAUSE_SECONDS
            applying = tasks.create_task(
                workload.apply(server, cluster.narrate, pause_seconds=pause_seconds), name="workload"
            )
            shown = tasks.create_task(_show(console, cluster, end), name="picture")

            def outstanding() -> list[str]:
                still = [] if applying.done() else ["not all objects are applied yet"]
                return still + workload.outstanding(cluster.pods, cluster.nodes)

            settled = await _wait(cluster, outstanding, stop, exit_when_settled=exit_when_settled)
            why = live_explanation(daemon, f"default/{workload.puzzle}", clock)
            end.set()
            await asyncio.gather(running, shown)
            applying.cancel()
        if why is not None and why["attempt"] is not None:
            _say_why(console, workload.puzzle, why)
        return _verdict(console, outstanding(), settled=settled)


async def _wait(
    cluster: ClusterView,
    outstanding: Callable[[], list[str]],
    stop: asyncio.Event,
    *,
    exit_when_settled: bool,
) -> bool:
    """Return when the demo ends: whether every pod was where it should be at some time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE_SECONDS
    settled, seen = False, -1
    while not stop.is_set():
        if not settled and (cluster.version != seen or exit_when_settled):
            settled, seen = not outstanding(), cluster.version
            if settled and not exit_when_settled:
                cluster.narrate(_SETTLED)
        if exit_when_settled and (settled or loop.time() > deadline):
            break
        try:
            async with asyncio.timeout(1 / _FRAMES_A_SECOND):
                await stop.wait()
        except TimeoutError:
            continue
    return settled


async def _show(console: Console, cluster: ClusterView, end: asyncio.Event) -> None:
    if not console.is_terminal:
        cluster.on_step = lambda step: console.print(Text(f"\n{step}", style="bold"), soft_wrap=True)
        cluster.on_event = _EventLines(console).show
        await end.wait()
        console.print(nodes_with_their_load(cluster, console.width))
        console.print(pods_and_reasons(cluster))
        return
    drawn: tuple[int, int, int] | None = None
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while not end.is_set():
            current = cluster.version, console.width, console.height
            if current != drawn:  # a cluster at rest costs nothing
                live.update(whole(cluster, console.width, console.height), refresh=True)
                drawn = current
            await asyncio.sleep(1 / _FRAMES_A_SECOND)
        live.update(whole(cluster, console.width, console.height), refresh=True)


class _EventLines:
    """Prints the first event of each reason for a pod, except `Scheduled`: the table at the end has the nodes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: set[tuple[str, str]] = set()  # reason and pod

    def show(self, happening: ShownEvent) -> None:
        key = happening.reason, happening.pod
        if happening.reason != "Scheduled" and key not in self._shown:
            self._shown.add(key)
            self._console.print(event_line(happening), soft_wrap=True)


def _nobody_for(strangers: Sequence[str], profiles: Sequence[str]) -> str:
    return (
        f"No scheduler here serves these pods: their schedulerName is {' or '.join(strangers)}; "
        f"the profiles of the configuration are {', '.join(profiles)}.\n"
    )


def _introduction(tries: Sequence[Suggestion], url: str, kubeconfig: Path, daemon: str) -> Text:
    text = Text.assemble(
        ("custom-scheduler", "bold"),
        f" places pods on a simulated cluster of {_NODES} nodes, which runs no containers. The board in a browser:\n\n",
        (f"    {daemon}{PATH}\n", "cyan"),
        "\nCommands for another terminal:\n",
    )
    suggestions = (
        Suggestion("Use the simulated cluster", f"export KUBECONFIG={shlex.quote(str(kubeconfig))}"),
        Suggestion("Which pod is on which node?", "kubectl get nodes,pods -o wide"),
        *tries,
        Suggestion("Events of the scheduler, the controllers and the kubelets", "kubectl events"),
        Suggestion("Metrics of the scheduler", f"curl -s {daemon}/metrics | grep scheduler_"),
        Suggestion("The API of the cluster", f"curl -s {url}/api/v1/nodes"),
    )
    for purpose, command in suggestions:
        text.append(f"\n    # {purpose}\n", style="dim").append(f"    {command}\n", style="cyan")
    return text


def _say_why(console: Console, pod: str, why: Mapping[str, Any]) -> None:
    console.print(
        Text.assemble("\nWhy does ", (pod, "bold"), " wait? The answer of `custom-scheduler explain`:\n")
    )
    show_verdict(console, why)
    attempt = why["attempt"]
    rejected = {name: node for name, node in attempt["nodes"].items() if not node["feasible"]}
    for line in refusals(rejected, attempt.get("rejections", ()), console.width, all_nodes=False):
        console.print(Text(line), soft_wrap=True)
    console.print()


def _verdict(console: Console, missing: list[str], *, settled: bool) -> int:
    """Print whether every pod is where it should be now, and return the exit status."""
    if not missing:
        console.print("Every pod is where it should be.", style="bold green")
        return os.EX_OK
    if settled:
        console.print("Every pod was where it should be, before these changes:", style="bold")
    else:
        console.print("Not every pod is where it should be:", style="bold red")
    for line in missing:
        console.print(f"  {line}", soft_wrap=True)
    return os.EX_OK if settled else 1
