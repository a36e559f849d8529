"""Static kubeconfigs and service accounts, and that they need no other modules."""

from __future__ import annotations

import base64
import ssl
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from scheduler.kube.certificates import issue
from scheduler.kube.client.login import Kubeconfig, Login, LoginError
from scheduler.kube.tls import load_key_pair

if TYPE_CHECKING:
    from pathlib import Path


def login(folder: Path, *, cluster: dict[str, Any] | None = None, **user: Any) -> Login:
    path = folder / "kubeconfig"
    content = {
        "current-context": "here",
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u"}},
            {"name": "elsewhere", "context": {"cluster": "other"}},
        ],
        "clusters": [
            {"name": "other", "cluster": {"server": "https://other"}},
            {"name": "c", "cluster": {"server": "https://h:6443/", **(cluster or {})}},
        ],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(content))
    return Kubeconfig(path).login()


@pytest.mark.parametrize(
    ("user", "header"),
    [
        pytest.param({}, None, id="no user"),
        pytest.param({"token": "t\n"}, "Bearer t", id="a token"),
        pytest.param({"token": "t", "tokenFile": "nowhere"}, "Bearer t", id="a token, for want of the file"),
        pytest.param({"token": "t", "tokenFile": "token"}, "Bearer of the file", id="a file before a token"),
        pytest.param(
            {"token": "t", "tokenFile": "empty"}, "Bearer t", id="a token, for want of one in the file"
        ),
        pytest.param({"tokenFile": "token"}, "Bearer of the file", id="a file beside the kubeconfig"),
        pytest.param({"username": "me", "password": "p"}, "Basic bWU6cA==", id="a password"),
    ],
)
def test_a_user_is_authenticated_by_the_fields_of_its_kubeconfig(
    tmp_path: Path, user: dict[str, Any], header: str | None
):
    (tmp_path / "token").write_text("of the file\n")
    (tmp_path / "empty").write_text("\n")

    assert login(tmp_path, **user).authorization == header


def test_a_user_to_impersonate_is_in_the_headers(tmp_path: Path):
    user = {
        "token": "t",
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"example.com/a b": ["x", "y"]},
    }

    assert login(tmp_path, **user).headers == (
        ("Authorization", "Bearer t"),
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-example.com%2Fa%20b", "x"),
        ("Impersonate-Extra-example.com%2Fa%20b", "y"),
    )


@pytest.mark.parametrize(
    ("user", "problem"),
    [
        ({"as": 7}, "as: should hold text"),
        ({"as": ["jane"]}, "as: should hold text"),
        ({"as": "jane", "as-groups": "dev"}, "as-groups: should hold texts in a list"),
        ({"as": "jane", "as-user-extra": ["a"]}, "as-user-extra: should hold lists of texts by key"),
        ({"as": "jane", "as-user-extra": {"a": [1]}}, "as-user-extra: should hold texts in a list"),
        ({"as-groups": ["dev"]}, "as: is missing"),
        ({"as": "jane\nX-Remote-User: root"}, "Impersonate-User is more than one line"),
    ],
)
def test_an_invalid_user_to_impersonate_is_named(tmp_path: Path, user: dict[str, Any], problem: str):
    with pytest.raises(LoginError, match=problem):
        login(tmp_path, **user).check()


def test_the_first_of_several_files_with_a_value_takes_precedence(tmp_path: Path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "token").write_text(f"of {folder}")
    user = {"name": "u", "user": {"tokenFile": "token"}}
    (tmp_path / "a" / "config").write_text(yaml.safe_dump({"users": [user]}))
    login(tmp_path / "b", cluster={"insecure-skip-tls-verify": True}, tokenFile="token")
    paths = [tmp_path / "missing", tmp_path / "a" / "config", tmp_path / "b" / "kubeconfig"]

    found = Kubeconfig(*paths)

    assert found.context == "here"
    assert found.login() == Login("https://h:6443", "Bearer of a", verifies=False)
    with pytest.raises(LoginError, match="no such file"):
        Kubeconfig(*paths[:1], *paths[:1])


def test_a_cluster_is_reached_with_the_fields_of_its_kubeconfig(tmp_path: Path):
    found = login(
        tmp_path,
        cluster={
            "insecure-skip-tls-verify": True,
            "tls-server-name": "api.example",
            "proxy-url": "http://proxy:3128",
        },
    )

    assert found == Login(
        "https://h:6443", verifies=False, server_hostname="api.example", proxy="http://proxy:3128"
    )


