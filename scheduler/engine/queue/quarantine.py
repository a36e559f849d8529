"""Quarantine: pods whose attempt exceeded its budget wait far longer than other pods that failed.

The pod's condition contains the quarantine in a message that is parsed again, so that the next leader does not begin
with that pod.
"""

from __future__ import annotations

import re
from math import ldexp
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo

_FIRST_SECONDS: Final = 60.0
_LONGEST_SECONDS: Final = 1800.0
_MOST_DOUBLINGS: Final = 20
_MESSAGE: Final = re.compile(r"; quarantined for \d+s after (\d{1,6}) attempts? over budget$")


def quarantine_duration(times: int) -> float:
    """Return how long a pod waits after the given number of attempts over budget in a row."""
    return min(ldexp(_FIRST_SECONDS, min(times - 1, _MOST_DOUBLINGS)), _LONGEST_SECONDS)


def message(times: int) -> str:
    """Return the suffix of the message of an attempt over budget; `times` is the number of such attempts in a row."""
    return f"; quarantined for {quarantine_duration(times):.0f}s after {times} attempt{'s' * (times > 1)} over budget"


def times_in_condition(pod: PodInfo) -> int:
    """Return the number of attempts over budget in a pod's condition; 0 if the pod has changed since."""
    for condition in pod.pod.status.conditions:
        if condition.type == "PodScheduled":
            if condition.reason != "SchedulerError":
                return 0
            found = _MESSAGE.search(condition.message)
            if found is None or pod.pod.metadata.generation > condition.observed_generation > 0:
                return 0
            return int(found[1])
    return 0


def take_quarantine_from_condition(queued: QueuedPodInfo, pod: PodInfo, at: float) -> bool:
    """Take over another leader's quarantine of a pod without attempts here; return whether it is new."""
    if not pod.pod.status.conditions or queued.attempts:
        return False
    times = times_in_condition(pod)
    if times <= queued.over_budget_count:
        return False
    queued.timestamp, queued.over_budget_count, queued.quarantine_seconds = (
        at,
        times,
        quarantine_duration(times),
    )
    return True


def is_changed_pod(old: PodInfo, new: PodInfo) -> bool:
    """Return whether a pod changed in a field that attempts read, so that the next attempt may end differently."""
    if old.pod is new.pod:
        return False
    before, after = old.pod.metadata, new.pod.metadata
    return (
        old.pod.spec != new.pod.spec
        or before.labels != after.labels
        or before.annotations != after.annotations
    )
