"""Evaluates a pod hypothetically: the decision that the scheduler would make now, on every node and without effects."""

from __future__ import annotations

from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scheduler.engine.cycle.explanation import explain
from scheduler.engine.cycle.scheduling import schedule_pod
from scheduler.objects.pod import PodInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.engine.cycle.attempt import Decision
    from scheduler.engine.cycle.explanation import Explainer, Explanation
    from scheduler.engine.runtime.framework import Framework
    from scheduler.snapshot import Snapshot

_NONE: Mapping[int, str] = MappingProxyType({})


def evaluate(
    framework: Framework,
    pod: PodInfo,
    snapshot: Snapshot,
    *,
    nominated: Mapping[int, Sequence[PodInfo]],
    explainer: Explainer,
    avoided: Mapping[int, str] = _NONE,
    may_preempt: bool = True,
    yields_to_loop: bool = False,
) -> tuple[Decision, Explanation]:
    """Return a decision and its explanation; extenders are not called.

    Args:
        framework: the pod's profile.
        pod: a pod that is on no node; see `unplaced`.
        snapshot: the cluster.
        nominated: row -> other pods of equal or higher priority that are nominated to the node.
        explainer: completes the explanation.
        avoided: row -> reason, of nodes that are chosen only if no other node is feasible.
        may_preempt: whether to run preemption. Not for a daemon, where preemption evicts pods.
        yields_to_loop: whether to raise NeedsTime instead of doing the plugins' work at once.

    Raises:
        NeedsTime: a plugin needs more time than one turn of the event loop, and `yields_to_loop` is set.
    """
    decision = schedule_pod(
        framework,
        pod,
        snapshot,
        nominated=nominated,
        random=Random(0),
        exhaustive=True,
        avoided=avoided,
        may_preempt=may_preempt,
        yields_to_loop=yields_to_loop,
    )
    explanation = explain(decision, snapshot.names)
    return decision, explainer.complete(explanation, pod, snapshot, nominated)


def unplaced(pod: PodInfo, snapshot: Snapshot) -> tuple[PodInfo, Snapshot]:
    """Return a pod on a node as if it were pending, and the cluster without it.

    Its volumes and the devices of its claims stay bound and allocated.
    """
    row = snapshot.row_of(pod.node_name)
    there = [] if row is None else [(row, each) for each in snapshot.pods_on(row) if each.uid == pod.uid]
    return as_pending(pod), snapshot.overlay(remove=there)


def as_pending(pod: PodInfo) -> PodInfo:
    """Return a pod on a node as if it were pending."""
    spec, status = replace(pod.pod.spec, node_name=""), replace(pod.pod.status, nominated_node_name="")
    return PodInfo(replace(pod.pod, spec=spec, status=status), pod.raw, node_name="", resources=pod.resources)