@pytest.mark.parametrize("inside", [True, False], ids=["in the kubeconfig", "in files"])
def test_certificates_and_keys_are_loaded_from_files_and_data(tmp_path: Path, *, inside: bool):
    issued = issue("me", dns_names=["me"])
    pems = {
        "certificate-authority": issued.authority,
        "client-certificate": issued.serving,
        "client-key": issued.serving,
    }
    fields = {}
    for name, pem in pems.items():
        (tmp_path / name).write_bytes(pem)
        fields |= {f"{name}-data": base64.encodebytes(pem).decode()} if inside else {name: name}
    authority = {name: value for name, value in fields.items() if name.startswith("certificate")}
    user = {name: value for name, value in fields.items() if name.startswith("client")}
    found = login(tmp_path, cluster=authority, **user)

    assert found.identity() == tuple(pems.values())
    assert len(found.tls().get_ca_certs()) == 1


def test_a_given_certificate_is_trusted_without_its_authority():
    issued = issue("api", dns_names=["api"])
    _, begin, rest = issued.serving.partition(b"-----BEGIN CERTIFICATE-----")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_key_pair(serving, issued.serving)

    shake_hands(Login("https://api", authority=issued.authority).tls(), serving, "api")
    shake_hands(Login("https://api", authority=begin + rest).tls(), serving, "api")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(Login("https://api", authority=issue("other").authority).tls(), serving, "api")


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(2):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()


def test_an_encrypted_key_is_refused_without_a_password_prompt(tmp_path: Path):
    issued = issue("me", dns_names=["me"])
    key = load_pem_private_key(issued.serving, None)
    secret = BestAvailableEncryption(b"secret")
    (tmp_path / "key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret))
    (tmp_path / "certificate").write_bytes(issued.serving)
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from scheduler.kube.client.login import Login\n"
        "certificate, key = map(Path, sys.argv[1:])\n"
        "try:\n"
        "    Login('https://h', certificate=certificate, key=key, verifies=False).tls()\n"
        "except OSError:\n"
        "    print('refused')\n"
    )

    # Without a terminal, OpenSSL would prompt on stdin.
    found = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "certificate"), str(tmp_path / "key")],
        input="secret\n",
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
    )

    assert found.stdout == "refused\n"


@pytest.mark.parametrize(
    ("server", "token", "problem"),
    [
        ("", "", "no server"),
        ("h:6443", "", "not the URL"),
        ("https://h:99999", "", "not the URL"),
        ("ftp://h", "", "not the URL"),
        ("https://h", "a\nX-Remote-User: root", "more than one line"),
    ],
)
def test_an_invalid_server_or_token_is_named(server: str, token: str, problem: str):
    with pytest.raises(LoginError, match=problem):
        Login(server, f"Bearer {token}").check()


def test_the_kubeconfig_reader_needs_no_kubernetes_client(tmp_path: Path):
    login(tmp_path, token="t")
    code = (
        "import asyncio, sys\n"
        "from scheduler.kube.client.connect import connect\n"
        "async def main():\n"
        "    async with connect(sys.argv[1]): pass\n"
        "asyncio.run(main())\n"
        "assert not {'kubernetes_asyncio', 'aiohttp'} & sys.modules.keys()\n"
    )

    subprocess.run([sys.executable, "-c", code, str(tmp_path / "kubeconfig")], check=True)


def test_any_context_can_be_selected_and_has_a_namespace(tmp_path: Path):
    path = tmp_path / "kubeconfig"
    cluster = {"server": "https://h"}
    content = {
        "current-context": "here",
        "contexts": [
            {"name": "here", "context": {"cluster": "c"}},
            {"name": "shop", "context": {"cluster": "c", "namespace": "shop"}},
        ],
        "clusters": [{"name": "c", "cluster": cluster}],
    }
    path.write_text(yaml.safe_dump(content))

    current, chosen = Kubeconfig(path), Kubeconfig(path, context="shop")

    assert (current.context, current.namespace) == ("here", "default")
    assert (chosen.context, chosen.namespace) == ("shop", "shop")
    with pytest.raises(LoginError, match="contexts: no entry is named 'gone'"):
        Kubeconfig(path, context="gone")
