"""The active version of each SchedulerProfile, chosen from known results, and its status."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from scheduler.clock import rfc3339
from scheduler.configuration.more_profiles import read_profile
from scheduler.daemon.app.default_scheduler import DEFAULT_SCHEDULER
from scheduler.daemon.config_watch.scheduler_profile import ACCEPTED, ACTIVE
from scheduler.errors import ApiError, FieldError
from scheduler.kube.client.resources import SCHEDULER_PROFILES
from scheduler.kube.http.request import JSON_PATCH, Request
from scheduler.objects.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from scheduler.clock import Clock
    from scheduler.configuration.more_profiles import ReadProfile
    from scheduler.configuration.types import Profile
    from scheduler.daemon.config_watch.scheduler_profile import ProfileVersion, SchedulerProfile
    from scheduler.kube.client.requests import Requests

logger = logging.getLogger(__name__)

VALID: Final = "Valid"
INVALID: Final = "Invalid"
NAME_TAKEN: Final = "NameTaken"
_NAME: Final = "spec.schedulerName"

Refusals = dict[tuple[str, int], tuple[FieldError, ...]]
"""(uid, generation) -> the errors found when that version was built."""


class KnownProfile:
    """One SchedulerProfile, and the results of its versions.

    Attributes:
        object: the current object.
        active: the active version.
        good: the version that was active last.
        reported: generation, reason and message of the last report.
    """

    def __init__(self, obj: SchedulerProfile) -> None:
        self.object = obj
        self.active: ProfileVersion | None = None
        self.good = obj.kept
        condition = obj.condition(ACCEPTED)
        self.reported = (
            condition.get("observedGeneration"),
            condition.get("reason"),
            condition.get("message"),
        )
        self._read: dict[int, ReadProfile] = {}  # generation -> the decoded version

    @property
    def age(self) -> tuple[str, str]:
        """Sort key of objects: the oldest first."""
        return self.object.created, self.object.name

    def versions(self) -> list[ProfileVersion]:
        """Return the versions that may become active, in order of preference."""
        now, good = self.object.now, self.good
        return [now] if good is None or good.generation == now.generation else [now, good]

    def has_read(self, version: ProfileVersion) -> bool:
        """Return whether `take` was called for a version."""
        return version.generation in self._read

    def take(self, version: ProfileVersion, read: ReadProfile) -> None:
        """Store a decoded version."""
        used = {each.generation for each in self.versions()}
        self._read = {number: each for number, each in self._read.items() if number in used}
        self._read[version.generation] = read

    def read(self, version: ProfileVersion) -> ReadProfile:
        """Return a decoded version; it is decoded once."""
        if not self.has_read(version):
            self.take(version, read_profile(version.spec))
        return self._read[version.generation]


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice for one object.

    Attributes:
        known: the object.
        judged: the newest version.
        reason: reason of the condition Accepted, which concerns the newest version.
        errors: the errors of the newest version.
        version: the version to activate; None if none is valid.
        profile: the decoded version.
    """

    known: KnownProfile
    judged: ProfileVersion
    reason: str
    errors: Sequence[FieldError]
    version: ProfileVersion | None
    profile: Profile | None


def choose(
    own: Iterable[str],
    objects: Iterable[KnownProfile],
    versions_of: Callable[[KnownProfile], Sequence[ProfileVersion]],
    refused: Refusals,
) -> list[Choice]:
    """Choose a version of each object, beginning with the oldest object.

    Args:
        own: the names of the configuration's own profiles, which take precedence.
        objects: all objects.
        versions_of: the candidates of an object, in order of preference.
        refused: versions that could not be built.
    """
    holders = dict.fromkeys(own, "a profile of the scheduler's configuration")
    choices = []
    for known in sorted(objects, key=lambda each: each.age):
        newest = known.object.now
        reason, errors = _choice_for(known, newest, holders, refused)
        good = (each for each in versions_of(known) if not _choice_for(known, each, holders, refused)[1])
        version = next(good, None)
        profile = None if version is None else known.read(version).profile
        if profile is not None:
            holders[profile.scheduler_name] = f"SchedulerProfile {known.object.name}, which is older"
        choices.append(Choice(known, newest, reason, errors, version, profile))
    return choices


def _choice_for(
    known: KnownProfile, version: ProfileVersion, holders: Mapping[str, str], refused: Refusals
) -> tuple[str, Sequence[FieldError]]:
    """Return the reason of the condition Accepted, and the errors, for a version."""
    read = known.read(version)
    errors = read.errors or refused.get((known.object.uid, version.generation), ())
    if errors:
        return INVALID, errors
    name = read.profile.scheduler_name
    if name == DEFAULT_SCHEDULER:
        problem = f"{quoted(name)} can be replaced by the scheduler's configuration only"
        return INVALID, [FieldError(_NAME, problem)]
    if name in holders:
        return NAME_TAKEN, [FieldError(_NAME, f"{quoted(name)} is the name of {holders[name]}")]
    return VALID, ()


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


_AGAIN_SECONDS: Final = 5.0
"""The interval of checks whether this replica leads, and of retries."""


class ProfileStatusWriter:
    """Keeps the status of objects up to date.

    Args:
        requests: for writes.
        is_leading: whether writes are allowed now.
        clock: the time.
    """

    def __init__(self, requests: Requests, *, is_leading: Callable[[], bool], clock: Clock) -> None:
        self._requests = requests
        self._is_leading = is_leading
        self._clock = clock
        self._is_due = asyncio.Event()

    def look(self) -> None:
        """Request a comparison soon."""
        self._is_due.set()

    async def run(self, choices: Callable[[], Mapping[str, Choice]]) -> NoReturn:
        """Write changed statuses, until cancelled; `choices` returns uid -> choice for an object."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            is_left = not self._is_leading()
            for choice in [] if is_left else list(choices().values()):
                is_left |= not await self._write(choice)
            if is_left:
                self._is_due.set()
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _write(self, choice: Choice) -> bool:
        """Write one status if it differs; return whether it is up to date."""
        obj = choice.known.object
        status = status_of(choice, rfc3339(self._clock.utc_now()))
        if status == obj.status:
            return True
        # The whole status at once: a merge would keep fields of an older version.
        same = {"op": "test", "path": "/metadata/uid", "value": obj.uid}
        patch = msgspec.json.encode([same, {"op": "add", "path": "/status", "value": status}])
        path = SCHEDULER_PROFILES.path("", obj.name, "status")
        try:
            await self._requests.send(Request("PATCH", path, patch, JSON_PATCH))
        except ApiError as error:
            if error.status == 404:  # it was deleted, which kopf will report
                return True
            fields = {"profile": obj.name, "error": str(error)}
            logger.warning("Status of a profile could not be written", extra=fields)
            return False
        if choice.known.object is obj:  # until kopf reports the new version
            choice.known.object = replace(obj, status=status)
        return True
