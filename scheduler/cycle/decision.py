"""What one attempt at one pod came to, with everything needed to explain it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.framework.status import SUCCESS, Status

if TYPE_CHECKING:
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.diagnosis import Diagnosis
    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.scoring import Scores


@dataclass(frozen=True, slots=True)
class Decision:
    """One attempt's result.

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
