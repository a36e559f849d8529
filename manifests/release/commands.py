"""Programs that take part in building a release."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class ReleaseError(Exception):
    """A release cannot be built, or is not what it has to be; the text says why."""


def run(*command: str | Path, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run a program, and return its output.

    Args:
        command: program and arguments.
        folder: in which it runs.
        environment: variables beside those of this process.

    Raises:
        ReleaseError: the program is missing, or its exit status is not 0; with its output.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(  # noqa: S603 - the programs are named in this package
            words,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise ReleaseError(f"{words[0]} is not installed") from error
    if done.returncode != 0:
        raise ReleaseError(f"`{' '.join(words)}` failed:\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout
