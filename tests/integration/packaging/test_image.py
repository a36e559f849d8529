"""The steps of the image, read from the Dockerfile and executed without Docker.

The first stage's COPY and RUN are done in a folder that only its owner may write, by an interpreter of this machine. Then
the program runs as the Dockerfile's USER with no group beside its own, from a folder it may not write, and with one for
temporary files as the pod has. Without root the tests cannot become that user: there the program runs as
the current user, in folders without write permission. Not tested: the base image, its interpreter, and that a
Docker engine accepts the file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
PREFIX = "/opt/custom-scheduler"
LINES = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
INSTRUCTIONS = [tuple(line.split(maxsplit=1)) for line in LINES if line and not line.startswith("#")]
IS_ROOT = os.geteuid() == 0
SECONDS = 600


def said(instruction: str) -> list[str]:
    return [arguments for word, arguments in INSTRUCTIONS if word == instruction]


USER, GROUP = map(int, said("USER")[-1].split(":"))
DROPPED: dict[str, Any] = {"user": USER, "group": GROUP, "extra_groups": []} if IS_ROOT else {}


ARGUMENTS = dict(arguments.partition("=")[::2] for arguments in said("ARG") if "=" in arguments)


REFERENCE = re.compile(
    r"[a-z0-9._/-]+(:\w[\w.-]{0,127})?(@[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?"
)
"""The name of an image. Source: github.com/distribution/reference, regexp.go, without a registry's name."""


def test_both_stages_use_the_base_image_that_is_pinned_in_one_place():
    assert [arguments.split()[0] for arguments in said("FROM")] == ["${BASE}", "${BASE}"]
    assert re.fullmatch(r"python:3\.\d+-slim@(sha256:[0-9a-f]{64}|run-make-image)", ARGUMENTS["BASE"])


def test_a_base_without_a_digest_is_no_image_name():
    base = "python:3.12-slim"
    digest = f"sha256:{'1b' * 32}"
    assert [bool(REFERENCE.fullmatch(name)) for name in (base, f"{base}@{digest}")] == [True, True]
    assert not REFERENCE.fullmatch(f"{base}@run-make-image")
    assert not REFERENCE.fullmatch(ARGUMENTS["BASE"]) or digest[:7] in ARGUMENTS["BASE"]


def test_the_container_does_not_run_as_root_and_starts_the_daemon():
    assert (USER, GROUP) == (65532, 65532)
    assert INSTRUCTIONS[-4] == ("USER", "65532:65532")  # nothing after it could undo it
    assert said("ENTRYPOINT") == ['["custom-scheduler"]']
    assert said("CMD") == ['["run"]']


def test_every_download_is_checked_by_hash():
    for run in said("RUN"):
        for step in run.split("&&"):
            if re.search(r"\bpip (install|wheel|download)\b", step):
                # The package itself is built by what is installed already: pip would fetch that unchecked.
                assert "--require-hashes" in step or "--no-index" in step
                assert "pip wheel" not in step or "--no-build-isolation" in step


def test_the_build_tools_are_locked():
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    locked = (ROOT / "requirements-build.lock").read_text()

    for name, least in (requirement.split(">=") for requirement in asked):
        (version,) = re.findall(rf"^{name}==([\d.]+) ", locked, re.MULTILINE)
        assert [int(part) for part in version.split(".")] >= [int(part) for part in least.split(".")]


def test_the_build_uses_no_package_source_but_the_lock_file():
    _, last = (place for place, (word, _) in enumerate(INSTRUCTIONS) if word == "FROM")
    second_stage = INSTRUCTIONS[last:]

    assert [word for word, _ in second_stage if word in {"RUN", "ADD"}] == []
    assert [arguments for word, arguments in second_stage if word == "COPY"] == [
        f"--from=build {PREFIX} {PREFIX}"
    ]


def test_the_build_context_holds_only_the_copied_files():
    kept, dropped = set(), set()
    for line in (ROOT / ".dockerignore").read_text().split():
        (kept if line.startswith("!") else dropped).add(line.removeprefix("!"))
    copied = {
        name
        for arguments in said("COPY")
        for name in arguments.split()[:-1]
        if not arguments.startswith("--from")
    }

    assert "*" in dropped
    assert kept == copied


