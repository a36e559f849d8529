"""Shows what the objects of files would do in the current cluster, for `kubectl why -f`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from scheduler.cli.why_current import token_of
from scheduler.cli.why_output import show_outcomes
from scheduler.configuration.manifests import read_items
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.daemon.app.leader import NoLeaderError, at_url, leader
from scheduler.errors import FieldError
from scheduler.kube.client.resources import NODES, STORAGE_CLASSES, Resource
from scheduler.tools.whatif.admission import admit
from scheduler.tools.whatif.cluster_file import ClusterFileError, read
from scheduler.tools.whatif.documents import identify
from scheduler.tools.whatif.live_cluster import read_if_allowed
from scheduler.tools.whatif.planned_pods import Plan
from scheduler.tools.whatif.service.evaluation import creates_pods, evaluate
from scheduler.tools.whatif.service.wire import WhatIf

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scheduler.cli.why_current import Ask, Lookup
    from scheduler.kube.client.connection import ApiConnection
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


async def look_at_files(
    look: Lookup, filenames: Iterable[str], replicas: int | None, ask: Ask | None
) -> None:
    """Show what the objects of files would do.

    Args:
        look: the cluster.
        filenames: the files.
        replicas: number of pods of each object; None for its own.
        ask: the daemon; None to ask none.

    Raises:
        SchedulerError: a file or the cluster cannot be read.
    """
    manifests = [manifest for filename in filenames for manifest in _manifests(filename)]
    token = token_of(ask)
    async with look.connect() as (connection, namespace):
        kinds = [_PRIORITY_CLASSES, STORAGE_CLASSES, _CLAIM_TEMPLATES]
        if any(manifest["kind"] == "DaemonSet" for manifest in manifests):
            kinds.append(NODES)
        given = [raw for kind in kinds for raw in (await read_if_allowed(connection, kind)).values()]
        plan = Plan(namespace, given, replicas)
        planned = await plan.make(manifests)
        for problem in plan.problems:
            click.echo(f"skipped: {problem}", err=True)
        knows_all = not any(manifest["kind"] in _READ_AT_ADMISSION for manifest in manifests)
        await _admit(connection, planned, knows_all=knows_all)
        objects = _other_objects(plan, manifests)
        request = WhatIf(objects=objects, workloads=planned, namespace=namespace, nodes=True)
        answer, who = (await _asked(connection, ask, token, request)) if planned else ({"workloads": []}, "")
        if answer is None:
            names = {pod["spec"]["schedulerName"] for each in planned for pod in each.pods}
            scheduler, _ = await look.scheduler(connection, names)
            answer = msgspec.to_builtins(await asyncio.to_thread(evaluate, scheduler, request))
    source = f"From {who}:" if who else f"Evaluated now with {look.plugins}:"
    show_outcomes(answer["workloads"], source, as_json=look.as_json, all_nodes=look.all_nodes)


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


def _other_objects(plan: Plan, manifests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the objects that plugins read beside pods: those of the files, and those that controllers create.

    The controllers of the pods have no template, because their pods exist already in the plan.
    """
    kinds = sorted({kind for plugin in IN_TREE.values() for kind in plugin.needs.kinds})
    created = [
        msgspec.json.decode(raw) for objects in plan.others(kinds).values() for raw in objects.values()
    ]
    for obj in created:
        if creates_pods(obj):
            del obj["spec"]["template"]
    others = [obj for obj in manifests if not creates_pods(obj) and obj["kind"] != "Pod"]
    return [*created, *others]


def _manifests(filename: str) -> list[dict[str, Any]]:
    """Return the objects of a file; each has a kind and a name.

    Raises:
        ClusterFileError: everything that is wrong with it.
    """
    data, source = read(filename)
    contents = read_items(data)
    faults = list(contents.errors)
    objects = []
    for item in contents.items:
        obj: dict[str, Any] = msgspec.json.decode(item.raw)
        obj |= {"apiVersion": item.api_version, "kind": item.kind}
        try:
            identify(item if item.name else item._replace(name=obj["metadata"].get("generateName")))
        except (ValueError, KeyError, AttributeError) as error:
            faults.append(FieldError(item.where, str(error)))
        objects.append(obj)
    if faults:
        raise ClusterFileError(source, faults)
    return objects
