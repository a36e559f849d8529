"""Hears of SchedulerProfiles from kopf, in the daemon's loop, and finds out what kopf does not say."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.client import wire
from scheduler.client.connection import CONNECTION_LOST
from scheduler.client.http.request import Request
from scheduler.client.resources import SCHEDULER_PROFILES
from scheduler.controllers.scheduler_profile import SchedulerProfile
from scheduler.errors import ApiError, ObjectError
from scheduler.objects.decode import decode_object

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from scheduler.app.profile_objects.profiles import ClusterProfiles
    from scheduler.client.requests import Requests

logger = logging.getLogger(__name__)

SOURCE: Final = "schedulerprofiles"
_ABSENT_SECONDS: Final = 30.0
"""How often it is looked whether the kind is there by now."""
_AGAIN_SECONDS: Final = 5.0


class ProfileListener:
    """Takes what kopf tells on to the profiles.

    When kopf begins it says nothing of what was deleted meanwhile, and nothing ever of a kind that is not there yet: so
    all objects are listed once.

    Args:
        up: what is followed -> whether its changes are seen at present.
        begin_again: has kopf look anew at which kinds there are.
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
        self._told: set[str] = set()  # names, since kopf began
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
        """End what is under way."""
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
                        "SchedulerProfiles are not followed: the API server does not serve this kind",
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
        """Return what there is.

        Raises:
            ApiError: refused, or answered with something else.
        """
        path = SCHEDULER_PROFILES.path()
        answer = await self._requests.send(Request("GET", path))
        try:
            items = wire.decode_list_page(answer.body).objects()
            return [SchedulerProfile.of(decode_object(item)) for item in items]
        except (msgspec.DecodeError, UnicodeDecodeError, ObjectError) as error:
            raise ApiError(0, CONNECTION_LOST, f"list {path}: unreadable answer: {error}") from error

    def _take(self, objects: list[SchedulerProfile]) -> None:
        """Take a list in, but for what kopf told of meanwhile: that is no older."""
        for obj in objects:
            if obj.name not in self._told:
                self._profiles.changed(obj)
        for name in self._profiles.names() - {obj.name for obj in objects} - self._told:
            self._profiles.deleted(name)
        if not self._up[SOURCE]:
            logger.info("SchedulerProfiles are followed")
        self._up[SOURCE] = True
