"""The workflows of GitHub call what people call: targets of the Makefile, and .ci/run."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from typing import Any

import pytest
import yaml

from tests.support.manifests import ROOT

WORKFLOWS = {path.stem: path.read_text() for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
WITHOUT_A_HASH = {"azure/setup-kubectl@v4"}


def jobs(workflow: str) -> dict[str, Any]:
    return dict(yaml.safe_load(WORKFLOWS[workflow])["jobs"])


def commands(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


def versions_of_python() -> list[str]:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    found = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each) for each in classifiers)
    return [match[1] for match in found if match]


def python_of_the_image() -> str:
    (version,) = re.findall(
        r"^ARG BASE=python:(3\.\d+)-slim@", (ROOT / "Dockerfile").read_text(), re.MULTILINE
    )
    return str(version)


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_a_workflow_calls_targets_that_exist(workflow: str) -> None:
    lines = [line for job in jobs(workflow).values() for run in commands(job) for line in run.splitlines()]
    called = [re.findall(r"^(?:make|\.ci/run) +([a-z-]+)", line) for line in lines]

    assert called
    assert {target for targets in called for target in targets} <= TARGETS


def test_a_change_is_tested_as_ci_run_decides() -> None:
    assert commands(jobs("ci")["whole"]) == [".ci/run"]
    assert commands(jobs("ci")["python"]) == [".ci/run test-python"]
    assert commands(jobs("ci")["image"])[0] == "make image"


def test_all_supported_versions_of_python_are_tested() -> None:
    assert jobs("ci")["python"]["strategy"]["matrix"]["python"] == versions_of_python()
    assert jobs("ci")["whole"]["container"] == f"python:{python_of_the_image()}-bookworm"


def test_the_image_has_the_newest_version_of_python() -> None:
    assert python_of_the_image() == versions_of_python()[-1]


def test_another_python_has_its_own_environment_for_its_tests() -> None:
    words = ["make", "--dry-run", "test-python", "PYTHON=/opt/no-such-python", "ARGS="]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    planned = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout

    assert "/opt/no-such-python -m venv --clear .venv--opt-no-such-python" in planned
    (tests,) = [
        line for line in planned.splitlines() if line.startswith(".venv--opt-no-such-python/bin/pytest")
    ]
    assert tests.split()[-3:] == ["tests/unit", "tests/contract", "tests/conformance"]


def test_a_release_is_built_by_the_target_of_the_makefile() -> None:
    (step,) = [step for step in jobs("release")["build"]["steps"] if step.get("run") == "make release"]

    assert step["env"].keys() == {"VERSION", "IMAGE", "REPOSITORY"}
    recipe = (ROOT / "Makefile").read_text().split("\nrelease: ")[1].split("\n\n")[0]
    assert {*re.findall(r"\$\(([A-Z]+)\)", recipe)} - {"BIN", "VENV"} == step["env"].keys()


def test_only_complete_releases_of_tags_are_published() -> None:
    publish = jobs("release")["publish"]

    assert publish["if"] == "github.event_name == 'push'"
    assert yaml.safe_load(WORKFLOWS["release"])[True]["push"] == {"tags": ["v[0-9]*"]}  # YAML's `on` is true
    pushed = next(run for run in commands(publish) if "skopeo" in run).splitlines()
    assert pushed[:2] == ["sha256sum --check --strict SHA256SUMS", "jq --exit-status .complete release.json"]


def test_what_is_published_is_signed_and_its_provenance_attested() -> None:
    steps = jobs("release")["publish"]["steps"]
    text = "\n".join(commands(jobs("release")["publish"]))
    used = [step["uses"].split("@")[0] for step in steps if "uses" in step]

    assert "cosign sign --yes" in text
    assert "cosign sign-blob --yes --bundle SHA256SUMS.sigstore.json SHA256SUMS" in text
    assert used.count("actions/attest-build-provenance") == 2  # files and image
    assert "actions/attest-sbom" in used


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_a_job_has_only_the_permissions_that_it_names(workflow: str) -> None:
    assert yaml.safe_load(WORKFLOWS[workflow])["permissions"] == {"contents": "read"}
    assert {name for name, job in jobs(workflow).items() if "permissions" in job} <= {"publish"}


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_actions_are_pinned_by_hash(workflow: str) -> None:
    used = re.findall(r"uses: (\S+)(.*)", WORKFLOWS[workflow])

    assert used
    for action, comment in used:
        if action not in WITHOUT_A_HASH:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action
