"""Changes of a file and of a ConfigMap without kopf become offers, in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.daemon.app.config_file import ConfigFile
from scheduler.daemon.app.config_map import ConfigMapKey, ConfigMapSource
from scheduler.daemon.app.following import _Listener
from scheduler.daemon.app.rights import Named
from scheduler.daemon.config_watch.config_objects import ConfigMap
from scheduler.kube.http.request import Response
from tests.support.daemon_harness import cluster
from tests.support.reloads import ABOUT, reloader_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from scheduler.daemon.app.daemon import Daemon
    from scheduler.daemon.app.reloader import Offer
    from scheduler.kube.http.request import Request
    from tests.support.daemon_harness import Cluster

TEXT = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
UP = "custom_scheduler_config_watch_up"


async def test_a_file_is_offered_when_its_content_has_changed_and_is_stable(
    tmp_path: Path,
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(TEXT)
    file = ConfigFile(path)
    offers: list[Offer] = []
    file.load()
    following = asyncio.create_task(file.follow(offers.append, ABOUT))
    await asyncio.sleep(60)
    assert offers == []

    for lines in range(1, 10):  # written piece by piece
        path.write_text(TEXT + "# more\n" * lines)
        await asyncio.sleep(1.5)
    assert offers == []
    await asyncio.sleep(60)
    assert [offer.source for offer in offers] == [str(path)]

    path.unlink()
    path.write_text(TEXT + "# more\n" * 9)
    await asyncio.sleep(60)
    assert len(offers) == 1

    path.unlink()
    await asyncio.sleep(60)
    assert len(offers) == 2
    following.cancel()


@asynccontextmanager
async def listening(folder: Path) -> AsyncIterator[tuple[Cluster, Daemon, _Listener]]:
    """A daemon that follows a ConfigMap, which is not there, with a listener that kopf told of it before."""
    async with cluster(folder) as it, it.daemon(config_map=Named("default", "cs")) as daemon:
        source = ConfigMapSource(ConfigMapKey("default", "cs"), folder / "plugins")
        source.first(ConfigMap("default", "cs", data={"a": TEXT}))
        reloader = reloader_of(daemon)
        reloading = asyncio.create_task(reloader.run())
        listener = _Listener(daemon, reloader, source, daemon.connection)
        yield it, daemon, listener
        for task in (reloading, *listener.tasks):
            task.cancel()


async def test_the_deletion_of_a_config_map_while_kopf_is_down_is_found_and_reported(
    tmp_path: Path,
) -> None:
    async with listening(tmp_path) as (it, daemon, listener):

        def up() -> bool:
            return daemon.metrics.registry.get_sample_value(UP, {"source": "configmap"}) == 1

        assert not up()
        listener.changed(ConfigMap("default", "cs", data={"a": TEXT}))
        listener.seen(True)
        assert up()
        listener.seen(False)
        assert not up()
        assert it.notes("cs", "ConfigurationRejected") == []

        listener.began()

        await it.until(lambda: it.notes("cs", "ConfigurationRejected"))
        assert "is deleted" in it.notes("cs", "ConfigurationRejected")[0]
        assert up()


@pytest.mark.parametrize("code", [403, 503])
async def test_a_refused_read_of_the_config_map_is_retried(tmp_path: Path, code: int) -> None:
    async with listening(tmp_path) as (it, _, listener):
        fault = it.server.faults.refuse(code, lambda info: info.path.endswith("/configmaps/cs"))
        listener.began()
        await asyncio.sleep(120)
        assert it.notes("cs", "ConfigurationRejected") == []

        it.server.faults.remove(fault)
        await it.until(lambda: it.notes("cs", "ConfigurationRejected"))


async def test_a_read_without_valid_json_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(tmp_path) as (it, daemon, listener):
        connection = daemon.connection
        answers = [Response(200, b"[]"), Response(200, b"<html>not now</html>")]

        async def send(request: Request, **options: Any) -> Response:
            if answers and request.path.endswith("/configmaps/cs"):
                return answers.pop()
            return await type(connection).send(connection, request, **options)

        monkeypatch.setattr(connection, "send", send)
        listener.began()
        await it.until(lambda: it.notes("cs", "ConfigurationRejected"))


async def test_reads_stop_once_kopf_has_delivered_the_config_map(tmp_path: Path) -> None:
    async with listening(tmp_path) as (it, _, listener):
        it.server.faults.refuse(503, lambda info: info.path.endswith("/configmaps/cs"))
        listener.began()
        await asyncio.sleep(30)
        assert listener.tasks
        listener.changed(ConfigMap("default", "cs", data={"a": TEXT}))
        await it.until(lambda: not listener.tasks)
