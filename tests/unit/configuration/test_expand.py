from __future__ import annotations

import pytest

from scheduler.configuration.load import default
from scheduler.configuration.profile_plugins import EnabledPlugin, expand, expand_in_steps
from scheduler.configuration.types import Plugin, Plugins, PluginSet, Profile
from scheduler.errors import ConfigurationError
from scheduler.framework.interface import ExtensionPoint
from scheduler.loop_work import run_to_end
from tests.unit.configuration.documents import parsed
from tests.unit.configuration.plugin_points import DEFAULT_ORDER, POINTS

SCORE, FILTER = ExtensionPoint.SCORE, ExtensionPoint.FILTER
ABC = {
    "Sort": frozenset({ExtensionPoint.QUEUE_SORT}),
    "Bind": frozenset({ExtensionPoint.BIND}),
    "A": frozenset({SCORE, FILTER}),
    "B": frozenset({SCORE}),
    "C": frozenset({SCORE, FILTER}),
    "D": frozenset({SCORE}),
}


def plugin_set(enabled: str = "", disabled: str = "") -> PluginSet:
    """`A B=5` is A without a weight, then B with 5."""
    parts = [word.partition("=") for word in enabled.split()]
    return PluginSet(
        enabled=tuple(Plugin(name=name, weight=int(weight or 0)) for name, _, weight in parts),
        disabled=tuple(Plugin(name=name) for name in disabled.split()),
    )


def profile(multi_point: str, **points: PluginSet) -> Profile:
    plugins = Plugins(multi_point=plugin_set(f"Sort Bind {multi_point}"), **points)
    return Profile(scheduler_name="s", plugins=plugins)


def scoring(given: Profile) -> str:
    return " ".join(f"{name}={weight}" for name, weight in expand(given, ABC)[SCORE])


def refusal(given: Profile) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        expand(given, ABC)
    return [str(error) for error in caught.value.errors]


def test_the_default_plugins_run_where_kube_scheduler_runs_them() -> None:
    expansion = expand(default().settings.profiles[0], POINTS)
    names = {point: [plugin.name for plugin in plugins] for point, plugins in expansion.items()}
    assert names == DEFAULT_ORDER


def test_the_default_weights_are_those_of_kube_scheduler() -> None:
    assert dict(expand(default().settings.profiles[0], POINTS)[SCORE]) == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "VolumeBinding": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }


@pytest.mark.parametrize(
    ("multi_point", "enabled", "disabled", "expected"),
    [
        pytest.param("A B=5", "", "", "A=1 B=5", id="multiPoint alone, and weight 0 is 1"),
        pytest.param("A B", "", "A", "B=1", id="disabled at the point"),
        pytest.param("A B", "", "*", "", id="all of multiPoint disabled at the point"),
        pytest.param("A B", "D=2 A", "*", "D=2 A=1", id="all disabled and some enabled at the point"),
        pytest.param("C A B", "B A", "", "B=1 A=1 C=1", id="the point's own order comes first"),
        pytest.param("A B", "C B A", "", "B=1 A=1 C=1", id="what only the point lists comes last"),
        pytest.param("A=7 B=7", "B=5 A=3", "", "B=5 A=3", id="the point's weight wins"),
        pytest.param("A=7", "A", "", "A=1", id="even when it gives none"),
        pytest.param("A B", "A", "A", "B=1 A=1", id="enabled and disabled at the point goes to the end"),
        pytest.param("A B", "D C", "B", "A=1 D=1 C=1", id="additions after the rest"),
    ],
)
def test_the_list_of_an_extension_point_takes_precedence_over_multi_point(
    multi_point: str, enabled: str, disabled: str, expected: str
) -> None:
    assert scoring(profile(multi_point, score=plugin_set(enabled, disabled))) == expected


def test_a_plugin_runs_only_at_its_extension_points() -> None:
    expansion = expand(profile("A B C"), ABC)
    assert [plugin.name for plugin in expansion[FILTER]] == ["A", "C"]
    assert expansion[ExtensionPoint.PERMIT] == ()


def test_weights_are_for_scores_only() -> None:
    assert expand(profile("A=5"), ABC)[FILTER] == (EnabledPlugin("A", 0),)


