"""Recordings and Kubernetes versions."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from scheduler.cli import replay as replay_module
from scheduler.daemon.recording import RecordingLimits
from scheduler.daemon.recording.recording import Recording
from scheduler.errors import SchedulerError
from tests.recording.backtests import HEAD, SPREADING
from tests.support import virtual_time
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from scheduler.configuration.load import Configuration

    Replayed = Callable[..., Sequence[Configuration]]

RECORDED = (
    HEAD + "emulatedVersion: '1.35'\nfeatureGates: {GangScheduling: false, DynamicResourceAllocation: true}\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the recording of a daemon that decides as 1.35, and configurations."""
    there = tmp_path_factory.mktemp("recorded")

    async def main() -> None:
        recording = Recording(
            RecordingLimits(there / "recording"), LoopClock(), Random(7), max_in_unschedulable_seconds=300.0
        )
        async with (
            cluster(there) as it,
            it.daemon(RECORDED, ports=recording.recorder) as daemon,
            recording.of(daemon),
        ):
            it.add_nodes(node_object("n1"))
            it.add_pods(pod_object("p1", cpu="1"))
            await it.until(lambda: it.node_of("p1"))
            await asyncio.sleep(1.0)

    virtual_time.run(main())
    (there / "unnamed.yaml").write_text(SPREADING)
    (there / "named.yaml").write_text(SPREADING + "emulatedVersion: '1.34'\n")
    return there


@pytest.fixture
def backtested(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Replayed:
    """Return a function that runs the command up to the backtests, and returns their configurations."""

    def run(*arguments: str) -> Sequence[Configuration]:
        seen: list[Configuration] = []

        def stop(_: object, configs: Sequence[Configuration], **__: Any) -> None:
            seen.extend(configs)
            raise SchedulerError("enough")

        monkeypatch.setattr(replay_module, "backtest_all", stop)
        monkeypatch.chdir(folder)
        result = CliRunner().invoke(replay_module.replay, ["recording", *arguments])
        assert "error: enough" in result.output
        return seen

    return run


def test_a_recording_is_replayed_as_its_version(folder: Path) -> None:
    result = CliRunner().invoke(replay_module.replay, [str(folder / "recording")])

    assert result.exit_code == 0
    assert "identical to the recording" in result.output


@pytest.mark.parametrize(
    ("arguments", "version"),
    [
        pytest.param(["--config", "unnamed.yaml"], "1.35", id="the recorded version"),
        pytest.param(["--config", "named.yaml"], "1.34", id="the version of the file"),
        pytest.param(["--config", "named.yaml", "--emulated-version", "1.37"], "1.37", id="of the flag"),
    ],
)
def test_a_configuration_is_backtested_as_a_version(
    backtested: Replayed, arguments: list[str], version: str
) -> None:
    (configuration,) = backtested(*arguments)

    assert configuration.features.version == version


def test_the_recorded_configuration_is_backtested_as_another_version(backtested: Replayed) -> None:
    (configuration,) = backtested("--emulated-version", "1.37", "--feature-gates", "DRAPrioritizedList=true")

    assert configuration.features.version == "1.37"
    assert configuration.source == "recorded configuration as Kubernetes 1.37, DRAPrioritizedList=true"
    # 1.37 does not have the recorded gate GangScheduling.
    assert configuration.settings.feature_gates == {
        "DynamicResourceAllocation": True,
        "DRAPrioritizedList": True,
    }


def test_gates_change_the_recorded_configuration_in_its_version(backtested: Replayed) -> None:
    (configuration,) = backtested("--feature-gates", "GangScheduling=true")

    assert configuration.features.version == "1.35"
    assert configuration.settings.feature_gates["GangScheduling"]
    assert configuration.source == "recorded configuration as Kubernetes 1.35, GangScheduling=true"
