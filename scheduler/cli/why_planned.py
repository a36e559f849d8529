"""Shows what the objects of files would do in the current cluster, for `kubectl why -f`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from scheduler.cli.why_output import show_outcomes
from scheduler.configuration.manifests import read_items
from scheduler.errors import FieldError
from scheduler.kube.client.resources import NODES, STORAGE_CLASSES, Resource
from scheduler.tools.whatif.admission import admit
from scheduler.tools.whatif.cluster_file import ClusterFile, ClusterFileError, read
from scheduler.tools.whatif.documents import identify
from scheduler.tools.whatif.live_cluster import read_if_allowed
from scheduler.tools.whatif.planned_pods import Plan
from scheduler.tools.whatif.start_preview import start

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.cli.why_current import Lookup
    from scheduler.kube.client.connection import ApiConnection
    from scheduler.tools.whatif.planned_pods import Planned

    _Objects = dict[str, dict[str, bytes]]  # kind -> namespace/name -> JSON

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


async def look_at_files(look: Lookup, filenames: Iterable[str], replicas: int | None) -> None:
    """Show what the objects of files would do.

    Raises:
        SchedulerError: a file or the cluster cannot be read.
    """
    manifests = [manifest for filename in filenames for manifest in _manifests(filename)]
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
        names = {pod["spec"]["schedulerName"] for each in planned for pod in each.pods}
        scheduler, cluster = await look.scheduler(connection, names)
    scheduler.fill(ClusterFile(others=_without(plan.others(scheduler.needs.kinds), cluster.others)))
    outcomes = await asyncio.to_thread(start, scheduler, planned)
    show_outcomes(outcomes, look.plugins, as_json=look.as_json, all_nodes=look.all_nodes)


async def _admit(connection: ApiConnection, planned: Iterable[Planned], *, knows_all: bool) -> None:
    """Send all pods through the API server's admission, and print each reason once why that is not possible."""
    reasons = {await admit(connection, each, knows_all=knows_all) for each in planned} - {""}
    for reason in sorted(reasons):
        click.echo(f"the API server did not check the pods: {reason}", err=True)


def _without(others: _Objects, known: _Objects) -> _Objects:
    """Return the objects whose names do not exist yet."""
    return {
        kind: {key: raw for key, raw in objects.items() if key not in known.get(kind, {})}
        for kind, objects in others.items()
    }


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
