"""Providers and policies of a v1alpha1 configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from scheduler.configuration.load import parse
from scheduler.configuration.versions.algorithm_source import PolicyConfigMap, PolicyMissingError
from scheduler.framework.interface import ExtensionPoint
from tests.unit.configuration.old_versions import args_of, faults_of, head_of, names_at, noted, of, weights_of

if TYPE_CHECKING:
    from pathlib import Path

HEAD = head_of("v1alpha1")
POLICY = {
    "kind": "Policy",
    "apiVersion": "v1",
    "predicates": [{"name": "HostName"}],
    "priorities": [{"name": "MostRequestedPriority", "weight": 4}],
    "extenders": [{"urlPrefix": "http://a", "filterVerb": "f"}],
}
FILE = "schedulerName: mine\nalgorithmSource: {policy: {file: {path: policy.json}}}\n"
CONFIG_MAP = "algorithmSource: {policy: {configMap: {namespace: kube-system, name: rules}}}\n"
NAMED = PolicyConfigMap("kube-system", "rules")


def test_the_default_provider_equals_no_provider() -> None:
    assert of("v1alpha1", "algorithmSource: {provider: DefaultProvider}") == of("v1alpha1", "")


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2"])
def test_the_provider_for_autoscaled_clusters_packs_nodes(version: str) -> None:
    configuration = of(version, "algorithmSource: {provider: ClusterAutoscalerProvider}")
    least = of(version, "")
    assert weights_of(configuration) == weights_of(least)
    assert args_of(configuration, "NodeResourcesFit")["scoringStrategy"]["type"] == "MostAllocated"
    assert args_of(least, "NodeResourcesFit")["scoringStrategy"]["type"] == "LeastAllocated"


def test_plugins_of_a_provider_can_be_disabled() -> None:
    configuration = of(
        "v1alpha1",
        """
        algorithmSource: {provider: ClusterAutoscalerProvider}
        plugins: {score: {disabled: [{name: NodeResourcesMostAllocated}]}}
        """,
    )
    assert "NodeResourcesFit" not in weights_of(configuration)


def test_an_unknown_provider_is_refused() -> None:
    assert faults_of("v1alpha1", "algorithmSource: {provider: DefaultProvder}") == [
        (
            "algorithmSource.provider: must be DefaultProvider or ClusterAutoscalerProvider, was "
            '"DefaultProvder", did you mean "DefaultProvider"?'
        )
    ]


@pytest.mark.parametrize(
    "text", [json.dumps(POLICY), json.dumps({**POLICY, "kind": None, "apiVersion": None})]
)
def test_a_policy_in_a_file_selects_the_plugins(tmp_path: Path, text: str) -> None:
    (tmp_path / "policy.json").write_text(text)

    configuration = parse(HEAD + FILE, folder=tmp_path)

    (profile,) = configuration.settings.profiles
    assert profile.scheduler_name == "mine"
    assert {"NodeName", "TaintToleration"} <= set(names_at(configuration, ExtensionPoint.FILTER))
    assert "NodeAffinity" not in names_at(configuration, ExtensionPoint.FILTER)
    assert weights_of(configuration)["NodeResourcesFit"] == 4
    assert args_of(configuration, "NodeResourcesFit")["scoringStrategy"]["type"] == "MostAllocated"
    assert [extender.url_prefix for extender in configuration.settings.extenders] == ["http://a"]
    assert configuration.files == (tmp_path / "policy.json",)


def test_fields_of_the_configuration_apply_beside_a_policy(tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text(json.dumps({}))
    more = "hardPodAffinitySymmetricWeight: 9\nbindTimeoutSeconds: 8\ndisablePreemption: true\n"

    configuration = parse(HEAD + FILE + more, folder=tmp_path)

    assert args_of(configuration, "InterPodAffinity")["hardPodAffinityWeight"] == 9
    assert args_of(configuration, "VolumeBinding")["bindTimeoutSeconds"] == 8
    assert "DefaultPreemption" not in names_at(configuration, ExtensionPoint.POST_FILTER)


def test_the_own_weight_of_a_policy_takes_precedence(tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text(json.dumps({"hardPodAffinitySymmetricWeight": 3}))
    configuration = parse(f"{HEAD}{FILE}hardPodAffinitySymmetricWeight: 9", folder=tmp_path)
    assert args_of(configuration, "InterPodAffinity")["hardPodAffinityWeight"] == 3


def test_plugins_beside_a_policy_are_refused(tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text(json.dumps(POLICY))
    more = "plugins: {score: {}}\npluginConfig: [{name: NodeAffinity}]\n"
    assert faults_of("v1alpha1", FILE + more, folder=tmp_path) == [
        "plugins: cannot be set beside a policy, which selects the plugins",
        "pluginConfig: cannot be set beside a policy, which selects the plugins",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('{"predicates": [{"name": "A"}]}', 'predicates[0].name: no predicate "A" is known', id="a fault"),
        pytest.param("[1]", "must be a mapping, was a list", id="a list"),
        pytest.param("", "must be a mapping, was null", id="empty"),
        pytest.param("{", "line 1, column 2: not YAML: expected the node content, but found '<stream end>'", id="no YAML"),
        pytest.param("kind: Polizy", 'kind: must be Policy, was "Polizy"', id="another kind"),
    ],
)  # fmt: skip
def test_errors_of_a_policy_name_its_file(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "policy.json").write_text(text)
    assert faults_of("v1alpha1", FILE, folder=tmp_path) == [
        f"algorithmSource.policy.file.path: {tmp_path / 'policy.json'}: {expected}"
    ]


def test_notes_of_a_policy_name_its_file(tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text('{"alwaysCheckAllPredicates": true}')
    reported = noted(of("v1alpha1", FILE, folder=tmp_path))["algorithmSource.policy.file.path"]
    assert "policy.json: alwaysCheckAllPredicates: has no effect" in reported


def test_a_missing_policy_is_an_error_among_others(tmp_path: Path) -> None:
    assert faults_of("v1alpha1", f"{FILE}parallelism: 0\n", folder=tmp_path) == [
        f"algorithmSource.policy.file.path: {tmp_path / 'policy.json'} cannot be read: No such file or directory",
        "parallelism: must be at least 1, was 0",
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "{provider: DefaultProvider, policy: {file: {path: x}}}",
            "algorithmSource: has a provider and a policy",
        ),
        ("{policy: {}}", "algorithmSource.policy: must have either file or configMap"),
        (
            "{policy: {file: {path: a}, configMap: {name: a}}}",
            "algorithmSource.policy: must have either file or",
        ),
        ("{policy: {file: {}}}", "algorithmSource.policy.file.path: is missing"),
        (
            "{policy: {configMap: {name: a}}}",
            "algorithmSource.policy.configMap: needs a namespace and a name",
        ),
        ("{polizy: {}}", 'algorithmSource.polizy: unknown field, did you mean "policy"?'),
    ],
)
def test_an_invalid_source_is_refused(source: str, expected: str) -> None:
    assert faults_of("v1alpha1", f"algorithmSource: {source}")[0].startswith(expected)


def test_a_policy_in_a_config_map_is_passed_from_outside() -> None:
    configuration = of("v1alpha1", CONFIG_MAP, policies={NAMED: json.dumps(POLICY)})
    assert weights_of(configuration)["NodeResourcesFit"] == 4


def test_without_the_policy_the_error_names_it_and_how_to_connect() -> None:
    body = f"{CONFIG_MAP}clientConnection: {{kubeconfig: /k}}\nparallelism: 0\n"
    with pytest.raises(PolicyMissingError) as caught:
        of("v1alpha1", body)
    assert (caught.value.config_map, caught.value.kubeconfig) == (NAMED, "/k")
    assert [str(error) for error in caught.value.errors] == [
        "parallelism: must be at least 1, was 0",
        (
            "algorithmSource.policy.configMap: the policy in ConfigMap kube-system/rules was not read: that needs the "
            "cluster, at startup"
        ),
    ]


@pytest.mark.parametrize("version", ["v1beta1", "v1"])
def test_later_versions_have_no_algorithm_source(version: str) -> None:
    assert faults_of(version, "algorithmSource: {provider: DefaultProvider}") == [
        (
            "algorithmSource: unknown field: was removed after v1alpha1; `check --convert` makes profiles of a file of "
            "that version"
        )
    ]
