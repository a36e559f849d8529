"""The status of a SchedulerProfile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.daemon.config_watch.scheduler_profile import ACCEPTED, ACTIVE

if TYPE_CHECKING:
    from scheduler.daemon.app.profile_objects.version_selection import Choice


def status_of(choice: Choice, now: str) -> dict[str, Any]:
    """Return the whole status of an object; unchanged conditions keep their time.

    Args:
        choice: the choice for the object.
        now: RFC 3339.
    """
    obj = choice.known.object
    active, reason, message = _active(choice)
    conditions = [
        _condition(ACCEPTED, not choice.errors, choice.reason, message_of(choice)),
        _condition(ACTIVE, active, reason, message),
    ]
    for condition in conditions:
        before = obj.condition(condition["type"])
        same = before.get("status") == condition["status"]
        condition["lastTransitionTime"] = before.get("lastTransitionTime", now) if same else now
        condition["observedGeneration"] = choice.judged.generation
    status: dict[str, Any] = {"observedGeneration": choice.judged.generation, "conditions": conditions}
    good = choice.known.good
    if good is not None:
        status["lastGood"] = {"generation": good.generation, "spec": good.spec}
    return status


def message_of(choice: Choice) -> str:
    """Return all errors of an object's newest version."""
    return "; ".join(map(str, choice.errors))


def _active(choice: Choice) -> tuple[bool, str, str]:
    if choice.version is None:
        return False, "NotAccepted", "no version of it is active"
    if choice.errors:
        return True, "LastGood", f"generation {choice.version.generation} stays active"
    return True, "CurrentGeneration", f"generation {choice.version.generation} is active"


def _condition(type_: str, holds: bool, reason: str, message: str) -> dict[str, Any]:
    return {"type": type_, "status": str(holds), "reason": reason, "message": message}
