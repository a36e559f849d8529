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


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    """Return for each kind the folder of a package and what the command prints."""
    parent = tmp_path_factory.mktemp("packages")
    made = {kind: new_plugin(f"GPU{kind.title()}", "--kind", kind, folder=parent) for kind in _KINDS}
    assert {(done.returncode, done.stderr) for done in made.values()} == {(0, "")}
    return {kind: (parent / f"gpu-{kind}", done.stdout) for kind, done in made.items()}


@pytest.mark.parametrize("kind", _KINDS)
def test_it_writes_a_package_under_the_name_with_a_profile_that_runs(
    packages: dict[str, tuple[Path, str]], kind: str
):
    folder, printed = packages[kind]

    assert sorted(each.name for each in folder.iterdir() if not each.name.startswith((".", "__"))) == [
        "README.md",
        f"gpu_{kind}.py",
        "pyproject.toml",
        "scheduler.yaml",
        f"test_gpu_{kind}.py",
    ]
    texts = [each.read_text() for each in folder.iterdir() if each.is_file()]
    assert not [text for text in texts if re.search("my.?plugin", text, re.IGNORECASE)]
    assert steps(printed)[0] == f"cd gpu-{kind}"
    assert {*steps(printed)[1:]} == {*steps(packages["filter"][1])[1:]}
    assert run_command("check", "scheduler.yaml", folder=folder).returncode == 0


def test_its_tests_pass_and_ruff_finds_nothing(packages: dict[str, tuple[Path, str]]):
    folders = [folder for folder, _ in packages.values()]
    alone = ["--isolated", "--line-length=120", "--config=src=['gpu-*']"]
    for words in (["pytest", "-q"], ["ruff", "check", *alone], ["ruff", "format", "--check", *alone]):
        done = run("-m", *words, *folders, folder=folders[0].parent)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_steps_that_it_prints_succeed(packages: dict[str, tuple[Path, str]]):
    folder, printed = packages["filter"]
    for step in steps(printed)[1:3]:
        done = subprocess.run(step, shell=True, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S602 - for a shell
        assert done.returncode == 0, step + done.stdout + done.stderr


def steps(printed: str) -> list[str]:
    """Return the commands that the output lists as next steps."""
    return [line.strip() for line in printed.splitlines() if line.startswith("    ")]


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
