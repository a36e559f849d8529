"""Chooses the active version of each SchedulerProfile from the known results; builds nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scheduler.configuration.more_profiles import read_profile
from scheduler.daemon.app.default_scheduler import DEFAULT_SCHEDULER
from scheduler.daemon.config_watch.scheduler_profile import ACCEPTED
from scheduler.errors import FieldError
from scheduler.objects.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from scheduler.configuration.more_profiles import ReadProfile
    from scheduler.configuration.types import Profile
    from scheduler.daemon.config_watch.scheduler_profile import ProfileVersion, SchedulerProfile

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
        said: generation, reason and message of the last report.
    """

    def __init__(self, obj: SchedulerProfile) -> None:
        self.object = obj
        self.active: ProfileVersion | None = None
        self.good = obj.kept
        told = obj.condition(ACCEPTED)
        self.said = (told.get("observedGeneration"), told.get("reason"), told.get("message"))
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
