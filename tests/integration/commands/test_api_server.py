"""`custom-scheduler api-server` as a process: an error at the start is one line."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def refused(*flags: str | Path) -> list[str]:
    command = [sys.executable, "-m", "scheduler", "api-server", *map(str, flags)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr.splitlines()


def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        said = refused("--port", str(port), "--kubeconfig", tmp_path / "kubeconfig")

    assert said == [f"error: --port: cannot listen on 127.0.0.1:{port}: Address already in use"]
    assert not (tmp_path / "kubeconfig").exists()


@pytest.mark.parametrize("content", ["current-context: work\n", '{"current-context": "work"}', "[]"])
def test_an_existing_kubeconfig_is_not_overwritten(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)

    said = refused("--kubeconfig", path)

    assert said == [
        f"error: --kubeconfig: {path} exists already, and is the kubeconfig of another cluster; name another file"
    ]
    assert path.read_text() == content


def test_a_missing_folder_is_reported_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "config"

    assert refused("--kubeconfig", path)[-1] == f"error: --kubeconfig: {path}: No such file or directory"
