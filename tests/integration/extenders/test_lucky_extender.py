"""The extender of a well-known tutorial, as shipped: random nodes, and all pods run in the end."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.commands import forked_program
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = Path(__file__).parents[3] / "manifests" / "examples" / "lucky-extender"
PATIENCE_SECONDS = 90.0


@contextmanager
def the_extender(port: int) -> Iterator[None]:
    command = [sys.executable, str(EXAMPLE / "lucky_extender.py"), str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(port)
            yield
        finally:
            process.kill()


def wait_for(port: int) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return


def demo(configuration: Path, workload: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [forked_program(), "demo", "--exit", "--config", configuration, "--apply", workload],
        capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
    )  # fmt: skip


@pytest.fixture
def configuration(tmp_path: Path) -> Iterator[Path]:
    """The example's configuration, its extender listening on a port that is free here."""
    port = free_port()
    written = tmp_path / "scheduler.yaml"
    written.write_text((EXAMPLE / "scheduler.yaml").read_text().replace("8888", str(port)))
    with the_extender(port):
        yield written


def test_all_pods_of_the_tutorial_run_on_lucky_nodes_of_the_demo(configuration: Path) -> None:
    shown = demo(configuration, EXAMPLE / "deployment.yaml")

    assert shown.returncode == 0, shown.stdout + shown.stderr
    found = re.search(r"20 test-scheduler +20 on (\d+) nodes", shown.stdout)
    assert found is not None, shown.stdout
    assert int(found[1]) > 3
    assert shown.stdout.rstrip().endswith("Every pod is where it should be.")


def test_the_demo_reports_the_unplaced_objects_of_a_file(tmp_path: Path) -> None:
    objects = tmp_path / "objects.yaml"
    objects.write_text(
        (EXAMPLE / "deployment.yaml").read_text() + "---\nkind: Pod\nmetadata: {name: a}\n---\n7\n"
    )

    shown = demo(EXAMPLE / "scheduler.yaml", objects)

    assert shown.returncode == 2
    assert f"{objects}: document 2, apiVersion: is missing" in shown.stderr
    assert f"{objects}: document 3: must be an API object, was 7" in shown.stderr
