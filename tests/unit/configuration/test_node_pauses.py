"""The two fields for nodes whose kubelets reject pods."""

from __future__ import annotations

import pytest

from scheduler.configuration.load import default, parse
from scheduler.errors import ConfigurationError

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def test_nodes_pause_for_five_seconds_at_first_and_for_a_minute_at_most() -> None:
    settings = default().settings

    assert (settings.node_pause_initial_seconds, settings.node_pause_max_seconds) == (5, 60)


def test_a_first_pause_of_zero_stays_zero() -> None:
    assert parse(f"{HEAD}nodePauseInitialSeconds: 0\n").settings.node_pause_initial_seconds == 0


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ("nodePauseInitialSeconds: -1", "nodePauseInitialSeconds: must be at least 0, was -1"),
        (
            "nodePauseInitialSeconds: 90",
            "nodePauseMaxSeconds: must be at least nodePauseInitialSeconds (90), was 60",
        ),
        ("nodePauseMaxSeconds: 5s", 'nodePauseMaxSeconds: must be an integer, was "5s"'),
    ],
    ids=["negative", "longer than the longest", "not a number"],
)
def test_an_invalid_pause_is_refused(fields: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(f"{HEAD}{fields}\n")

    assert [str(error) for error in caught.value.errors] == [problem]
