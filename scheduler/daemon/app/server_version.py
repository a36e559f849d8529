"""The emulated version of Kubernetes: the API server's, unless a flag or the configuration names one."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

from scheduler.configuration.feature_gates import DEFAULT_VERSION, version_for
from scheduler.configuration.overrides import with_features
from scheduler.errors import ApiError
from scheduler.kube.client.discovery import read_server_version
from scheduler.retries import REFUSALS

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.configuration.load import Configuration
    from scheduler.configuration.overrides import GivenFeatures
    from scheduler.daemon.metrics import Metrics
    from scheduler.kube.client.outages import Outages
    from scheduler.kube.client.requests import Requests

logger = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 300.0
"""Interval of questions to a server that was always reachable: another one may answer behind the same address."""


class ServerVersions:
    """The version of the API server, and the emulated version that follows from it.

    Args:
        given: what the command line says about features.

    Attributes:
        server: the version that the API server gave last, for example v1.36.2; "" before.
        closest: the known version closest to it; "" before.
    """

    def __init__(self, given: GivenFeatures) -> None:
        self._given = given
        self.server = ""
        self.closest = ""

    async def ask(self, requests: Requests) -> None:
        """Ask the API server for its version; the default version replaces one that it refuses, or that is no version.

        Raises:
            ApiError: no answer.
        """
        before = self.server
        try:
            answer = await read_server_version(requests.send)
            self.server, self.closest = answer.git_version, version_for(answer.major, answer.minor)
        except (ApiError, ValueError) as error:
            if isinstance(error, ApiError) and error.status not in {*REFUSALS, 404}:
                raise
            self.server, self.closest = "unknown", DEFAULT_VERSION
            if before != self.server:
                logger.warning("The API server's version is unknown", extra={"error": str(error)})

    async def settled(self, read: Configuration, requests: Requests) -> Configuration:
        """Ask the API server, and return a configuration with its emulated version and gates.

        Raises:
            ApiError: no answer.
            ConfigurationError: the gates are invalid for the version that the configuration or a flag names.
        """
        await self.ask(requests)
        settled = with_features(read, self._given, server=self.closest)
        logger.info(
            "Deciding as the kube-scheduler of this version",
            extra={"emulated": settled.features.version, "server": self.server},
        )
        return settled

    def show(self, metrics: Metrics, active: Callable[[], Configuration]) -> None:
        """Add a gauge with both versions."""
        metrics.families.read_gauges(
            "custom_scheduler_kubernetes_version_info",
            "Always 1; the labels have the emulated version of kube-scheduler, and the version of the API server.",
            ("emulated", "server"),
            lambda: [((active().features.version, self.server), 1.0)],
        )

    async def follow(
        self, requests: Requests, outages: Outages, *, active: Callable[[], str], activate: Callable[[], None]
    ) -> NoReturn:
        """Ask again after each trouble with the API server, and every few minutes.

        Args:
            requests: sends the requests.
            outages: knows when the API server answers again.
            active: returns the active emulated version; "" if the configuration names it.
            activate: requests the activation of the configuration with another version.
        """
        answers = asyncio.Event()
        outages.when_well(answers.set)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_SECONDS):
                    await answers.wait()
            answers.clear()
            try:
                await self.ask(requests)
            except ApiError as error:
                logger.debug("Cannot read the API server's version", extra={"error": str(error)})
                continue
            if not self._given.version and active() not in {"", self.closest}:
                activate()
