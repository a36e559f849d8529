"""Parameters come from the profile; a candidate is the user's file with other values."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from scheduler.configuration.load import Configuration, default, load, parse
from scheduler.configuration.write import converted_yaml
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.offline import OfflineScheduler
from scheduler.tools.whatif.tuning.parameters import ParameterError, TunedProfile
from scheduler.tools.whatif.tuning.profile_files import file_of
from tests.unit.tools.whatif.tuning.workloads import HEAD, PACKING

STRATEGY = "NodeResourcesFit.scoringStrategy"
PLUGIN = """
from typing import Annotated, Literal

import msgspec
import numpy as np

from scheduler.framework import PluginArgs, ScorePlugin


class QuietArgs(PluginArgs, frozen=True):
    mode: Literal["day", "night"] = "day"
    limits: Annotated[str, msgspec.Meta(extra={"tune": ("low", "high", "none")})] = "low"
    step: int = 3

    def faults(self):
        from scheduler.errors import FieldError

        if self.limits == "none":
            yield FieldError("limits", "must be low or high")


class Quiet(ScorePlugin):
    name = "Quiet"
    api_version = 1
    Args = QuietArgs

    def __init__(self, *, args: QuietArgs) -> None: ...

    def score(self, state, pod, snapshot, feasible):
        return np.zeros(snapshot.n_nodes, dtype=np.int64)
