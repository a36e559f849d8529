"""Recordings of a scheduler's inputs and decisions in files, for replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class RecordingLimits:
    """The folder of a recording, and its limits.

    Attributes:
        folder: folder of the files; created if it does not exist.
        max_bytes: limit of all files in it together, including those of earlier runs.
        max_seconds: files whose last note is older are deleted.
    """

    folder: Path
    max_bytes: int = 1024 * 2**20
    max_seconds: float = 24 * 3600.0
