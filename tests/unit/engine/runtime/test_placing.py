"""Failures of placement plugins are reported with the messages of kube-scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler.engine.runtime.calls import PluginError
from scheduler.engine.runtime.framework import EnabledPlugins, Framework
from scheduler.engine.runtime.plugin_classes import CLASS_OF_POINT
from scheduler.framework import (
    Placement,
    PlacementGeneratePlugin,
    PlacementScorePlugin,
    PodGroup,
    Status,
)
from scheduler.objects.pod_group import POD_GROUPS, GroupKey
from tests.support.builders import pod
from tests.support.scripted_plugins import Puppet
from tests.support.snapshots import snapshot_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.framework import Plugin

SNAPSHOT = snapshot_of("n0", "n1")
GROUP = PodGroup(GroupKey(POD_GROUPS, "default", "gang"), "uid")
PLACEMENT = Placement("rack", SNAPSHOT.all_rows)


class Generator(Puppet, PlacementGeneratePlugin):
    def generate_placements(self, *args: Any) -> Any:
        return self.say("generate_placements", *args)


class Scorer(Puppet, PlacementScorePlugin):
    def score_placement(self, *args: Any) -> Any:
        return self.say("score_placement", *args)

    def normalize_placement_scores(self, group: PodGroup, scores: Sequence[int]) -> Any:
        return (
            self.say("normalize_placement_scores", scores)
            if "normalize_placement_scores" in self.answers
            else scores
        )


def run(plugin: Plugin) -> None:
    at = {point: [plugin] if isinstance(plugin, kind) else [] for point, kind in CLASS_OF_POINT.items()}
    placing = Framework("custom-scheduler", EnabledPlugins(at, {}, {plugin.name: 1})).placing
    placing.generate(GROUP, [pod("web")], SNAPSHOT)
    placing.totals(GROUP, [(PLACEMENT, [pod("web")])], SNAPSHOT)


@pytest.mark.parametrize(
    ("plugin", "expected"),
    [
        pytest.param(Generator("Mine", Status.failed("no domain")), "no domain", id="generate"),
        pytest.param(
            Generator("Mine", KeyError("x")),
            "running PlacementGenerate plugin \"Mine\": KeyError: 'x'",
            id="generate raises",
        ),
        pytest.param(
            Scorer("Mine", KeyError("x")),
            "running PlacementScore plugins: plugin \"Mine\" failed with: KeyError: 'x'",
            id="score",
        ),
        pytest.param(
            Scorer("Mine", 1, normalize_placement_scores=KeyError("x")),
            "running NormalizePlacementScore on PlacementScore plugins: plugin \"Mine\" failed with: KeyError: 'x'",
            id="normalize",
        ),
        pytest.param(
            Scorer("Mine", 101),
            'applying score defaultWeights on PlacementScore plugins: plugin "Mine" returns an invalid score 101, '
            "it should in the range of [0, 100] after normalizing",
            id="out of range",
        ),
    ],
)
def test_a_failure_is_reported_as_by_kube_scheduler(plugin: Plugin, expected: str):
    with pytest.raises(PluginError) as failed:
        run(plugin)

    assert str(failed.value) == expected
