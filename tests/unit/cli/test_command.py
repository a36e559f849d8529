"""What every command begins with."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
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


_THREADS = """
import os, sys
from scheduler.cli import main
sys.argv = ["custom-scheduler", "run", "--help"]
try:
    main()
except SystemExit:
    print("threads:", len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted where Linux lists them")  # noqa: PTH112
def test_what_run_imports_starts_no_threads() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}

    ended = subprocess.run(
        [sys.executable, "-c", _THREADS], env=environment, capture_output=True, text=True, check=True
    )

    assert ended.stdout.endswith("threads: 1\n")
