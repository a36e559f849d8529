"""The commit that a release is built from."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from manifests.release.archives import extract
from manifests.release.commands import ReleaseError, run

if TYPE_CHECKING:
    from collections.abc import Iterator


class Source(NamedTuple):
    """A commit.

    Attributes:
        commit: its hash.
        seconds: when it was made, in seconds since 1970. It is the time of every file of the release.
        folder: where its files are. Files that are not part of the commit are not there.
    """

    commit: str
    seconds: int
    folder: Path

    @property
    def date(self) -> str:
        """The time of the commit, as in RFC 3339."""
        return datetime.fromtimestamp(self.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def exported(clone: Path, version: str) -> Iterator[Source]:
    """Yield the commit that is checked out in a clone.

    Raises:
        ReleaseError: the clone has changes that are not committed, or the version is the tag of another commit.
    """
    commit = run("git", "rev-parse", "HEAD", folder=clone).strip()
    changes = run("git", "status", "--porcelain", folder=clone).splitlines()
    if changes:
        names = ", ".join(sorted(line[3:] for line in changes))
        raise ReleaseError(f"the clone has changes that are not committed: {names}")
    tagged = run(
        "git", "for-each-ref", "--format=%(objectname) %(*objectname)", f"refs/tags/v{version}", folder=clone
    )
    if tagged and commit not in tagged.split():
        raise ReleaseError(f"the tag v{version} is on another commit: a version is released only once")
    with tempfile.TemporaryDirectory(prefix="custom-scheduler-release-") as name:
        # With a fixed umask: else the permissions of the files depend on the settings of git.
        words = ["git", "-c", "tar.umask=0022", "archive", commit]
        packed = subprocess.run(words, cwd=clone, stdout=subprocess.PIPE, check=True)  # noqa: S603
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            extract(archive, name)
        seconds = int(run("git", "show", "--no-patch", "--format=%ct", commit, folder=clone))
        yield Source(commit, seconds, Path(name))
