"""Explains a resize that waits for capacity on the pod's node: what the node lacks, and which pods would have to leave it.

JSON values, the `resize` of an explanation:

    {"reason": "Deferred", "message": text of the kubelet,
     "allocated": {resource: amount}, "requested": {resource: amount} (of the resources that the resize increases),
     "missing": {resource: amount} (empty if the resize fits),
     "heldByOthers": {"ns/name": {resource: amount}} (what other deferred resizes hold of the missing resources),
     "preemption": as in an explanation, of the node | null}

`preemption` is the result of the preempting plugin for the pod, with PodDisruptionBudgets and protections. It is null if
the resize fits, and if the pod or the profile does not preempt. No pod is evicted for it: the gate
InPlacePodVerticalScalingSchedulerPreemption decides whether the scheduler does so.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from scheduler.engine.cycle.scheduling import schedule_pod
from scheduler.framework.interface import ExtensionPoint, PostFilterPlugin
from scheduler.framework.preemption import REPORT
from scheduler.objects.quantity import amount_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scheduler.engine.cycle.attempt import Decision
    from scheduler.engine.runtime.framework import Framework
    from scheduler.framework.preemption import PreemptionReport
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import NodeInfo, Snapshot

    Preview = Callable[[PostFilterPlugin, Decision], PreemptionReport | None]


def decision_about_resize(
    framework: Framework,
    pod: PodInfo,
    snapshot: Snapshot,
    preview: Preview,
    *,
    nominated: Mapping[int, Sequence[PodInfo]],
    yields_to_loop: bool,
) -> Decision:
    """Return the decision about a deferred resize, with the victims that preemption would choose in its state.

    Args:
        framework: the pod's profile.
        pod: a pod on a node of the snapshot, with a deferred resize.
        snapshot: the cluster.
        preview: calls the plugin's `preview` for a decision that rejects the pod.
        nominated: row -> other pods of equal or higher priority that are nominated to the node.
        yields_to_loop: as of `schedule_pod`.

    Raises:
        NeedsTime: a plugin needs more time than one turn of the event loop, and `yields_to_loop` is set.
    """
    decision = schedule_pod(
        framework,
        pod,
        snapshot,
        nominated=nominated,
        random=Random(0),
        may_preempt=False,
        yields_to_loop=yields_to_loop,
    )
    if decision.status.is_rejected:
        for plugin in framework.plugins.at.get(ExtensionPoint.POST_FILTER, ()):
            assert isinstance(plugin, PostFilterPlugin), f"{plugin.name} is enabled at PostFilter"
            if plugin.evaluates_resizes and (found := preview(plugin, decision)) is not None:
                decision.state.write(REPORT, found)
                break
    return decision


def explain_resize(pod: PodInfo, node: NodeInfo, preemption: dict[str, Any] | None) -> dict[str, Any]:
    """Return the `resize` of a pod.

    Args:
        pod: a pod with a deferred resize.
        node: its node.
        preemption: as in an explanation.
    """
    [condition] = [each for each in pod.pod.status.conditions if each.type == "PodResizePending"][:1]
    held, taken = pod.resources.not_allocated, pod.resources.taken
    offered, requested = node.allocatable, node.requested
    lacking = {name: requested.get(name, 0) - offered.get(name, 0) for name in pod.resources.requests}
    missing = {name: amount for name, amount in lacking.items() if amount > 0}
    others = {
        each.key: {name: amount for name, amount in each.held_for_resize.items() if name in missing}
        for each in node.pods
        if each.uid != pod.uid
    }
    return {
        "reason": condition.reason,
        "message": condition.message,
        "allocated": _texts({name: taken[name] - amount for name, amount in held.items()}),
        "requested": _texts({name: taken[name] for name in held}),
        "missing": _texts(missing),
        "heldByOthers": {key: _texts(amounts) for key, amounts in others.items() if amounts},
        "preemption": preemption if missing else None,
    }


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: amount_text(name, amount) for name, amount in amounts.items()}
