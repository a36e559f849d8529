"""The patch of a pod's status, as kube-scheduler sends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.clock import rfc3339

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import PodCondition


LONGEST_MESSAGE = 32 * 1024
"""Characters, the limit of any metav1.Condition: a pod of a megabyte has no space for a message of another megabyte."""
NOMINATED_NODE_NAME = "nominatedNodeName"
_CUT = "..."


def status_patch(
    pod: PodInfo,
    conditions: Iterable[PodCondition],
    nominated_node_name: str | None,
    now: datetime,
    *,
    again: Collection[str] = (),
) -> bytes | None:
    """Return the patch that brings a pod's status to the wanted one, None if there is no difference.

    A condition counts as changed when its status, reason or message differs, not when only its
    observedGeneration does; its lastTransitionTime changes only with its status.

    Args:
        pod: the pod as last seen.
        conditions: wanted, at most one of a type; they get the pod's generation, and messages are cut.
        nominated_node_name: wanted; "" to clear it, None to leave it.
        now: for lastTransitionTime.
        again: types of conditions, and `NOMINATED_NODE_NAME`, to write although the pod as last seen has the
            wanted values.

    Source:
        kube-scheduler v1.36, schedule_one.go, updatePod; util/utils.go, PatchPodStatus;
        pkg/api/v1/pod/util.go, UpdatePodCondition and CalculatePodConditionObservedGeneration.
    """
    present = pod.pod.status.conditions
    order = [condition.type for condition in present]
    patches = []
    for condition in conditions:
        wanted = msgspec.structs.replace(
            condition,
            message=_shortened(condition.message),
            observed_generation=pod.pod.metadata.generation,
        )
        old = next((each for each in present if each.type == wanted.type), None)
        if old is None:
            order.append(wanted.type)
            patches.append(_new_condition(wanted, now))
        elif wanted.type in again or _says_other(old, wanted):
            patches.append(_changed_condition(old, wanted, now))
    status: dict[str, Any] = {}
    if patches:
        if present:
            status["$setElementOrder/conditions"] = [{"type": kind} for kind in order]
        status["conditions"] = patches
    if nominated_node_name is not None and (
        NOMINATED_NODE_NAME in again or nominated_node_name != pod.pod.status.nominated_node_name
    ):
        status[NOMINATED_NODE_NAME] = nominated_node_name or None
    return msgspec.json.encode({"status": status}, order="sorted") if status else None


def changed_fields(
    pod: PodInfo, conditions: Iterable[PodCondition], nominated_node_name: str | None
) -> set[str]:
    """Return the types of the conditions, and `NOMINATED_NODE_NAME`, that differ from the pod as last seen."""
    present = {condition.type: condition for condition in pod.pod.status.conditions}
    fields = {
        wanted.type
        for wanted in conditions
        if (old := present.get(wanted.type)) is None
        or _says_other(old, msgspec.structs.replace(wanted, message=_shortened(wanted.message)))
    }
    if nominated_node_name is not None and nominated_node_name != pod.pod.status.nominated_node_name:
        fields.add(NOMINATED_NODE_NAME)
    return fields


def _says_other(old: PodCondition, wanted: PodCondition) -> bool:
    return (old.status, old.reason, old.message) != (wanted.status, wanted.reason, wanted.message)


def _shortened(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - len(_CUT)] + _CUT


def _new_condition(wanted: PodCondition, now: datetime) -> dict[str, Any]:
    return {"lastProbeTime": None, "lastTransitionTime": rfc3339(now), **msgspec.to_builtins(wanted)}


def _changed_condition(old: PodCondition, wanted: PodCondition, now: datetime) -> dict[str, Any]:
    before, after = msgspec.to_builtins(old), msgspec.to_builtins(wanted)
    # Empty fields are in neither, as Go omits them, and so removed. Unchanged fields are sent again, unlike
    # in kube-scheduler: an answer may have been lost, and the server may have another message than the pod as
    # last seen.
    patch = {name: after.get(name) for name in before | after}
    if old.status != wanted.status:
        patch["lastTransitionTime"] = rfc3339(now)
    return patch
