"""Errors of plugin authors are reported with the plugin's name and the correction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scheduler.errors import PluginLoadError
from scheduler.framework import (
    Code,
    FilterPlugin,
    Plugin,
    PreFilterPlugin,
    PreFilterResult,
    ScorePlugin,
    Status,
)
from scheduler.testing import ProfileSimulation, node, pod


def mine(base: type[Plugin], method: str, answer: Any) -> Any:
    """Return a plugin whose method always returns the same."""
    return type("Mine", (base,), {"name": "Mine", "api_version": 1, method: lambda *_arguments: answer})


@pytest.mark.parametrize(
    ("plugin", "expected"),
    [
        pytest.param(mine(FilterPlugin, "filter_node", False), "a Status or None, was False", id="bool"),
        pytest.param(
            mine(FilterPlugin, "filter_node", Status(Code.UNSCHEDULABLE, "no")),  # type: ignore[arg-type]
            'as in Status.unschedulable("one", "another"), was \'no\'',
            id="one text as reasons",
        ),
        pytest.param(
            mine(FilterPlugin, "filter_node", Status.unschedulable(["no"])),  # type: ignore[arg-type]
            'as in Status.unschedulable("one", "another"), was ([\'no\'],)',
            id="a list as reasons",
        ),
        pytest.param(
            mine(FilterPlugin, "filter", np.array([True])),
            "filter returns Outcomes, was ndarray; write Outcomes.reject(refused, reason)",
            id="a mask",
        ),
        pytest.param(
            mine(ScorePlugin, "score_node", 0.5), "score_node returns an integer, was 0.5", id="float"
        ),
        pytest.param(mine(ScorePlugin, "score_node", None), "an integer, was None", id="no score"),
        pytest.param(
            mine(PreFilterPlugin, "pre_filter", PreFilterResult({"a"})),  # type: ignore[arg-type]
            "expected PreFilterResult(frozenset of node names), a Status or None",
            id="a set of names",
        ),
    ],
)
def test_a_wrong_result_is_reported_with_the_expected_one(plugin: type[Plugin], expected: str):
    with pytest.raises(RuntimeError) as failed:
        ProfileSimulation(node("a"), plugins=[plugin]).schedule(pod("web"))

    assert '"Mine"' in str(failed.value)
    assert expected in str(failed.value)


class SignsAList(ScorePlugin):
    name = "SignsAList"
    api_version = 1

    def signature(self, pod: Any) -> Any:
        return ["web"]

    def score_node(self, state: Any, pod: Any, node: Any) -> int:
        return 1


def test_a_list_as_signature_is_reported_with_an_alternative():
    with pytest.raises(
        RuntimeError, match=r'"SignsAList" failed with: .* a hashable value, such as a tuple, was \[\'web\'\]'
    ):
        ProfileSimulation(node("a"), plugins=[SignsAList]).schedule(pod("web"))


class WantsADatabase(ScorePlugin):
    name = "WantsADatabase"
    api_version = 1

    def __init__(self, *, database: Database) -> None:  # type: ignore[name-defined]  # noqa: F821
        self._database = database

    def score_node(self, state: Any, pod: Any, node: Any) -> int:
        return 1


def test_an_unknown_capability_is_reported_with_the_known_ones():
    with pytest.raises(
        PluginLoadError,
        match="'Database' is not defined; the capabilities are ApiGet, ApiWrite, AssumedPods, Background",
    ):
        ProfileSimulation(plugins=[WantsADatabase])
