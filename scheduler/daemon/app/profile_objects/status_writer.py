"""Writes the status of SchedulerProfiles when it changes; only the leader writes."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from scheduler.clock import rfc3339
from scheduler.daemon.app.profile_objects.status import status_of
from scheduler.errors import ApiError
from scheduler.kube.client.resources import SCHEDULER_PROFILES
from scheduler.kube.http.request import JSON_PATCH, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.clock import Clock
    from scheduler.daemon.app.profile_objects.version_selection import Choice
    from scheduler.kube.client.requests import Requests

logger = logging.getLogger(__name__)

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
