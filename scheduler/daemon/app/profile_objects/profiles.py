"""Activates SchedulerProfiles beside the configuration's own profiles, and reports the result of each."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from scheduler.configuration.overrides import faults_of_added, read_profile, with_more_profiles
from scheduler.daemon.app.profile_objects.version_selection import KnownProfile, choose, message_of
from scheduler.daemon.config_watch.config_objects import SchedulerProfile
from scheduler.errors import (
    ApiError,
    ConfigurationError,
    FieldError,
    ObjectError,
    SchedulerError,
    UnreadError,
)
from scheduler.kube.client import wire
from scheduler.kube.client.connection import CONNECTION_LOST
from scheduler.kube.client.events import ObjectReference
from scheduler.kube.client.resources import SCHEDULER_PROFILES
from scheduler.kube.http.request import Request
from scheduler.objects.decode import decode_object

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence

    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.daemon import Daemon
    from scheduler.daemon.app.profile_objects.version_selection import Choice, Refusals
    from scheduler.daemon.config_watch.config_objects import ProfileVersion
    from scheduler.kube.client.events import EventRecorder
    from scheduler.kube.client.requests import Requests

logger = logging.getLogger(__name__)

ACCEPTED_EVENT: Final = "ProfileAccepted"
REJECTED_EVENT: Final = "ProfileRejected"
_ACTION: Final = "Reloading"
_SETTLE_SECONDS: Final = 0.2
"""Objects that are applied together are activated together, because each time all profiles are built again."""

_PAUSE_SECONDS: Final = 5.0
"""The pause before a retry if not even the active versions could be built."""


class ClusterProfiles:
    """The SchedulerProfiles of a cluster.

    Active are the configuration's profiles and one valid version of each object, the newest if possible. An invalid object
    does not affect the others.

    Args:
        daemon: the daemon; its current configuration is the one without objects.
        recorder: recorder of events about objects.
        dry_run_plugins: runs a configuration's code in a separate process; raises ConfigurationError.
        on_change: called when the status of objects may have to change.

    Attributes:
        choices: uid -> the choice for an object.
    """

    def __init__(
        self,
        daemon: Daemon,
        *,
        recorder: EventRecorder,
        try_out: Callable[[Configuration], Awaitable[None]] | None = None,
        on_change: Callable[[], None],
    ) -> None:
        self.choices: dict[str, Choice] = {}
        self._daemon = daemon
        self._recorder = recorder
        self._try_out = try_out
        self._on_change = on_change
        self._base = self._merged = daemon.configuration
        self._known: dict[str, KnownProfile] = {}  # name -> object
        self._are_changed = asyncio.Event()
        self._putting = asyncio.Lock()
        self._has_unread = False  # a version was rejected only because a needed kind could not be read
        daemon.watches.outages.when_over(self._try_unread_again)

    def changed(self, obj: SchedulerProfile) -> None:
        """Store a version of an object."""
        known = self._known.get(obj.name)
        if known is None or known.object.uid != obj.uid:
            self._known[obj.name] = KnownProfile(obj)
            self._are_changed.set()
            return
        is_new = known.object.now.generation != obj.now.generation
        known.object = obj
        if is_new:
            self._are_changed.set()
        else:
            self._on_change()  # another client may have written its status

    def deleted(self, name: str) -> None:
        """Remove a deleted object."""
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
        """Activate another configuration together with the active versions of the objects.

        Returns:
            As `Daemon.reload`.

        Raises:
            ConfigurationError: the configuration itself is invalid.
            SchedulerError: the daemon is not running.
        """
        async with self._putting:
            left = await self._put(base, _as_they_are, {})
            self._base = base
            # A name may be free now, or a missing plugin may exist.
            self._are_changed.set()
        return left

    async def run(self) -> NoReturn:
        """Apply changes, until cancelled."""
        await self._daemon.watches.wait_synced()  # building needs the watches
        while True:
            await self._are_changed.wait()
            await asyncio.sleep(_SETTLE_SECONDS)
            self._are_changed.clear()
            async with self._putting:
                await self._read_ahead()
                try:
                    await self._take()
                except Exception:
                    logger.exception("Profiles cannot be activated; the active ones stay")
                    self._are_changed.set()
            self._say()
            if self._are_changed.is_set():
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _read_ahead(self) -> None:
        """Decode new versions in a thread: many objects take a while, and pods must not wait."""
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
        """Activate the best version of every object."""
        refused: Refusals = {}
        self._has_unread = False
        try:
            await self._put(self._base, KnownProfile.versions, refused)
        except SchedulerError as error:
            self._has_unread = isinstance(error, UnreadError)
            logger.info("Profiles are tried one by one", extra={"error": str(error)})
            await self._take_one_by_one(refused)
        except Exception:
            logger.exception("Profiles could not be built; they are tried one by one")
            await self._take_one_by_one(refused)

    async def _take_one_by_one(self, refused: Refusals) -> None:
        """Find the object that cannot be activated: the error does not name it."""
        tried: set[str] = set()

        def versions_of(known: KnownProfile) -> Sequence[ProfileVersion]:
            return known.versions() if known.object.uid in tried else _as_they_are(known)

        for known in sorted(self._known.values(), key=lambda each: each.age):
            tried.add(known.object.uid)
            for version in known.versions():
                try:
                    await self._put(self._base, versions_of, refused)
                except Exception as error:
                    if not isinstance(error, SchedulerError):
                        # A plugin's code may raise any error when it is loaded; the running scheduler continues.
                        logger.exception("Profile could not be built", extra={"profile": known.object.name})
                    self._has_unread |= isinstance(error, UnreadError)
                    refused[known.object.uid, version.generation] = _whole(error)
                else:
                    break
        await self._put(self._base, versions_of, refused)

    async def _put(
        self,
        base: Configuration,
        versions_of: Callable[[KnownProfile], Sequence[ProfileVersion]],
        refused: Refusals,
    ) -> Sequence[str]:
        """Activate a configuration and objects; objects with an error are excluded and recorded in `refused`.

        Raises:
            ConfigurationError: an error that concerns no single object.
            SchedulerError: the daemon is not running.
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
                # A new base may equal the old one and have other files.
                if base is not self._base or merged != self._merged:
                    if self._try_out is not None:
                        await self._try_out(merged)
                    left = await self._daemon.reload(merged)
                    self._merged = merged
                    names = sorted(self._daemon.frameworks)
                    logger.info("Active profiles", extra={"profiles": names})
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
            choice.known.active = choice.version
            if choice.version is not None:
                choice.known.good = choice.version
        here = {known.object.uid for known in self._known.values()}
        self.choices = {each.known.object.uid: each for each in choices if each.known.object.uid in here}

    def _say(self) -> None:
        """Log the result of each object, and record an event, if it was not reported before."""
        for choice in self.choices.values():
            obj, message = choice.known.object, message_of(choice)
            verdict = (choice.judged.generation, choice.reason, message)
            if choice.known.reported == verdict:
                continue
            choice.known.reported = verdict
            fields = {"profile": obj.name, "generation": choice.judged.generation}
            if choice.errors:
                logger.error("Profile rejected", extra={**fields, "error": message})
                version = choice.version
                stays = f"; generation {version.generation} stays active" if version is not None else ""
                self._record(obj, "Warning", REJECTED_EVENT, f"{message}{stays}")
            else:
                logger.info("Profile activated", extra=fields)
                self._record(obj, "Normal", ACCEPTED_EVENT, "Active now")
        self._on_change()

    def _record(self, obj: SchedulerProfile, type_: str, reason: str, note: str) -> None:
        about = ObjectReference(
            kind=SCHEDULER_PROFILES.kind,
            name=obj.name,
            uid=obj.uid,
            api_version=SCHEDULER_PROFILES.api_version,
            resource_version=obj.resource_version,
        )
        # Each rejection has its own message; in a series with the first it would not be shown.
        self._recorder.record(about, type_=type_, reason=reason, action=_ACTION, note=note, is_unique=True)


