"""The engine and plugins see the world through ports, and do not know whether a recorder or a replay is behind them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SCHEDULER = Path(__file__).parents[3] / "scheduler"
UNAWARE = (
    SCHEDULER / "engine",
    SCHEDULER / "snapshot",
    SCHEDULER / "framework",
    SCHEDULER / "extensions",
    SCHEDULER.parent / "plugins",
)


def named_in(text: str) -> list[str]:
    return re.findall(r"\w*(?:hooks|replay|recording)\w*", text, re.IGNORECASE)


@pytest.mark.parametrize("folder", UNAWARE, ids=lambda folder: folder.name)
def test_the_engine_and_plugins_do_not_name_recordings(folder: Path) -> None:
    files = list(folder.rglob("*.py"))
    assert files
    assert {str(file): found for file in files if (found := named_in(file.read_text()))} == {}
