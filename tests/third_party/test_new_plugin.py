"""`custom-scheduler new plugin` writes a package that is right as it is."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from scheduler.cli.new import _KINDS, PluginName
from tests.support.commands import run_command

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 120


def run(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS
    )


def new_plugin(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    done = run_command("new", "plugin", *words, folder=folder)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("kind", _KINDS)
def test_its_tests_pass_its_profile_runs_and_ruff_finds_nothing(tmp_path: Path, kind: str):
    made = new_plugin("GPUPacker", "--kind", kind, folder=tmp_path)
    folder = tmp_path / "gpu-packer"

    assert (made.returncode, made.stderr) == (0, "")
    assert sorted(each.name for each in folder.iterdir()) == [
        "README.md",
        "gpu_packer.py",
        "pyproject.toml",
        "scheduler.yaml",
        "test_gpu_packer.py",
    ]
    assert not [each for each in folder.iterdir() if re.search("my.?plugin", each.read_text(), re.IGNORECASE)]
    steps = [line.strip() for line in made.stdout.splitlines() if line.startswith("    ")]
    assert steps[0] == "cd gpu-packer"
    for step in steps[1:3]:
        done = subprocess.run(step, shell=True, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S602 - for a shell
        assert done.returncode == 0, step + done.stdout + done.stderr
    for words in (["check"], ["format", "--check"]):
        done = run("-m", "ruff", *words, "--isolated", "--line-length=120", ".", folder=folder)
        assert done.returncode == 0, done.stdout + done.stderr


def test_its_entry_point_loads_the_plugin(tmp_path: Path):
    new_plugin("quiet-racks", folder=tmp_path)

    project = tomllib.loads((tmp_path / "quiet-racks" / "pyproject.toml").read_text())["project"]

    assert project["name"] == "quiet-racks"
    assert project["entry-points"] == {"custom_scheduler.plugins": {"QuietRacks": "quiet_racks:QuietRacks"}}


def test_an_existing_file_is_not_overwritten(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("dear")

    done = new_plugin("QuietRacks", "--folder", tmp_path / "mine", folder=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: --folder: {tmp_path}/mine exists already and is not empty\n"
    assert [each.name for each in (tmp_path / "mine").iterdir()] == ["notes"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("QuietRacks", ("QuietRacks", "quiet_racks", "quiet-racks")),
        ("quiet-racks", ("QuietRacks", "quiet_racks", "quiet-racks")),
        ("quiet_racks", ("QuietRacks", "quiet_racks", "quiet-racks")),
        ("GPUPacker2", ("GPUPacker2", "gpu_packer_2", "gpu-packer-2")),
        ("NUMA", ("NUMA", "numa", "numa")),
    ],
)
def test_a_name_is_converted_for_each_place(text: str, expected: tuple[str, str, str]):
    assert PluginName.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "letters and digits are expected", id="nothing"),
        pytest.param("../etc", "letters and digits are expected", id="a path"),
        pytest.param("2fast", "letters and digits are expected", id="a digit first"),
        pytest.param("node-affinity", "NodeAffinity is a plugin that exists already", id="a plugin"),
        pytest.param(
            "Queue", "queue is a module of Python or of an installed package", id="a module of Python"
        ),
        pytest.param("numpy", "numpy is a module of Python or of an installed package", id="a package"),
        pytest.param("Class", "class is a keyword of Python", id="a keyword"),
    ],
)
def test_an_invalid_or_used_name_is_refused(text: str, expected: str):
    with pytest.raises(ValueError, match=expected):
        PluginName.parse(text)