def _as_they_are(known: KnownProfile) -> Sequence[ProfileVersion]:
    return [] if known.active is None else [known.active]


def _whole(error: Exception) -> tuple[FieldError, ...]:
    """Return errors without a field as errors of the whole object."""
    if isinstance(error, ConfigurationError):
        return tuple(FieldError("spec", fault.problem) for fault in error.errors)
    on_change = str(error) if isinstance(error, SchedulerError) else f"{type(error).__name__}: {error}"
    return (FieldError("spec", on_change),)


SOURCE: Final = "schedulerprofiles"
_ABSENT_SECONDS: Final = 30.0
"""The interval of checks whether the API server serves the kind by now."""
_AGAIN_SECONDS: Final = 5.0


class ProfileListener:
    """Passes changes from kopf to the profiles.

    When kopf starts it reports no deletions that happened meanwhile, and it never reports objects of a kind that did not
    exist at that time. Therefore all objects are listed once.

    Args:
        profiles: receives the changes.
        requests: lists the objects.
        up: source -> whether its changes are received at present.
        begin_again: restarts kopf, so that it discovers the kinds again.
    """

    def __init__(
        self,
        profiles: ClusterProfiles,
        requests: Requests,
        up: MutableMapping[str, bool],
        begin_again: Callable[[], None],
    ) -> None:
        self._profiles = profiles
        self._requests = requests
        self._up = up
        self._begin_again = begin_again
        self._told: set[str] = set()  # names reported since kopf started
        self._listing: asyncio.Task[None] | None = None
        up[SOURCE] = False

    def began(self) -> None:
        self.stop()
        self._told.clear()
        self._listing = asyncio.create_task(self._list(), name="profiles")

    def changed(self, obj: SchedulerProfile) -> None:
        self._told.add(obj.name)
        self._profiles.changed(obj)

    def deleted(self, name: str) -> None:
        self._told.add(name)
        self._profiles.deleted(name)

    def ended(self) -> None:
        self.stop()
        self._up[SOURCE] = False

    def stop(self) -> None:
        """Stop the list in progress."""
        if self._listing is not None:
            self._listing.cancel()

    async def _list(self) -> None:
        was_absent = False
        while True:
            try:
                objects = await self._listed()
            except ApiError as error:
                if error.status == 404 and not was_absent:
                    logger.warning(
                        "SchedulerProfiles are not watched: the API server does not serve this kind",
                        extra={"resource": str(SCHEDULER_PROFILES)},
                    )
                elif error.status != 404:
                    logger.warning("SchedulerProfiles could not be read", extra={"error": str(error)})
                was_absent |= error.status == 404
                await asyncio.sleep(_ABSENT_SECONDS if error.status == 404 else _AGAIN_SECONDS)
            else:
                break
        if was_absent:
            self._begin_again()
            return
        self._take(objects)

    async def _listed(self) -> list[SchedulerProfile]:
        """Return all objects.

        Raises:
            ApiError: the request failed, or the response is invalid.
        """
        path = SCHEDULER_PROFILES.path()
        answer = await self._requests.send(Request("GET", path))
        try:
            items = wire.decode_list_page(answer.body).objects()
            return [SchedulerProfile.of(decode_object(item)) for item in items]
        except (msgspec.DecodeError, UnicodeDecodeError, ObjectError) as error:
            raise ApiError(0, CONNECTION_LOST, f"list {path}: unreadable answer: {error}") from error

    def _take(self, objects: list[SchedulerProfile]) -> None:
        """Apply a list, except objects that kopf reported meanwhile, whose versions are not older."""
        for obj in objects:
            if obj.name not in self._told:
                self._profiles.changed(obj)
        for name in self._profiles.names() - {obj.name for obj in objects} - self._told:
            self._profiles.deleted(name)
        if not self._up[SOURCE]:
            logger.info("SchedulerProfiles are watched")
        self._up[SOURCE] = True
