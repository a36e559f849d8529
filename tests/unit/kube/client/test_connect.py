from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import ssl
import stat
from pathlib import Path
from typing import Any, Self

import pytest
import yaml
from aiohttp import web

from scheduler.errors import ApiError, ConfigurationError
from scheduler.kube.client import login
from scheduler.kube.client.connect import REFRESH_SECONDS, Credentials, connect
from scheduler.kube.http.request import Request

PLUGIN_API = "client.authentication.k8s.io/v1"


def kubeconfig(folder: Path, *, server: str = "http://127.0.0.1:1", **user: Any) -> str:
    path = folder / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(content))
    return str(path)


class Listener:
    """A real server on loopback that answers everything with 200 and records the received tokens and users to impersonate."""

    def __init__(self) -> None:
        self.tokens: list[str | None] = []
        self.users: list[str | None] = []
        self.status = 200

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization"))
        self.users.append(request.headers.get("Impersonate-User"))
        return web.Response(status=self.status)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self.handle)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()


async def problem_of(path: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        async with connect(path):
            pass
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(b"a: [", "line 2, column 1: not YAML", id="no YAML"),
        pytest.param(b"\xff\xfe\x00", "not UTF-8", id="no text"),
        pytest.param(b"a: 1\n---\nb: 1", "has more than one document", id="two documents"),
        pytest.param(b"[" * 100_000, "nested too deeply", id="lists in lists"),
        pytest.param(b"hello", "should hold a mapping, holds str", id="no mapping"),
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b"kind: Config", "current-context", id="nothing in it"),
        pytest.param(
            b"{current-context: x, contexts: [], clusters: [], users: []}", "x", id="unknown context"
        ),
        pytest.param(
            b"{current-context: x, contexts: [{name: x, context: {cluster: nope}}], clusters: []}",
            "nope",
            id="unknown cluster",
        ),
        pytest.param(
            b"{current-context: x, contexts: [{name: x, context: {cluster: c}}],"
            b" clusters: [{name: c, cluster: {insecure-skip-tls-verify: true}}]}",
            "no server",
            id="no server",
        ),
        pytest.param(
            b"{current-context: x, contexts: [{name: x, context: {cluster: c}}],"
            b" clusters: [{name: c, cluster: {server: 'https://h', certificate-authority: gone.pem}}]}",
            "gone.pem",
            id="missing certificate",
        ),
        pytest.param(
            b"{current-context: x, contexts: [{name: x, context: {cluster: c}}],"
            b" clusters: [{name: c, cluster: {server: 'https://h', certificate-authority-data: '!!!'}}]}",
            "",
            id="certificate that is no base64",
        ),
        pytest.param(
            b"{current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],"
            b" clusters: [{name: c, cluster: {server: 'https://h'}}],"
            b" users: [{name: u, user: {exec: {apiVersion: v1, command: /no/such/plugin}}}]}",
            "/no/such/plugin",
            id="missing exec plugin",
        ),
    ],
)
def test_an_invalid_kubeconfig_is_named_with_its_problem(tmp_path: Path, content: bytes, problem: str):
    path = tmp_path / "config"
    path.write_bytes(content)

    said = asyncio.run(problem_of(str(path)))

    assert str(path) in said
    assert problem in said


def test_a_missing_kubeconfig_is_named(tmp_path: Path):
    path = str(tmp_path / "nope")

    assert asyncio.run(problem_of(path)) == f"kubeconfig {path}: no such file"


def test_an_invalid_certificate_is_reported(tmp_path: Path):
    certificate = tmp_path / "ca.pem"
    certificate.write_text("hello")
    path = kubeconfig(tmp_path, server="https://127.0.0.1:1")
    content = yaml.safe_load(Path(path).read_text())
    content["clusters"][0]["cluster"]["certificate-authority"] = "ca.pem"
    Path(path).write_text(yaml.safe_dump(content))

    said = asyncio.run(problem_of(path))

    assert "certificates" in said
    assert path in said


def test_outside_a_cluster_a_kubeconfig_is_required(monkeypatch: pytest.MonkeyPatch):
    for name in ("KUBERNETES_SERVICE_HOST", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)

    async def attempt() -> None:
        async with connect(None):
            pass

    with pytest.raises(
        ConfigurationError, match=r"--kubeconfig FILE, set \$KUBECONFIG, or write clientConnection"
    ):
        asyncio.run(attempt())


