"""Logging in by an exec plugin or an auth provider, which `kubernetes_asyncio` runs as a kubeconfig asks for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from kubernetes_asyncio import config
from kubernetes_asyncio.client.configuration import Configuration
from kubernetes_asyncio.config.config_exception import ConfigException

from scheduler.client.login import Login, LoginError

if TYPE_CHECKING:
    from collections.abc import Iterable

# What kubernetes_asyncio raises at a file that is YAML but no kubeconfig, or names what is not there.
_LOADING_ERRORS = (ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError, AssertionError)


class PluginLogin:
    """The answers of a plugin, kept by `kubernetes_asyncio` until five minutes before they expire."""

    def __init__(self) -> None:
        self._configuration = Configuration(host="")
        self._loader: config.kube_config.KubeConfigLoader | None = None

    @property
    def tells_expiry(self) -> bool:
        """Whether the plugin says when its answer expires."""
        user = None if self._loader is None else self._loader._user  # noqa: SLF001  # as kubernetes_asyncio itself
        return "exec" not in (user or {}) or self._has_expiry

    @property
    def _has_expiry(self) -> bool:
        return hasattr(self._loader, "exec_plugin_expiry")

    def forget(self) -> None:
        """Ask the plugin anew next time: its answer was rejected."""
        if self._loader is not None and self._has_expiry:
            del self._loader.exec_plugin_expiry

    async def login(self, kubeconfig: Iterable[Path], context: str) -> Login:
        """Ask the plugin, if its answer is not known or about to expire.

        Args:
            kubeconfig: its files.
            context: whose user.

        Raises:
            LoginError: it does not answer, or the kubeconfig is broken.
        """
        configuration = self._configuration
        try:
            if self._loader is not None:
                await self._loader.load_and_set(configuration)
            else:
                self._loader = await config.load_kube_config(
                    config_file=os.pathsep.join(map(str, kubeconfig)),
                    context=context,
                    client_configuration=configuration,
                    persist_config=False,
                )
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
                str(error) if isinstance(error, (ConfigException, OSError)) else repr(error)
            ) from error
