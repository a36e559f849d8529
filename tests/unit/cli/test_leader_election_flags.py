from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from scheduler.cli import run as run_module
from scheduler.configuration.load import default, load
from scheduler.errors import ConfigurationError, LeadershipLostError
from scheduler.objects.wording import Duration

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scheduler.configuration.types import LeaderElection


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, LeaderElection | None]]:
    """Run `run` up to where the daemon would begin; returns the outcome and the leader election in effect."""
    begun: list[Any] = []

    async def begin(config: Any, _: object, overriding: Any, **__: object) -> None:
        read = default() if config is None else load(config)
        begun.append(overriding(read).settings.leader_election)

    monkeypatch.setattr(run_module, "_run", begin)
    monkeypatch.setattr(run_module, "configure_logging", lambda *_, **__: None)

    def invoke(*flags: str) -> tuple[Any, LeaderElection | None]:
        result = CliRunner().invoke(run_module.run, list(flags))
        return result, begun[-1] if begun else None

    return invoke


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), True),
        (("--leader-elect",), True),
        (("--no-leader-elect",), False),
        (("--leader-elect=true",), True),
        (("--leader-elect=false",), False),
        (("--leader-elect=F",), False),
        (("--leader-elect=false", "--leader-elect=1"), True),
    ],
    ids=lambda value: " ".join(value) or "nothing said" if isinstance(value, tuple) else "",
)
def test_leader_election_is_on_unless_a_flag_or_the_file_switches_it_off(
    run: Any, flags: tuple[str, ...], expected: bool
):
    result, election = run(*flags)

    assert result.exit_code == 0
    assert election.leader_elect is expected


def test_a_value_that_is_neither_true_nor_false_is_refused(run: Any):
    result, election = run("--leader-elect=perhaps")

    assert (result.exit_code, election) == (2, None)
    assert "must be true or false, was 'perhaps'" in result.output


def test_flags_take_precedence_over_the_file(run: Any, tmp_path: Path):
    file = tmp_path / "config.yaml"
    file.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "leaderElection: {leaderElect: false, leaseDuration: 1m, resourceName: mine, resourceNamespace: here}\n"
    )

    _, election = run(
        "--config", str(file), "--leader-elect", "--leader-elect-resource-name=other",
        "--leader-elect-renew-deadline=30s", "--leader-elect-retry-period", "500ms",
    )  # fmt: skip

    assert election.leader_elect
    assert election.lease_duration == Duration.parse("1m")
    assert election.renew_deadline == Duration.parse("30s")
    assert election.retry_period == Duration.parse("500ms")
    assert (election.resource_name, election.resource_namespace) == ("other", "here")


def test_a_duration_without_a_unit_is_refused_with_an_example(run: Any):
    result, _ = run("--leader-elect-lease-duration", "15")

    assert result.exit_code == 2
    assert "must be a duration as in 15s or 1m30s" in result.output


def test_the_file_with_its_flags_is_validated_as_a_whole(run: Any):
    result, election = run("--leader-elect-renew-deadline", "15s")

    assert election is None
    assert isinstance(result.exception, ConfigurationError)


def test_a_lost_lease_ends_the_command_with_status_1(
    run: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async def lose(*_: object, **__: object) -> None:
        raise LeadershipLostError

    monkeypatch.setattr(run_module, "_run", lose)

    result, _ = run()

    assert result.exit_code == 1
    assert caplog.messages[-1] == "leaderelection lost"
