"""The main module of the file `kubectl-why`: installs the packages into an environment once, and runs `why` in it.

Old versions of Python must be able to read this module, so that it can name the version that it needs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

_OLDEST = (3, 11)
_NEWEST = 20  # of the minor versions that are tried if `python3` is too old
_RUN = "from scheduler.cli.command import kubectl_why; kubectl_why()"


def main() -> None:
    """Run `kubectl why` with the arguments of this process."""
    if sys.version_info < _OLDEST:
        _start_newer()
    program = Path(__file__).parent  # the zip archive that has this module
    digest = hashlib.sha256(program.read_bytes()).hexdigest()[:16]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubectl-why"
    environment = caches / f"{sys.implementation.cache_tag}-{digest}"
    if not environment.exists():
        _install(program, environment)
    python = str(environment / "bin" / "python")
    os.execv(python, [python, "-Ic", _RUN, *sys.argv[1:]])  # noqa: S606 - an interpreter, with the user's arguments


def _start_newer() -> None:
    """Start again with a newer interpreter, if there is one.

    Raises:
        SystemExit: there is none.
    """
    for minor in range(_NEWEST, _OLDEST[1] - 1, -1):
        newer = shutil.which(f"python3.{minor}")
        if newer:
            os.execv(newer, [newer, *sys.argv])  # noqa: S606
    sys.exit(
        f"error: kubectl why needs Python 3.11 or newer, and {sys.executable} is {sys.version.split()[0]}"
    )


def _install(program: Path, environment: Path) -> None:
    """Create the environment; two processes that do so at the same time do not disturb each other.

    Raises:
        SystemExit: it cannot be created.
    """
    sys.stderr.write(f"Installing the packages of kubectl why into {environment}\n")
    environment.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=environment.parent) as name:
        made, files = Path(name) / "environment", Path(name) / "files"
        with zipfile.ZipFile(program) as archive:
            archive.extractall(files)
        _run(sys.executable, "-m", "venv", made)
        pip = (made / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
        _run(*pip, "--require-hashes", "--requirement", files / "requirements.lock")
        _run(*pip, "--no-index", "--no-deps", *sorted(files.glob("*.whl")))
        try:
            made.rename(environment)
        except OSError:
            if not environment.exists():  # else another process was first
                raise


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, stdout=sys.stderr, check=False)  # noqa: S603
    if done.returncode != 0:
        words = " ".join(map(str, command))
        sys.exit(
            f"error: kubectl why cannot install its packages: `{words}` failed; it needs Python with venv and pip"
        )


if __name__ == "__main__":
    main()
