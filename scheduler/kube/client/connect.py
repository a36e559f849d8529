"""Connects with a kubeconfig or a service account, and keeps the credentials of the `ApiConnection` fresh.

Credentials are read periodically, because tokens and certificates are replaced.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from scheduler.errors import ConfigurationError, FieldError
from scheduler.kube.client.connection import ApiConnection
from scheduler.kube.client.login import ExecLogin, Headers, Kubeconfig, Login, LoginError, login_of_pod
from scheduler.kube.http.endpoint import Endpoint, proxy_of
from scheduler.urls import is_http_url
from scheduler.worker_thread import in_a_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from scheduler.kube.client.login_by_provider import ProviderLogin

logger = logging.getLogger(__name__)

Identity: TypeAlias = tuple[bytes, ...]

_ADVICE = "set certificate-authority and tls-server-name in the kubeconfig"

REFRESH_SECONDS = 60.0
"""Interval of reading tokens and certificates; an exec plugin is run again five minutes before its credential expires."""
PLUGIN_REFRESH_SECONDS = 600.0
"""Interval of running an exec plugin that returns no expiration time."""


@asynccontextmanager
async def connect(kubeconfig: str | None) -> AsyncIterator[ApiConnection]:
    """Connect with the current context of a kubeconfig or of $KUBECONFIG, or, without either, with the pod's service account.

    Sends nothing yet, so that an unreachable server shows only at the first request.

    Raises:
        ConfigurationError: the kubeconfig is missing or invalid, or the process does not run in a pod.
    """
    async with connected(Credentials(kubeconfig)) as connection:
        yield connection


@asynccontextmanager
async def connected(credentials: Credentials) -> AsyncIterator[ApiConnection]:
    """Connect as `connect` does, with credentials that this function loads."""
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
    """Read tokens and certificates periodically; if reading fails, the old ones stay in use."""
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
            # After a bug, too, tokens must be read again.
            logger.exception("Credentials could not be read again", extra={"source": credentials.source})


class Credentials:
    """The current content of a kubeconfig, or of a pod's service account; an `Authorization`.

    Args:
        kubeconfig: path of the file; None for the files in $KUBECONFIG, or else the service account.
        context: name of a context of the kubeconfig; "" for the current one.

    Attributes:
        namespace: the context's default namespace; set by `load`.
        source: name of the source, for messages.
        login: the credentials as last read; call `load` first.
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
            gives_up: whether to give up reading files that are not read in time; see `in_a_thread`.

        Raises:
            ConfigurationError: something is missing or invalid.
            TookTooLongError: reading was given up.
        """
        try:
            login = await self._read(partial(in_a_thread, doing=f"reading {self.source}", gives_up=gives_up))
            login.check()
        except LoginError as error:
            raise self._broken(str(error)) from error
        self.login = login

    def headers(self) -> Headers:
        return self.login.headers

    def rejected(self) -> None:
        self._rejected.set()

    async def wait_stale(self) -> None:
        """Wait until the next refresh is due; return at once when the server rejected the credentials."""
        knows_expiry = self._plugin is None or self._plugin.knows_expiry
        try:
            async with asyncio.timeout(REFRESH_SECONDS if knows_expiry else PLUGIN_REFRESH_SECONDS):
                await self._rejected.wait()
        except TimeoutError:
            return
        if self._plugin is not None:
            self._plugin.forget()
        # Whatever the cause, do not retry after every answer of a server that rejects all requests.
        await asyncio.sleep(1.0)
        self._rejected.clear()

    def endpoint(self) -> Endpoint:
        """Return the endpoint with the current certificates.

        Raises:
            ConfigurationError: the certificates are unusable, or the proxy is not an HTTP proxy.
        """
        login = self.login
        if self.proxy and not is_http_url(self.proxy):
            raise self._broken(
                f"the proxy in {'the kubeconfig' if login.proxy else 'the environment'} is not an HTTP proxy"
            )
        try:
            tls = login.tls() if login.server.startswith("https") else None
        except OSError as error:  # ssl.SSLError is one
            raise self._broken(f"certificates: {error}") from error
        return Endpoint(login.server, tls, login.server_hostname, self.proxy, advice=_ADVICE)

    def changed(self, identity: Identity | None = None) -> tuple[Identity, Endpoint | None]:
        """Return the identity of new connections, and the endpoint if the identity changed.

        Raises:
            ConfigurationError: see `endpoint`.
        """
        try:
            newest = self.login.identity()
        except OSError as error:
            raise self._broken(f"certificates: {error}") from error
        return newest, None if newest == identity else self.endpoint()

    @property
    def proxy(self) -> str:
        """The proxy of the kubeconfig, or else of the environment; "" for none."""
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
                from scheduler.kube.client.login_by_provider import (
                    ProviderLogin,  # takes as long to import as all other modules together
                )

                self._provider = ProviderLogin()
            login = await self._provider.login(self._kubeconfig, kubeconfig.context)
            return replace(login, impersonation=kubeconfig.impersonation())
        if kubeconfig.asks_plugin:
            self._plugin = self._plugin or ExecLogin()
            return await self._plugin.login(kubeconfig, aside)
        login = await aside(kubeconfig.login)
        return login

    def _broken(self, problem: str) -> ConfigurationError:
        return ConfigurationError([FieldError("", problem)], source=self.source)