def test_a_missing_plugin_of_kube_scheduler_is_left_out() -> None:
    assert scoring(profile("A ImageLocality B", score=plugin_set("NodeAffinity A"))) == "A=1 B=1"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            profile("A NodeAfinity", score=plugin_set("Zzz")),
            [
                'profiles[0].plugins: no plugin "Zzz" is known',
                'profiles[0].plugins: no plugin "NodeAfinity" is known, did you mean "NodeAffinity"?',
            ],
            id="unknown plugins",
        ),
        pytest.param(
            profile("A", filter=plugin_set("B")),
            ['profiles[0].plugins.filter: the plugin "B" does not implement Filter'],
            id="a plugin where it implements nothing",
        ),
        pytest.param(
            Profile(plugins=Plugins(multi_point=plugin_set("A"))),
            [
                "profiles[0].plugins.queueSort: exactly one queue sort plugin is needed, found none",
                "profiles[0].plugins.bind: at least one bind plugin is needed, found none",
            ],
            id="nothing that sorts or binds",
        ),
        pytest.param(
            profile(f"A={2**56} B={2**56}"),
            ["profiles[0].plugins: the weights are so large that the sum of scores could overflow"],
            id="weights beyond int64",
        ),
    ],
)
def test_a_profile_that_cannot_run_is_refused(given: Profile, expected: list[str]) -> None:
    assert refusal(given) == expected


def test_the_largest_weights_of_a_file_cannot_overflow() -> None:
    assert scoring(profile(f"A={2**31 - 1} B={2**31 - 1}")) == f"A={2**31 - 1} B={2**31 - 1}"


def test_two_plugins_that_sort_the_queue_are_one_too_many() -> None:
    points = {**ABC, "Other": frozenset({ExtensionPoint.QUEUE_SORT})}
    with pytest.raises(
        ConfigurationError, match="exactly one queue sort plugin is needed, found Sort, Other"
    ):
        expand(profile("Other"), points)


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        pytest.param(
            "multiPoint: {enabled: [{name: InterPodAffinity, weight: 7}]}",
            "TaintToleration=3 NodeAffinity=2 NodeResourcesFit=1 VolumeBinding=1 PodTopologySpread=2"
            " InterPodAffinity=7 DynamicResources=2 NodeResourcesBalancedAllocation=1 ImageLocality=1",
            id="a default's weight changed in place",
        ),
        pytest.param(
            "score: {disabled: [{name: ImageLocality}], enabled: [{name: ImageLocality, weight: 5}]}",
            "TaintToleration=3 NodeAffinity=2 NodeResourcesFit=1 VolumeBinding=1 PodTopologySpread=2"
            " InterPodAffinity=2 DynamicResources=2 NodeResourcesBalancedAllocation=1 ImageLocality=5",
            id="the old way of changing a weight",
        ),
        pytest.param(
            'score: {disabled: [{name: "*"}], enabled: [{name: TaintToleration, weight: 10}, {name: ImageLocality}]}',
            "TaintToleration=10 ImageLocality=1",
            id="only these scores",
        ),
        pytest.param(
            'multiPoint: {disabled: [{name: "*"}], enabled: [{name: PrioritySort}, {name: DefaultBinder},'
            " {name: NodeResourcesFit, weight: 4}, {name: NodeAffinity, weight: 0}, {name: NodeName, weight: 2}]}",
            "NodeResourcesFit=4 NodeAffinity=1",
            id="only these plugins",
        ),
        pytest.param(
            "multiPoint: {disabled: [{name: PodTopologySpread}, {name: VolumeBinding}]}\n"
            "score: {enabled: [{name: PodTopologySpread, weight: 5}, {name: NodeResourcesFit, weight: 5}],"
            " disabled: [{name: NodeResourcesBalancedAllocation}]}",
            "NodeResourcesFit=5 TaintToleration=3 NodeAffinity=2 InterPodAffinity=2 DynamicResources=2"
            " ImageLocality=1 PodTopologySpread=5",
            id="a default for scores only",
        ),
    ],
)
def test_common_profiles_have_the_expected_scores(plugins: str, expected: str) -> None:
    body = "profiles:\n- plugins:\n" + "".join(f"    {line}\n" for line in plugins.splitlines())
    expansion = expand(parsed(body).settings.profiles[0], POINTS)
    assert " ".join(f"{name}={weight}" for name, weight in expansion[SCORE]) == expected


def test_every_profile_is_expanded_under_its_name() -> None:
    settings = parsed(
        """
        profiles:
        - schedulerName: a
        - schedulerName: b
          plugins: {score: {disabled: [{name: "*"}]}}
        """
    ).settings
    expansions = run_to_end(expand_in_steps(settings, POINTS))
    assert list(expansions) == ["a", "b"]
    assert len(expansions["a"][SCORE]) == 9
    assert expansions["b"][SCORE] == ()


