"""A configuration file stays watched after any content."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING

import pytest

from scheduler.configuration.load import default
from scheduler.daemon.app import config_file
from scheduler.daemon.app.config_file import POLL_SECONDS, ConfigFile, lease_of
from scheduler.engine.runtime.registry import PluginFiles
from scheduler.errors import ConfigurationError, PluginLoadError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scheduler.daemon.app.reloader import Offer

NEWEST = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
PLUGIN = f'{NEWEST}profiles: [{{plugins: {{filter: {{enabled: [{{name: "a\\0.py"}}]}}}}}}]\n'
POLICY = """\
apiVersion: kubescheduler.config.k8s.io/v1alpha1
kind: KubeSchedulerConfiguration
algorithmSource: {policy: {file: {path: "a\\0"}}}
"""


@pytest.mark.parametrize(
    "text", [PLUGIN, POLICY, "a: [", "\0"], ids=["plugin", "policy", "syntax", "no text"]
)
async def test_no_file_name_ends_the_watch(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(NEWEST)
    file = ConfigFile(path)
    file.load()
    offers: list[Offer] = []
    about = lease_of(default().settings.leader_election)
    following = asyncio.create_task(file.follow(offers.append, about))
    for content in (text, NEWEST):
        path.write_text(content)
        await asyncio.sleep(3 * POLL_SECONDS)
    following.cancel()

    assert len(offers) == 2
    assert offers[1].read().settings == default().settings


def fifo(path: Path) -> None:
    os.mkfifo(path)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


def without_end(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("put", "expected"),
    [
        pytest.param(fifo, "cannot be read: is a FIFO, a regular file is expected", id="a FIFO"),
        pytest.param(sparse, "cannot be read: has more than ", id="a sparse file"),
        pytest.param(without_end, "cannot be read: is a character device", id="a device"),
        pytest.param(os.mkdir, "cannot be read: is a directory", id="a directory"),
        pytest.param(lambda path: path.symlink_to(path), "cannot be read: Too many levels", id="a circle"),
    ],
)
@pytest.mark.parametrize("name", ["config.yaml", "gpu.py"])
async def test_a_directory_in_place_of_the_file_is_reported_until_the_file_is_back(
    tmp_path: Path, name: str, put: Callable[[Path], object], expected: str
) -> None:
    texts = {
        "config.yaml": f"{NEWEST}profiles: [{{plugins: {{filter: {{enabled: [{{name: gpu.py}}]}}}}}}]\n",
        "gpu.py": "",
    }
    for file, text in texts.items():
        (tmp_path / file).write_text(text)
    followed = ConfigFile(tmp_path / "config.yaml")
    followed.load()
    digest = followed.digest
    offers: list[Offer] = []
    following = asyncio.create_task(
        followed.follow(offers.append, lease_of(default().settings.leader_election))
    )
    (tmp_path / name).unlink()
    put(tmp_path / name)
    await asyncio.sleep(5 * POLL_SECONDS)

    (offer,) = offers
    if name == "config.yaml":
        with pytest.raises(ConfigurationError, match=f"config.yaml: {expected}"):
            offer.read()
    else:  # the error comes from the build of the plugin
        with pytest.raises(PluginLoadError, match=r"gpu\.py"):
            PluginFiles().load(tmp_path / name, "", name)
    (tmp_path / name).rename(tmp_path / "away")
    (tmp_path / name).write_text(texts[name])
    await asyncio.sleep(5 * POLL_SECONDS)
    following.cancel()
    assert (len(offers), followed.digest) == (2, digest)


@pytest.mark.run(by=asyncio.run)
async def test_a_hanging_file_system_holds_up_neither_the_loop_nor_the_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(NEWEST)
    followed = ConfigFile(path)
    followed.load()
    answers, asked = threading.Event(), []

    def hang(_: object) -> None:
        asked.append(threading.current_thread())
        answers.wait(60)

    monkeypatch.setattr(config_file, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(config_file, "_state_of", hang)
    about = lease_of(default().settings.leader_election)
    following = asyncio.create_task(followed.follow(lambda _: None, about))
    while not asked:  # noqa: ASYNC110 - a thread tells nobody
        await asyncio.sleep(0.001)
    for _ in range(10):
        await asyncio.sleep(0.001)
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    assert len(asked) == 1
    assert asked[0] is not threading.current_thread()
    answers.set()
