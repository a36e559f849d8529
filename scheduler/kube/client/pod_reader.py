"""Reads one pod from the API server, bypassing all caches."""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import TYPE_CHECKING

from scheduler.errors import ApiError
from scheduler.kube.client.resources import PODS
from scheduler.kube.http.request import Request
from scheduler.objects.decode import decode_pod
from scheduler.retries import REFUSALS, Backoff, RetryPolicy

if TYPE_CHECKING:
    from random import Random

    from scheduler.kube.client.connection import ApiConnection
    from scheduler.objects.pod import PodInfo

logger = logging.getLogger(__name__)

_MAXIMUM_SECONDS = 5.0
_TRIES_UNTIL_TOLD = 5
_WITHOUT_END = RetryPolicy()
_REFUSED = RetryPolicy(_TRIES_UNTIL_TOLD, also=REFUSALS)


class ApiPodReader:
    """Reads pods one at a time; used when the answer to a Binding leaves open whether it took effect."""

    def __init__(self, connection: ApiConnection, random: Random) -> None:
        self._connection = connection
        self._random = random

    async def read_pod(self, namespace: str, name: str) -> PodInfo | None:
        """Return the current pod, None if it does not exist.

        Retries for as long as the API server is in trouble: the resources of a pod that may be bound can be
        neither given to another pod nor considered lost.

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
                if not (_WITHOUT_END.allows(error, tries) or _REFUSED.allows(error, tries)):
                    raise
                if tries == _TRIES_UNTIL_TOLD:
                    fields = {"pod": f"{namespace}/{name}", "status": error.status, "error": str(error)}
                    logger.warning(
                        "Cannot read the pod after a Binding without an answer; retrying", extra=fields
                    )
                await asyncio.sleep(error.pause_seconds(backoff.next_seconds()))
            else:
                return decode_pod(answer.body)
        raise AssertionError("counting ends nowhere")
