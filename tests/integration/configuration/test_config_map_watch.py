"""kopf in a thread of its own, against the simulated API server, in real time."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from scheduler.daemon.config_watch.kopf_thread import ConfigMapWatch, KopfThread
from scheduler.kube.certificates import issue
from scheduler.tools.simulator.server import ApiServer
from tests.support.processes import until

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.daemon.config_watch.config_objects import ConfigMap

pytestmark = pytest.mark.run(by=asyncio.run)

PATIENCE_SECONDS = 60.0
PROMPT_SECONDS = 20.0
"""Less than the 30 seconds that a request of kopf may take."""


@pytest.fixture(autouse=True)
def _busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the end of kopf for as long as a busy machine may take."""
    monkeypatch.setattr("scheduler.daemon.config_watch.kopf_thread._END_SECONDS", PATIENCE_SECONDS)


class Heard:
    """What a watch told, in the order it did."""

    def __init__(self, kubeconfig: Path) -> None:
        self.versions: list[ConfigMap | None] = []
        self.ups: list[bool] = []
        self.beginnings = 0
        self.thread = KopfThread(str(kubeconfig))
        self.thread.follow(
            ConfigMapWatch(
                "default", "cs", began=self.began, changed=self.versions.append, seen=self.ups.append
            )
        )

    def began(self) -> None:
        self.beginnings += 1


async def test_only_one_config_map_is_followed_and_nothing_is_written(tmp_path: Path) -> None:
    async with ApiServer() as server:
        store = server.store
        heard = Heard(server.write_kubeconfig(tmp_path / "kubeconfig"))
        for name in ("other", "cs"):
            store.create("configmaps", {"metadata": {"name": name}, "data": {"text": name}})
        await heard.thread.__aenter__()
        await until(lambda: heard.versions)
        before = store.get("configmaps", "cs", "default")

        store.patch("configmaps", "other", {"data": {"text": "changed"}})
        store.patch("configmaps", "cs", {"data": {"text": "changed"}})
        await until(lambda: len(heard.versions) == 2)
        store.delete("configmaps", "cs", "default")
        await until(lambda: len(heard.versions) == 3)
        began = time.monotonic()
        await heard.thread.__aexit__()

        assert time.monotonic() - began < PROMPT_SECONDS
        assert not [each for each in threading.enumerate() if each.name == "kopf"]
        first, second, gone = heard.versions
        assert first is not None
        assert second is not None
        assert (first.data, second.data, gone) == ({"text": "cs"}, {"text": "changed"}, None)
        assert first.uid == before["metadata"]["uid"]
        assert {each.method for each in server.requests} == {"GET"}
        assert "annotations" not in before["metadata"]
        assert "finalizers" not in before["metadata"]
        paths = [each.path for each in server.requests if each.path.startswith("/api/v1/namespaces")]
        assert set(paths) == {"/api/v1/namespaces/default/configmaps"}


@pytest.mark.parametrize("trust", ["another name in the certificate", "the certificate is the only trust"])
async def test_a_config_map_is_followed_with_a_certificate_that_the_kubeconfig_describes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trust: str
) -> None:
    has_other_name = trust.startswith("another")
    names: dict[str, list[str]] = (
        {"dns_names": ["kubernetes"]} if has_other_name else {"addresses": ["127.0.0.1"]}
    )
    issued = issue("kube-apiserver", **names)
    own = base64.b64encode(issued.serving).decode()
    monkeypatch.setattr("scheduler.tools.simulator.server._issued", lambda _: issued)

    async with ApiServer(token="secret", tls=True) as server:
        server.store.create("configmaps", {"metadata": {"name": "cs"}})
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        content = json.loads(kubeconfig.read_text())
        described = (
            {"tls-server-name": "kubernetes"} if has_other_name else {"certificate-authority-data": own}
        )
        content["clusters"][0]["cluster"].update(described)
        kubeconfig.write_text(json.dumps(content))
        heard = Heard(kubeconfig)
        async with heard.thread:
            await until(lambda: heard.ups)

        assert heard.ups[0] is True
        assert len(heard.versions) == 1


