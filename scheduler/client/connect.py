"""From a kubeconfig or a service account to an open `ApiConnection` whose credentials stay fresh.

They are read again and again, since tokens and certificates are replaced.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from scheduler.aside import in_a_thread
from scheduler.client.connection import ApiConnection
from scheduler.client.exec_plugin import ExecLogin
from scheduler.client.http.endpoint import Endpoint
from scheduler.client.login import Kubeconfig, Login, LoginError, login_of_pod
from scheduler.errors import ConfigurationError, FieldError
from scheduler.proxies import is_http, proxy_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from scheduler.client.login_by_provider import ProviderLogin

logger = logging.getLogger(__name__)

Identity: TypeAlias = tuple[bytes, ...]

REFRESH_SECONDS = 60.0
"""How often tokens and certificates are read again; a plugin is asked five minutes before its answer expires."""
PLUGIN_REFRESH_SECONDS = 600.0
"""How often a plugin is asked again that does not say when its answer expires."""


@asynccontextmanager
async def connect(kubeconfig: str | None) -> AsyncIterator[ApiConnection]:
    """Connect as the current context of a kubeconfig says, or $KUBECONFIG's, or, without any, as a pod inside the cluster.

    Nothing is sent yet, so a server that is away shows at the first request.

    Raises:
        ConfigurationError: the kubeconfig is missing or broken, or this is no pod.
    """
    async with connected(Credentials(kubeconfig)) as connection:
        yield connection


@asynccontextmanager
async def connected(credentials: Credentials) -> AsyncIterator[ApiConnection]:
    """Connect with credentials, which are read for that, as `connect`."""
    await credentials.load()
    identity, endpoint = await in_a_thread(credentials.changed, f"reading {credentials.source}")
    assert endpoint is not None
    connection = ApiConnection(endpoint, authorization=credentials)
    refreshing = asyncio.create_task(
        _keep_fresh(credentials, connection, identity), name="credentials refresh"
    )
    try:
        yield connection
    finally:
        refreshing.cancel()
        with suppress(asyncio.CancelledError):
            await refreshing
        await connection.close()


async def _keep_fresh(credentials: Credentials, connection: ApiConnection, identity: Identity) -> None:
    """Read tokens and certificates again for ever; what cannot be read now leaves the old ones in use."""
    doing = f"reading {credentials.source}"
    while True:
        await credentials.wait_stale()
        try:
            await credentials.load(gives_up=False)
            read = partial(credentials.changed, identity)
            identity, endpoint = await in_a_thread(read, doing, gives_up=False)
            if endpoint is not None:
                connection.replace_endpoint(endpoint)
                logger.info("Client certificates changed", extra={"source": credentials.source})
        except (ConfigurationError, OSError) as error:
            logger.warning(
                "Credentials could not be read again",
                extra={"source": credentials.source, "error": str(error)},
            )
        except Exception:
            # A mistake of ours, after which tokens have to be read again all the same.
            logger.exception("Credentials could not be read again", extra={"source": credentials.source})


class Credentials:
    """What a kubeconfig, or without one a pod's service account, says at present; an `Authorization`.

    Args:
        kubeconfig: path of the file; None for those that $KUBECONFIG names, or else the service account.
        context: of the kubeconfig; "" for the current one.

    Attributes:
        namespace: of what names none, as the context says; read by `load`.
        source: for messages.
        login: as last read; `load` it first.
    """

    def __init__(self, kubeconfig: str | None, context: str = "") -> None:
        named = os.environ.get("KUBECONFIG", "")
        if kubeconfig is not None:
            self.source, self._kubeconfig = f"kubeconfig {kubeconfig}", [Path(kubeconfig)]
        elif files := [Path(name) for name in named.split(os.pathsep) if name]:
            self.source, self._kubeconfig = f"kubeconfig {named} of $KUBECONFIG", files
        else:
            self.source, self._kubeconfig = "the API server", []
        self.login = Login("")
        self.namespace = "default"
        self._context = context
        self._plugin: ExecLogin | None = None
        self._provider: ProviderLogin | None = None
        self._rejected = asyncio.Event()

    async def load(self, *, gives_up: bool = True) -> None:
        """Read everything, or read again what may have changed.

        Args:
            gives_up: whether files that cannot be read in time are given up; see `in_a_thread`.

        Raises:
            ConfigurationError: something is missing or makes no sense.
            TookTooLongError: it is given up.
        """
        try:
            login = await self._read(partial(in_a_thread, doing=f"reading {self.source}", gives_up=gives_up))
            login.check()
        except LoginError as error:
            raise self._broken(str(error)) from error
        self.login = login

    def header(self) -> str | None:
        return self.login.authorization

    def rejected(self) -> None:
        self._rejected.set()

    async def wait_stale(self) -> None:
        """Wait until it is time to read again, or at once when the server rejected what there is."""
        tells_expiry = self._plugin is None or self._plugin.tells_expiry
        try:
            async with asyncio.timeout(REFRESH_SECONDS if tells_expiry else PLUGIN_REFRESH_SECONDS):
                await self._rejected.wait()
        except TimeoutError:
            return
        if self._plugin is not None:
            self._plugin.forget()
        # Whatever is wrong, a server that rejects everything is not asked after every answer.
        await asyncio.sleep(1.0)
        self._rejected.clear()

    def endpoint(self) -> Endpoint:
        """Return the way to the server with the present certificates.

        Raises:
            ConfigurationError: the certificates cannot be used, or the proxy is of another kind.
        """
        login = self.login
        if self.proxy and not is_http(self.proxy):
            raise self._broken(
                f"the proxy that {'it' if login.proxy else 'the environment'} names is no HTTP proxy"
            )
        try:
            tls = login.tls() if login.server.startswith("https") else None
        except OSError as error:  # ssl.SSLError is one
            raise self._broken(f"certificates: {error}") from error
        return Endpoint(login.server, tls, login.server_hostname, self.proxy)

    def changed(self, identity: Identity | None = None) -> tuple[Identity, Endpoint | None]:
        """Return with what connections are made at present, and the way to the server if that is something else.

        Raises:
            ConfigurationError: as `endpoint`.
        """
        try:
            newest = self.login.identity()
        except OSError as error:
            raise self._broken(f"certificates: {error}") from error
        return newest, None if newest == identity else self.endpoint()

    @property
    def proxy(self) -> str:
        """The proxy between, from the kubeconfig or else the environment; "" for none."""
        return self.login.proxy or proxy_of(self.login.server)

    async def _read(self, aside: Callable[[Callable[[], Any]], Awaitable[Any]]) -> Login:
        login: Login
        if not self._kubeconfig:
            login = await aside(login_of_pod)
            return login
        kubeconfig: Kubeconfig = await aside(partial(Kubeconfig, *self._kubeconfig, context=self._context))
        self.namespace = kubeconfig.namespace
        if kubeconfig.asks_provider:
            if self._provider is None:
                from scheduler.client.login_by_provider import (
                    ProviderLogin,  # as long as all other imports together
                )

                self._provider = ProviderLogin()
            return await self._provider.login(self._kubeconfig, kubeconfig.context)
        if kubeconfig.asks_plugin:
            self._plugin = self._plugin or ExecLogin()
            return await self._plugin.login(kubeconfig, aside)
        login = await aside(kubeconfig.login)
        return login

    def _broken(self, problem: str) -> ConfigurationError:
        return ConfigurationError([FieldError("", problem)], source=self.source)
