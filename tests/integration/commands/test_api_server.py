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


@pytest.mark.parametrize(
    ("version", "gates", "fault"),
    [
        ("1.36", "Gangs=true", "unrecognized feature gate: Gangs"),
        (
            "1.37",
            "DRAExtendedResource=false",
            "cannot set feature gate DRAExtendedResource to false, feature is locked to true",
        ),
    ],
)
def test_a_gate_that_the_version_does_not_accept_is_refused(
    tmp_path: Path, version: str, gates: str, fault: str
) -> None:
    flags = ("--kubernetes-version", version, "--feature-gates", gates)

    (said,) = refused(*flags, "--kubeconfig", tmp_path / "kubeconfig")

    assert said.startswith(f"error: --feature-gates: {fault}")


def test_a_scenario_with_gangs_needs_a_version_with_groups(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text("workloads: [{name: train, replicas: 3, gang: true}]\n")

    said = refused("--scenario", path, "--kubernetes-version", "1.34", "--kubeconfig", tmp_path / "k")

    assert said[-1].endswith("workloads[0].gang: Kubernetes 1.34 has no groups of pods")


def test_a_missing_folder_is_reported_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "config"

    assert refused("--kubeconfig", path)[-1] == f"error: --kubeconfig: {path}: No such file or directory"
