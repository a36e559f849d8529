"""What would be decided of a pod if it were its turn now: every node is judged, and nothing comes of it."""

from __future__ import annotations

from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scheduler.cycle.explanation import explain
from scheduler.cycle.scheduling import schedule_pod
from scheduler.objects.pod import PodInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.cycle.attempt import Decision
    from scheduler.cycle.explanation import Explanation
    from scheduler.cycle.refusal_details import RefusalDetails
    from scheduler.runtime.framework import Framework
    from scheduler.snapshot import Snapshot

_NONE: Mapping[int, str] = MappingProxyType({})


def judge(
    framework: Framework,
    pod: PodInfo,
    snapshot: Snapshot,
    *,
    nominated: Mapping[int, Sequence[PodInfo]],
    details: RefusalDetails,
    avoided: Mapping[int, str] = _NONE,
    makes_room: bool = True,
    gives_way: bool = False,
) -> tuple[Decision, Explanation]:
    """Return a decision, and what is told of it; extenders are not asked.

    Args:
        framework: the pod's profile.
        pod: which is on no node; see `unplaced`.
        snapshot: the cluster.
        nominated: row -> other pods of equal or higher priority that are expected there soon.
        details: asks the plugins for more about refusals.
        avoided: row -> why, of nodes that are taken only if no other is feasible.
        makes_room: look for pods that could be evicted. Not in a daemon, where they would be.
        gives_way: raise what plugins need time for, instead of doing it at once.

    Raises:
        NeedsTime: a plugin needs more time than one turn of the event loop, and this gives way.
    """
    decision = schedule_pod(
        framework,
        pod,
        snapshot,
        nominated=nominated,
        random=Random(0),
        exhaustive=True,
        avoided=avoided,
        makes_room=makes_room,
        gives_way=gives_way,
    )
    explanation = explain(decision, snapshot.names)
    details.add_to(explanation, pod, snapshot, nominated)
    return decision, explanation


def unplaced(pod: PodInfo, snapshot: Snapshot) -> tuple[PodInfo, Snapshot]:
    """Return a pod that is on a node as if it were on none yet, and the cluster without it.

    Its volumes and the devices of its claims stay what and where they are.
    """
    row = snapshot.row_of(pod.node_name)
    there = [] if row is None else [(row, each) for each in snapshot.pods_on(row) if each.uid == pod.uid]
    spec, status = replace(pod.pod.spec, node_name=""), replace(pod.pod.status, nominated_node_name="")
    pending = PodInfo(
        replace(pod.pod, spec=spec, status=status), pod.raw, node_name="", resources=pod.resources
    )
    return pending, snapshot.overlay(remove=there)