def test_a_kubeconfig_in_the_home_directory_is_suggested_and_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("KUBERNETES_SERVICE_HOST", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    Path(kubeconfig(tmp_path)).rename(tmp_path / ".kube" / "config")

    with pytest.raises(ConfigurationError, match=r"such as ~/\.kube/config, which is there"):
        asyncio.run(Credentials(None).load())


def test_by_default_the_kubeconfig_of_the_environment_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")  # the kubeconfig takes precedence
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, server="http://named:1"))
    (tmp_path / "given").mkdir()
    given = kubeconfig(tmp_path / "given", server="http://given:1")

    async def server(path: str | None) -> str:
        async with connect(path) as connection:
            return connection.endpoint.server

    assert asyncio.run(server(None)) == "http://named:1"
    assert asyncio.run(server(given)) == "http://given:1"


def test_an_invalid_kubeconfig_of_the_environment_is_reported_with_its_name(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("KUBECONFIG", "/no/such/file")

    with pytest.raises(ConfigurationError, match=r"kubeconfig /no/such/file of \$KUBECONFIG: no such file"):
        asyncio.run(Credentials(None).load())


async def test_the_token_of_a_service_account_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    monkeypatch.delenv("KUBECONFIG", raising=False)
    token.write_text("one\n")
    authority.write_text("a certificate")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(login, "SERVICE_ACCOUNT", tmp_path)
    credentials = Credentials(None)

    await credentials.load()
    assert credentials.login.server == "https://[fd00::1]:443"
    assert credentials.login.authorization == "Bearer one"
    token.write_text("two\n")
    await credentials.wait_stale()
    await credentials.load()

    assert credentials.login.authorization == "Bearer two"


def test_a_token_of_the_kubeconfig_is_sent(tmp_path: Path):
    async def attempt() -> list[str | None]:
        async with Listener() as listener:
            async with connect(kubeconfig(tmp_path, server=listener.url, token="secret")) as connection:
                await connection.send(Request("GET", "/version"))
            return listener.tokens

    assert asyncio.run(attempt()) == ["Bearer secret"]


@pytest.mark.parametrize("is_of_plugin", [False, True])
def test_requests_impersonate_the_user_of_the_kubeconfig(tmp_path: Path, *, is_of_plugin: bool):
    """Without the header, a request would have the rights of the account that may impersonate."""
    user = {"as": "jane", **(answering(tmp_path, token="t") if is_of_plugin else {"token": "t"})}

    async def attempt() -> Listener:
        async with Listener() as listener:
            async with connect(kubeconfig(tmp_path, server=listener.url, **user)) as connection:
                await connection.send(Request("GET", "/version"))
            return listener

    listener = asyncio.run(attempt())
    assert (listener.tokens, listener.users) == (["Bearer t"], ["jane"])


async def test_a_token_file_is_read_again(tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("one\n")
    async with Listener() as listener:
        path = kubeconfig(tmp_path, server=listener.url, tokenFile=str(token))
        async with connect(path) as connection:
            await connection.send(Request("GET", "/version"))
            token.write_text("two\n")
            await asyncio.sleep(REFRESH_SECONDS + 1.0)
            await connection.send(Request("GET", "/version"))

        assert listener.tokens == ["Bearer one", "Bearer two"]


async def test_credentials_that_cannot_be_reread_stay_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    token = tmp_path / "token"
    token.write_text("one")
    async with Listener() as listener:
        async with connect(kubeconfig(tmp_path, server=listener.url, tokenFile=str(token))) as connection:
            token.unlink()
            with caplog.at_level(logging.WARNING):
                await asyncio.sleep(REFRESH_SECONDS + 1.0)
            await connection.send(Request("GET", "/version"))

        assert listener.tokens == ["Bearer one"]
        assert [record.message for record in caplog.records] == ["Credentials could not be read again"]


async def test_a_fifo_in_place_of_a_token_or_certificate_is_refused_at_once(
    tmp_path: Path,
):
    for name in ("token", "ca.crt"):
        os.mkfifo(tmp_path / name)
    path = kubeconfig(tmp_path, tokenFile=str(tmp_path / "token"))
    assert "token: cannot be read: is a FIFO" in await problem_of(path)
    path = kubeconfig(
        tmp_path, server="https://127.0.0.1:1", **{"client-certificate": str(tmp_path / "ca.crt")}
    )
    assert "certificates: [Errno 22] is a FIFO" in await problem_of(path)


def exec_plugin(folder: Path, *, expires: str | None) -> dict[str, Any]:
    """A plugin that counts its runs and returns a new token each time."""
    count = folder / "runs"
    credential: dict[str, Any] = {
        "apiVersion": PLUGIN_API,
        "kind": "ExecCredential",
        "status": {"token": "run-$N", **({"expirationTimestamp": expires} if expires else {})},
    }
    script = folder / "plugin"
    script.write_text(
        f"#!/bin/sh\necho x >> {count}\nN=$(wc -l < {count} | tr -d ' ')\n"
        f"cat <<EOF\n{json.dumps(credential)}\nEOF\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": PLUGIN_API, "command": str(script), "args": []}}


def test_a_rejected_token_runs_the_exec_plugin_again(tmp_path: Path):
    async def attempt() -> list[str | None]:
        async with Listener() as listener:
            user = exec_plugin(tmp_path, expires="2999-01-01T00:00:00Z")
            async with connect(kubeconfig(tmp_path, server=listener.url, **user)) as connection:
                await connection.send(Request("GET", "/version"))
                listener.status = 401
                with pytest.raises(ApiError):
                    await connection.send(Request("GET", "/version"))
                listener.status = 200
                async with asyncio.timeout(10.0):
                    while listener.tokens[-1] == "Bearer run-1":
                        await asyncio.sleep(0.05)
                        await connection.send(Request("GET", "/version"))
            return listener.tokens

    tokens = asyncio.run(attempt())

    assert tokens[0] == "Bearer run-1"
    assert tokens[-1] == "Bearer run-2"


def test_a_plugin_beside_the_kubeconfig_is_found_from_any_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    user = exec_plugin(tmp_path, expires=None)
    user["exec"]["command"] = "./plugin"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    credentials = Credentials(kubeconfig(tmp_path, **user))

    asyncio.run(credentials.load())

    assert credentials.login.authorization == "Bearer run-1"


def answering(
    folder: Path, shell: str = "", *, also: dict[str, Any] | None = None, **status: Any
) -> dict[str, Any]:
    """A plugin that runs a line of shell and returns a status."""
    script = folder / "plugin"
    credential = {"apiVersion": PLUGIN_API, "kind": "ExecCredential", "status": status}
    script.write_text(f"#!/bin/sh\n{shell}\ncat <<'EOF'\n{json.dumps(credential)}\nEOF\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": PLUGIN_API, "command": str(script), "args": None, **(also or {})}}