def anybodys_python() -> str:
    """Return an interpreter that the image's user may start too: one in somebody's home is of no use to them."""
    own = Path(sys.executable).resolve()
    found = [own, *(Path(folder) / "python3" for folder in os.environ["PATH"].split(os.pathsep))]
    check = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"
    for interpreter in found:
        try:
            tried = subprocess.run(
                [interpreter, "-c", check], cwd="/", check=False, capture_output=True, **DROPPED
            )
        except OSError:
            continue
        if tried.returncode == 0 and ".venv" not in interpreter.parts:
            return str(interpreter)
    pytest.skip(f"no Python 3.11 or newer with venv that user {USER} may run")


def build(folder: Path, python: str) -> Path:
    """Do the first stage's COPY and RUN, with /opt/custom-scheduler in a folder; return where it went."""
    source, target = folder / "src", folder / "opt"
    source.mkdir()
    first, last = (place for place, (word, _) in enumerate(INSTRUCTIONS) if word == "FROM")
    for word, reported in INSTRUCTIONS[first + 1 : last]:
        arguments = reported.replace("${LOCK}", ARGUMENTS["LOCK"])
        if word == "COPY":
            *names, where = arguments.split()
            for name in names:
                put = source / where / ("" if (ROOT / name).is_dir() else name)
                copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
                copy(ROOT / name, put)
        if word == "RUN":
            command = re.sub(r"\bpython -m venv", f"{python} -m venv", arguments.replace(PREFIX, str(target)))
            done = subprocess.run(
                ["/bin/sh", "-ec", command],
                cwd=source, capture_output=True, text=True, check=False, timeout=SECONDS,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
    return target


def make_read_only(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~0o222 | 0o444)


class Image(NamedTuple):
    """What was built, and the folder for temporary files."""

    program: Path
    temporary: Path

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run something as the image's user, with the image's environment."""
        environment = {
            "PATH": f"{self.program.parent}:/usr/bin:/bin",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(self.temporary),
            "HOME": "/nonexistent",
        }
        return subprocess.run(
            command,
            env=environment, cwd="/", capture_output=True, text=True, check=False, timeout=120, **DROPPED,
        )  # fmt: skip


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    # pytest's own folders are closed to other users.
    with tempfile.TemporaryDirectory(prefix="custom-scheduler-image-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        target = build(folder, anybodys_python())
        make_read_only(target)
        temporary = folder / "tmp"
        temporary.mkdir()
        temporary.chmod(0o777)
        yield Image(target / "bin" / "custom-scheduler", temporary)
        for path in [target, *target.rglob("*")]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)


def test_the_user_of_the_image_can_write_none_of_its_files(image: Image):
    folder = image.program.parents[1]
    look = (
        "import os, sys, scheduler, plugins; folder = sys.argv[1];"
        "places = [os.path.join(at, each) for at, down, files in os.walk(folder) for each in ['.', *down, *files]];"
        "assert scheduler.__file__.startswith(folder) and plugins.__file__.startswith(folder), scheduler.__file__;"
        "print(os.getuid(), os.getgid(), os.getgroups(), [p for p in places if os.access(p, os.W_OK)"
        " and not os.path.islink(p)], len(places) > 1000)"
    )

    done = image.run(image.program.parent / "python", "-c", look, str(folder))

    # Where nobody could be changed into, it is who runs the tests.
    user, group, groups = (USER, GROUP, []) if IS_ROOT else (os.getuid(), os.getgid(), os.getgroups())
    assert (done.stdout.strip(), done.stderr) == (f"{user} {group} {groups} [] True", "")


@pytest.mark.parametrize("words", [("--help",), ("demo", "--exit")], ids=" ".join)
def test_it_runs_where_only_temporary_files_can_be_written(image: Image, words: tuple[str, ...]):
    done = image.run("custom-scheduler", *words)

    assert done.returncode == 0, done.stdout + done.stderr
    assert list(image.temporary.iterdir()) == []
