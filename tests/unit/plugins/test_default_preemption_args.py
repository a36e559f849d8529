"""How many candidates are enough, and which settings are invalid."""

from __future__ import annotations

import pytest

from plugins.preemption.default_preemption import DefaultPreemptionArgs


def args(percentage: int, absolute: int) -> DefaultPreemptionArgs:
    return DefaultPreemptionArgs(
        min_candidate_nodes_percentage=percentage, min_candidate_nodes_absolute=absolute
    )


@pytest.mark.parametrize(
    ("percentage", "absolute", "paths"),
    [
        (0, 1, []),
        (100, 0, []),
        (101, 1, ["minCandidateNodesPercentage"]),
        (-1, 1, ["minCandidateNodesPercentage"]),
        (1, -1, ["minCandidateNodesAbsolute"]),
        (0, 0, ["minCandidateNodesPercentage", "minCandidateNodesAbsolute"]),
    ],
)
def test_settings_outside_their_ranges_are_errors(percentage: int, absolute: int, paths: list[str]) -> None:
    assert [fault.path for fault in args(percentage, absolute).faults()] == paths


@pytest.mark.parametrize(
    ("n_nodes", "enough"), [(50, 50), (500, 100), (5000, 500)], ids=["all", "the absolute", "the share"]
)
def test_the_larger_minimum_counts_up_to_the_number_of_nodes(n_nodes: int, enough: int) -> None:
    assert DefaultPreemptionArgs().enough(n_nodes) == enough
