"""Puts SchedulerProfiles in force beside the configuration's own profiles, and says of each what became of it."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from scheduler.app.profile_objects.choosing import Known, choose
from scheduler.app.profile_objects.status import message_of
from scheduler.client.recorded_event import ObjectReference
from scheduler.client.resources import SCHEDULER_PROFILES
from scheduler.configuration.more_profiles import faults_of_added, read_profile, with_more_profiles
from scheduler.errors import ConfigurationError, FieldError, SchedulerError, UnreadError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from scheduler.app.daemon import Daemon
    from scheduler.app.profile_objects.choosing import Choice, Refusals
    from scheduler.client.events import EventRecorder
    from scheduler.configuration.load import Configuration
    from scheduler.controllers.scheduler_profile import SchedulerProfile, Version

logger = logging.getLogger(__name__)

ACCEPTED_EVENT: Final = "ProfileAccepted"
REJECTED_EVENT: Final = "ProfileRejected"
_ACTION: Final = "Reloading"
_SETTLE_SECONDS: Final = 0.2
"""Objects that are applied together are taken together: each time all profiles are built anew."""

_PAUSE_SECONDS: Final = 5.0
"""Before all is tried again when not even what was in force could be built."""


class ClusterProfiles:
    """The SchedulerProfiles of a cluster.

    What is in force is the configuration's profiles and one version of each object that can be had, the newest if it
    works. A wrong object costs none of the others.

    Args:
        daemon: whose profiles they are; what it has now is the configuration without objects.
        recorder: of events about objects.
        try_out: runs the code that a configuration brings where it can do no harm; raises ConfigurationError.
        told: is called when there is something to say of objects.

    Attributes:
        choices: uid -> what became of an object.
    """

    def __init__(
        self,
        daemon: Daemon,
        *,
        recorder: EventRecorder,
        try_out: Callable[[Configuration], Awaitable[None]] | None = None,
        told: Callable[[], None],
    ) -> None:
        self.choices: dict[str, Choice] = {}
        self._daemon = daemon
        self._recorder = recorder
        self._try_out = try_out
        self._told = told
        self._base = self._merged = daemon.configuration
        self._known: dict[str, Known] = {}  # name -> object
        self._are_changed = asyncio.Event()
        self._putting = asyncio.Lock()
        self._has_unread = False  # something was refused only because what it needs could not be read
        daemon.watches.outages.when_over(self._try_unread_again)

    def changed(self, obj: SchedulerProfile) -> None:
        """Take in a version of an object."""
        known = self._known.get(obj.name)
        if known is None or known.object.uid != obj.uid:
            self._known[obj.name] = Known(obj)
            self._are_changed.set()
            return
        is_new = known.object.now.generation != obj.now.generation
        known.object = obj
        if is_new:
            self._are_changed.set()
        else:
            self._told()  # perhaps somebody else wrote its status

    def deleted(self, name: str) -> None:
        """Take in that an object is gone."""
        known = self._known.pop(name, None)
        if known is not None:
            self.choices.pop(known.object.uid, None)
            self._are_changed.set()

    def names(self) -> set[str]:
        """Return the names of all objects."""
        return set(self._known)

    def _try_unread_again(self) -> None:
        if self._has_unread:
            self._are_changed.set()

    async def put(self, base: Configuration) -> Sequence[str]:
        """Put another configuration in force, with what is in force of the objects.

        Returns:
            As `Daemon.reload`.

        Raises:
            ConfigurationError: something is wrong with the configuration itself.
            SchedulerError: nothing is running.
        """
        async with self._putting:
            left = await self._put(base, _as_they_are, {})
            self._base = base
            # A name may be free now, or a plugin be there that was not.
            self._are_changed.set()
        return left

    async def run(self) -> NoReturn:
        """Take what changes, until cancelled."""
        await self._daemon.watches.wait_synced()  # nothing is built before that
        while True:
            await self._are_changed.wait()
            await asyncio.sleep(_SETTLE_SECONDS)
            self._are_changed.clear()
            async with self._putting:
                await self._read_ahead()
                try:
                    await self._take()
                except Exception:
                    logger.exception("Profiles cannot be put in force; what is in force stays")
                    self._are_changed.set()
            self._say()
            if self._are_changed.is_set():
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _read_ahead(self) -> None:
        """Read what is new in a thread: many objects take a while, and pods wait for nothing."""
        unread = [
            (known, version)
            for known in self._known.values()
            for version in known.versions()
            if not known.has_read(version)
        ]
        specs = [version.spec for _, version in unread]
        found = await self._daemon.aside(
            lambda: [read_profile(spec) for spec in specs], "reading SchedulerProfiles"
        )
        for (known, version), read in zip(unread, found, strict=True):
            known.take(version, read)

    async def _take(self) -> None:
        """Put the best version of every object in force."""
        refused: Refusals = {}
        self._has_unread = False
        try:
            await self._put(self._base, Known.versions, refused)
        except SchedulerError as error:
            self._has_unread = isinstance(error, UnreadError)
            logger.info("Profiles are tried one by one", extra={"error": str(error)})
            await self._take_one_by_one(refused)
        except Exception:
            logger.exception("Profiles could not be built; they are tried one by one")
            await self._take_one_by_one(refused)

    async def _take_one_by_one(self, refused: Refusals) -> None:
        """Find out which object it is that cannot be put in force: it does not show in the error."""
        tried: set[str] = set()

        def versions_of(known: Known) -> Sequence[Version]:
            return known.versions() if known.object.uid in tried else _as_they_are(known)

        for known in sorted(self._known.values(), key=lambda each: each.age):
            tried.add(known.object.uid)
            for version in known.versions():
                try:
                    await self._put(self._base, versions_of, refused)
                except Exception as error:
                    if not isinstance(error, SchedulerError):
                        # Whatever a plugin's code does when it is loaded, the scheduler that runs goes on.
                        logger.exception("Profile could not be built", extra={"profile": known.object.name})
                    self._has_unread |= isinstance(error, UnreadError)
                    refused[known.object.uid, version.generation] = _whole(error)
                else:
                    break
        await self._put(self._base, versions_of, refused)

    async def _put(
        self, base: Configuration, versions_of: Callable[[Known], Sequence[Version]], refused: Refusals
    ) -> Sequence[str]:
        """Put a configuration and objects in force; those in which an error is found are left out, and noted.

        Raises:
            ConfigurationError: of no object in particular.
            SchedulerError: nothing is running.
        """
        own = [profile.scheduler_name for profile in base.settings.profiles]
        while True:
            choices = choose(own, self._known.values(), versions_of, refused)
            chosen = [
                (choice, choice.version, choice.profile)
                for choice in choices
                if choice.version is not None and choice.profile is not None
            ]
            profiles = [profile for _, _, profile in chosen]
            left: Sequence[str] = ()
            try:
                merged = await self._daemon.aside(
                    partial(with_more_profiles, base, profiles), "merging SchedulerProfiles"
                )
                # A new base may say the same as the old one and have other files beside it.
                if base is not self._base or merged != self._merged:
                    if self._try_out is not None:
                        await self._try_out(merged)
                    left = await self._daemon.reload(merged)
                    self._merged = merged
                    names = sorted(self._daemon.frameworks)
                    logger.info("Profiles in force", extra={"profiles": names})
            except ConfigurationError as error:
                faults = faults_of_added(error.errors, len(own), profiles)
                if not faults:
                    raise
                for place, errors in faults.items():
                    choice, version, _ = chosen[place]
                    refused[choice.known.object.uid, version.generation] = tuple(errors)
            else:
                self._note(choices)
                return left

    def _note(self, choices: Iterable[Choice]) -> None:
        for choice in choices:
            choice.known.in_force = choice.version
            if choice.version is not None:
                choice.known.good = choice.version
        here = {known.object.uid for known in self._known.values()}
        self.choices = {each.known.object.uid: each for each in choices if each.known.object.uid in here}

    def _say(self) -> None:
        """Log what became of the objects, and record an event, where it was not told before."""
        for choice in self.choices.values():
            obj, message = choice.known.object, message_of(choice)
            verdict = (choice.judged.generation, choice.reason, message)
            if choice.known.said == verdict:
                continue
            choice.known.said = verdict
            fields = {"profile": obj.name, "generation": choice.judged.generation}
            if choice.errors:
                logger.error("Profile rejected", extra={**fields, "error": message})
                version = choice.version
                stays = f"; generation {version.generation} stays in force" if version is not None else ""
                self._record(obj, "Warning", REJECTED_EVENT, f"{message}{stays}")
            else:
                logger.info("Profile in force", extra=fields)
                self._record(obj, "Normal", ACCEPTED_EVENT, "In force now")
        self._told()

    def _record(self, obj: SchedulerProfile, type_: str, reason: str, note: str) -> None:
        about = ObjectReference(
            kind=SCHEDULER_PROFILES.kind,
            name=obj.name,
            uid=obj.uid,
            api_version=SCHEDULER_PROFILES.api_version,
            resource_version=obj.resource_version,
        )
        # Another refusal has its own words; as a series of the first they would not be read.
        self._recorder.record(about, type_=type_, reason=reason, action=_ACTION, note=note, is_unique=True)


def _as_they_are(known: Known) -> Sequence[Version]:
    return [] if known.in_force is None else [known.in_force]


def _whole(error: Exception) -> tuple[FieldError, ...]:
    """Say of the whole object what is said of no field of it."""
    if isinstance(error, ConfigurationError):
        return tuple(FieldError("spec", fault.problem) for fault in error.errors)
    told = str(error) if isinstance(error, SchedulerError) else f"{type(error).__name__}: {error}"
    return (FieldError("spec", told),)
