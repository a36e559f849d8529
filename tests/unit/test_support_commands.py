"""Forked commands behave as `python -m scheduler` does."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import forked_command
from tests.support.commands import forked_program, forked_programs, run_command, start_server
from tests.support.manifests import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A running `api-server`, which has written its first line."""
    command = [forked_program(), "api-server", "--nodes=0", f"--kubeconfig={tmp_path / 'kubeconfig'}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert "serves 0 nodes" in process.stdout.readline()
        yield process
        process.kill()


def in_a_shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{Path(forked_program()).parent}:{os.environ['PATH']}"}
    return subprocess.run(
        ["/bin/sh", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "arguments", ["check no-such-file", "check --convert", "explain --cluster config -o json"]
)
def test_output_and_status_are_those_of_a_started_process(arguments: str) -> None:
    command = [sys.executable, "-m", "scheduler", *arguments.split()]
    started = subprocess.run(command, capture_output=True, check=False, cwd=ROOT)

    forked = run_command(*arguments.split())

    assert (forked.returncode, forked.stdout, forked.stderr) == (
        started.returncode,
        started.stdout,
        started.stderr,
    )


def test_a_shell_can_use_pipes_files_and_folders(tmp_path: Path) -> None:
    done = in_a_shell(
        "custom-scheduler check --convert | cat > converted; custom-scheduler check - < converted; "
        "custom-scheduler check converted",
        tmp_path,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "".join(
        f"{source}: valid, profiles custom-scheduler\n" for source in ("standard input", "converted")
    )


def test_a_signal_ends_the_command_in_good_order(server: subprocess.Popen[str]) -> None:
    server.send_signal(signal.SIGTERM)

    assert server.wait(30) == 0


def test_a_command_that_a_signal_kills_is_reported_as_killed(server: subprocess.Popen[str]) -> None:
    server.send_signal(signal.SIGUSR1)

    assert server.wait(30) == -signal.SIGUSR1


def test_a_killed_command_does_not_outlive_its_client(server: subprocess.Popen[str]) -> None:
    assert server.stdout is not None
    server.kill()

    server.stdout.read()  # ends when the forked process has ended, which has this pipe too


def test_two_commands_run_at_the_same_time(server: subprocess.Popen[str]) -> None:
    assert run_command("--version").returncode == 0
    assert server.poll() is None


def test_the_server_continues_when_a_command_ends_just_before_its_client_is_killed(tmp_path: Path) -> None:
    with start_server(tmp_path) as process, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "socket"))
        script = str(ROOT / "scheduler" / "__main__.py")
        asked = forked_command.request([script, "check", "-"], str(tmp_path), os.environ)
        streams = [*os.pipe(), os.open(os.devnull, os.O_WRONLY)]
        socket.send_fds(client, [asked], streams)
        command = forked_command.number(client.recv(forked_command.ANSWER_BYTES))
        process.send_signal(signal.SIGSTOP)
        ended = os.pidfd_open(command)
        os.kill(command, signal.SIGKILL)
        assert select.select([ended], [], [], 30)[0]
        for opened in (*streams, ended):
            os.close(opened)
        client.close()
        process.send_signal(signal.SIGCONT)

        version = [str(tmp_path / "custom-scheduler"), "--version"]
        assert subprocess.run(version, capture_output=True, timeout=60, check=False).returncode == 0


def test_the_kubectl_plugin_is_a_forked_program_too() -> None:
    done = subprocess.run(
        [forked_programs()["kubectl-why"], "--help"], capture_output=True, text=True, check=True
    )

    assert done.stdout.startswith("Usage: kubectl why ")


def test_forked_commands_end_when_the_tests_are_killed(tmp_path: Path) -> None:
    script = (
        "import os, subprocess\n"
        "from tests.support.commands import forked_program\n"
        f"command = [forked_program(), 'api-server', '--nodes=0', '--kubeconfig={tmp_path / 'kubeconfig'}']\n"
        "with subprocess.Popen(command, stdout=subprocess.PIPE) as server:\n"
        "    print(server.stdout.readline(), flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    started = subprocess.run(  # the error stream ends with the last process that has it
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, timeout=60, check=False
    )

    assert b"serves 0 nodes" in started.stdout
    assert started.returncode == -signal.SIGKILL
