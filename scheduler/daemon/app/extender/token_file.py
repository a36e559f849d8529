"""The bearer token of accepted clients, in a file that is read again when it changes."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from scheduler.errors import ConfigurationError, FieldError
from scheduler.files import read_regular
from scheduler.worker_thread import in_a_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from scheduler.daemon.server.callers import Callers

logger = logging.getLogger(__name__)

_REREAD_SECONDS: Final = 10.0


def token_in(path: Path) -> bytes:
    """Return the token in a file.

    Raises:
        ConfigurationError: the file cannot be read, or contains no token.
    """
    try:
        token = read_regular(path).strip()
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror or error}"
        raise ConfigurationError([FieldError("--token-file", problem)]) from error
    if not token:
        raise ConfigurationError([FieldError("--token-file", f"{path} has no token")])
    return token


@asynccontextmanager
async def following_token(callers: Callers, path: Path) -> AsyncIterator[None]:
    """Update the accepted token from the file while the block runs; an invalid file leaves the old token in use."""
    rereading = asyncio.create_task(_keep_fresh(callers, path), name="token refresh")
    try:
        yield
    finally:
        rereading.cancel()
        with suppress(asyncio.CancelledError):
            await rereading


async def _keep_fresh(callers: Callers, path: Path) -> None:
    while True:
        await asyncio.sleep(_REREAD_SECONDS)
        try:
            newest = await in_a_thread(partial(token_in, path), f"reading {path}", gives_up=False)
        except ConfigurationError as error:
            logger.warning("Token could not be read again", extra={"error": str(error)})
            continue
        if newest != callers.token:
            callers.token = newest
            logger.info("Token changed", extra={"file": str(path)})
