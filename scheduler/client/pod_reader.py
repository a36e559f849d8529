"""Asks the API server for one pod, past every cache."""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import TYPE_CHECKING

from scheduler.client.backoff import Backoff
from scheduler.client.http.request import Request
from scheduler.client.resources import PODS
from scheduler.errors import ApiError
from scheduler.objects.decode import decode_pod

if TYPE_CHECKING:
    from random import Random

    from scheduler.client.connection import ApiConnection
    from scheduler.objects.pod import PodInfo

logger = logging.getLogger(__name__)

_REFUSALS = frozenset({401, 403})
"""Believed after some tries: until it has read its roles, a server that has just begun refuses everything."""
_MAXIMUM_SECONDS = 5.0
_TRIES_UNTIL_TOLD = 5


class ApiPodReader:
    """Reads pods one at a time; asked when an answer to a Binding leaves it open whether it took effect."""

    def __init__(self, connection: ApiConnection, random: Random) -> None:
        self._connection = connection
        self._random = random

    async def read_pod(self, namespace: str, name: str) -> PodInfo | None:
        """Return the pod as it is now, None if there is none.

        Asks until it is told, however long the API server is in trouble: the room of a pod that may be bound can
        be neither given away nor taken for lost.

        Raises:
            ApiError: refused.
            ObjectError: the answer cannot be read.
        """
        backoff = Backoff(self._random, initial_seconds=0.2, maximum_seconds=_MAXIMUM_SECONDS)
        for tries in itertools.count(1):
            try:
                answer = await self._connection.send(Request("GET", PODS.path(namespace, name)))
            except ApiError as error:
                if error.status == 404:
                    return None
                if not error.is_transient and not (error.status in _REFUSALS and tries < _TRIES_UNTIL_TOLD):
                    raise
                if tries == _TRIES_UNTIL_TOLD:
                    fields = {"pod": f"{namespace}/{name}", "status": error.status, "error": str(error)}
                    logger.warning("Cannot learn what became of the pod; asking on", extra=fields)
                await asyncio.sleep(error.pause_seconds(backoff.next_seconds()))
            else:
                return decode_pod(answer.body)
        raise AssertionError("counting ends nowhere")
