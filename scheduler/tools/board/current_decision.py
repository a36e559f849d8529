"""Evaluates a pending pod that this process does not place."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from scheduler.engine.cycle.attempt_log import PastAttempt
from scheduler.engine.cycle.scheduling import schedule_pod

if TYPE_CHECKING:
    from scheduler.daemon.app.assembly import Parts
    from scheduler.engine.cycle.attempt import Decision
    from scheduler.engine.runtime.framework import Framework
    from scheduler.objects.pod import PodInfo


def current_decision(
    parts: Parts, framework: Framework, pod: PodInfo, *, yields_to_loop: bool = False
) -> Decision | None:
    """Decide about a pending pod as in an attempt; None if PreEnqueue rejects it.

    Raises:
        NeedsTime: a plugin needs more than one time slice, and `yields_to_loop` is set.
    """
    if not framework.run_pre_enqueue(pod).is_success:
        return None
    snapshot = parts.cache.snapshot()
    return schedule_pod(
        framework,
        pod,
        snapshot,
        nominated=parts.nominator.others(pod, snapshot),
        random=Random(0),
        exhaustive=True,
        yields_to_loop=yields_to_loop,
    )


def current_attempt(parts: Parts, pod: PodInfo) -> PastAttempt | None:
    """Return this decision as an attempt, by the profile of the pod's schedulerName, or else by the first profile.

    Raises:
        NeedsTime: a plugin needs more than one time slice; call again.
    """
    frameworks = parts.profiles.frameworks
    framework = frameworks.get(pod.scheduler_name) or next(iter(frameworks.values()))
    began = parts.clock.monotonic()
    decision = current_decision(parts, framework, pod, yields_to_loop=True)
    if decision is None:
        return None
    names = parts.cache.snapshot().names
    seconds = parts.clock.monotonic() - began
    return PastAttempt(parts.clock.utc_now(), 0, decision, names, seconds)
