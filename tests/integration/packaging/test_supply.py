"""The sources of the build are locked by hash and listed, and the base image is pinned to a digest."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = ("requirements.lock", "requirements-wasm.lock", "requirements-dev.lock", "requirements-build.lock")
DIGEST = "sha256:" + "1b" * 32
NAME = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


def locked(lock: str) -> dict[str, str]:
    return dict(NAME.findall((ROOT / lock).read_text()))


MAKE = shutil.which("make") or "make"


def make(*words: str, folder: Path = ROOT, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{path}{os.environ['PATH']}"}
    return subprocess.run(
        [MAKE, "--old-file=.venv/dev", f"BIN={Path(sys.executable).parent}", *words],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_is_locked_with_hashes(lock: str) -> None:
    entries = re.split(r"\n(?=\S)", (ROOT / lock).read_text())
    packages = [entry for entry in entries if not entry.startswith("#")]

    assert packages
    for entry in packages:
        assert NAME.match(entry), entry
        assert "--hash=sha256:" in entry, entry


def test_the_lock_file_with_guests_adds_only_their_runtime() -> None:
    plain, wasm = locked("requirements.lock"), locked("requirements-wasm.lock")

    assert plain.items() <= wasm.items()
    assert wasm.keys() - plain.keys() == {"wasmtime"}
    assert locked("requirements-dev.lock")["wasmtime"] == wasm["wasmtime"]


def test_the_environment_of_the_demo_has_what_the_tools_require() -> None:
    tools = tomllib.loads((ROOT / "scheduler" / "tools" / "pyproject.toml").read_text())["project"]
    required = {re.split(r"[=<>]", each)[0] for each in tools["dependencies"]}

    assert required - {"custom-scheduler"} <= locked("requirements.lock").keys()


def test_the_contents_of_the_image_are_listed_with_their_hashes(tmp_path: Path) -> None:
    lock = "requirements-wasm.lock"  # it has the packages of requirements.lock too
    done = make("sbom", f"LOCK={lock}", f"SBOM={tmp_path / 'sbom.json'}")
    assert done.returncode == 0, done.stderr
    listed = json.loads((tmp_path / "sbom.json").read_text())

    assert listed["bomFormat"] == "CycloneDX"
    assert listed["metadata"]["component"]["name"] == PROJECT["project"]["name"]
    assert {one["name"]: one["version"] for one in listed["components"]} == locked(lock)
    for component in listed["components"]:
        hashes = [one for each in component["externalReferences"] for one in each.get("hashes", ())]
        assert hashes, component["name"]
        assert {one["alg"] for one in hashes} == {"SHA-256"}


@pytest.fixture
def workshop(tmp_path: Path) -> Path:
    """A folder with the Makefile and the Dockerfile, and a docker that writes down what it is asked."""
    for name in ("Makefile", "Dockerfile"):
        shutil.copy(ROOT / name, tmp_path)
    unpinned = re.sub(
        r"^(ARG BASE=[^@\n]*)@.*",
        r"\1@run-make-image",
        (tmp_path / "Dockerfile").read_text(),
        flags=re.MULTILINE,
    )
    (tmp_path / "Dockerfile").write_text(unpinned)
    (tmp_path / "bin").mkdir()
    docker = tmp_path / "bin" / "docker"
    docker.write_text('#!/bin/sh\necho "$@" >> asked\n[ "$1" = build ] || cat digest\n')
    docker.chmod(0o755)
    (tmp_path / "digest").write_text(f"{DIGEST}\n")
    return tmp_path


def base_of(workshop: Path) -> str:
    (base,) = re.findall(r"^ARG BASE=(.+)$", (workshop / "Dockerfile").read_text(), re.MULTILINE)
    return str(base)


def test_an_image_is_built_from_a_pinned_base_that_stays_pinned(workshop: Path) -> None:
    for _ in range(2):
        done = make("image", "IMAGE=it:1", folder=workshop, path=f"{workshop / 'bin'}:")
        assert done.returncode == 0, done.stderr

    assert base_of(workshop) == f"python:3.13-slim@{DIGEST}"
    assert (workshop / "asked").read_text().splitlines() == [
        "buildx imagetools inspect python:3.13-slim --format {{.Manifest.Digest}}",
        "build --build-arg LOCK=requirements.lock -t it:1 .",
        "build --build-arg LOCK=requirements.lock -t it:1 .",
    ]


def test_a_pinned_base_is_updated_on_request(workshop: Path) -> None:
    for digest in (DIGEST, DIGEST.replace("1b", "2c")):
        (workshop / "digest").write_text(digest)
        assert make("base-image", folder=workshop, path=f"{workshop / 'bin'}:").returncode == 0
        assert base_of(workshop) == f"python:3.13-slim@{digest}"


@pytest.mark.parametrize("answer", ["", "no such image", "sha256:12", f"{DIGEST}x"])
def test_an_invalid_digest_is_refused_and_nothing_is_built(workshop: Path, answer: str) -> None:
    (workshop / "digest").write_text(answer)
    done = make("image", folder=workshop, path=f"{workshop / 'bin'}:")

    assert done.returncode != 0
    assert base_of(workshop) == "python:3.13-slim@run-make-image"
    assert "build " not in (workshop / "asked").read_text()


def test_the_security_policy_names_a_contact() -> None:
    reported = (ROOT / "SECURITY.md").read_text()

    assert "docs/threat-model.md" in reported
    assert "make sbom" in reported