"""


def weights(configuration: Configuration) -> dict[str, int]:
    """Return the weights of the Score plugins of the first profile."""
    frameworks = OfflineScheduler(ClusterFile(), configuration, refresh=False).frameworks
    return dict(next(iter(frameworks.values())).plugins.weights)


def candidate(profile: TunedProfile, *requests: str) -> Configuration:
    """Return the candidate whose parameters have the only value of a request."""
    parameters = profile.searched(["*=today", *requests])
    values = {name: (*each.limits(),)[0] for name, each in parameters.items()}
    return profile.with_values(parameters, values, "candidate")


def test_the_default_profile_has_the_weights_of_its_score_plugins_and_strategies():
    searched = TunedProfile(default()).searched(())

    assert {name for name in searched if name.endswith(".weight")} == {
        f"{name}.weight" for name in weights(default())
    }
    assert searched["TaintToleration.weight"].today == 3
    assert searched["TaintToleration.weight"].values == "1..10"
    strategy = searched[STRATEGY]
    assert strategy.today == "{type: LeastAllocated}"
    assert strategy.choices[:2] == ("{type: LeastAllocated}", "{type: MostAllocated}")
    assert len(strategy.choices) == 4
    assert all(each.has(each.today) for each in searched.values())


def test_a_higher_weight_of_today_extends_the_range():
    profile = "profiles: [{plugins: {multiPoint: {enabled: [{name: ImageLocality, weight: 30}]}}}]"

    assert TunedProfile(parse(HEAD + profile)).searched(())["ImageLocality.weight"].values == "1..60"


def test_a_candidate_differs_from_the_file_by_its_values_only():
    profile = TunedProfile(parse(PACKING))

    changed = candidate(profile, "ImageLocality.weight=7", f"{STRATEGY}={{type: LeastAllocated}}")

    expected = yaml.safe_load(PACKING)
    expected["profiles"][0]["plugins"] = {"multiPoint": {"enabled": [{"name": "ImageLocality", "weight": 7}]}}
    expected["profiles"][0]["pluginConfig"][0]["args"]["scoringStrategy"]["type"] = "LeastAllocated"
    assert yaml.safe_load(converted_yaml(changed)) == expected
    assert weights(changed) == {**weights(parse(PACKING)), "ImageLocality": 7}


def test_every_strategy_of_the_search_is_valid_in_every_profile():
    for text in (HEAD, PACKING):
        profile = TunedProfile(parse(text))
        searched = profile.searched(())
        for choice in searched[STRATEGY].choices:
            again = TunedProfile(profile.with_values(searched, {STRATEGY: choice}, ""))
            assert again.parameters[STRATEGY].today == choice
            assert set(again.parameters[STRATEGY].choices) == set(searched[STRATEGY].choices)


@pytest.mark.parametrize(
    "plugins",
    [
        "{}",
        "{score: {enabled: [{name: ImageLocality, weight: 4}], disabled: [{name: '*'}]}}",
        "{multiPoint: {enabled: [{name: ImageLocality, weight: 4}]}}",
    ],
)
def test_the_weight_0_disables_a_plugin_at_score_and_others_are_set(plugins: str):
    profile = TunedProfile(parse(f"{HEAD}profiles: [{{plugins: {plugins}}}]"))
    today = weights(profile.configuration)

    assert weights(candidate(profile, "ImageLocality.weight=9")) == {**today, "ImageLocality": 9}
    without = {name: weight for name, weight in today.items() if name != "ImageLocality"}
    assert weights(candidate(profile, "ImageLocality.weight=0")) == without


def test_requests_fix_and_bound_parameters_and_later_ones_win():
    profile = TunedProfile(default())

    searched = profile.searched(
        [
            "*=today",
            "*Affinity.weight=2..4",
            "NodeAffinity.weight=5",
            "PodTopologySpread.defaultingType=System|List",
            "InterPodAffinity.hardPodAffinityWeight=0..100",
        ]
    )

    assert {name: each.values for name, each in searched.items()} == {
        "InterPodAffinity.weight": "2..4",
        "NodeAffinity.weight": "5",
        "PodTopologySpread.defaultingType": "System|List",
        "InterPodAffinity.hardPodAffinityWeight": "0..100",
    }


def test_a_request_for_a_part_of_an_argument_replaces_the_whole_argument():
    searched = TunedProfile(default()).searched([f"{STRATEGY}.type=LeastAllocated|MostAllocated"])

    assert STRATEGY not in searched
    assert searched[f"{STRATEGY}.type"].choices == ("LeastAllocated", "MostAllocated")


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            "NodeResourceFit.weight=1..3",
            'there is no parameter "NodeResourceFit.weight", did you mean "NodeReso',
        ),
        ("Rubbish=1", "; there are: DefaultPreemption.minCandidateNodesAbsolute, "),
        ("*.rubbish=1", 'there is no parameter "*.rubbish"'),
        ("NodePorts.weight=2", 'there is no parameter "NodePorts.weight"'),
        ("NodeAffinity.weight", "NAME=VALUE, NAME=LOW..HIGH or NAME=A|B is expected"),
        ("NodeAffinity.weight=9..2", "LOW..HIGH are two numbers, the lower one first"),
        ("NodeAffinity.weight=1..x", "LOW..HIGH are two numbers, the lower one first"),
        ("NodeAffinity.weight=1.5", "a weight is an integer of at least 0"),
        ("NodeAffinity.weight=-1..3", "a weight is an integer of at least 0"),
        ("NodeAffinity.weight=much", "a weight is a number"),
        (f"{STRATEGY}.type=LeastAllocated|Rubbish", "scoringStrategy.type: must be one of LeastAllocated, "),
        ("InterPodAffinity.hardPodAffinityWeight=0..101", "hardPodAffinityWeight: Invalid value: 101"),
        (f"{STRATEGY}={{type: [", "is not YAML"),
    ],
)
def test_a_wrong_request_is_refused_with_its_text(request_: str, message: str):
    with pytest.raises(ParameterError) as raised:
        TunedProfile(default()).searched([request_])

    assert f"--parameter {request_}: " in str(raised.value)
    assert message in str(raised.value)


def test_of_several_profiles_one_must_be_named():
    several = parse(f"{HEAD}profiles: [{{schedulerName: a}}, {{schedulerName: b}}]")

    with pytest.raises(ParameterError, match="there are several profiles: a, b"):
        TunedProfile(several)
    with pytest.raises(ParameterError, match='there is no profile "c"; there are: a, b'):
        TunedProfile(several, "c")
    changed = candidate(TunedProfile(several, "b"), "ImageLocality.weight=7")
    assert "plugins" not in changed.converted["profiles"][0]
    assert "plugins" in changed.converted["profiles"][1]


@pytest.fixture
def with_plugin_file(tmp_path: Path) -> TunedProfile:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "quiet.py").write_text(PLUGIN)
    config = tmp_path / "config.yaml"
    config.write_text(f"{HEAD}profiles: [{{plugins: {{score: {{enabled: [{{name: plugins/quiet.py}}]}}}}}}]")
    return TunedProfile(load(config))


def test_the_plugin_of_a_file_declares_what_is_searched(with_plugin_file: TunedProfile):
    searched = with_plugin_file.searched(())

    assert searched["plugins/quiet.py.weight"].today == 1
    assert searched["plugins/quiet.py.mode"].choices == ("day", "night")
    # Without the one that `check` refuses.
    assert searched["plugins/quiet.py.limits"].choices == ("low", "high")
    assert "plugins/quiet.py.step" not in searched
    assert with_plugin_file.parameters["plugins/quiet.py.step"].today == 3


def test_a_file_in_another_folder_names_the_same_plugin_files(with_plugin_file: TunedProfile, tmp_path: Path):
    changed = candidate(with_plugin_file, "plugins/quiet.py.mode=night", "plugins/quiet.py.weight=4")
    other = tmp_path / "tuned" / "profile.yaml"
    other.parent.mkdir()

    other.write_text(file_of(changed, other.parent, ["Why.", "And " + "more " * 40]))

    assert weights(load(other))["Quiet"] == 4
    assert "../plugins/quiet.py" in other.read_text()
    assert all(len(line) <= 112 for line in other.read_text().splitlines())
    assert load(other).settings.profiles[0].plugin_config[0].args["mode"] == "night"
