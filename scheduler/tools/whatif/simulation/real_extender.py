"""HTTP extenders that are really called while virtual time stops."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.extensions.extenders.http_extender import HttpExtender
from scheduler.urls import shown_url

if TYPE_CHECKING:
    from scheduler.configuration.types import Extender
    from scheduler.tools.whatif.simulation.virtual_time import VirtualTimeLoop

logger = logging.getLogger(__name__)


class RealExtender(HttpExtender):
    """One extender; its calls take no virtual time.

    Args:
        loop: the loop whose clock stops.
        arguments: those of `HttpExtender`.
    """

    def __init__(self, loop: VirtualTimeLoop, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._loop = loop

    async def _post(self, url: str, verb: str, body: bytes) -> bytes:
        with self._loop.held(self._seconds):
            return await super()._post(url, verb, body)


def without_bind(extender: Extender) -> Extender:
    """Return an extender without its bind verb: it would bind pods in a real cluster."""
    if not extender.bind_verb:
        return extender
    logger.warning(
        "Not simulated: the extender's bind verb is not called",
        extra={"extender": shown_url(extender.url_prefix)},
    )
    return msgspec.structs.replace(extender, bind_verb="")
