"""The Policy object, converted to plugins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.configuration.load import Configuration, parse
from scheduler.configuration.versions.policy import PREDICATES, PRIORITIES, TAINTED
from scheduler.configuration.write import converted_yaml
from scheduler.framework.interface import ExtensionPoint
from tests.unit.configuration.documents import messages_of
from tests.unit.configuration.old_versions import args_of, names_at, noted, weights_of

# Defined by their argument.
UNDER_ANY_NAME = {"RequestedToCapacityRatio", "RequestedToCapacityRatioPriority"}
ALWAYS = ["NodeUnschedulable", "TaintToleration"]
LATER = {"DynamicResources", "NodeDeclaredFeatures"}  # run by default, for pods that use them


def text_of(**fields: Any) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "Policy", **fields})


def policy(**fields: Any) -> Configuration:
    return parse(text_of(**fields))


def faults(**fields: Any) -> list[str]:
    return messages_of(text_of(**fields))


def predicates(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def priorities(**weights: int) -> list[dict[str, Any]]:
    return [{"name": name, "weight": weight} for name, weight in weights.items()]


def filters_of(configuration: Configuration) -> list[str]:
    return [name for name in names_at(configuration, ExtensionPoint.FILTER) if name not in LATER]


def scores_of(configuration: Configuration) -> dict[str, int]:
    return {name: weight for name, weight in weights_of(configuration).items() if name not in LATER}


# The predicates and priorities of these releases, and the plugins: kube-scheduler v1.22,
# pkg/scheduler/apis/config/testing/compatibility_test.go; without those that have no replacement.
EARLY = ["MatchNodeSelector", "PodFitsResources", "PodFitsPorts", "NoDiskConflict"]
OF_1_3 = [
    "MatchNodeSelector",
    "PodFitsResources",
    "PodFitsHostPorts",
    "HostName",
    "NoDiskConflict",
    "NoVolumeZoneConflict",
    "PodToleratesNodeTaints",
    "MaxEBSVolumeCount",
    "MaxGCEPDVolumeCount",
    "MaxAzureDiskVolumeCount",
    "MatchInterPodAffinity",
]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param([], ALWAYS, id="none but those that cannot be left out"),
        pytest.param(
            ["GeneralPredicates"],
            [
                "NodeUnschedulable",
                "NodeResourcesFit",
                "NodeName",
                "NodePorts",
                "NodeAffinity",
                "TaintToleration",
            ],
            id="general",
        ),
        pytest.param(
            EARLY,
            [
                "NodeUnschedulable",
                "NodePorts",
                "NodeAffinity",
                "NodeResourcesFit",
                "VolumeRestrictions",
                "TaintToleration",
            ],
            id="1.0",
        ),
        pytest.param(
            OF_1_3,
            [
                "NodeUnschedulable",
                "NodeName",
                "NodePorts",
                "NodeAffinity",
                "NodeResourcesFit",
                "VolumeRestrictions",
                "TaintToleration",
                "NodeVolumeLimits",
                "VolumeZone",
                "InterPodAffinity",
            ],
            id="1.3",
        ),
    ],
)
def test_predicates_are_filters_in_their_original_order(names: list[str], expected: list[str]) -> None:
    configuration = policy(predicates=predicates(*names), priorities=[])
    assert filters_of(configuration) == expected
    assert scores_of(configuration) == {}


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        pytest.param(
            {"LeastRequestedPriority": 1, "ServiceSpreadingPriority": 2},
            {"NodeResourcesFit": 1, "PodTopologySpread": 2},
            id="1.0",
        ),
        pytest.param(
            {
                "EqualPriority": 2,
                "ImageLocalityPriority": 2,
                "LeastRequestedPriority": 2,
                "BalancedResourceAllocation": 2,
                "SelectorSpreadPriority": 2,
                "NodeAffinityPriority": 2,
                "TaintTolerationPriority": 2,
                "InterPodAffinityPriority": 2,
            },
            {
                "NodeResourcesBalancedAllocation": 2,
                "ImageLocality": 2,
                "InterPodAffinity": 2,
                "NodeResourcesFit": 2,
                "NodeAffinity": 2,
                "PodTopologySpread": 2,
                "TaintToleration": 2,
            },
            id="1.3",
        ),
        pytest.param(
            {"SelectorSpreadPriority": 5, "EvenPodsSpreadPriority": 3}, {"PodTopologySpread": 5}, id="the larger"
        ),
    ],
)  # fmt: skip
def test_priorities_are_scores_with_their_weights(weights: dict[str, int], expected: dict[str, int]) -> None:
    configuration = policy(predicates=[], priorities=priorities(**weights))
    assert scores_of(configuration) == expected
    assert filters_of(configuration) == ALWAYS


def test_priorities_do_not_filter_and_predicates_do_not_score() -> None:
    configuration = policy(
        predicates=predicates("PodFitsResources", "MatchInterPodAffinity"),
        priorities=priorities(NodeAffinityPriority=3, InterPodAffinityPriority=4),
    )
    assert filters_of(configuration) == [
        "NodeUnschedulable",
        "NodeResourcesFit",
        "TaintToleration",
        "InterPodAffinity",
    ]
    assert scores_of(configuration) == {"NodeAffinity": 3, "InterPodAffinity": 4}
    assert "NodeAffinity" not in names_at(configuration, ExtensionPoint.PRE_FILTER)
    assert "NodeResourcesFit" not in names_at(configuration, ExtensionPoint.PRE_SCORE)
    assert "NodeAffinity" in names_at(configuration, ExtensionPoint.PRE_SCORE)


def test_without_predicates_and_priorities_there_are_the_default_ones() -> None:
    configuration = policy()
    assert filters_of(configuration) == [
        "NodeUnschedulable",
        "NodeResourcesFit",
        "NodeName",
        "NodePorts",
        "NodeAffinity",
        "VolumeRestrictions",
        "TaintToleration",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
    ]
    assert scores_of(configuration) == {
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
        "InterPodAffinity": 1,
        "NodeResourcesFit": 1,
        "NodeAffinity": 1,
        "PodTopologySpread": 2,
        "TaintToleration": 1,
    }
    assert args_of(configuration, "PodTopologySpread") == {"defaultingType": "System"}
    assert policy(predicates=None, priorities=None) == configuration


def test_the_other_extension_points_use_the_default_plugins() -> None:
    configuration = policy(predicates=[], priorities=[])
    assert names_at(configuration, ExtensionPoint.QUEUE_SORT) == ["PrioritySort"]
    assert names_at(configuration, ExtensionPoint.BIND) == ["DefaultBinder"]
    assert "DefaultPreemption" in names_at(configuration, ExtensionPoint.POST_FILTER)
    assert "SchedulingGates" in names_at(configuration, ExtensionPoint.PRE_ENQUEUE)
    assert names_at(configuration, ExtensionPoint.FILTER) == [
        *ALWAYS,
        "DynamicResources",
        "NodeDeclaredFeatures",
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["SelectorSpreadPriority"], "System"),
        (["EvenPodsSpreadPriority"], "List"),
        (["EvenPodsSpreadPriority", "SelectorSpreadPriority"], "System"),
    ],
)
def test_only_selector_spreading_spreads_pods_without_constraints(names: list[str], expected: str) -> None:
    configuration = policy(predicates=[], priorities=priorities(**dict.fromkeys(names, 1)))
    assert args_of(configuration, "PodTopologySpread") == {"defaultingType": expected}


def test_most_requested_became_a_strategy() -> None:
    configuration = policy(priorities=priorities(MostRequestedPriority=7))
    assert scores_of(configuration) == {"NodeResourcesFit": 7}
    assert args_of(configuration, "NodeResourcesFit")["scoringStrategy"]["type"] == "MostAllocated"


def test_a_custom_ratio_became_a_strategy() -> None:
    arguments = {
        "shape": [{"utilization": 0, "score": 0}, {"Utilization": 100, "Score": 10}],
        "resources": [{"name": "intel.com/foo", "weight": 3}],
    }
    configuration = policy(
        priorities=[
            {
                "name": "RequestedToCapacityRatioPriority",
                "weight": 2,
                "argument": {"requestedToCapacityRatioArguments": arguments},
            }
        ]
    )
    assert scores_of(configuration) == {"NodeResourcesFit": 2}
    assert args_of(configuration, "NodeResourcesFit")["scoringStrategy"] == {
        "type": "RequestedToCapacityRatio",
        "resources": [{"name": "intel.com/foo", "weight": 3}],
        "requestedToCapacityRatio": {
            "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
        },
    }


def test_required_node_labels_became_an_added_affinity() -> None:
    configuration = policy(
        predicates=[
            {"name": "GeneralPredicates"},
            {"name": "Ssd", "argument": {"labelsPresence": {"labels": ["ssd"], "presence": True}}},
            {"name": "Old", "argument": {"labelsPresence": {"labels": ["retiring"], "presence": False}}},
        ]
    )
    added = args_of(configuration, "NodeAffinity")["addedAffinity"]
    assert added["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [
        {
            "matchExpressions": [
                {"key": "ssd", "operator": "Exists"},
                {"key": "retiring", "operator": "DoesNotExist"},
            ]
        }
    ]
    assert not noted(configuration)


def test_label_predicates_also_enable_node_selectors_with_a_note() -> None:
    configuration = policy(
        predicates=[{"name": "Ssd", "argument": {"labelsPresence": {"labels": ["ssd"], "presence": True}}}]
    )
    assert filters_of(configuration) == ["NodeUnschedulable", "TaintToleration", "NodeAffinity"]
    assert "nodeSelector" in noted(configuration)["predicates"]


@pytest.mark.parametrize(("weight", "expected"), [(0, 1), (1, 1), (100, 100)])
def test_the_weight_of_hard_affinity_became_an_argument(weight: int, expected: int) -> None:
    configuration = policy(hardPodAffinitySymmetricWeight=weight)
    assert args_of(configuration, "InterPodAffinity")["hardPodAffinityWeight"] == expected


def test_a_weight_of_hard_affinity_without_a_plugin_has_no_effect() -> None:
    configuration = policy(predicates=[], priorities=[], hardPodAffinitySymmetricWeight=5)
    assert args_of(configuration, "InterPodAffinity") == {}


def test_predicates_about_conditions_are_taints_now() -> None:
    configuration = policy(predicates=predicates("CheckNodeMemoryPressure"), priorities=[])
    assert filters_of(configuration) == ALWAYS
    assert list(noted(configuration)) == ["predicates[0]"]


def test_always_checking_all_predicates_has_no_effect_and_a_note() -> None:
    assert list(noted(policy(alwaysCheckAllPredicates=True))) == ["alwaysCheckAllPredicates"]
    assert not policy(alwaysCheckAllPredicates=False).notes


def test_extenders_become_those_of_a_configuration() -> None:
    (extender,) = policy(
        extenders=[
            {
                "urlPrefix": "http://127.0.0.1:8888/scheduler",
                "filterVerb": "predicates",
                "prioritizeVerb": "priorities",
                "weight": 3,
                "BindVerb": "bind",
                "enableHttps": True,
                "httpTimeout": 3_000_000_000,
                "nodeCacheCapable": True,
                "managedResources": [{"name": "example.com/gpu", "ignoredByScheduler": True}],
                "ignorable": True,
                "tlsConfig": {"Insecure": True, "ServerName": "me", "CAFile": ""},
            }
        ]
    ).settings.extenders
    assert (extender.bind_verb, extender.weight, extender.enable_https) == ("bind", 3, True)
    assert str(extender.http_timeout) == "3s"
    assert extender.tls_config is not None
    assert (extender.tls_config.insecure, extender.tls_config.server_name) == (True, "me")
    assert (extender.managed_resources[0].name, extender.ignorable) == ("example.com/gpu", True)


@pytest.mark.parametrize(("timeout", "expected"), [(1_500_000_000, "1.5s"), ("250ms", "250ms"), (0, "5s")])
def test_a_timeout_is_in_nanoseconds_or_names_its_unit(timeout: object, expected: str) -> None:
    (extender,) = policy(extenders=[{"urlPrefix": "http://a", "httpTimeout": timeout}]).settings.extenders
    assert str(extender.http_timeout) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param(
            {"predicates": predicates("PodFitsResource")},
            'predicates[0].name: no predicate "PodFitsResource" is known, did you mean "PodFitsResources"?',
            id="an unknown predicate",
        ),
        pytest.param(
            {"priorities": priorities(LeastRequested=1)},
            'priorities[0].name: no priority "LeastRequested" is known, did you mean "LeastRequestedPriority"?',
            id="an unknown priority",
        ),
        pytest.param(
            {"priorities": [{"name": "LeastRequestedPriority"}]},
            "priorities[0].weight: is missing",
            id="no weight",
        ),
        pytest.param(
            {"priorities": priorities(LeastRequestedPriority=0)},
            "priorities[0].weight: must be at least 1, was 0",
            id="a weight of 0",
        ),
        pytest.param(
            {"priorities": priorities(LeastRequestedPriority=1, MostRequestedPriority=1)},
            "priorities[1]: MostRequestedPriority cannot score beside LeastRequestedPriority: one strategy scores "
            "resources now, leave out one",
            id="two strategies",
        ),
        pytest.param(
            {"priorities": priorities(NodePreferAvoidPodsPriority=10000)},
            'priorities[0].name: "NodePreferAvoidPodsPriority" was removed, use a taint with the effect '
            "PreferNoSchedule on the nodes",
            id="annotations",
        ),
        pytest.param(
            {"predicates": [{"name": "A", "argument": {"serviceAffinity": {"labels": ["zone"]}}}]},
            "predicates[0].argument.serviceAffinity: was removed, use podAffinity or podAntiAffinity in the pods, "
            "which InterPodAffinity follows",
            id="service affinity",
        ),
        pytest.param(
            {"priorities": [{"name": "A", "weight": 1, "argument": {"labelPreference": {"label": "a"}}}]},
            "priorities[0].argument.labelPreference: was removed, use addedAffinity."
            "preferredDuringSchedulingIgnoredDuringExecution of NodeAffinity's arguments",
            id="a preferred label",
        ),
        pytest.param(
            {"predicates": [{"name": "A", "argument": {}}]},
            "predicates[0].argument: must have either serviceAffinity or labelsPresence",
            id="an empty argument",
        ),
        pytest.param(
            {"priorities": [{"name": "A", "weight": 1, "argument": {}}]},
            "priorities[0].argument: must have one of serviceAntiAffinity, labelPreference and "
            "requestedToCapacityRatioArguments",
            id="an empty argument of a priority",
        ),
        pytest.param(
            {"priorities": priorities(RequestedToCapacityRatioPriority=1)},
            "priorities[0].argument: is missing: requestedToCapacityRatioArguments defines the score",
            id="a ratio without resources",
        ),
        pytest.param(
            {"hardPodAffinitySymmetricWeight": 101},
            "hardPodAffinitySymmetricWeight: must be 0 to 100, was 101",
            id="a weight out of range",
        ),
        pytest.param(
            {"extenders": [{"urlPrefix": "http://a", "filterverbs": "x"}]},
            'extenders[0].filterverbs: unknown field, did you mean "filterVerb"?',
            id="an unknown field of an extender",
        ),
        pytest.param(
            {"extenders": [{"urlPrefix": "http://a", "prioritizeVerb": "p"}]},
            "extenders[0].weight: must be at least 1 for an extender with a prioritizeVerb, was 0",
            id="an extender that ranks without a weight",
        ),
        pytest.param({"predicate": []}, 'predicate: unknown field, did you mean "predicates"?', id="unknown"),
        pytest.param({"predicates": 3}, "predicates: must be a list, was 3", id="no list"),
    ],
)
def test_a_setting_without_an_equivalent_is_refused(fields: dict[str, Any], expected: str) -> None:
    assert faults(**fields) == [expected]


def test_all_errors_are_reported_at_once() -> None:
    found = faults(predicates=predicates("A", "HostName", "B"), priorities=priorities(C=1), extender=[])
    assert [reported.partition(":")[0] for reported in found] == [
        "extender",
        "predicates[0].name",
        "predicates[2].name",
        "priorities[0].name",
    ]


def test_the_converted_form_means_the_same() -> None:
    configuration = policy(
        predicates=predicates(*PREDICATES.keys() - {"CheckNodeLabelPresence"}),
        priorities=priorities(EvenPodsSpreadPriority=3, MostRequestedPriority=1),
        extenders=[{"urlPrefix": "http://a", "enableHttps": False, "httpTimeout": 7}],
        hardPodAffinitySymmetricWeight=3,
    )
    assert parse(converted_yaml(configuration)) == configuration


def test_a_policy_may_be_yaml() -> None:
    text = "apiVersion: v1\nkind: Policy\npredicates:\n- name: HostName\npriorities: []\n"
    assert parse(text) == policy(predicates=predicates("HostName"), priorities=[])


@pytest.mark.parametrize("name", sorted({*PREDICATES, *TAINTED, *PRIORITIES} - UNDER_ANY_NAME))
def test_every_predicate_and_priority_is_explained(name: str) -> None:
    assert name in (Path(__file__).parents[3] / "docs" / "configuration-versions.md").read_text()
