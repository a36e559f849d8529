"""`make bench` runs: it builds the parts of the daemon as the daemon does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench import pod_budget, replicas, whole_pod

if TYPE_CHECKING:
    import pytest


def test_a_whole_pod_is_measured_from_start_to_end(capsys: pytest.CaptureFixture[str]):
    whole_pod.print_table(sizes=(3,), n_pods=5)

    whole, recorded, bare = capsys.readouterr().out.splitlines()
    assert whole.startswith("a whole pod, 3 nodes")
    assert recorded.startswith("a whole pod, recorded, 3 nodes")
    assert bare.startswith("the bare loop, 3 nodes")


def test_a_pod_of_one_of_several_replicas_is_measured(capsys: pytest.CaptureFixture[str]):
    replicas.print_table(n_nodes=20, n_pods=40)

    lines = capsys.readouterr().out.splitlines()
    shares = [int(line.partition("replicas, ")[2].split()[0]) for line in lines]
    assert lines[0].startswith("one of 1 replicas, 40 of 40 pods")
    assert len(lines) == 4
    assert all(0 < share < 40 for share in shares[1:])


def test_replicas_in_processes_of_their_own_are_measured(capsys: pytest.CaptureFixture[str]):
    replicas.print_rate(2, n_nodes=20, n_pods=40, runs=1)

    line = capsys.readouterr().out
    assert line.startswith("2 processes")
    assert int(line.partition("processors")[2].split()[0]) > 0


def test_the_time_of_a_pod_is_divided_by_what_the_daemon_does(capsys: pytest.CaptureFixture[str]):
    pod_budget.print_table(n_nodes=3, n_pods=5)

    rows = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("pods ")]
    half = len(rows) // 2
    for table in (rows[:half], rows[half:]):
        calls = {row[:50].rstrip(): float(row[50:].split()[0]) for row in table}
        assert (
            min(calls[step] for step in ("decoding", "queue", "decision: plugins", "binding", "events")) > 1
        )
