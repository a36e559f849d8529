"""Shows what the objects of files, fewer nodes or more nodes would do in the current cluster, for `kubectl why`."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec

from scheduler.cli.why_current import token_of
from scheduler.cli.why_output import show_outcomes
from scheduler.configuration.manifests import read_items
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.daemon.app.leader import NoLeaderError, at_url, leader
from scheduler.kube.client.resources import NODES, PODS, STORAGE_CLASSES, Resource
from scheduler.objects.decode import decode_node, decode_pod
from scheduler.tools.whatif.admission import admit
from scheduler.tools.whatif.cluster_file import ClusterFileError, read
from scheduler.tools.whatif.live_cluster import read_if_allowed, read_objects
from scheduler.tools.whatif.planned_pods import Plan
from scheduler.tools.whatif.service.evaluation import evaluate
from scheduler.tools.whatif.service.wire import MOST_NODES, AddedNodes, RemovedNodes, WhatIf, has_labels

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from scheduler.cli.why_current import Ask, Lookup
    from scheduler.configuration.manifests import Item
    from scheduler.kube.client.connection import ApiConnection
    from scheduler.objects.node import NodeObject
    from scheduler.tools.whatif.start_preview import Planned

_PRIORITY_CLASSES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
_CLAIM_TEMPLATES: Final = Resource(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", namespaced=True
)

_READ_AT_ADMISSION: Final = frozenset(
    {"LimitRange", "Namespace", "PriorityClass", "ResourceQuota", "RuntimeClass", "ServiceAccount"}
)
"""Kinds that admission reads: a file with such an object adds what a dry run of its pods alone would not find."""
_MORE_NODES: Final = re.compile(r"(?P<count>[0-9]{1,4})(:(?P<like>.+))?")


class Change(NamedTuple):
    """The planned changes of the cluster.

    Attributes:
        filenames: files with objects that do not exist yet.
        replicas: number of pods of each object; None for its own.
        remove: the nodes that are removed: names, and labels as `KEY=VALUE`.
        add: the nodes that are added: `NUMBER:NODE`, `NUMBER:KEY=VALUE,...`, or `NUMBER` for copies of a Node in the files;
            None for none.
    """

    filenames: tuple[str, ...] = ()
    replicas: int | None = None
    remove: tuple[str, ...] = ()
    add: str | None = None


async def look_at_change(look: Lookup, change: Change, ask: Ask | None) -> None:
    """Show what a change would do.

    Args:
        look: the cluster.
        change: the change.
        ask: the daemon; None to ask none.

    Raises:
        SchedulerError: a file or the cluster cannot be read.
    """
    items = [item for filename in change.filenames for item in _items(filename)]
    templates = [item for item in items if (item.api_version, item.kind) == ("v1", "Node")]
    items = [item for item in items if item not in templates]
    added, wanted = _added(change.add, templates), [_Removed.read(text) for text in change.remove]
    token = token_of(ask)
    async with look.connect() as (connection, namespace):
        kinds = [_PRIORITY_CLASSES, STORAGE_CLASSES, _CLAIM_TEMPLATES] if items else []
        existing = {kind.plural: await _listed(connection, kind) for kind in kinds}
        leaving, staying = await _nodes(connection, items, wanted)
        removed = RemovedNodes([node.name for node in leaving]) if wanted else None
        plan = Plan(namespace, existing, staying, change.replicas)
        planned = [each for _, each in plan.make(items)]
        knows_all = not any(item.kind in _READ_AT_ADMISSION for item in items)
        await _admit(connection, planned, knows_all=knows_all)
        plugins_read = {kind for plugin in IN_TREE.values() for kind in plugin.needs.kinds}
        request = WhatIf(
            objects=[obj for (kind, _), obj in plan.others.items() if kind in plugins_read],
            workloads=planned,
            namespace=namespace,
            nodes=True,
            remove=removed,
            add=added,
        )
        answer, who = None, ""
        if planned or removed:
            answer, who = await _asked(connection, ask, token, request)
            if answer is None:
                names = {pod["spec"]["schedulerName"] for each in planned for pod in each.pods}
                if look.config is None:
                    names |= await _scheduler_names(connection, leaving)
                scheduler, _ = await look.scheduler(connection, names)
                answer = msgspec.to_builtins(await asyncio.to_thread(evaluate, scheduler, request))
    source = f"From {who}:" if who else f"Evaluated now with {look.plugins}:"
    show_outcomes(
        answer,
        source,
        of_nodes=bool(removed or added),
        as_json=look.as_json,
        all_nodes=look.all_nodes,
    )


def _added(text: str | None, templates: list[Item]) -> AddedNodes | None:
    """Read the nodes that are added."""
    if text is None:
        if templates:
            raise click.UsageError(f"{templates[0].where} is a Node: --add-nodes NUMBER adds copies of it")
        return None
    found = _MORE_NODES.fullmatch(text)
    if found is None or not 1 <= int(found["count"]) <= MOST_NODES:
        problem = f"1 to {MOST_NODES} nodes are expected, as NUMBER:NODE, NUMBER:LABEL=VALUE or NUMBER, was {text!r}"
        raise click.BadParameter(problem, param_hint="--add-nodes")
    count, like = int(found["count"]), found["like"]
    if like is None:
        if len(templates) != 1:
            problem = f"without NODE or LABEL=VALUE, the files must have one Node, they have {len(templates)}"
            raise click.BadParameter(problem, param_hint="--add-nodes")
        return AddedNodes(count, template=msgspec.json.decode(templates[0].raw))
    if templates:
        raise click.UsageError(f"{templates[0].where} is a Node, and --add-nodes names other nodes")
    return AddedNodes(count, labels=_labels(like)) if "=" in like else AddedNodes(count, like=like)


class _Removed(NamedTuple):
    """The nodes that one flag removes: one with a name, or all with labels."""

    text: str
    labels: Mapping[str, str]

    @classmethod
    def read(cls, text: str) -> _Removed:
        return cls(text, _labels(text) if "=" in text else {})

    def names(self, node: NodeObject) -> bool:
        return has_labels(node, self.labels) if self.labels else node.name == self.text


def _labels(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(key and equals for key, equals, _ in pairs):
        raise click.UsageError(f"labels are expected as KEY=VALUE,..., was {text!r}")
    return {key: value for key, _, value in pairs}


async def _listed(connection: ApiConnection, kind: Resource) -> list[dict[str, Any]]:
    return [msgspec.json.decode(raw) for raw in (await read_if_allowed(connection, kind)).values()]


async def _nodes(
    connection: ApiConnection, items: Iterable[Item], removed: Sequence[_Removed]
) -> tuple[list[NodeObject], list[NodeObject]]:
    """Return the nodes that are removed and the others, as far as they are needed here."""
    if not removed and not any(item.kind == "DaemonSet" for item in items):
        return [], []
    return _without((await read_objects(connection, NODES, decode_node)).values(), removed)


def _without(
    nodes: Collection[NodeObject], removed: Sequence[_Removed]
) -> tuple[list[NodeObject], list[NodeObject]]:
    """Return the nodes that are removed, each once, and the others."""
    for each in removed:
        if not any(map(each.names, nodes)):
            what = "has these labels" if each.labels else "has this name"
            raise click.BadParameter(f"no node {what}: {each.text}", param_hint="--remove-node")
    leaving = [node for node in nodes if any(each.names(node) for each in removed)]
    gone = {node.name for node in leaving}
    return leaving, [node for node in nodes if node.name not in gone]


async def _scheduler_names(connection: ApiConnection, nodes: Iterable[NodeObject]) -> set[str]:
    """Return the schedulers of the pods on nodes."""
    names = set()
    for node in nodes:
        on_node = {"fieldSelector": f"spec.nodeName={node.name}"}
        pods = await read_objects(connection, PODS, decode_pod, on_node)
        names |= {pod.scheduler_name for pod in pods.values()}
    return names


async def _asked(
    connection: ApiConnection, ask: Ask | None, token: str, request: WhatIf
) -> tuple[dict[str, Any] | None, str]:
    """Return the leading daemon's answer to a request and its name; None if it gives none, which is printed."""
    if ask is None:
        return None, ""
    reached = at_url(ask.server, token) if ask.server is not None else leader(connection, ask.lease, token)
    try:
        async with reached as daemon:
            return await daemon.what_if(msgspec.json.encode(request)), daemon.name
    except NoLeaderError as error:
        click.echo(f"no daemon answers: {error}", err=True)
        return None, ""


async def _admit(connection: ApiConnection, planned: Iterable[Planned], *, knows_all: bool) -> None:
    """Send all pods through the API server's admission, and print each reason once why that is not possible."""
    reasons = {await admit(connection, each, knows_all=knows_all) for each in planned} - {""}
    for reason in sorted(reasons):
        click.echo(f"the API server did not check the pods: {reason}", err=True)


def _items(filename: str) -> list[Item]:
    """Return the objects of a file, without the uids of objects that exist.

    Raises:
        ClusterFileError: everything that is wrong with it.
    """
    data, source = read(filename)
    contents = read_items(data)
    if contents.errors:
        raise ClusterFileError(source, contents.errors)
    return [
        item._replace(where=": ".join(filter(None, (source, item.where))), raw=_without_uid(item), uid=None)
        for item in contents.items
    ]


def _without_uid(item: Item) -> bytes:
    if item.uid is None:
        return item.raw
    obj = msgspec.json.decode(item.raw)
    del obj["metadata"]["uid"]
    return msgspec.json.encode(obj)
