"""`custom-scheduler extender` as a process: HTTPS, the snippet for kube-scheduler, and the exit status."""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import aiohttp
import msgspec
import pytest

from scheduler.configuration.load import parse
from scheduler.extensions.extenders import HttpExtender
from scheduler.tools.simulator.server import ApiServer
from tests.support.builders import node, node_object, pod, pod_object
from tests.support.commands import forked_program, run_command
from tests.support.ports import free_port
from tests.support.processes import started, until
from tests.unit.extensions.extenders.test_tls import client_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from scheduler.configuration.types import Extender

pytestmark = pytest.mark.run(by=asyncio.run)

PATIENCE_SECONDS = 60.0
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
LIKES_B = """\
from scheduler.framework import FilterPlugin, ScorePlugin, Status


class LikesB(FilterPlugin, ScorePlugin):
    name = "LikesB"
    api_version = 1

    def filter_node(self, state, pod, node):
        return Status.unschedulable("not the first, please") if node.name == "a" else None

    def score_node(self, state, pod, node):
        return 100 if node.name == "b" else 0
"""
PROFILE = """\
profiles:
- schedulerName: mine
  plugins:
    multiPoint:
      disabled: [{name: '*'}]
      enabled: [{name: PrioritySort}, {name: DefaultBinder}, {name: likes_b.py, weight: 3}]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration whose only plugin is a file beside it."""
    (tmp_path / "likes_b.py").write_text(LIKES_B)
    path = tmp_path / "extender.yaml"
    path.write_text(HEAD + PROFILE)
    return path


def extender(*arguments: object) -> Said:
    done = run_command("extender", *arguments, timeout_seconds=PATIENCE_SECONDS)
    return Said(done.returncode, done.stdout.decode(), done.stderr.decode())


