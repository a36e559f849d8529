"""One attempt at one pod, from the queue until the pod is bound or back in the queue, and its decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.framework.status import SUCCESS, Status

if TYPE_CHECKING:
    from scheduler.engine.cycle.group_binding import GroupBinding
    from scheduler.engine.runtime.framework import Framework
    from scheduler.engine.runtime.scoring import Scores
    from scheduler.extensions.extenders import Extenders
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.diagnosis import Diagnosis
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.framework.reasons import Cause
    from scheduler.objects.pod import PodInfo


@dataclass(frozen=True, slots=True)
class Attempt:
    """The data of an attempt for the binding cycle and the failure handler.

    Attributes:
        framework: the pod's profile.
        queued: the pod, as popped from the queue.
        began: start of the scheduling cycle, in seconds of the monotonic clock.
        extenders: the extenders; None without extenders.
    """

    framework: Framework
    queued: QueuedPodInfo
    began: float
    extenders: Extenders | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of an attempt's scheduling cycle, with all data to explain it.

    Attributes:
        pod: the version of the pod that was evaluated.
        state: the cycle state of the plugins, for later extension points.
        diagnosis: the filter result of every node.
        node_name: the chosen node; "" without one.
        scores: the scores of the feasible nodes; None if they were not scored.
        status: SUCCESS with a node; a rejection, whose reason is the message of the FailedScheduling event; or an
            error.
        nominated_node_name: the node that PostFilter nominates; "" clears an earlier nomination, None keeps it.
    """

    pod: PodInfo
    state: CycleState
    diagnosis: Diagnosis
    node_name: str = ""
    scores: Scores | None = None
    status: Status = SUCCESS
    nominated_node_name: str | None = None

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Why the pod was rejected, or why the attempt failed; empty with a node."""
        if self.node_name or self.status.is_success:
            return ()
        return self.status.causes or self.diagnosis.causes()


@dataclass(frozen=True, slots=True)
class AssumedPod:
    """A pod that is assumed on its chosen node.

    Attributes:
        attempt: the attempt.
        state: the cycle state of the plugins.
        pod: the pod as counted on the node.
        node_name: the node.
        node_generation: the node's generation when it was chosen; see `Cache.node_generation`.
        group: the joint binding of the pod's group; None for a pod without a group.
        nominated: the node to which the pod was nominated before; "" for none.
        is_passed_on: whether another replica is to bind the pod, because the node belongs to it; False if this replica only binds
            a pod that was passed on to it; None if it decides and binds.
    """

    attempt: Attempt
    state: CycleState
    pod: PodInfo
    node_name: str
    node_generation: int = 0
    group: GroupBinding | None = None
    nominated: str = ""
    is_passed_on: bool | None = None

    def is_current(self, newest: PodInfo | None) -> bool:
        """Return whether the newest version of the pod exists, has the same uid, and is still to be bound."""
        return (
            newest is not None
            and newest.uid == self.pod.uid
            and not newest.node_name
            and not newest.is_terminating
        )
