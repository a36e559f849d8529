"""How long containers run, as far as can be known without running them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from scheduler.simulator.node_agents.pod_status import ENDLESS, ContainerRun, run_of_command, runs_of
from tests.unit.simulator.a_store import pod


@pytest.mark.parametrize(
    ("command", "run"),
    [
        pytest.param(["sleep", "5"], ContainerRun(5, 0), id="sleep"),
        pytest.param(["/bin/sleep", "1m", "30"], ContainerRun(90, 0), id="sleep with units"),
        pytest.param(["sleep", "infinity"], ContainerRun(math.inf, 0), id="sleep for ever"),
        pytest.param(["false"], ContainerRun(0, 1), id="false"),
        pytest.param(["sh", "-c", "sleep 2; exit 3"], ContainerRun(2, 3), id="a script that fails"),
        pytest.param(["bash", "-ec", "echo hello && sleep 1"], ContainerRun(1, 0), id="one after the other"),
        pytest.param(
            ["sh", "-c", "false && sleep 9"], ContainerRun(0, 1), id="the command after a failure is skipped"
        ),
        pytest.param(
            ["sh", "-c", "false || sleep 9"], ContainerRun(9, 0), id="the alternative after a failure runs"
        ),
        pytest.param(["nginx", "-g"], None, id="anything else"),
        pytest.param(["sh", "-c", "sleep 1; ./work"], None, id="anything else in a script"),
        pytest.param(["sh", "-c", "echo 'open"], None, id="a broken script"),
        pytest.param(["sleep", "soon"], None, id="no number"),
        pytest.param([], None, id="the image's own command"),
    ],
)
def test_a_command_sets_its_run_time(command: list[str], run: ContainerRun | None):
    assert run_of_command(command) == run


def of(pod_object: dict[str, Any]) -> list[ContainerRun]:
    return runs_of(pod_object, job_seconds=5)


def test_containers_that_always_restart_never_finish():
    assert of(pod("p", restartPolicy="Always")) == [ENDLESS]


def test_annotations_set_the_run_time_of_all_containers():
    made = pod("p", restartPolicy="Never")
    made["metadata"]["annotations"] = {"simulator/run-seconds": "2.5", "simulator/exit-code": "4"}

    assert of(made) == [ContainerRun(2.5, 4)]


def test_only_a_container_of_a_job_finishes_by_default():
    made = pod("p", restartPolicy="Never")
    assert of(made) == [ENDLESS]

    made["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j", "uid": "u", "controller": True}]
    assert of(made) == [ContainerRun(5, 0)]
