"""The fields of a new configuration that a running scheduler applies."""

from __future__ import annotations

from scheduler.configuration.load import default, parse
from scheduler.configuration.types import KubeSchedulerConfiguration
from scheduler.daemon.app.generations import AT_START, TAKEN, WITHOUT_EFFECT, keep_what_needs_a_restart

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def test_each_field_has_one_reload_rule() -> None:
    decided = [*TAKEN, *WITHOUT_EFFECT, *AT_START]

    assert sorted(decided) == sorted(KubeSchedulerConfiguration.__struct_fields__)


def test_a_field_that_needs_a_restart_is_named_by_its_path_and_kept() -> None:
    new = parse(
        f"{HEAD}leaderElection: {{leaseDuration: 20s, resourceName: mine}}\nclientConnection: {{burst: 3}}\n"
        "podMaxBackoffSeconds: 77\nparallelism: 3\n"
    )
    running = default()

    possible, paths = keep_what_needs_a_restart(new, running)

    assert paths == (
        "clientConnection.burst",
        "leaderElection.leaseDuration",
        "leaderElection.resourceName",
    )
    assert possible.settings.leader_election == running.settings.leader_election
    assert possible.settings.client_connection == running.settings.client_connection
    assert possible.settings.pod_max_backoff_seconds == 77
    assert possible.settings.parallelism == 3


def test_equal_configurations_need_no_restart() -> None:
    assert keep_what_needs_a_restart(default(), default()) == (default(), ())
