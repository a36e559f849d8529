"""The files of a release, built from two clones of this tree, once for a test run."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from scheduler.version import VERSION
from tests.support.image import SECONDS, check, unpack_source

if TYPE_CHECKING:
    from pathlib import Path

REPOSITORY = "https://git.example.com/team/custom-scheduler"
_AUTHOR = ("-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "core.autocrlf=false")


class Releases(NamedTuple):
    """What was built.

    Attributes:
        clone: a clone of this tree, with one commit.
        first: the files of a release, from that clone.
        second: the same, from another clone, with other settings of the user.
    """

    clone: Path
    first: Path
    second: Path

    @classmethod
    def at(cls, folder: Path) -> Releases:
        return cls(*(folder / name for name in cls._fields))


def build_releases(folder: Path) -> None:
    """Build `Releases`."""
    made = Releases.at(folder)
    unpack_source(folder, made.clone)
    commit(made.clone)
    other = folder / "other-clone"
    check("git", "clone", "--quiet", made.clone, other, folder=folder)
    # The second clone is used by a user in another time zone, who shares no files with others.
    others = {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7", "LC_ALL": "C", "SOURCE_DATE_EPOCH": "1"}
    for clone, into, settings, umask in (
        (made.clone, made.first, {}, 0o022),
        (other, made.second, others, 0o077),
    ):
        done = release(
            clone, "--image=", f"--repository={REPOSITORY}", f"--into={into}", umask=umask, **settings
        )
        assert done.returncode == 0, done.stderr


def commit(folder: Path) -> None:
    """Make a repository of a folder, with one commit."""
    check("git", "init", "--quiet", folder, folder=folder)
    check("git", *_AUTHOR, "add", "--all", folder=folder)
    check("git", *_AUTHOR, "commit", "--quiet", "--message=All", folder=folder)


def release(
    clone: Path, *words: str, version: str = VERSION, umask: int = -1, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command of `make release` in a clone."""
    return subprocess.run(
        [sys.executable, "-m", "manifests.release", version, *words],
        cwd=clone,
        env={**os.environ, **environment},
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