class Said(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


class Served(NamedTuple):
    """A process that answers.

    Attributes:
        process: of the command.
        snippet: what it printed for kube-scheduler.
        port: of HTTPS.
        http_port: of plain HTTP.
    """

    process: asyncio.subprocess.Process
    snippet: str
    port: int
    http_port: int

    @property
    def told(self) -> Extender:
        """The extender of the snippet, as kube-scheduler reads it."""
        (found,) = parse(HEAD + self.snippet).settings.extenders
        return found


@asynccontextmanager
async def serving(
    server: ApiServer, folder: Path, *flags: object, token: str = "", program: Sequence[str] = ()
) -> AsyncIterator[Served]:
    """Run the command until it is ready; what is left of it at the end is killed.

    Args:
        server: what it watches.
        folder: where its kubeconfig and its log are.
        flags: beside those of where it listens.
        token: of the account it runs as; "" is the server's administrator.
        program: custom-scheduler; one that is forked if empty.
    """
    port, http_port = free_port(), free_port()
    account = {"token": token, "user": "account"} if token else {}
    kubeconfig = server.write_kubeconfig(folder / "kubeconfig", **account)
    command = (*(program or (forked_program(),)), "extender", "--kubeconfig", kubeconfig)
    where = ("--bind-address", "127.0.0.1", "--secure-port", port, "--http-port", http_port)
    with (folder / "extender.log").open("wb") as log:
        async with started(*command, *where, *flags, stdout=asyncio.subprocess.PIPE, stderr=log) as process:
            assert process.stdout is not None
            lines: list[str] = []
            async with asyncio.timeout(PATIENCE_SECONDS):
                while "ignorable:" not in (lines or [""])[-1]:
                    line = (await process.stdout.readline()).decode()
                    assert line, f"it ended: {(folder / 'extender.log').read_text()}"
                    lines.append(line)
                while await status_of(f"http://127.0.0.1:{http_port}/readyz") != 200:
                    assert process.returncode is None, f"it ended: {(folder / 'extender.log').read_text()}"
                    await asyncio.sleep(0.05)
            yield Served(process, "".join(lines), port, http_port)


async def status_of(url: str, method: str = "GET") -> int:
    try:
        async with aiohttp.ClientSession() as session, session.request(method, url) as answer:
            return answer.status
    except aiohttp.ClientConnectionError:
        return 0


def nodes_of(server: ApiServer) -> set[str | None]:
    return {each["spec"].get("nodeName") for each in server.store.list("pods")}


@asynccontextmanager
async def server_with_nodes() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        for name in ("a", "b", "c"):
            server.store.create("nodes", node_object(name))
        yield server


async def test_the_printed_snippet_makes_a_scheduler_use_the_extender_over_https(
    config: Path, tmp_path: Path
) -> None:
    async with server_with_nodes() as server:
        flags = ("--config", config, "--bind", "--cert-dir", tmp_path / "kept", "-v", "2")
        python = (sys.executable, "-m", "scheduler")
        async with serving(server, tmp_path, *flags, program=python) as served:
            assert served.told.url_prefix == f"https://127.0.0.1:{served.port}"
            assert (served.told.weight, served.told.node_cache_capable) == (3, True)
            behind = tmp_path / "behind.yaml"
            behind.write_text(f"{HEAD}{served.snippet}leaderElection: {{leaderElect: false}}\n")
            scheduler = (forked_program(), "run", "--config", behind, "--secure-port", "0")
            logged = (tmp_path / "extender.log").read_text
            async with started(*scheduler, "--kubeconfig", tmp_path / "kubeconfig"):
                for name in ("web", "shop"):
                    server.store.create("pods", pod_object(name))
                await until(lambda: nodes_of(server) == {"b"} and logged().count("Pod bound") >= 2)
            log = logged()
            assert "Every client is accepted" not in log
            assert "PRIVATE" not in log + served.snippet
            assert log.count("Pod bound") == 2
            served.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await served.process.wait() == 0


async def test_a_stored_certificate_is_unchanged_after_a_restart(config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    flags = ("--config", config, "--cert-dir", folder)

    async with server_with_nodes() as server:
        reported = [extender(*flags, "--snippet").stdout]
        for _ in range(2):
            async with serving(server, tmp_path, *flags) as served:
                reported.append(served.snippet)
                client = HttpExtender(served.told, "extenders[0]")
                answer = await client.filter(pod("web"), [node("a"), node("b"), node("c")])
                assert answer.node_names == ("b", "c")
                assert answer.failed == {"a": "not the first, please"}
                assert await client.prioritize(pod("web"), [node("c"), node("b")]) == [("c", 0), ("b", 10)]
                await client.close()
        authorities = {line for text in reported for line in text.splitlines() if "caData" in line}
        assert len(authorities) == 1
        assert (folder / "tls.key").stat().st_mode & 0o777 == 0o600


async def test_only_schedulers_with_a_certificate_are_accepted_if_one_is_required(
    config: Path, tmp_path: Path
) -> None:
    key, certificate = client_pair()
    (tmp_path / "clients.crt").write_bytes(certificate)

    async with server_with_nodes() as server:
        flags = ("--config", config, "--client-ca-file", tmp_path / "clients.crt", "--bind")
        async with serving(server, tmp_path, *flags) as served:
            assert "# Add certFile and keyFile to tlsConfig" in served.snippet
            tls = served.told.tls_config
            assert tls is not None
            context = ssl.create_default_context(cadata=tls.ca_data.decode())
            body = b'{"Pod":{"metadata":{"name":"a","namespace":"d","uid":"u"}},"NodeNames":["a"]}'
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
                for path in ("filter", "bind"):
                    async with session.post(f"{served.told.url_prefix}/{path}", data=body) as answer:
                        assert answer.status == 403
                        assert "client certificate" in await answer.text()
                async with session.get(f"{served.told.url_prefix}/readyz") as answer:
                    assert answer.status == 200
            assert await status_of(f"http://127.0.0.1:{served.http_port}/filter", "POST") in {404, 405}
            with_certificate = msgspec.structs.replace(
                served.told, tls_config=msgspec.structs.replace(tls, cert_data=certificate, key_data=key)
            )
            client = HttpExtender(with_certificate, "extenders[0]")
            assert (await client.filter(pod("web"), [node("b")])).node_names == ("b",)
            await client.close()


async def test_a_token_gives_access_to_the_verbs_if_one_is_required(config: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")

    async with server_with_nodes() as server:
        flags = ("--config", config, "--token-file", tmp_path / "token", "--bind")
        async with serving(server, tmp_path, *flags) as served:
            url = f"https://127.0.0.1:{served.port}/filter"
            body = b'{"Pod":{"metadata":{"name":"a","namespace":"d","uid":"u"}},"NodeNames":["b"]}'
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
                for token, status in (("", 401), ("Bearer secreT", 401), ("Bearer secret", 200)):
                    async with session.post(url, data=body, headers={"Authorization": token}) as answer:
                        assert answer.status == status
            assert await status_of(f"http://127.0.0.1:{served.http_port}/filter", "POST") in {404, 405}


async def test_all_callers_are_accepted_if_the_flag_permits_it(config: Path, tmp_path: Path) -> None:
    flags = ("--config", config, "--allow-anybody")
    async with server_with_nodes() as server, serving(server, tmp_path, *flags) as served:
        client = HttpExtender(served.told, "extenders[0]")
        assert (await client.filter(pod("web"), [node("b")])).node_names == ("b",)
        await client.close()
        assert "Every client is accepted" in (tmp_path / "extender.log").read_text()


def test_the_snippet_names_the_verbs_for_which_the_profile_has_plugins(config: Path, tmp_path: Path) -> None:
    done = extender("--config", config, "--snippet", "--url", "http://10.0.0.7:8888", "--secure-port", 0,
                    "--http-port", 8888, "--allow-anybody")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "# For the KubeSchedulerConfiguration that kube-scheduler reads with --config.\n"
        "# Every client is accepted, because of --allow-anybody.\n"
        "# percentageOfNodesToScore is for the filter: kube-scheduler passes its extenders only the nodes it has found so far,\n"
        "# by default the first 420 feasible nodes of 1000. If the extender rejects all of these, the pod waits.\n"
        "percentageOfNodesToScore: 100\n"
        "extenders:\n"
        "- urlPrefix: http://10.0.0.7:8888\n"
        "  filterVerb: filter\n"
        "  preemptVerb: preempt\n"
        "  prioritizeVerb: prioritize\n"
        "  weight: 3\n"
        "  httpTimeout: 5s\n"
        "  nodeCacheCapable: true\n"
        "  ignorable: false\n"
    )
    (tmp_path / "likes_b.py").write_text(
        LIKES_B.replace("(FilterPlugin, ScorePlugin)", "(ScorePlugin)").replace(
            "def filter_node", "def other"
        )
    )
    done = extender("--config", config, "--snippet", "--allow-anybody")
    assert "filterVerb" not in done.stdout
    assert "percentageOfNodesToScore" not in done.stdout
    assert "preemptVerb" not in done.stdout
    assert "prioritizeVerb" in done.stdout
    assert "caData:" not in done.stdout  # that of a certificate which nobody will serve with


FAULTS: dict[str, tuple[tuple[object, ...], str]] = {
    "nothing that says who is answered": ((), "no client would be accepted: --cert-dir creates a certificate"),
    "nor with a plain port": (("--http-port", 1), "no client would be accepted"),
    "nor with plain HTTP alone": (("--secure-port", 0, "--http-port", 1, "--cert-dir", "x"), "no client would be accepted"),
    "binding for nobody in particular": (("--bind",), "no client would be accepted"),
    "binding for anybody": (
        ("--bind", "--allow-anybody"),
        "--bind: every accepted client can have pods bound, so it cannot be combined with --allow-anybody",
    ),
    "anybody and somebody": (("--allow-anybody", "--client-ca-file", "x"), "--allow-anybody: cannot be combined with"),
    "a token without HTTPS": (
        ("--token-file", "x", "--secure-port", 0, "--http-port", 1), "--token-file: a token needs HTTPS",
    ),
    "a token that is none": (("--snippet", "--token-file", "/dev/null"), "--token-file: /dev/null cannot be read: is a character device"),
    "no port": (("--secure-port", 0), "--secure-port: must not be 0 without --http-port"),
    "no URL": (("--url", "extender:8443"), "--url: must be like https://host:port, was 'extender:8443'"),
    "a URL with a path": (("--url", "https://a/b"), "--url: must end with the host or port, was 'https://a/b'"),
    "HTTPS that is not served": (
        ("--url", "https://a", "--secure-port", 0, "--http-port", 1), "--url: https://a is HTTPS, and --secure-port is 0",
    ),
    "no such profile": (("--snippet", "--profile", "other", "--allow-anybody"), "--profile: there is no other; there is mine"),
    "half a key pair": (("--tls-cert-file", "x"), "--tls-private-key-file: must be given where --tls-cert-file is"),
    "certificates asked for without HTTPS": (
        ("--client-ca-file", "x", "--secure-port", 0, "--http-port", 1),
        "--client-ca-file: client certificates need HTTPS",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("flags", "problem"), FAULTS.values(), ids=FAULTS)
def test_conflicting_flags_are_refused(flags: tuple[object, ...], problem: str, config: Path) -> None:
    done = extender("--config", config, *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


def test_a_profile_without_plugins_for_any_verb_is_refused(config: Path) -> None:
    config.write_text(HEAD + PROFILE.replace(", {name: likes_b.py, weight: 3}", ""))
    done = extender("--config", config, "--snippet", "--allow-anybody")
    assert done.returncode == 2
    assert "profiles: no profile has a plugin that filters or scores" in done.stderr


def test_a_certificate_without_its_key_is_reported(config: Path, tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_text("x")
    done = extender("--config", config, "--snippet", "--cert-dir", tmp_path)
    assert done.returncode == 2
    assert f"--cert-dir: {tmp_path} has tls.crt but no ca.crt and tls.key" in done.stderr


async def test_a_port_in_use_is_reported_and_nothing_hangs(config: Path, tmp_path: Path) -> None:
    async with server_with_nodes() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        taken = server.url.rpartition(":")[2].strip("/")
        done = await asyncio.to_thread(
            extender, "--config", config, "--kubeconfig", kubeconfig, "--allow-anybody", "--secure-port", taken,
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        assert f"cannot listen on port {taken} of 127.0.0.1" in done.stderr
        assert "Traceback" not in done.stderr


def test_the_help_is_printed() -> None:
    done = extender("--help")
    assert done.returncode == 0
    for flag in ("--config", "--profile", "--snippet", "--bind", "--url", "--cert-dir", "--client-ca-file", "--token-file",
                 "--allow-anybody"):  # fmt: skip
        assert flag in done.stdout
