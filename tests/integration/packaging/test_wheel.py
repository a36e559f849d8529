"""The two packages of the source archive: contents, dependencies, and commands in environments with one or both."""

from __future__ import annotations

import sys
from email.parser import Parser
from importlib.metadata import distributions
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scheduler.version import VERSION
from tests.support.image import ROOT, check

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.image import Installation

DAEMON, TOOLS = f"custom_scheduler-{VERSION}", f"custom_scheduler_tools-{VERSION}"
PIP = (sys.executable, "-Im", "pip")


OF_THE_BUILD = {ROOT / "scheduler" / "tools" / name for name in ("pyproject.toml", "LICENSE")}


def contents(installation: Installation, name: str) -> ZipFile:
    return ZipFile(installation.wheels / f"{name}-py3-none-any.whl")


def test_each_file_of_the_packages_is_in_exactly_one_wheel(installation: Installation) -> None:
    packed = []
    for name in (DAEMON, TOOLS):
        with contents(installation, name) as wheel:
            packed += [each for each in wheel.namelist() if not each.startswith(f"{name}.dist-info/")]
    there = [
        str(path.relative_to(ROOT))
        for package in ("scheduler", "plugins")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path not in OF_THE_BUILD
    ]

    assert sorted(packed) == sorted(there)


def test_the_wheel_of_the_daemon_has_no_simulator_no_demo_and_no_test_kit(installation: Installation) -> None:
    with contents(installation, DAEMON) as wheel:
        folders = {"/".join(name.split("/")[:-1]) for name in wheel.namelist()}

    assert {"scheduler", "scheduler/engine/cycle", "scheduler/tools/board", "plugins"} <= folders
    whatif = (f"scheduler/tools/whatif/{name}" for name in ("backtest", "replay", "simulation"))
    absent = ("scheduler/tools/simulator", "scheduler/testing", "scheduler/tools/demo", *whatif)
    assert [folder for folder in folders if folder.startswith(absent)] == []


def test_both_wheels_have_the_licence(installation: Installation) -> None:
    for name in (DAEMON, TOOLS):
        with contents(installation, name) as wheel:
            assert wheel.read(f"{name}.dist-info/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()


def test_the_tools_require_the_same_version_of_the_daemon(installation: Installation) -> None:
    with contents(installation, TOOLS) as wheel:
        metadata = Parser().parsestr(wheel.read(f"{TOOLS}.dist-info/METADATA").decode())

    assert f"custom-scheduler=={VERSION}" in metadata.get_all("Requires-Dist", [])


def test_the_image_has_exactly_the_packages_that_the_daemon_requires(installation: Installation) -> None:
    (folder,) = installation.image.glob("lib/*/site-packages")
    installed = {canonicalize_name(each.name): each for each in distributions(path=[str(folder)])}
    required: set[tuple[str, str]] = set()
    following = [("custom-scheduler", "")]
    while following:
        name, extra = each = following.pop()
        if each in required:
            continue
        required.add(each)
        for text in installed[canonicalize_name(name)].requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                following += [
                    (canonicalize_name(requirement.name), more) for more in ("", *requirement.extras)
                ]

    assert {name for name, _ in required} == installed.keys()


@pytest.mark.parametrize("environment", ["image", "with_tools"])
def test_all_requirements_are_installed(installation: Installation, environment: str) -> None:
    python = getattr(installation, environment) / "bin" / "python"

    assert check(*PIP, "--python", python, "check", folder=ROOT) == "No broken requirements found.\n"


IMPORT_ALL = """
import importlib, pkgutil, plugins, scheduler
missing = set()
for package in (scheduler, plugins):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if module.name != "scheduler.__main__":
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                missing.add(error.name)
print(missing)
"""


def test_all_modules_of_the_image_are_imported_without_the_tools(installation: Installation) -> None:
    done = installation.run(installation.image / "bin" / "python", "-c", IMPORT_ALL)

    assert (done.stdout, done.stderr) == ("{'wasmtime'}\n", "")


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        ("demo", "cli.demo"),
        ("demo --exit --config x", "cli.demo"),
        ("api-server --help", "cli.api_server"),
        ("kubelets --help", "cli.kubelets"),
        ("new plugin QuietRacks", "cli.new"),
        ("rebalance --cluster x", "cli.rebalance"),
        ("recording x", "cli.recording"),
        ("replay x", "cli.replay"),
        ("simulate x", "cli.simulate"),
        ("tune x", "cli.tune"),
        ("board --recording x", "tools.board.recorded"),
    ],
)
def test_what_needs_the_tools_names_their_package(
    installation: Installation, words: str, missing: str
) -> None:
    done = installation.run("custom-scheduler", *words.split())

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: scheduler.{missing} is not installed: install custom-scheduler[tools]\n"


def test_the_help_of_the_image_names_the_package_of_each_missing_command(installation: Installation) -> None:
    lines = installation.run("custom-scheduler", "--help").stdout.splitlines()

    missing = [line.split()[0] for line in lines if line.endswith(" Install custom-scheduler[tools]")]
    assert missing == [
        "simulate",
        "tune",
        "replay",
        "recording",
        "rebalance",
        "demo",
        "api-server",
        "kubelets",
        "new",
    ]


def test_the_demo_runs_in_an_environment_with_the_tools(installation: Installation) -> None:
    shown = check(
        installation.with_tools / "bin" / "python", "-Im", "scheduler", "demo", "--exit", folder=ROOT
    )

    assert "Every pod is where it should be." in shown


def test_plugin_packages_are_created_and_tested_with_the_tools(
    installation: Installation, tmp_path: Path
) -> None:
    python = installation.with_tools / "bin" / "python"

    check(python, "-Im", "scheduler", "new", "plugin", "QuietRacks", folder=tmp_path)
    check(python, "-Ic", "from scheduler.testing import CHECKS, ProfileSimulation, subject", folder=tmp_path)