def test_profiles_that_sort_the_queue_differently_are_refused() -> None:
    settings = parsed(
        """
        profiles:
        - schedulerName: a
        - schedulerName: b
          plugins: {queueSort: {enabled: [{name: Sort}], disabled: [{name: PrioritySort}]}}
        - schedulerName: c
          pluginConfig: [{name: PrioritySort, args: {oldest: first}}]
        - schedulerName: d
          plugins: {multiPoint: {disabled: [{name: DefaultBinder}]}}
        """
    ).settings
    with pytest.raises(ConfigurationError) as caught:
        run_to_end(expand_in_steps(settings, {**POINTS, **ABC}))
    assert [str(error) for error in caught.value.errors] == [
        "profiles[3].plugins.bind: at least one bind plugin is needed, found none",
        "profiles[1].plugins.queueSort: must be the same in all profiles, was Sort, but PrioritySort in profiles[0]",
        "profiles[2].pluginConfig[0].args: the arguments of PrioritySort must be those in profiles[0]: it sorts for all",
    ]


def test_the_same_queue_sort_may_be_enabled_in_two_ways() -> None:
    settings = parsed(
        """
        profiles:
        - schedulerName: a
        - schedulerName: b
          plugins: {queueSort: {enabled: [{name: PrioritySort}]}}
        """
    ).settings
    assert len(run_to_end(expand_in_steps(settings, POINTS))) == 2


def test_metrics_name_an_extension_point_as_kube_scheduler_does() -> None:
    assert [point.metric_name for point in ExtensionPoint] == [
        "PreEnqueue",
        "QueueSort",
        "PreFilter",
        "Filter",
        "PostFilter",
        "PodGroupPostFilter",
        "PreScore",
        "Score",
        "PlacementGenerate",
        "PlacementScore",
        "Reserve",
        "Permit",
        "PreBind",
        "Bind",
        "PostBind",
    ]


PREEMPTING = POINTS | {"CapacityScheduling": POINTS["DefaultPreemption"]}
NEW = "podGroupPostFilter: {enabled: [{name: CapacityScheduling}], disabled: [{name: '*'}]}"
REPLACED = "multiPoint: {enabled: [{name: CapacityScheduling}]}"
AT_POST_FILTER = "postFilter: {enabled: [{name: CapacityScheduling}], disabled: [{name: '*'}]}"


@pytest.mark.parametrize(
    ("version", "plugins", "expected"),
    [
        pytest.param("1.36", "", ["DefaultPreemption"], id="1.36, by default"),
        pytest.param("1.37", "", ["DefaultPreemption"], id="1.37, by default"),
        pytest.param("1.36", f"{REPLACED}, {AT_POST_FILTER}", ["CapacityScheduling"], id="1.36, replaced"),
        pytest.param("1.37", f"{REPLACED}, {AT_POST_FILTER}", ["CapacityScheduling"], id="1.37, replaced"),
        pytest.param("1.37", f"{REPLACED}, {NEW}", ["CapacityScheduling"], id="1.37, replaced at the point"),
        pytest.param("1.37", REPLACED, ["DefaultPreemption", "CapacityScheduling"], id="1.37, in addition"),
        pytest.param("1.37", "podGroupPostFilter: {disabled: [{name: '*'}]}", [], id="1.37, disabled"),
    ],
)
def test_groups_preempt_by_the_plugins_of_their_point_or_else_of_post_filter(
    version: str, plugins: str, expected: list[str]
) -> None:
    settings = parsed(f"emulatedVersion: '{version}'\nprofiles: [{{plugins: {{{plugins}}}}}]").settings
    (expansion,) = run_to_end(expand_in_steps(settings, PREEMPTING)).values()

    assert [each.name for each in expansion[ExtensionPoint.POD_GROUP_POST_FILTER]] == expected


def test_a_point_that_a_version_does_not_have_is_an_unknown_field() -> None:
    settings = parsed(f"emulatedVersion: '1.36'\nprofiles: [{{plugins: {{{NEW}}}}}]").settings
    with pytest.raises(ConfigurationError) as raised:
        run_to_end(expand_in_steps(settings, PREEMPTING))

    found = [str(each) for each in raised.value.errors]
    assert found == ['profiles[0].plugins.podGroupPostFilter: unknown field, did you mean "postFilter"?']
