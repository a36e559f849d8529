"""Asks the API server for one pod, past every cache."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from scheduler.client.backoff import Backoff
from scheduler.client.resources import PODS
from scheduler.errors import ApiError
from scheduler.objects.decode import decode_pod

if TYPE_CHECKING:
    from random import Random

    from scheduler.client.connection import ApiConnection
    from scheduler.objects.pod import PodInfo

_TRIES = 5


class PodReader:
    """Reads pods one at a time; asked when an answer to a Binding leaves it open whether it took effect."""

    def __init__(self, connection: ApiConnection, random: Random) -> None:
        self._connection = connection
        self._random = random

    async def read_pod(self, namespace: str, name: str) -> PodInfo | None:
        """Return the pod as it is now, None if there is none.

        Raises:
            ApiError: refused, or no answer after a few tries.
        """
        backoff = Backoff(self._random, initial_seconds=0.2, maximum_seconds=5.0)
        for tries_left in reversed(range(_TRIES)):
            try:
                answer = await self._connection.request("GET", PODS.path(namespace, name))
            except ApiError as error:
                if error.status == 404:
                    return None
                if error.status not in {0, 429, 500, 503} or not tries_left:
                    raise
                await asyncio.sleep(error.retry_after_seconds or backoff.next_seconds())
            else:
                return decode_pod(answer.body)
        raise AssertionError("the last try returns or raises")
