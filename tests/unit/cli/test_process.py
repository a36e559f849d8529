from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from scheduler.cli.process import run_in_loop

if TYPE_CHECKING:
    import pytest


async def _loop() -> str:
    return type(asyncio.get_running_loop()).__module__.split(".")[0]


def test_commands_that_serve_run_in_uvloop():
    assert run_in_loop(_loop()) == "uvloop"


def test_where_it_is_not_installed_they_run_all_the_same(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)

    assert run_in_loop(_loop()) == "asyncio"
