"""What every command begins with."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from scheduler.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_garbage_is_looked_for_while_a_command_runs_but_not_in_its_modules(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["custom-scheduler", "run", "--help"])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 0
    assert "--kubeconfig" in capsys.readouterr().out
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000
