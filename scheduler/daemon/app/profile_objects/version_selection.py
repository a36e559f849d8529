"""The active version of each SchedulerProfile, chosen from known results, and its status."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from scheduler.configuration.overrides import read_profile
from scheduler.daemon.app.default_scheduler import DEFAULT_SCHEDULER
from scheduler.daemon.config_watch.config_objects import ACTIVE
from scheduler.errors import ApiError, FieldError
from scheduler.framework.capabilities import WantedStatus
from scheduler.framework.status_sources import ACCEPTED
from scheduler.kube.client.resources import SCHEDULER_PROFILES
from scheduler.kube.client.status_queue import timeless
from scheduler.objects.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from scheduler.configuration.overrides import ReadProfile
    from scheduler.configuration.types import Profile
    from scheduler.daemon.config_watch.config_objects import ProfileVersion, SchedulerProfile
    from scheduler.kube.client.writer import ApiWriter

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

    def last_seen(self) -> Mapping[str, Any]:
        """Return the current object as far as a write of its status needs it."""
        metadata = {"uid": self.object.uid, "resourceVersion": self.object.resource_version}
        return {"metadata": metadata, "status": self.object.status}

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


def status_of(choice: Choice) -> WantedStatus:
    """Return the status of an object."""
    active, reason, message = _active(choice)
    generation, good = choice.judged.generation, choice.known.good
    conditions = [
        {
            "type": type_,
            "status": str(holds),
            "reason": why,
            "message": text,
            "observedGeneration": generation,
        }
        for type_, holds, why, text in (
            (ACCEPTED, not choice.errors, choice.reason, message_of(choice)),
            (ACTIVE, active, reason, message),
        )
    ]
    fields: dict[str, Any] = {"observedGeneration": generation}
    if good is not None:
        fields["lastGood"] = {"generation": good.generation, "spec": good.spec}
    return WantedStatus(fields, conditions)


def message_of(choice: Choice) -> str:
    """Return all errors of an object's newest version."""
    return "; ".join(map(str, choice.errors))


def _active(choice: Choice) -> tuple[bool, str, str]:
    if choice.version is None:
        return False, "NotAccepted", "no version of it is active"
    if choice.errors:
        return True, "LastGood", f"generation {choice.version.generation} stays active"
    return True, "CurrentGeneration", f"generation {choice.version.generation} is active"


_CONDITIONS: Final = frozenset({ACCEPTED, ACTIVE})
_AGAIN_SECONDS: Final = 5.0
"""The interval of checks whether this replica leads, and of retries."""


class ProfileStatusWriter:
    """Keeps the status of objects up to date.

    Args:
        writer: writes them.
        is_leading: whether writes are allowed now.
    """

    def __init__(self, writer: ApiWriter, *, is_leading: Callable[[], bool]) -> None:
        self._writer = writer
        self._is_leading = is_leading
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
        obj, wanted = choice.known.object, status_of(choice)
        if timeless(obj.status, wanted.fields, _CONDITIONS) == wanted.status():
            return True
        try:
            written = await self._writer.write_status(
                SCHEDULER_PROFILES,
                obj.name,
                obj.uid,
                wanted,
                condition_types=_CONDITIONS,
                newest=choice.known.last_seen,
            )
        except ApiError:  # which is logged
            return False
        if written is not None and choice.known.object is obj:  # until kopf reports the new version
            version = written["metadata"]["resourceVersion"]
            choice.known.object = replace(obj, status=written["status"], resource_version=version)
        return True
