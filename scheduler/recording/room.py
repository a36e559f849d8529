"""Where a recording may be, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Room:
    """Where a recording may be, and how large it may grow.

    Attributes:
        folder: the files are there; made if it does not exist.
        max_bytes: what all files there may take together, also those of earlier runs.
        max_seconds: files whose last note is older go.
    """

    folder: Path
    max_bytes: int = 1024 * 2**20
    max_seconds: float = 24 * 3600.0
