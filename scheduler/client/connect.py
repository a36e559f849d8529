"""From a kubeconfig or a service account to an open `ApiConnection` whose credentials stay fresh."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from scheduler.client.connection import ApiConnection
from scheduler.client.credentials import Credentials
from scheduler.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

logger = logging.getLogger(__name__)


@asynccontextmanager
async def connect(kubeconfig: str | None, *, context: str | None = None) -> AsyncIterator[ApiConnection]:
    """Connect as a kubeconfig says, or, without one, as a pod inside the cluster.

    Nothing is sent yet, so a server that is away shows at the first request.

    Args:
        kubeconfig: path of the file.
        context: the kubeconfig's context to use; None for its current one.

    Raises:
        ConfigurationError: the kubeconfig is missing or broken, or this is no pod.
    """
    if kubeconfig is None:
        credentials = Credentials("no kubeconfig was given, and as a pod in a cluster", None, None)
    else:
        credentials = Credentials(f"kubeconfig {kubeconfig}", kubeconfig, context)
    await credentials.load()
    connection = ApiConnection(credentials.endpoint(), authorization=credentials)
    refreshing = asyncio.create_task(_keep_fresh(credentials, connection), name="credentials refresh")
    try:
        yield connection
    finally:
        refreshing.cancel()
        with suppress(asyncio.CancelledError):
            await refreshing
        await connection.close()


async def _keep_fresh(credentials: Credentials, connection: ApiConnection) -> None:
    """Read tokens and certificates again for ever; what cannot be read now leaves the old ones in use."""
    identity = credentials.login.identity()
    while True:
        await credentials.wait_stale()
        try:
            await credentials.load()
            if credentials.login.identity() != identity:
                connection.replace_endpoint(credentials.endpoint())
                identity = credentials.login.identity()
                logger.info("Client certificates changed", extra={"source": credentials.source})
        except (ConfigurationError, OSError) as error:
            logger.warning(
                "Credentials could not be read again",
                extra={"source": credentials.source, "error": str(error)},
            )