def test_a_plugin_may_return_null_for_optional_fields(tmp_path: Path):
    nothing = dict.fromkeys(("expirationTimestamp", "clientCertificateData", "clientKeyData"))
    credentials = Credentials(kubeconfig(tmp_path, **answering(tmp_path, token="it", **nothing)))

    asyncio.run(credentials.load())

    assert credentials.login.authorization == "Bearer it"


def test_a_plugin_may_write_much_to_stderr(tmp_path: Path):
    user = answering(tmp_path, "head -c 1000000 /dev/zero | tr '\\0' x >&2", token="it")
    credentials = Credentials(kubeconfig(tmp_path, **user))

    asyncio.run(asyncio.wait_for(credentials.load(), 10.0))

    assert credentials.login.authorization == "Bearer it"


@pytest.mark.parametrize(
    "proxy", ["socks5://us:secret@proxy:1", "http://us:secret@[", "http://us:secret@proxy:x"]
)
def test_a_proxy_of_another_scheme_is_reported_without_its_password(tmp_path: Path, proxy: str):
    path = Path(kubeconfig(tmp_path, token="it"))
    content = yaml.safe_load(path.read_text())
    content["clusters"][0]["cluster"]["proxy-url"] = proxy
    path.write_text(yaml.safe_dump(content))

    async def begin() -> None:
        async with connect(str(path)) as connection:
            await connection.send(Request("GET", "/version"))

    with pytest.raises(
        ConfigurationError, match="the proxy in the kubeconfig is not an HTTP proxy"
    ) as raised:
        asyncio.run(begin())
    assert "secret" not in str(raised.value)


def test_the_terminal_prompt_of_a_plugin_is_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    credentials = Credentials(
        kubeconfig(tmp_path, **answering(tmp_path, "echo enter code 7 >&2", token="it"))
    )

    asyncio.run(credentials.load())

    assert credentials.login.authorization == "Bearer it"
    assert capfd.readouterr().err == "enter code 7\n"


@pytest.mark.run(by=asyncio.run)
async def test_a_plugin_whose_credentials_expire_at_the_zero_time_of_go_runs_again(tmp_path: Path):
    user = answering(tmp_path, "", token="it", expirationTimestamp="0001-01-01T00:00:00Z")
    credentials = Credentials(kubeconfig(tmp_path, **user))

    await credentials.load()
    await credentials.load()

    assert credentials.login.authorization == "Bearer it"


