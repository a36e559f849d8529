"""Login at a server with the static credentials of a kubeconfig or a pod's service account.

`exec_plugin` handles exec plugins. `kubernetes_asyncio` handles auth providers, see `login_by_provider`: its
import takes as long as all other imports together.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import msgspec

from scheduler.configuration.manifests import read_documents
from scheduler.files import read_any, read_regular
from scheduler.kube.certificates.trust import client_context, load_key_pair
from scheduler.urls import shown_url

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Mapping

Pem: TypeAlias = Path | bytes
"""Certificates or a key: the path of a file, or the content."""

_FOR_EXEC = "client.authentication.k8s.io/exec"
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
    """

    server: str
    authorization: str | None = None
    authority: Pem | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    verifies: bool = True
    server_hostname: str | None = None
    proxy: str = ""

    def check(self) -> None:
        """Check the values that a connection needs.

        Raises:
            LoginError: the server or the token is invalid.
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
        )

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
