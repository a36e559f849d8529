"""`make bench` runs: it builds the parts of the daemon as the daemon does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench import whole_pod

if TYPE_CHECKING:
    import pytest


def test_a_whole_pod_is_measured_from_start_to_end(capsys: pytest.CaptureFixture[str]):
    whole_pod.print_table(sizes=(3,), n_pods=5)

    whole, recorded, bare = capsys.readouterr().out.splitlines()
    assert whole.startswith("a whole pod, 3 nodes")
    assert recorded.startswith("a whole pod, recorded, 3 nodes")
    assert bare.startswith("the bare loop, 3 nodes")
