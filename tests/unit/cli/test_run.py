"""What `custom-scheduler run` says when it cannot begin."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

WRONG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: -3\n"


def test_a_kept_configuration_that_cannot_be_read_hides_no_fault_of_the_one_there_is(tmp_path: Path) -> None:
    config, kept = tmp_path / "config.yaml", tmp_path / "kept.json"
    config.write_text(WRONG)
    kept.write_text("cut")

    ended = subprocess.run(
        [sys.executable, "-m", "scheduler", "run", "--config", config, "--last-good-config", kept],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 2
    assert f"error: {config}: parallelism: must be at least 1, was -3" in ended.stderr.splitlines()
    assert f"{kept}: cannot be read" in ended.stderr
