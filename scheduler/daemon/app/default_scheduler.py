"""Protects against a running kube-scheduler: a profile named default-scheduler would schedule the same pods."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from scheduler.errors import ApiError, ConfigurationError, FieldError
from scheduler.kube.client.lease import Lease
from scheduler.kube.client.resources import LEASES
from scheduler.kube.http.request import Request

if TYPE_CHECKING:
    from scheduler.configuration.load import Configuration
    from scheduler.kube.client.lease import LeaseRecord
    from scheduler.kube.client.requests import Requests

logger = logging.getLogger(__name__)

DEFAULT_SCHEDULER = "default-scheduler"
DEFAULT_LEASE = ("kube-system", "kube-scheduler")
"""Namespace and name of kube-scheduler's lease."""
_NAMESPACE, _NAME = DEFAULT_LEASE
_USUAL_LEASE_SECONDS = 15
_ASK_SECONDS = 1.0


async def refuse_beside_default_scheduler(connection: Requests, configuration: Configuration) -> None:
    """Return if no profile is named default-scheduler, or if no other scheduler runs under that name.

    Renewals show whether the holder of kube-scheduler's lease is alive; clocks are not compared. A lease that is no longer
    renewed is waited out, as by another kube-scheduler.

    Raises:
        ConfigurationError: a running kube-scheduler schedules these pods.
    """
    names = [profile.scheduler_name for profile in configuration.settings.profiles]
    if DEFAULT_SCHEDULER not in names:
        return
    first = await _read(connection)
    if first is None or not first.holder:
        return
    waits = range(int((first.lease_duration_seconds or _USUAL_LEASE_SECONDS) / _ASK_SECONDS) + 1)
    for _ in waits:
        await asyncio.sleep(_ASK_SECONDS)
        record = await _read(connection)
        if record is None or not record.holder:
            return
        if record != first:
            path = f"profiles[{names.index(DEFAULT_SCHEDULER)}].schedulerName"
            problem = (
                f"{DEFAULT_SCHEDULER} is placed by a live scheduler, {record.holder}, which holds the lease "
                f"{_NAMESPACE}/{_NAME}; choose another name, or replace it and say --replace-default-scheduler"
            )
            raise ConfigurationError([FieldError(path, problem)], configuration.source)


async def _read(connection: Requests) -> LeaseRecord | None:
    try:
        answer = await connection.send(Request("GET", LEASES.path(_NAMESPACE, _NAME)))
    except ApiError as error:
        if error.status != 404:
            logger.warning(
                "Cannot determine whether a default scheduler is running",
                extra={"lease": f"{_NAMESPACE}/{_NAME}", "error": str(error)},
            )
        return None
    return Lease.decode(answer.body, f"{_NAMESPACE}/{_NAME}").record
