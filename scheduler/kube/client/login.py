"""Login at a server with the credentials of a kubeconfig, static or of an exec plugin, or of a pod's service account.

An exec plugin is a program, named by a kubeconfig, that returns the user's credential. `login_by_provider` handles auth
providers with `kubernetes_asyncio`, whose import takes as long as all other imports together.

Source:
    client-go, plugin/pkg/client/auth/exec/exec.go and rest/exec.go.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote, urlsplit

import msgspec

from scheduler.configuration.manifests import read_documents
from scheduler.files import read_any, read_regular
from scheduler.kube.tls import client_context, load_key_pair
from scheduler.urls import shown_url

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable, Mapping

Pem: TypeAlias = Path | bytes
"""Certificates or a key: the path of a file, or the content."""

_FOR_EXEC = "client.authentication.k8s.io/exec"
_HEADER_CHARACTERS = "!#$&'*+-.^_`|~"
"""Characters of the names of headers, beside letters and digits; the others, and %, are escaped."""
Headers: TypeAlias = tuple[tuple[str, str], ...]
"""(name, value); names may occur several times."""
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class LoginError(Exception):
    """Credentials cannot be read or are invalid; the message says why."""


@dataclass(frozen=True, slots=True)
class Login:
    """One server, and the credentials for it.

    Attributes:
        server: its URL.
        authorization: value of the Authorization header; None for none.
        authority: the authorities that sign the server's certificate; None for those the system trusts.
        certificate: the client's certificate; None for none.
        key: the client's key, if it is not in the certificate's file.
        verifies: whether the server's certificate is verified.
        server_hostname: name in the server's certificate, if it is not the URL's.
        proxy: URL of an HTTP proxy; "" for none.
        impersonation: the headers of the user that requests impersonate.
    """

    server: str
    authorization: str | None = None
    authority: Pem | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    verifies: bool = True
    server_hostname: str | None = None
    proxy: str = ""
    impersonation: Headers = ()

    @property
    def headers(self) -> Headers:
        """The headers that authenticate a request."""
        own = () if self.authorization is None else (("Authorization", self.authorization),)
        return (*own, *self.impersonation)

    def check(self) -> None:
        """Check the values that a connection needs.

        Raises:
            LoginError: the server, the token or the user to impersonate is invalid.
        """
        if not self.server:
            raise LoginError("the cluster of the context has no server")
        try:
            url = urlsplit(self.server)
            is_url = url.scheme in {"http", "https"} and url.hostname is not None and url.port != 0
        except ValueError:  # an invalid port
            is_url = False
        if not is_url:
            raise LoginError(f"{shown_url(self.server)!r} is not the URL of a server")
        if self.authorization is not None and not self.authorization.isprintable():
            raise LoginError("the token is more than one line of text")
        for name, value in self.impersonation:
            if not value.isprintable():
                raise LoginError(f"the value of the header {name} is more than one line of text")

    def tls(self) -> ssl.SSLContext:
        """Return the TLS context of connections.

        Raises:
            OSError: a file is missing, a certificate is invalid, or the key does not match.
        """
        authority, certificate, key = (
            None if pem is None else content_of(pem) for pem in (self.authority, self.certificate, self.key)
        )
        context = client_context(authority, verifies=self.verifies)
        if certificate is not None:
            load_key_pair(context, certificate, key)
        return context

    def identity(self) -> tuple[bytes, ...]:
        """Return certificates and key, to compare with those of existing connections.

        Raises:
            OSError: a file is missing.
        """
        return tuple(content_of(pem or b"") for pem in (self.authority, self.certificate, self.key))


def login_of_pod() -> Login:
    """Return the login of a pod in its cluster.

    Raises:
        LoginError: the process does not run in a pod, or its service account is broken.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise LoginError(f"no address is configured: {_ways()}")
    token = _read(SERVICE_ACCOUNT / "token").decode(errors="replace").strip()
    authority = SERVICE_ACCOUNT / "ca.crt"
    if not token or not _read(authority):
        raise LoginError(f"{SERVICE_ACCOUNT}: the token or the certificate is empty")
    name = f"[{host}]" if ":" in host else host
    return Login(f"https://{name}:{port}", f"Bearer {token}", authority)


def _ways() -> str:
    at_home = (
        " (such as ~/.kube/config, which is there)" if Path("~/.kube/config").expanduser().exists() else ""
    )
    return (
        f"give --kubeconfig FILE{at_home}, set $KUBECONFIG, or write clientConnection.kubeconfig in the configuration; "
        "a pod of the cluster needs none, but here KUBERNETES_SERVICE_HOST is not set"
    )


class _Entry(NamedTuple):
    """One entry of a kubeconfig's lists, and the folder that its relative paths start from."""

    values: dict[str, Any]
    folder: Path


