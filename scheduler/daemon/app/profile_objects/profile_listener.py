"""Receives changes of SchedulerProfiles from kopf, in the daemon's event loop, and adds what kopf does not report."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.daemon.config_watch.scheduler_profile import SchedulerProfile
from scheduler.errors import ApiError, ObjectError
from scheduler.kube.client import wire
from scheduler.kube.client.connection import CONNECTION_LOST
from scheduler.kube.client.resources import SCHEDULER_PROFILES
from scheduler.kube.http.request import Request
from scheduler.objects.decode import decode_object

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from scheduler.daemon.app.profile_objects.profiles import ClusterProfiles
    from scheduler.kube.client.requests import Requests

logger = logging.getLogger(__name__)

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
