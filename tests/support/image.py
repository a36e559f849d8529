"""The steps of the Dockerfile, executed without Docker on the files of the source archive, once for a test run."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from manifests.release.archives import extract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
PREFIX = "/opt/custom-scheduler"
LINES = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
INSTRUCTIONS = [tuple(line.split(maxsplit=1)) for line in LINES if line and not line.startswith("#")]
IS_ROOT = os.geteuid() == 0
SECONDS = 600
_INSTALLING = ("/usr/bin/env", "--unset=PYTHONPYCACHEPREFIX", "PIP_COMPILE=0")
"""Before a command that installs packages. Where pip would compile all modules, `install` compiles those in use."""


def arguments_of(instruction: str) -> list[str]:
    return [arguments for word, arguments in INSTRUCTIONS if word == instruction]


USER, GROUP = map(int, arguments_of("USER")[-1].split(":"))
DROPPED: dict[str, Any] = {"user": USER, "group": GROUP, "extra_groups": []} if IS_ROOT else {}
ARGUMENTS = dict(arguments.partition("=")[::2] for arguments in arguments_of("ARG") if "=" in arguments)


class Installation(NamedTuple):
    """The folders of what was built.

    Attributes:
        source: the unpacked source archive.
        wheels: the wheels of both packages.
        image: the environment of the image.
        with_tools: an environment with the same packages in which `custom-scheduler[tools]` is installed.
    """

    source: Path
    wheels: Path
    image: Path
    with_tools: Path

    @classmethod
    def at(cls, folder: Path) -> Installation:
        return cls(*(folder / name for name in cls._fields))

    def start(self, *command: str | Path, temporary: str | Path = "/nonexistent") -> subprocess.Popen[str]:
        """Start something as the image's user, with the image's environment and a folder for temporary files."""
        environment = {
            "PATH": f"{self.image / 'bin'}:/usr/bin:/bin",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(temporary),
            "HOME": "/nonexistent",
        }
        return subprocess.Popen(
            command,
            env=environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **DROPPED,
        )  # fmt: skip

    def run(
        self, *command: str | Path, temporary: str | Path = "/nonexistent"
    ) -> subprocess.CompletedProcess[str]:
        """Run something as `start` does."""
        with self.start(*command, temporary=temporary) as process:
            out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(command, process.returncode, out, err)


@contextmanager
def built_once(state: Path, build: Callable[[Path], None]) -> Iterator[Path]:
    """Yield a folder that all processes of a test run share: the first one builds it, and the last one removes it.

    Other users may read the folder, unlike those of pytest.

    Args:
        state: file with the folder and the number of its users; processes wait for each other at it.
        build: builds the contents of the folder.
    """
    with _locked(state) as shared:
        if not shared["users"]:
            shared["folder"] = tempfile.mkdtemp(prefix=f"custom-scheduler-{state.stem}-")
            folder = Path(shared["folder"])
            folder.chmod(0o755)
            try:
                build(folder)
            except BaseException:
                remove(folder)
                raise
        shared["users"] += 1
    try:
        yield Path(shared["folder"])
    finally:
        with _locked(state) as shared:
            shared["users"] -= 1
            if not shared["users"]:
                remove(Path(shared["folder"]))


@contextmanager
def _locked(state: Path) -> Iterator[dict[str, Any]]:
    with state.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        shared = json.loads(file.read() or '{"users": 0}')
        yield shared
        file.truncate(0)
        file.write(json.dumps(shared))


def base_temp(factory: pytest.TempPathFactory) -> Path:
    """Return the folder for temporary files that all processes of a test run have in common."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def remove(folder: Path) -> None:
    for place, _, _ in os.walk(folder):
        Path(place).chmod(0o755)  # only root can remove the files of a folder that is read-only
    shutil.rmtree(folder)


def install(folder: Path) -> None:
    """Build an `Installation`."""
    made = Installation.at(folder)
    unpack_source(folder, made.source)
    _build_image(folder, made)
    check(*_INSTALLING, made.image / "bin" / "custom-scheduler", "check", folder=folder)
    check(made.image / "bin" / "python", "-m", "venv", "--without-pip", made.with_tools, folder=folder)
    _share_packages(made)
    tools = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", made.wheels]
    check(*tools, folder=made.source / "scheduler" / "tools")
    pip = [
        *_INSTALLING,
        sys.executable,
        "-Im",
        "pip",
        "--python",
        made.with_tools / "bin" / "python",
        "--disable-pip-version-check",
    ]
    wheels = ["--no-index", f"--find-links={made.wheels}"]
    check(*pip, "install", "--quiet", *wheels, "custom-scheduler[tools]", folder=folder)
    _make_read_only(made.image)


def check(*command: str | Path, folder: Path) -> str:
    """Run a command that must succeed; return what it printed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, (command, done.stdout + done.stderr)
    return done.stdout


def unpack_source(folder: Path, source: Path) -> None:
    """Build the source archive of this tree, and unpack it."""
    archives = folder / "archives"
    build = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", archives]
    check(*build, folder=ROOT)
    (archive,) = archives.iterdir()
    with tarfile.open(archive) as packed:
        extract(packed, folder)
    (folder / archive.name.removesuffix(".tar.gz")).rename(source)


def _build_image(folder: Path, made: Installation) -> None:
    """Do the COPY and RUN of the first stage."""
    context = folder / "src"
    context.mkdir()
    python = _anybodys_python()
    first, last = (place for place, (word, _) in enumerate(INSTRUCTIONS) if word == "FROM")
    for word, line in INSTRUCTIONS[first + 1 : last]:
        arguments = line.replace("${LOCK}", ARGUMENTS["LOCK"])
        if word == "COPY":
            *names, where = arguments.split()
            for name in names:
                _copy(made.source / name, context / where)
        if word == "RUN":
            command = re.sub(
                r"\bpython -m venv", f"{python} -m venv", arguments.replace(PREFIX, str(made.image))
            )
            check(*_INSTALLING, "/bin/sh", "-ec", command, folder=context)
    (context / "wheels").rename(made.wheels)


def _share_packages(made: Installation) -> None:
    """Link the packages of the image into the other environment, and copy the one to which the tools add modules."""
    (packages,) = made.image.glob("lib/*/site-packages")
    there = made.with_tools / packages.relative_to(made.image)
    for path in packages.iterdir():
        if path.name == "scheduler":
            shutil.copytree(path, there / path.name)
        else:
            (there / path.name).symlink_to(path)


def _copy(path: Path, where: Path) -> None:
    """Do as COPY does: a folder's contents, or a file."""
    if path.is_dir():
        shutil.copytree(path, where, dirs_exist_ok=True)
    else:
        shutil.copy(path, where)


def _anybodys_python() -> str:
    """Return an interpreter that the image's user may start too: one in somebody's home is of no use to them."""
    own = Path(sys.executable).resolve()
    found = [own, *(Path(folder) / "python3" for folder in os.environ["PATH"].split(os.pathsep))]
    wanted = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"
    for interpreter in found:
        try:
            tried = subprocess.run(
                [interpreter, "-c", wanted], cwd="/", check=False, capture_output=True, **DROPPED
            )
        except OSError:
            continue
        if tried.returncode == 0 and ".venv" not in interpreter.parts:
            return str(interpreter)
    pytest.skip(f"no Python 3.11 or newer with venv that user {USER} may run")


def _make_read_only(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~0o222 | 0o444)
