"""Logging in by an auth provider, which `kubernetes_asyncio` asks as a kubeconfig says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
from kubernetes_asyncio.client.configuration import Configuration
from kubernetes_asyncio.config.config_exception import ConfigException
from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger

from scheduler.client.login import Login, LoginError
from scheduler.urls import shown_text

if TYPE_CHECKING:
    from collections.abc import Iterable

# What kubernetes_asyncio raises at a file that is YAML but no kubeconfig, or names what is not there; the last of an
# identity provider.
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
    """The answers of a provider, kept by `kubernetes_asyncio` until they expire."""

    def __init__(self) -> None:
        self._configuration = Configuration(host="")
        self._loader: KubeConfigLoader | None = None

    async def login(self, kubeconfig: Iterable[Path], context: str) -> Login:
        """Ask the provider, if its answer is not known or about to expire.

        Args:
            kubeconfig: its files.
            context: whose user.

        Raises:
            LoginError: it does not answer, or the kubeconfig is broken.
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
