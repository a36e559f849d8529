"""How to reach an API server and convince it: kubeconfig files and service accounts.

`kubernetes_asyncio` reads them and runs what they ask for (exec plugins, OIDC, token files, client
certificates). Added here: errors that name the file and the problem, and reading again, since tokens and
certificates are replaced while a daemon runs and `kubernetes_asyncio` reads them once.
"""

from __future__ import annotations

import asyncio
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml
from kubernetes_asyncio import config
from kubernetes_asyncio.client.configuration import Configuration
from kubernetes_asyncio.client.rest import RESTClientObject
from kubernetes_asyncio.config.config_exception import ConfigException

from scheduler.errors import ConfigurationError, FieldError

if TYPE_CHECKING:
    import aiohttp

REFRESH_SECONDS = 60.0
"""How often tokens and certificates are read again; `kubernetes_asyncio` asks an exec plugin five minutes
before its token expires."""
EXEC_REFRESH_SECONDS = 600.0
"""How often an exec plugin is asked again that does not say when its answer expires."""

# What kubernetes_asyncio raises at a file that is YAML but no kubeconfig, or names what is not there.
_LOADING_ERRORS = (
    ConfigException,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    AssertionError,
)


@dataclass(frozen=True, slots=True)
class CredentialFiles:
    """Where certificates are, for other clients; None for none.

    Attributes:
        authority: who signed the server's.
        certificate: the client's.
        key: the client's.
        verifies: whether the server's certificate matters.
    """

    authority: str | None
    certificate: str | None
    key: str | None
    verifies: bool


class Credentials:
    """The present way into one API server.

    Attributes:
        source: the kubeconfig's path, or what stands for a pod's service account.
    """

    def __init__(self, source: str, kubeconfig: str | None, context: str | None) -> None:
        self.source = source
        self._kubeconfig = kubeconfig
        self._context = context
        self._configuration = Configuration(host="")
        # Lanes and watches limit themselves; a limit here would let events hold up a bind.
        self._configuration.connection_pool_maxsize = 0
        self._loader: Any = None
        self._rejected = asyncio.Event()

    async def load(self) -> None:
        """Read everything, or read again what may have changed.

        Raises:
            ConfigurationError: something is missing or makes no sense.
        """
        try:
            if self._loader is not None:
                await self._loader.load_and_set(self._configuration)
            elif self._kubeconfig is not None:
                _check_readable(self._kubeconfig)
                self._loader = await config.load_kube_config(
                    config_file=self._kubeconfig,
                    context=self._context,
                    client_configuration=self._configuration,
                    persist_config=False,
                )
            else:
                config.load_incluster_config(  # type: ignore[no-untyped-call]
                    client_configuration=self._configuration, try_refresh_token=False
                )
        except _LOADING_ERRORS as error:
            problem = str(error) if isinstance(error, (ConfigException, OSError)) else repr(error)
            raise self._broken(problem) from error
        if not self._configuration.host:
            raise self._broken("the cluster of the context has no server")

    @property
    def server(self) -> str:
        """The API server's URL."""
        return str(self._configuration.host)

    @property
    def files(self) -> CredentialFiles:
        """The present certificates."""
        found = self._configuration
        return CredentialFiles(
            found.ssl_ca_cert or None, found.cert_file or None, found.key_file or None, bool(found.verify_ssl)
        )

    @property
    def server_hostname(self) -> str | None:
        """The name the server's certificate must carry, if not the URL's."""
        return self._configuration.tls_server_name

    @property
    def proxy(self) -> str | None:
        """The proxy between, from the kubeconfig or else the environment."""
        return self._configuration.proxy or _proxy_of_environment(self.server)

    async def header(self) -> str | None:
        setting = (await self._configuration.auth_settings()).get("BearerToken")
        return setting["value"].strip() if setting and setting["value"] else None

    def rejected(self) -> None:
        self._rejected.set()

    async def wait_stale(self) -> None:
        """Wait until it is time to read again, or at once when the server rejected what there is."""
        exec_says_nothing = (
            self._loader is not None
            and "exec" in (self._loader._user or {})  # noqa: SLF001  # as kubernetes_asyncio.config.refresh_token
            and not hasattr(self._loader, "exec_plugin_expiry")
        )
        period = EXEC_REFRESH_SECONDS if exec_says_nothing else REFRESH_SECONDS
        try:
            async with asyncio.timeout(period):
                await self._rejected.wait()
        except TimeoutError:
            return
        # A rejected plugin's answer is not kept until it expires.
        if self._loader is not None and hasattr(self._loader, "exec_plugin_expiry"):
            del self._loader.exec_plugin_expiry
        # Whatever is wrong, a server that rejects everything is not asked after every answer.
        await asyncio.sleep(1.0)
        self._rejected.clear()

    def connector(self) -> aiohttp.BaseConnector:
        """Make a connection pool with the present certificates.

        Raises:
            ConfigurationError: the certificates cannot be used.
        """
        try:
            session = RESTClientObject(self._configuration).pool_manager
        except OSError as error:  # ssl.SSLError is one
            raise self._broken(f"certificates: {error}") from error
        connector = session.connector
        assert connector is not None
        session.detach()  # ours takes its place
        return connector

    def identity(self) -> tuple[bytes, ...]:
        """What connections are made with, to see whether it changed: certificates and key."""
        files = (
            self._configuration.ssl_ca_cert,
            self._configuration.cert_file,
            self._configuration.key_file,
        )
        return tuple(Path(file).read_bytes() if file else b"" for file in files)

    def _broken(self, problem: str) -> ConfigurationError:
        return ConfigurationError([FieldError("", problem)], source=self.source)


def _check_readable(kubeconfig: str) -> None:
    """Raise what is wrong with the file itself; kubernetes_asyncio only logs that it is missing."""
    try:
        parsed = yaml.safe_load(Path(kubeconfig).expanduser().read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigException("no such file") from error
    except OSError as error:
        raise ConfigException(f"cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigException(f"is not YAML: {error}") from error
    if not isinstance(parsed, dict):
        raise ConfigException(f"should hold a mapping, holds {type(parsed).__name__}")


def _proxy_of_environment(server: str) -> str | None:
    parts = urlsplit(server)
    if not parts.hostname or urllib.request.proxy_bypass(parts.hostname):
        return None
    return urllib.request.getproxies().get(parts.scheme)