async def test_kopf_impersonates_the_user_of_the_kubeconfig(tmp_path: Path) -> None:
    async with ApiServer(token="secret", rbac=True) as server:
        server.store.create("configmaps", {"metadata": {"name": "cs"}})
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        content = json.loads(kubeconfig.read_text())
        content["users"][0]["user"]["as"] = "jane"
        kubeconfig.write_text(json.dumps(content))
        heard = Heard(kubeconfig)
        async with heard.thread:
            await until(lambda: any(each.status == 403 for each in server.requests))

        assert not heard.versions


async def test_a_crashed_kopf_is_reported_and_restarted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with ApiServer() as server:
        server.store.create("configmaps", {"metadata": {"name": "cs"}, "data": {"text": "one"}})
        kubeconfig = tmp_path / "kubeconfig"
        heard = Heard(kubeconfig)
        with caplog.at_level(logging.WARNING, "scheduler.daemon.config_watch"):
            await heard.thread.__aenter__()
            await until(lambda: heard.ups)

            server.write_kubeconfig(kubeconfig)
            await until(lambda: heard.versions)
            await heard.thread.__aexit__()

        assert heard.ups == [*[False] * (len(heard.ups) - 1), True]
        assert heard.beginnings == len(heard.ups)
        reported = [record for record in caplog.records if "is not watched at the moment" in record.message]
        assert len(reported) == heard.ups.count(False)
        assert not [each for each in threading.enumerate() if each.name == "kopf"]


@pytest.mark.parametrize("retries", [0, 1])
async def test_an_unreachable_server_is_not_logged_as_an_error(
    tmp_path: Path, retries: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.daemon.config_watch.kopf_thread._RETRIES", retries)

    async with ApiServer() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
    heard = Heard(kubeconfig)
    await heard.thread.__aenter__()
    await until(lambda: heard.ups)
    await heard.thread.__aexit__()
    reported = {
        (record.levelname, record.message) for record in caplog.records if record.levelno > logging.INFO
    }
    message = "Configuration is not watched at the moment; the scheduler continues with the current one"
    assert reported == {("WARNING", message)}


@pytest.mark.parametrize("when", ["at once", "while it cannot log in"])
async def test_it_can_be_stopped_at_any_time(tmp_path: Path, when: str) -> None:
    async with ApiServer():
        heard = Heard(tmp_path / "kubeconfig")
        await heard.thread.__aenter__()
        if when != "at once":
            await until(lambda: heard.ups)
        began = time.monotonic()
        await heard.thread.__aexit__()
        assert time.monotonic() - began < PROMPT_SECONDS
        assert not [each for each in threading.enumerate() if each.name == "kopf"]


async def test_a_failing_kopf_is_restarted_and_does_not_delay_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(**_: object) -> None:
        raise RuntimeError("kopf is broken")

    async with ApiServer() as server:
        heard = Heard(server.write_kubeconfig(tmp_path / "kubeconfig"))
        with monkeypatch.context() as patch:
            patch.setattr("scheduler.daemon.config_watch.kopf_thread.kopf.operator", broken)
            await heard.thread.__aenter__()
            await until(lambda: heard.ups)
        assert not any(heard.ups)
        server.store.create("configmaps", {"metadata": {"name": "cs"}})
        await until(lambda: heard.versions)
        await heard.thread.__aexit__()
        assert not [each for each in threading.enumerate() if each.name == "kopf"]


@pytest.mark.parametrize("when", ["before it fails", "after it was cancelled"])
async def test_no_connection_stays_open_when_kopf_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    kept: list[object] = []
    starts: list[object] = []

    ended = asyncio.Event()

    async def read_to_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        ended.set()

    server = await asyncio.start_server(read_to_the_end, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def leaves_a_connection_open(**options: object) -> None:
        starts.append(options)
        if when == "after it was cancelled":
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        while not kept:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.1)
                kept.append(await asyncio.open_connection("127.0.0.1", port))
        raise RuntimeError("kopf is broken")

    async with server:
        heard = Heard(tmp_path / "kubeconfig")
        kopf_thread = "scheduler.daemon.config_watch.kopf_thread"
        monkeypatch.setattr(f"{kopf_thread}.kopf.operator", leaves_a_connection_open)
        monkeypatch.setattr(f"{kopf_thread}._GRACE_SECONDS", 0.01)
        await heard.thread.__aenter__()
        await until(lambda: starts)
        if when == "after it was cancelled":
            heard.thread.begin_again()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await ended.wait()
        await heard.thread.__aexit__()
    assert kept
