"""Login with an auth provider of a kubeconfig, by `kubernetes_asyncio`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
from kubernetes_asyncio.client.configuration import Configuration
from kubernetes_asyncio.config.config_exception import ConfigException
from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger

from scheduler.kube.client.login import Login, LoginError
from scheduler.urls import shown_text

if TYPE_CHECKING:
    from collections.abc import Iterable

# Errors of kubernetes_asyncio for a file that is YAML but no kubeconfig, or that refers to missing entries.
# The last one comes from an identity provider.
_LOADING_ERRORS = (
    ConfigException,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    AssertionError,
    aiohttp.ClientError,
)


class ProviderLogin:
    """The credentials of a provider; `kubernetes_asyncio` keeps them until they expire."""

    def __init__(self) -> None:
        self._configuration = Configuration(host="")
        self._loader: KubeConfigLoader | None = None

    async def login(self, kubeconfig: Iterable[Path], context: str) -> Login:
        """Ask the provider for credentials, unless unexpired ones are known.

        Args:
            kubeconfig: the files of the kubeconfig.
            context: name of the context.

        Raises:
            LoginError: the provider fails, or the kubeconfig is invalid.
        """
        configuration = self._configuration
        try:
            loader = self._loader or _loader(kubeconfig, context)
            await loader.load_and_set(configuration)
            self._loader = loader
            authority, certificate, key = (
                Path(file) if file else None
                for file in (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
            )
            setting = (await configuration.auth_settings()).get("BearerToken")
            return Login(
                str(configuration.host),
                setting["value"].strip() if setting and setting["value"] else None,
                authority,
                certificate,
                key,
                verifies=bool(configuration.verify_ssl),
                server_hostname=configuration.tls_server_name,
                proxy=configuration.proxy or "",
            )
        except _LOADING_ERRORS as error:
            raise LoginError(
                shown_text(str(error))
                if isinstance(error, (ConfigException, OSError, aiohttp.ClientError))
                else repr(error)
            ) from error


def _loader(kubeconfig: Iterable[Path], context: str) -> KubeConfigLoader:
    merged = KubeConfigMerger(os.pathsep.join(map(str, kubeconfig))).config
    return KubeConfigLoader(config_dict=merged, active_context=context)
