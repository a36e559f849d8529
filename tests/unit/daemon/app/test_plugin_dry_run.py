"""A configuration's code that hangs, crashes or is slow is detected in a child process; these tests start real ones."""

from __future__ import annotations

import asyncio
import tempfile
import time
from typing import TYPE_CHECKING

import pytest

from scheduler.configuration.load import Configuration, default, parse
from scheduler.daemon.app import plugin_dry_run
from scheduler.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
FILTER = """\
import os, signal, threading, time
from scheduler.framework import FilterPlugin
{at_import}
class Gpu(FilterPlugin):
    name = "Gpu"
    api_version = 1
    def __init__(self):
        {at_build}
    def filter_node(self, state, pod, node):
        ...
"""


def configuration(folder: Path, *, at_import: str = "", at_build: str = "pass") -> Configuration:
    (folder / "gpu.py").write_text(FILTER.format(at_import=at_import, at_build=at_build))
    profile = "- schedulerName: custom-scheduler\n  plugins: {filter: {enabled: [{name: gpu.py}]}}\n"
    return parse(HEAD + profile, "a test", folder)


def refusal(tried: Configuration) -> str:
    with pytest.raises(ConfigurationError) as refused:
        asyncio.run(plugin_dry_run.dry_run_plugins(tried))
    return str(refused.value)


def test_a_configuration_without_custom_code_needs_no_dry_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_dry_run, "_problem_of", None)

    asyncio.run(plugin_dry_run.dry_run_plugins(default()))


def test_code_that_ends_in_time_passes_even_if_it_raises(tmp_path: Path) -> None:
    asyncio.run(plugin_dry_run.dry_run_plugins(configuration(tmp_path)))
    asyncio.run(
        plugin_dry_run.dry_run_plugins(
            configuration(tmp_path, at_import="raise RuntimeError", at_build="raise SystemExit")
        )
    )


def test_a_dry_run_needs_no_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))

    asyncio.run(plugin_dry_run.dry_run_plugins(configuration(tmp_path)))


@pytest.mark.parametrize(
    ("at_import", "at_build", "expected"),
    [
        pytest.param(
            "try:\n    while True: pass\nexcept BaseException:\n    while True: pass",
            "pass",
            "importing gpu.py takes more than 2 seconds",
            id="an endless loop that catches everything that is raised",
        ),
        pytest.param("import re; re.match('(a+)+$', 'a' * 64 + 'b')", "pass", "importing gpu.py", id="a loop in C"),
        pytest.param("time.sleep(3600)", "pass", "importing gpu.py", id="a sleep"),
        pytest.param("", "time.sleep(3600)", "building gpu.py takes more than 2 seconds", id="a constructor that hangs"),
        pytest.param("os.kill(os.getpid(), signal.SIGSEGV)", "pass", "(SIGSEGV)", id="a crash"),
        pytest.param("os._exit(7)", "pass", "ends the process (status 7)", id="an exit"),
        pytest.param(
            "pid = os.fork()\nwhile pid: time.sleep(1)\ntime.sleep(3600)", "pass", "importing gpu.py", id="a fork that stays"
        ),
    ],
)  # fmt: skip
def test_code_that_would_stop_the_scheduler_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_import: str, at_build: str, expected: str
) -> None:
    monkeypatch.setattr(plugin_dry_run, "DRY_RUN_SECONDS", 2.0)
    began = time.monotonic()

    assert expected in refusal(configuration(tmp_path, at_import=at_import, at_build=at_build))
    assert time.monotonic() - began < 60  # far more than the limit, for a busy machine


def test_a_slow_constructor_is_rejected(tmp_path: Path) -> None:
    assert "at most 2 are allowed" in refusal(configuration(tmp_path, at_build="time.sleep(2.2)"))


def test_unbounded_memory_use_is_rejected(tmp_path: Path) -> None:
    # MemoryError is an exception as any other: it is raised here too, where the same text asks for the same.
    hungry = configuration(tmp_path, at_import="try:\n    b'x' * 2**31\nexcept MemoryError:\n    os._exit(9)")

    assert "status 9" in refusal(hungry)


def test_the_event_loop_continues_during_a_dry_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_dry_run, "DRY_RUN_SECONDS", 3.0)

    async def scenario() -> int:
        trying = asyncio.create_task(
            plugin_dry_run.dry_run_plugins(configuration(tmp_path, at_import="time.sleep(3600)"))
        )
        turns = 0
        while not trying.done():
            await asyncio.sleep(0.05)
            turns += 1
        with pytest.raises(ConfigurationError):
            trying.result()
        return turns

    assert asyncio.run(scenario()) > 20
