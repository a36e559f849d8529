"""Logging in by an exec plugin: a program that a kubeconfig names says who the user is.

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

from scheduler.client.login import LoginError, content_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scheduler.client.login import Kubeconfig, Login

_EARLY: Final = timedelta(minutes=5)
"""How long before an answer expires the plugin is asked for another."""
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
    """The answers of a plugin, each kept until five minutes before it expires."""

    def __init__(self) -> None:
        self._known: _Status | None = None

    @property
    def tells_expiry(self) -> bool:
        """Whether the plugin says when its answer expires."""
        return self._known is not None and self._known.expiration_timestamp is not None

    def forget(self) -> None:
        """Ask the plugin anew next time: its answer was rejected."""
        self._known = None

    async def login(
        self, kubeconfig: Kubeconfig, aside: Callable[[Callable[[], Any]], Awaitable[Any]]
    ) -> Login:
        """Ask the plugin of a kubeconfig's user, if its answer is not known or about to expire.

        Args:
            kubeconfig: which.
            aside: reads files.

        Raises:
            LoginError: it does not answer, or the kubeconfig is broken.
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
    # Nothing is taken from it: Go's zero time is the first that there is.
    return (expires if expires.tzinfo else expires.replace(tzinfo=UTC)) <= datetime.now(UTC) + _EARLY


async def _asked(
    kubeconfig: Kubeconfig, login: Login, aside: Callable[[Callable[[], Any]], Awaitable[Any]]
) -> _Status:
    plugin, folder = kubeconfig.exec_plugin
    command, version = str(plugin.get("command") or ""), plugin.get("apiVersion")
    if not command or not version:
        raise LoginError(f"exec: {'apiVersion' if command else 'command'} is missing")
    # As kubectl: a path starts from the kubeconfig's folder, and a name alone is looked for in PATH.
    program = str(folder.absolute() / command) if os.sep in command else command
    is_interactive = sys.stdin is not None and sys.stdin.isatty() and plugin.get("interactiveMode") != "Never"
    spec: dict[str, Any] = {"interactive": is_interactive}
    try:
        if plugin.get("provideClusterInfo"):
            spec["cluster"] = await aside(partial(_cluster, login, kubeconfig.exec_config))
        info = msgspec.json.encode({"apiVersion": version, "kind": "ExecCredential", "spec": spec}).decode()
    except (OSError, TypeError, ValueError) as error:  # the others of what JSON cannot say
        raise LoginError(f"exec: what the plugin is to be told of the cluster: {error}") from error
    try:
        more = {str(each["name"]): str(each["value"]) for each in plugin.get("env") or ()}
        arguments = [str(each) for each in plugin.get("args") or ()]
    except (KeyError, TypeError) as error:
        raise LoginError(f"exec: args or env makes no sense: {error!r}") from error
    answer = await _run(program, *arguments, env={**os.environ, **more, _INFO: info}, reads=is_interactive)
    try:
        found = msgspec.json.decode(answer, type=_Credential)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LoginError(f"exec: the answer cannot be read: {error}") from error
    if (found.api_version, found.kind) != (version, "ExecCredential"):
        said = f"{found.kind} of {found.api_version}"
        raise LoginError(f"exec: an ExecCredential of {version} is expected, the answer is a {said}")
    status = found.status
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise LoginError("exec: only one of certificate and key is in the answer")
    if not status.token and not status.client_certificate_data:
        raise LoginError("exec: neither a token nor a certificate is in the answer")
    return status


def _cluster(login: Login, config: object) -> dict[str, Any]:
    """Return what a plugin is told of the server."""
    authority = content_of(login.authority or b"")
    said = {
        "tls-server-name": login.server_hostname,
        "insecure-skip-tls-verify": not login.verifies,
        "certificate-authority-data": base64.b64encode(authority).decode(),
        "proxy-url": login.proxy,
        "config": config,
    }
    return {"server": login.server, **{name: value for name, value in said.items() if value}}


async def _run(program: str, *arguments: str, env: dict[str, str], reads: bool) -> bytes:
    """Return what a program writes.

    Args:
        program: its name or path.
        arguments: of it.
        env: its environment.
        reads: whether it may ask at the terminal; what it asks stands on standard error.

    Raises:
        LoginError: it cannot be run, or says that it failed.
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
    except (OSError, ValueError) as error:  # the second of a name that no file can have
        raise LoginError(f"exec: {program}: {error}") from error
    try:
        answer, complaint = await process.communicate()
    finally:
        if process.returncode is None:  # nobody waits any more
            process.kill()
    if process.returncode:
        said = (complaint or b"").decode(errors="replace").strip()[-_LONGEST_COMPLAINT:]
        raise LoginError(f"exec: process returned {process.returncode}" + (f". {said}" if said else ""))
    return answer
