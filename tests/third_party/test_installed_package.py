"""A package that others wrote is installed, and its plugin found: by entry point, module, file and command."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.support.builders import node_object, pod_object
from tests.support.image import base_temp, built_once, check

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PACKAGE = Path(__file__).parent / "quiet_racks"
SECONDS = 120


def profile_with(folder: Path, plugin: str) -> Path:
    """Write a configuration whose only profile enables a plugin beside the default ones."""
    file = folder / "scheduler.yaml"
    enabled = {"multiPoint": {"enabled": [{"name": plugin}]}}
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "custom-scheduler", "plugins": enabled}],
    }
    file.write_bytes(msgspec.json.encode(configuration))
    return file


def cluster_of_two_racks(folder: Path) -> Path:
    """Write a cluster of a loud node, a quiet one and a pending pod."""
    items: list[dict[str, Any]] = [
        node_object("loud", labels={"example.com/noisy": "yes"}),
        node_object("quiet"),
        pod_object("web"),
    ]
    file = folder / "cluster.json"
    file.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}))
    return file


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder with the commands of a fresh environment, in which the package was installed."""
    with built_once(base_temp(tmp_path_factory) / "quiet-racks", install) as folder:
        yield folder / "environment" / "bin"


def install(folder: Path) -> None:
    environment = folder / "environment"
    venv.create(environment)
    python = environment / "bin" / "python"
    # This scheduler and what it needs, as they are in this environment.
    inside = check(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder)
    shared = "\n".join([str(ROOT), *site.getsitepackages()])
    Path(inside.strip(), "scheduler.pth").write_text(shared)
    source = folder / "source"
    shutil.copytree(PACKAGE, source)  # building writes beside the source
    # Where hatchling is at hand nothing is fetched; elsewhere pip fetches it, as when the image is built.
    offline = ["--no-index", "--no-build-isolation"] if find_spec("hatchling") else []
    # Another's pip works on it: to make one there takes seconds.
    pip = [sys.executable, "-Im", "pip", "--python", python]
    check(*pip, "install", *offline, "--no-deps", source, folder=folder)


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        words, cwd="/", env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
    )


def verdict(done: subprocess.CompletedProcess[str]) -> dict[str, bool]:
    assert done.returncode == 0, done.stderr
    (explanation,) = json.loads(done.stdout)
    return {name: node["feasible"] for name, node in explanation["nodes"].items()}


@pytest.mark.parametrize(
    "reference",
    ["QuietRacks", "quiet_racks:QuietRacks", str(PACKAGE / "quiet_racks.py")],
    ids=["entry point", "module and class", "file"],
)
def test_an_installed_plugin_is_used(installed: Path, tmp_path: Path, reference: str):
    config, cluster = profile_with(tmp_path, reference), cluster_of_two_racks(tmp_path)
    explain = ["-m", "scheduler", "explain", "--config", config, "--cluster", cluster, "-o", "json"]

    done = run(installed / "python", *explain)

    assert verdict(done) == {"loud": False, "quiet": True}


def test_a_command_with_its_own_plugins_finds_its_plugin_by_name(installed: Path, tmp_path: Path):
    config, cluster = profile_with(tmp_path, "QuietRacksAtHome"), cluster_of_two_racks(tmp_path)

    done = run(
        installed / "racks-scheduler", "explain", "--config", config, "--cluster", cluster, "-o", "json"
    )

    assert verdict(done) == {"loud": False, "quiet": True}


def test_the_default_command_does_not_find_it(installed: Path, tmp_path: Path):
    config = profile_with(tmp_path, "QuietRacksAtHome")

    done = run(installed / "python", "-m", "scheduler", "check", config)

    assert done.returncode == 2
    assert "no plugin of that name, in-tree or installed; did you mean 'QuietRacks'?" in done.stderr


def test_the_tests_of_the_package_pass(installed: Path):
    done = run(
        installed / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", PACKAGE, PACKAGE
    )

    assert done.returncode == 0, done.stdout


def test_these_tests_run_with_this_scheduler(installed: Path):
    done = run(installed / "python", "-c", "import scheduler; print(scheduler.__file__)")

    assert done.stdout.strip() == str(ROOT / "scheduler" / "__init__.py")
    assert str(installed) != str(Path(sys.executable).parent)
