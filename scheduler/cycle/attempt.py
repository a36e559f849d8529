"""One attempt at one pod, from the queue until it is bound or back in the queue, and what was decided in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.framework.status import SUCCESS, Status

if TYPE_CHECKING:
    from scheduler.cycle.group_binding import GroupBinding
    from scheduler.extenders.chain import Extenders
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.diagnosis import Diagnosis
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.framework import Framework
    from scheduler.runtime.scoring import Scores


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the binding cycle and the handling of failures need to know.

    Attributes:
        framework: the pod's profile.
        queued: the pod, as the queue handed it out.
        began: when the scheduling cycle began, in seconds of the monotonic clock.
        extenders: the extenders that take part; None without any.
    """

    framework: Framework
    queued: QueuedPodInfo
    began: float
    extenders: Extenders | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What an attempt's scheduling cycle came to, with everything needed to explain it.

    Attributes:
        pod: the version that was judged.
        state: what the plugins told themselves, for the points that follow.
        diagnosis: the verdict on every node.
        node_name: the node chosen; "" if none was.
        scores: how the feasible nodes were ranked; None where there was nothing to rank.
        status: SUCCESS with a node; a rejection, whose reason is the message of the FailedScheduling event; or an
            error.
        nominated_node_name: where PostFilter expects the pod to fit; "" takes an earlier nomination back, None
            leaves it.
    """

    pod: PodInfo
    state: CycleState
    diagnosis: Diagnosis
    node_name: str = ""
    scores: Scores | None = None
    status: Status = SUCCESS
    nominated_node_name: str | None = None


@dataclass(frozen=True, slots=True)
class AssumedPod:
    """A node chosen for a pod.

    Attributes:
        attempt: whose it is.
        state: what the plugins told themselves.
        pod: the pod as it is counted on the node.
        node_name: the node.
        disturbances: how often others had changed the node when it was chosen; see `Cache.disturbances`.
        group: what it has to do with the others of its group that are bound; None for a pod by itself.
        nominated: the node where it was nominated to before; "" for none.
    """

    attempt: Attempt
    state: CycleState
    pod: PodInfo
    node_name: str
    disturbances: int = 0
    group: GroupBinding | None = None
    nominated: str = ""
