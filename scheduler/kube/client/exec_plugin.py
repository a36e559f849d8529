"""Login with an exec plugin: a program, named by a kubeconfig, that returns the user's credential.

Source:
    client-go, plugin/pkg/client/auth/exec/exec.go and rest/exec.go.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.kube.client.login import LoginError, content_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scheduler.kube.client.login import Kubeconfig, Login

_EARLY: Final = timedelta(minutes=5)
"""How long before its credential expires the plugin runs again."""
_INFO: Final = "KUBERNETES_EXEC_INFO"
_LONGEST_COMPLAINT: Final = 2000


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _Credential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    status: _Status


class ExecLogin:
    """The credential of a plugin, kept until five minutes before it expires."""

    def __init__(self) -> None:
        self._known: _Status | None = None

    @property
    def knows_expiry(self) -> bool:
        """Whether the plugin's credential has an expiration time."""
        return self._known is not None and self._known.expiration_timestamp is not None

    def forget(self) -> None:
        """Run the plugin again next time: the server rejected its credential."""
        self._known = None

    async def login(
        self, kubeconfig: Kubeconfig, aside: Callable[[Callable[[], Any]], Awaitable[Any]]
    ) -> Login:
        """Run the plugin of a kubeconfig's user, unless an unexpired credential is known.

        Args:
            kubeconfig: the kubeconfig.
            aside: runs a function that reads files.

        Raises:
            LoginError: the plugin fails, or the kubeconfig is invalid.
        """
        login: Login = await aside(kubeconfig.login)
        if self._known is None or _is_stale(self._known):
            self._known = await _asked(kubeconfig, login, aside)
        known = self._known
        return replace(
            login,
            authorization=f"Bearer {known.token.strip()}" if known.token else None,
            certificate=known.client_certificate_data.encode() if known.client_certificate_data else None,
            key=known.client_key_data.encode() if known.client_key_data else None,
        )


def _is_stale(status: _Status) -> bool:
    expires = status.expiration_timestamp
    if expires is None:
        return True
    # Subtracting from it would fail: Go's zero time is the earliest time.
    return (expires if expires.tzinfo else expires.replace(tzinfo=UTC)) <= datetime.now(UTC) + _EARLY


async def _asked(
    kubeconfig: Kubeconfig, login: Login, aside: Callable[[Callable[[], Any]], Awaitable[Any]]
) -> _Status:
    plugin, folder = kubeconfig.exec_plugin
    command, version = str(plugin.get("command") or ""), plugin.get("apiVersion")
    if not command or not version:
        raise LoginError(f"exec: {'apiVersion' if command else 'command'} is missing")
    # As kubectl does: a path is relative to the kubeconfig's folder, a bare name is looked up in PATH.
    program = str(folder.absolute() / command) if os.sep in command else command
    is_interactive = sys.stdin is not None and sys.stdin.isatty() and plugin.get("interactiveMode") != "Never"
    spec: dict[str, Any] = {"interactive": is_interactive}
    try:
        if plugin.get("provideClusterInfo"):
            spec["cluster"] = await aside(partial(_cluster, login, kubeconfig.exec_config))
        info = msgspec.json.encode({"apiVersion": version, "kind": "ExecCredential", "spec": spec}).decode()
    except OSError as error:
        raise LoginError(f"exec: cannot describe the cluster to the plugin: {error}") from error
    try:
        more = {str(each["name"]): str(each["value"]) for each in plugin.get("env") or ()}
        arguments = [str(each) for each in plugin.get("args") or ()]
    except (KeyError, TypeError) as error:
        raise LoginError(f"exec: args or env is invalid: {error!r}") from error
    answer = await _run(program, *arguments, env={**os.environ, **more, _INFO: info}, reads=is_interactive)
    try:
        found = msgspec.json.decode(answer, type=_Credential)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LoginError(f"exec: the answer cannot be read: {error}") from error
    if (found.api_version, found.kind) != (version, "ExecCredential"):
        found_kind = f"{found.kind} of {found.api_version}"
        raise LoginError(f"exec: expected an ExecCredential of {version}, got a {found_kind}")
    status = found.status
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise LoginError("exec: the answer has only one of certificate and key")
    if not status.token and not status.client_certificate_data:
        raise LoginError("exec: the answer has neither a token nor a certificate")
    return status


def _cluster(login: Login, config: object) -> dict[str, Any]:
    """Return the cluster's description for a plugin."""
    authority = content_of(login.authority or b"")
    cluster_fields = {
        "tls-server-name": login.server_hostname,
        "insecure-skip-tls-verify": not login.verifies,
        "certificate-authority-data": base64.b64encode(authority).decode(),
        "proxy-url": login.proxy,
        "config": config,
    }
    return {"server": login.server, **{name: value for name, value in cluster_fields.items() if value}}


async def _run(program: str, *arguments: str, env: dict[str, str], reads: bool) -> bytes:
    """Run a program and return its output.

    Args:
        program: its name or path.
        arguments: its arguments.
        env: its environment.
        reads: whether it may read from the terminal; it prompts on standard error.

    Raises:
        LoginError: it cannot be run, or reports a failure.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *arguments,
            env=env,
            stdin=None if reads else DEVNULL,
            stdout=PIPE,
            stderr=None if reads else PIPE,
        )
    except (OSError, ValueError) as error:  # ValueError for a name that no file can have
        raise LoginError(f"exec: {program}: {error}") from error
    try:
        answer, complaint = await process.communicate()
    finally:
        if process.returncode is None:  # cancelled
            process.kill()
    if process.returncode:
        output = (complaint or b"").decode(errors="replace").strip()[-_LONGEST_COMPLAINT:]
        raise LoginError(f"exec: process returned {process.returncode}" + (f". {output}" if output else ""))
    return answer
