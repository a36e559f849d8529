"""`--feature-gates`, on every command that takes a configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from scheduler.cli import run as run_module
from scheduler.cli.board import board
from scheduler.cli.check import check
from scheduler.cli.demo import demo
from scheduler.cli.explain import explain
from scheduler.cli.extender import extender
from scheduler.cli.options import flags_of
from scheduler.cli.replay import replay
from scheduler.cli.simulate import simulate
from scheduler.cli.why import why
from scheduler.configuration.load import load
from scheduler.configuration.overrides import GivenFeatures, with_features
from scheduler.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
COMMANDS = (run_module.run, check, explain, demo, board, extender, why, simulate, replay)
TAKING = {command.name: command for command in COMMANDS}


@pytest.mark.parametrize("name", TAKING)
def test_every_command_with_a_configuration_reads_the_flag_and_refuses_nonsense(name: str):
    result = CliRunner().invoke(TAKING[name], ["--feature-gates", "GangScheduling"])

    assert result.exit_code == 2
    assert "missing bool value for GangScheduling" in result.output

    result = CliRunner().invoke(TAKING[name], ["--emulated-version", "1.99"])

    assert result.exit_code == 2
    assert "emulation version 1.99 is not between [1.34, 1.37]" in result.output


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(HEAD + "featureGates: {TopologyAwareWorkloadScheduling: false, GangScheduling: false}\n")
    return str(path)


def test_run_applies_the_flags_over_the_file(file: str, monkeypatch: pytest.MonkeyPatch):
    seen: list[Any] = []

    async def begin(
        config: Path, _: object, overriding: Any, *, features: GivenFeatures, **__: object
    ) -> None:
        settled = overriding(with_features(load(config), features))
        seen.extend((settled, flags_of(click.get_current_context())["feature-gates"]))

    monkeypatch.setattr(run_module, "_run", begin)
    monkeypatch.setattr(run_module, "configure_logging", lambda *_, **__: None)

    flags = ("--feature-gates=GangScheduling=true", "--feature-gates=WorkloadAwarePreemption=false")
    result = CliRunner().invoke(run_module.run, ["--config", file, *flags, "--leader-elect=false"])

    assert result.exit_code == 0
    configuration, shown = seen
    features = configuration.features
    assert features.enabled("GangScheduling")
    assert not features.enabled("TopologyAwareWorkloadScheduling")
    assert not features.enabled("WorkloadAwarePreemption")
    assert configuration.settings.leader_election.leader_elect is False
    assert shown == "GangScheduling=true,WorkloadAwarePreemption=false"


def test_check_validates_the_file_with_the_flags(file: str):
    fine = CliRunner().invoke(check, ["--feature-gates", "SchedulerQueueingHints=true", file])
    wrong = CliRunner().invoke(check, ["--feature-gates", "WorkloadAwarePreemption=true", file])

    assert fine.exit_code == 0
    assert "warning" in fine.output
    assert "SchedulerQueueingHints has no effect" in fine.output
    assert isinstance(wrong.exception, ConfigurationError)
    assert [str(each) for each in wrong.exception.errors] == [
        (
            "--feature-gates: WorkloadAwarePreemption is enabled, but depends on features that are disabled: "
            "[GangScheduling]"
        )
    ]
