from __future__ import annotations

from typing import Any

import pytest

from scheduler.configuration.load import default, parse
from scheduler.configuration.overrides import with_leader_election
from scheduler.errors import ConfigurationError
from scheduler.objects.wording import Duration

FILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podMaxBackoffSeconds: 60
leaderElection:
  leaseDuration: 30s
  resourceName: from-the-file
"""


def test_overrides_take_precedence_over_the_file_and_the_rest_stays():
    before = parse(FILE, "file.yaml")

    after = with_leader_election(
        before, lease_duration=Duration.parse("20s"), resource_name=None, leader_elect=None
    )

    election = after.settings.leader_election
    assert (election.lease_duration, election.resource_name, election.leader_elect) == (
        Duration.parse("20s"),
        "from-the-file",
        True,
    )
    assert after.settings.pod_max_backoff_seconds == 60
    assert after.settings.profiles == before.settings.profiles
    assert before.settings.leader_election.lease_duration == Duration.parse("30s")


@pytest.mark.parametrize(
    ("fields", "faults"),
    [
        (
            {"lease_duration": Duration.parse("5s")},
            ["leaderElection.leaseDuration: must be greater than renewDeadline (10s), was 5s"],
        ),
        (
            {"retry_period": Duration.parse("9s"), "resource_name": ""},
            [
                "leaderElection.resourceName: must not be empty",
                "leaderElection.renewDeadline: must be greater than 1.2 times retryPeriod (9s), was 10s",
            ],
        ),
        ({"resource_namespace": ""}, ["leaderElection.resourceNamespace: must not be empty"]),
    ],
    ids=["a lease shorter than the deadline", "two faults at once", "no namespace"],
)
def test_invalid_overrides_are_all_refused_at_once(fields: dict[str, Any], faults: list[str]):
    with pytest.raises(ConfigurationError) as caught:
        with_leader_election(default(), **fields)

    assert str(caught.value).splitlines() == faults


def test_nothing_is_validated_when_leader_election_is_off():
    off = with_leader_election(default(), leader_elect=False, resource_name="", lease_duration=Duration(0))

    assert not off.settings.leader_election.leader_elect
