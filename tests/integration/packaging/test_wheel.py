"""The package builds from the source archive to a wheel and works in an empty environment with its dependencies."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from typing import TYPE_CHECKING
from zipfile import ZipFile

from scheduler.version import VERSION
from tests.support.manifests import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 300
PLAIN = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}


def run(*command: str | Path, cwd: str | Path = "/", **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment or None,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, (command, done.stdout + done.stderr)
    return done.stdout


def test_a_wheel_of_the_source_archive_works_in_an_empty_environment(tmp_path: Path) -> None:
    archives, wheels, alone = tmp_path / "archives", tmp_path / "wheels", tmp_path / "alone"
    run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", archives, cwd=ROOT)
    (archive,) = archives.iterdir()
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", wheels, archive)
    (ours,) = wheels.glob("custom_scheduler-*.whl")
    holds_the_two_packages_and_nothing_else(ours)

    venv.create(alone)
    # Another's pip works on it: to make one there takes seconds.
    pip = (sys.executable, "-Im", "pip", "--python", alone / "bin" / "python")
    install = (*pip, "install", "--quiet", "--no-compile", "--no-index", f"--find-links={wheels}")
    run(*install, "custom-scheduler", **PLAIN)

    run(*pip, "check", **PLAIN)
    program = alone / "bin" / "custom-scheduler"
    assert "Usage: custom-scheduler" in run(program, "--help", **PLAIN)
    assert "valid" in run(program, "check", **PLAIN)
    assert "Every pod is where it should be." in run(program, "demo", "--exit", **PLAIN)


def holds_the_two_packages_and_nothing_else(wheel: Path) -> None:
    with ZipFile(wheel) as packed:
        names = packed.namelist()
    assert {name.split("/")[0] for name in names} == {
        "scheduler",
        "plugins",
        f"custom_scheduler-{VERSION}.dist-info",
    }
    there = {
        os.path.relpath(path, ROOT)
        for package in ("scheduler", "plugins")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if ".dist-info/" not in name} == there