@pytest.mark.parametrize(
    ("cluster", "problem"),
    [
        ({"certificate-authority": "/proc/self/mem"}, "Input/output error"),
        (
            {"extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {None: 1}}]},
            'the key "null" must be text',
        ),
    ],
    ids=["a certificate that cannot be read", "a mapping that is none in JSON"],
)
def test_an_unsupported_plugin_setting_is_an_error_of_the_kubeconfig(
    tmp_path: Path, cluster: dict[str, Any], problem: str
):
    user = answering(tmp_path, "", also={"provideClusterInfo": True}, token="it")
    path = Path(kubeconfig(tmp_path, server="https://127.0.0.1:1", **user))
    content = yaml.safe_load(path.read_text())
    content["clusters"][0]["cluster"] |= cluster
    path.write_text(yaml.safe_dump(content))

    with pytest.raises(ConfigurationError, match=problem):
        asyncio.run(Credentials(str(path)).load())


def test_a_plugin_gets_the_cluster_information_on_request(tmp_path: Path):
    info = tmp_path / "info"
    user = answering(
        tmp_path,
        f'printf %s "$KUBERNETES_EXEC_INFO" > {info}; printf %s "$MORE" >> {info}.more',
        also={"provideClusterInfo": True, "env": [{"name": "MORE", "value": "given"}]},
        token="it",
    )
    path = Path(kubeconfig(tmp_path, server="https://127.0.0.1:1", **user))
    (tmp_path / "ca.crt").write_text("an authority")
    content = yaml.safe_load(path.read_text())
    content["clusters"][0]["cluster"] |= {
        "certificate-authority": "ca.crt",
        "tls-server-name": "api",
        "extensions": [
            {"name": "another", "extension": {"audience": "nobody"}},
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "us"}},
        ],
    }
    path.write_text(yaml.safe_dump(content))

    asyncio.run(Credentials(str(path)).load())

    reported = json.loads(info.read_text())
    assert (reported["apiVersion"], reported["kind"]) == (PLUGIN_API, "ExecCredential")
    assert reported["spec"]["cluster"] == {
        "server": "https://127.0.0.1:1",
        "tls-server-name": "api",
        "certificate-authority-data": base64.b64encode(b"an authority").decode(),
        "config": {"audience": "us"},
    }
    assert Path(f"{info}.more").read_text() == "given"


@pytest.mark.parametrize(
    ("shell", "status", "problem"),
    [
        pytest.param(
            "echo no card >&2; exit 3", {"token": "it"}, "exec: process returned 3. no card", id="it fails"
        ),
        pytest.param("echo what", {"token": "it"}, "exec: the answer cannot be read: ", id="no JSON"),
        pytest.param("", {}, "exec: the answer has neither a token nor a certificate", id="an empty answer"),
        pytest.param(
            "",
            {"clientCertificateData": "x"},
            "exec: the answer has only one of certificate and key",
            id="no key",
        ),
        pytest.param("", {"token": 1}, "exec: the answer cannot be read: ", id="no text"),
    ],
)
def test_an_error_of_a_plugin_is_reported(tmp_path: Path, shell: str, status: dict[str, Any], problem: str):
    assert problem in asyncio.run(problem_of(kubeconfig(tmp_path, **answering(tmp_path, shell, **status))))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from kubernetes_asyncio
def test_an_identity_provider_that_hangs_up_is_reported(tmp_path: Path):
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async def attempt() -> str:
        async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as provider:
            issuer = "http://{}:{}".format(*provider.sockets[0].getsockname())
            names = ("client-id", "client-secret", "refresh-token")
            config = {**dict.fromkeys(names, "x"), "idp-issuer-url": issuer}
            return await problem_of(
                kubeconfig(tmp_path, **{"auth-provider": {"name": "oidc", "config": config}})
            )

    assert "Server disconnected" in asyncio.run(attempt())


def test_client_certificates_of_the_kubeconfig_reach_the_pool(tmp_path: Path):
    path = kubeconfig(tmp_path, server="https://127.0.0.1:1", **{"client-certificate": "gone.crt"})

    assert "gone.crt" in asyncio.run(problem_of(path))


@pytest.mark.parametrize(
    ("written", "used"), [("http://own:3128", "http://own:3128"), ("", "http://shared:3128")]
)
def test_the_proxy_of_the_kubeconfig_takes_precedence_over_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, used: str
):
    monkeypatch.setenv("http_proxy", "http://shared:3128")
    monkeypatch.setenv("no_proxy", "")
    path = Path(kubeconfig(tmp_path, server="http://api.example"))
    content = yaml.safe_load(path.read_text())
    content["clusters"][0]["cluster"]["proxy-url"] = written
    path.write_text(yaml.safe_dump(content))

    async def attempt() -> str:
        async with connect(str(path)) as connection:
            return connection.endpoint.proxy

    assert asyncio.run(attempt()) == used


def test_strict_verification_is_the_default(tmp_path: Path):
    async def attempt() -> ssl.SSLContext:
        async with connect(kubeconfig(tmp_path, server="https://127.0.0.1:1")) as connection:
            assert connection.endpoint.tls is not None
            return connection.endpoint.tls

    assert asyncio.run(attempt()).verify_mode == ssl.CERT_REQUIRED
