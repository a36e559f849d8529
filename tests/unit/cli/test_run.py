"""Errors of `custom-scheduler run` at its start."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from scheduler import worker_thread
from scheduler.cli import run
from scheduler.configuration.load import default
from scheduler.daemon.config_watch import kopf_thread as kopf_thread_module

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
WRONG = f"{HEAD}parallelism: -3\n"


def test_an_unreadable_stored_configuration_hides_no_error_of_the_current_one(tmp_path: Path) -> None:
    config, kept = tmp_path / "config.yaml", tmp_path / "kept.json"
    config.write_text(WRONG)
    kept.write_text("cut")

    ended = subprocess.run(
        [sys.executable, "-m", "scheduler", "run", "--config", config, "--last-good-config", kept],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 2
    assert f"error: {config}: parallelism: must be at least 1, was -3" in ended.stderr.splitlines()
    assert f"{kept}: cannot be read" in ended.stderr


def test_the_start_waits_for_a_slow_import_of_kopf_and_logs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_imported, entered, said = threading.Event(), list[str](), list[tuple[object, list[str]]]()

    @asynccontextmanager
    async def following(**_: object) -> AsyncIterator[None]:
        entered.append("profiles")
        yield

    @asynccontextmanager
    async def kopf_thread(_: object) -> AsyncIterator[None]:
        entered.append("kopf")
        yield

    def warning(_: str, extra: dict[str, object]) -> None:
        said.append((extra["what"], list(entered)))
        is_imported.set()

    async def scenario() -> None:
        daemon: Any = SimpleNamespace(configuration=default())  # no more of it is asked
        nobody: Any = None
        async with run._following(daemon, nobody, None, following, connection=nobody, kubeconfig=None):
            entered.append("run")

    monkeypatch.setattr(worker_thread, "LONGEST_SECONDS", 0.05)
    monkeypatch.setattr(worker_thread.logger, "warning", warning)
    monkeypatch.setattr(run, "import_module", lambda _: is_imported.wait(60))
    monkeypatch.setattr(kopf_thread_module, "KopfThread", kopf_thread)
    asyncio.run(scenario())

    assert entered == ["profiles", "kopf", "run"]
    assert said[0] == ("importing kopf", [])