class Kubeconfig:
    """A context of a kubeconfig, which may consist of several files; the first file with a value wins.

    Args:
        paths: the files.
        context: name of the context; "" for the current one.

    Attributes:
        context: name of the context.
        namespace: namespace of the context, or else `default`.

    Raises:
        LoginError: a file cannot be read, or something is missing in it.
    """

    def __init__(self, *paths: Path, context: str = "") -> None:
        files = [path.expanduser() for path in paths]
        # As kubectl does: of several files, some may be missing.
        there = [file for file in files if file.exists()] if len(files) > 1 else files
        if not there:
            raise LoginError("no such file")
        contents = [(_parse(file), file.parent) for file in there]
        named = (content.get("current-context") for content, _ in contents)
        self.context = context or next((name for name in named if name), "")
        if not self.context:
            raise LoginError("current-context is missing")
        chosen = _named(contents, "contexts", self.context).values
        self.namespace = str(chosen.get("namespace") or "default")
        self._cluster = _named(contents, "clusters", chosen.get("cluster"))
        user = chosen.get("user")
        known = [
            each["name"]
            for content, _ in contents
            for each in _mappings(content.get("users"))
            if "name" in each
        ]
        self._user = _named(contents, "users", user) if user in known else _Entry({}, Path())

    @property
    def asks_provider(self) -> bool:
        """Whether an auth provider supplies the credentials."""
        return "auth-provider" in self._user.values

    @property
    def asks_plugin(self) -> bool:
        """Whether an exec plugin supplies the credentials."""
        return "exec" in self._user.values

    @property
    def exec_plugin(self) -> tuple[Mapping[str, Any], Path]:
        """The exec plugin's settings, and the folder that a relative path to it starts from."""
        plugin = self._user.values.get("exec")
        return plugin if isinstance(plugin, dict) else {}, self._user.folder

    @property
    def exec_config(self) -> object:
        """The cluster's additional configuration for the exec plugin."""
        extensions = _mappings(self._cluster.values.get("extensions"))
        return next((each.get("extension") for each in extensions if each.get("name") == _FOR_EXEC), None)

    def login(self) -> Login:
        """Return the login.

        Raises:
            LoginError: a value is invalid.
        """
        cluster = self._cluster.values
        server = str(cluster.get("server") or "").rstrip("/")
        is_secure = server.startswith("https")
        return Login(
            server,
            self._authorization(),
            _pem(self._cluster, "certificate-authority") if is_secure else None,
            _pem(self._user, "client-certificate") if is_secure else None,
            _pem(self._user, "client-key") if is_secure else None,
            verifies=not cluster.get("insecure-skip-tls-verify"),
            server_hostname=cluster.get("tls-server-name"),
            proxy=cluster.get("proxy-url") or "",
            impersonation=self.impersonation(),
        )

    def impersonation(self) -> Headers:
        """Return the headers of the user that requests impersonate: those of `as` and the fields beside it.

        Raises:
            LoginError: a field has another type, or only the fields beside `as` are given.

        Source:
            client-go, transport/round_trippers.go, impersonatingRoundTripper, and tools/clientcmd/validation.go.
        """
        user = self._user.values
        name, uid, groups = user.get("as"), user.get("as-uid"), user.get("as-groups") or []
        extra = user.get("as-user-extra") or {}
        try:
            found = (
                *_headers("as", "User", [name] if name else []),
                *_headers("as-uid", "Uid", [uid] if uid else []),
                *_headers("as-groups", "Group", groups),
                *(
                    header
                    for key, values in extra.items()
                    for header in _headers(
                        "as-user-extra", f"Extra-{quote(key, safe=_HEADER_CHARACTERS)}", values
                    )
                ),
            )
        except (AttributeError, TypeError):
            raise LoginError("as-user-extra: should hold lists of texts by key") from None
        if found and not name:
            raise LoginError("as: is missing beside as-uid, as-groups or as-user-extra")
        return found

    def _authorization(self) -> str | None:
        user, folder = self._user
        token = str(user.get("token") or "")
        if user.get("tokenFile"):
            # As client-go does: the file wins, because it changes; the token here is used while the file
            # cannot be read.
            try:
                token = _read(folder / str(user["tokenFile"])).decode(errors="replace").strip() or token
            except LoginError:
                if not token:
                    raise
        if token:
            return f"Bearer {token.strip()}"
        if "username" in user and "password" in user:
            password = f"{user['username']}:{user['password']}"
            return f"Basic {base64.b64encode(password.encode()).decode()}"
        return None


def _headers(field: str, name: str, values: object) -> Headers:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise LoginError(f"{field}: should hold text" + ("" if field in {"as", "as-uid"} else "s in a list"))
    return tuple((f"Impersonate-{name}", value) for value in values)


def _pem(where: _Entry, field: str) -> Pem | None:
    """Return the base64 data of a field, or the file that is named instead."""
    values, folder = where
    if data := values.get(f"{field}-data"):
        try:
            return base64.b64decode("".join(str(data).split()), validate=True)
        except ValueError as error:
            raise LoginError(f"{field}-data: {error}") from error
    if not (name := values.get(field)):
        return None
    file = folder / str(name)
    if not file.exists():
        raise LoginError(f"{file}: no such file")
    return file


def content_of(pem: Pem) -> bytes:
    """Return the text of certificates or a key.

    Raises:
        OSError: the file cannot be read.
    """
    return read_regular(pem) if isinstance(pem, Path) else pem


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise LoginError(f"{path}: {_problem(error)}") from error


def _problem(error: OSError) -> str:
    return "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"


def _parse(kubeconfig: Path) -> dict[str, Any]:
    try:
        documents, errors = read_documents(read_any(kubeconfig))
    except OSError as error:
        raise LoginError(_problem(error)) from error
    if errors or len(documents) > 1:
        raise LoginError(str(errors[0]) if errors else "has more than one document")
    content = msgspec.json.decode(documents[0])
    if not isinstance(content, dict):
        raise LoginError(f"should hold a mapping, holds {type(content).__name__}")
    return content


def _mappings(items: object) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _named(contents: Iterable[tuple[dict[str, Any], Path]], items: str, name: object) -> _Entry:
    """Return the entry with a name in a list of the kubeconfig: `contexts` -> `context`."""
    for content, folder in contents:
        for item in _mappings(content.get(items)):
            inner = item.get(items.removesuffix("s")) or {}
            if item.get("name") == name and isinstance(inner, dict):
                return _Entry(inner, folder)
    raise LoginError(f"{items}: no entry is named {name!r}")


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
