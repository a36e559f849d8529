"""One attempt at one pod, from the queue until it is bound or back in the queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.extenders.chain import Extenders
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.framework import Framework


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
class AssumedPod:
    """A node chosen for a pod.

    Attributes:
        attempt: whose it is.
        state: what the plugins told themselves.
        pod: the pod as it is counted on the node.
        node_name: the node.
        disturbances: how often others had changed the node when it was chosen; see `Cache.disturbances`.
    """

    attempt: Attempt
    state: CycleState
    pod: PodInfo
    node_name: str
    disturbances: int = 0
