"""Configurations of v1beta3 and earlier, converted: properties of all of them, and removed fields."""

from __future__ import annotations

import pytest

from scheduler.configuration.load import parse
from scheduler.configuration.versions.steps import NO_SERVICE_AFFINITY
from scheduler.configuration.write import converted_yaml
from scheduler.framework.interface import ExtensionPoint
from tests.unit.configuration.documents import messages_of
from tests.unit.configuration.old_versions import (
    BEFORE_V1BETA3,
    GROUP,
    VERSIONS,
    args_of,
    faults_of,
    head_of,
    names_at,
    noted,
    of,
)


def test_an_unknown_version_is_reported_with_the_accepted_ones() -> None:
    (reported,) = messages_of(f"apiVersion: {GROUP}/v2\nkind: KubeSchedulerConfiguration")

    assert reported == (
        "apiVersion: must be kubescheduler.config.k8s.io/v1, or one of v1beta3, v1beta2, v1beta1, v1alpha2, v1alpha1 "
        'there, which are converted, or v1 of a Policy, was "kubescheduler.config.k8s.io/v2"'
    )


def test_arguments_may_name_their_original_version() -> None:
    for version in VERSIONS[1:]:
        configuration = of(
            version,
            f"""
            profiles:
            - pluginConfig:
              - name: InterPodAffinity
                args: {{apiVersion: {GROUP}/{version}, kind: InterPodAffinityArgs, hardPodAffinityWeight: 7}}
            """,
        )
        assert args_of(configuration, "InterPodAffinity")["apiVersion"] == f"{GROUP}/v1"
        assert args_of(configuration, "InterPodAffinity")["hardPodAffinityWeight"] == 7


@pytest.mark.parametrize("version", BEFORE_V1BETA3)
def test_addresses_without_tls_are_flags_now(version: str) -> None:
    configuration = of(version, "healthzBindAddress: 0.0.0.0:10251\nmetricsBindAddress: ''")
    assert configuration == of(version, "")
    assert list(noted(configuration)) == ["healthzBindAddress"]
    assert "--http-port" in noted(configuration)["healthzBindAddress"]


@pytest.mark.parametrize("version", ["v1beta3", "v1"])
def test_addresses_of_a_version_without_them_are_refused(version: str) -> None:
    (reported,) = faults_of(version, "healthzBindAddress: 0.0.0.0:10251")
    assert reported.startswith(
        "healthzBindAddress: unknown field: was removed after v1beta2, use --bind-address"
    )


@pytest.mark.parametrize("lock", ["endpoints", "configmaps", "endpointsleases", "configmapsleases"])
def test_old_locks_became_a_lease(lock: str) -> None:
    configuration = of("v1beta2", f"leaderElection: {{resourceLock: {lock}, leaseDuration: 20s}}")
    assert configuration.settings.leader_election.resource_lock == "leases"
    assert str(configuration.settings.leader_election.lease_duration) == "20s"
    assert list(noted(configuration)) == ["leaderElection.resourceLock"]


def test_an_unknown_lock_is_refused() -> None:
    assert faults_of("v1beta2", "leaderElection: {resourceLock: lease}") == [
        'leaderElection.resourceLock: must be "leases", was "lease"'
    ]


@pytest.mark.parametrize(
    ("version", "body", "expected"),
    [
        pytest.param(
            "v1beta2",
            "profiles: [{plugins: {multiPoint: {enabled: [{name: X}]}}}]",
            "profiles[0].plugins.multiPoint: came with v1beta3: list the plugins at each extension point",
            id="multiPoint",
        ),
        pytest.param(
            "v1beta3",
            "profiles: [{percentageOfNodesToScore: 3}]",
            "profiles[0].percentageOfNodesToScore: of a profile came with v1",
            id="percentage of a profile",
        ),
        pytest.param(
            "v1alpha1",
            "profiles: [{schedulerName: a}]",
            "profiles: came with v1alpha2: v1alpha1 has schedulerName, plugins, pluginConfig",
            id="profiles",
        ),
    ],
)
def test_fields_of_later_versions_are_refused(version: str, body: str, expected: str) -> None:
    assert faults_of(version, body) == [expected]


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2"])
def test_preemption_may_be_switched_off_for_all(version: str) -> None:
    configuration = of(version, "disablePreemption: true")
    assert "DefaultPreemption" not in names_at(configuration, ExtensionPoint.POST_FILTER)
    assert of(version, "disablePreemption: false") == of(version, "")


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2"])
def test_the_time_for_volumes_became_an_argument(version: str) -> None:
    assert args_of(of(version, "bindTimeoutSeconds: 30"), "VolumeBinding") == {"bindTimeoutSeconds": 30}
    assert faults_of(version, "bindTimeoutSeconds: -1") == [
        f"bindTimeoutSeconds: must be an integer from 0 to {2**63 - 1}, was -1"
    ]


def test_null_arguments_give_way_to_those_of_converted_fields() -> None:
    configuration = of("v1alpha2", "bindTimeoutSeconds: 30\nprofiles: [{pluginConfig: null, plugins: null}]")

    assert args_of(configuration, "VolumeBinding") == {"bindTimeoutSeconds": 30}


def test_a_value_of_a_wrong_type_is_refused_though_converted_fields_join_it() -> None:
    assert faults_of("v1beta1", "disablePreemption: true\nprofiles: [{plugins: 5}]") == [
        "profiles[0].plugins: must be a mapping, was 5"
    ]


def test_unreserve_plugins_run_at_reserve() -> None:
    configuration = of(
        "v1alpha2",
        """
        profiles:
        - plugins:
            reserve: {enabled: [{name: mine.py}]}
            unreserve: {enabled: [{name: mine.py}, {name: theirs.py}, {name: VolumeBinding}]}
        """,
    )
    reserve = configuration.settings.profiles[0].plugins.reserve
    assert [plugin.name for plugin in reserve.enabled] == ["mine.py", "theirs.py"]


def test_v1alpha1_is_one_profile() -> None:
    configuration = of(
        "v1alpha1",
        """
        schedulerName: mine
        hardPodAffinitySymmetricWeight: 40
        algorithmSource: {provider: DefaultProvider}
        leaderElection: {lockObjectNamespace: ns, lockObjectName: lock}
        plugins:
          postFilter: {enabled: [{name: early.py}]}
          filter: {disabled: [{name: NodePorts}]}
        """,
    )
    (profile,) = configuration.settings.profiles
    assert profile.scheduler_name == "mine"
    assert [plugin.name for plugin in profile.plugins.pre_score.enabled] == ["early.py"]
    assert profile.plugins.post_filter.enabled == ()
    assert "NodePorts" in [plugin.name for plugin in profile.plugins.filter.disabled]
    assert args_of(configuration, "InterPodAffinity")["hardPodAffinityWeight"] == 40
    election = configuration.settings.leader_election
    assert (election.resource_namespace, election.resource_name) == ("ns", "lock")


def test_a_lock_with_two_names_is_refused() -> None:
    assert faults_of("v1alpha1", "leaderElection: {lockObjectName: a, resourceName: b}") == [
        'leaderElection.lockObjectName: must be resourceName, "b", or be left out, was "a"'
    ]
    assert of("v1alpha1", "leaderElection: {lockObjectName: a, resourceName: a}")


def test_errors_have_their_place_in_the_file() -> None:
    assert faults_of(
        "v1alpha1",
        """
        paralelism: 3
        hardPodAffinitySymmetricWeight: 101
        plugins:
          postFilter: {enabled: [{name: A, weight: x}]}
          filter: {disabled: [{name: ServiceAffinity}, {nam: B}], enabled: [{name: ServiceAffinity}]}
        pluginConfig: [{name: C, arg: {}}]
        """,
    ) == [
        "hardPodAffinitySymmetricWeight: must be an integer from 0 to 100, was 101",
        f'plugins.filter.enabled[0].name: "ServiceAffinity" was removed, {NO_SERVICE_AFFINITY}',
        'paralelism: unknown field, did you mean "parallelism"?',
        'plugins.filter.disabled[1].nam: unknown field, did you mean "name"?',
        'plugins.postFilter.enabled[0].weight: must be an integer, was "x"',
        'pluginConfig[0].arg: unknown field, did you mean "args"?',
        "plugins.filter.disabled[1].name: is missing",
    ]


def test_a_path_in_the_settings_is_found_in_the_file() -> None:
    configuration = of(
        "v1alpha1",
        """
        algorithmSource: {provider: DefaultProvider}
        plugins: {score: {disabled: [{name: "*"}], enabled: [{name: RequestedToCapacityRatio}]}}
        pluginConfig: [{name: RequestedToCapacityRatio, args: {shape: [{Utilization: 1, Score: 2}]}}]
        """,
    )
    path = "profiles[0].pluginConfig[0].args.scoringStrategy.requestedToCapacityRatio"
    assert configuration.place(path) == "pluginConfig[0].args.requestedToCapacityRatio"
    assert configuration.place("profiles[0].schedulerName") == "schedulerName"
    assert configuration.place("profiles[0].pluginConfig[9].args") == "pluginConfig[9].args"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "body",
    [
        "profiles: 3",
        "profiles: [3, null]",
        "profiles: [{plugins: 3}]",
        "profiles: [{plugins: {score: 3, filter: {enabled: 3, disabled: [3, {name: 3}]}}}]",
        "profiles: [{pluginConfig: 3}]",
        "profiles: [{pluginConfig: [3, {name: NodeResourcesLeastAllocated, args: 3}]}]",
        "plugins: 3",
        "plugins: {postFilter: 3, unreserve: 3}",
        "pluginConfig: {a: 3}",
        "leaderElection: 3",
        "algorithmSource: 3",
        "extenders: 3",
    ],
)
def test_a_value_of_a_wrong_type_is_an_error_of_the_file(version: str, body: str) -> None:
    assert all(": " in reported for reported in faults_of(version, body))


SAMPLES = {
    "v1beta3": "profiles: [{plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: PrioritySort}, {name: SelectorSpread}, {name: DefaultBinder}]}}}]",
    "v1beta2": "profiles: [{schedulerName: a}, {schedulerName: b, plugins: {score: {disabled: [{name: '*'}]}}}]",
    "v1beta1": "profiles: [{plugins: {score: {disabled: [{name: NodeResourcesLeastAllocated}]}}}]\nextenders: [{urlPrefix: 'http://a', httpTimeout: 2s}]",
    "v1alpha2": "bindTimeoutSeconds: 5\ndisablePreemption: true",
    "v1alpha1": "algorithmSource: {provider: ClusterAutoscalerProvider}\nhardPodAffinitySymmetricWeight: 3",
}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_converted_form_means_the_same(version: str) -> None:
    configuration = of(version, SAMPLES[version])

    again = parse(converted_yaml(configuration))

    assert again == configuration
    assert again.api_version == f"{GROUP}/v1"
    assert configuration.api_version == f"{GROUP}/{version}"


def test_the_converted_form_has_only_the_settings_of_the_file() -> None:
    body = "parallelism: 3\nprofiles:\n- schedulerName: a\n"
    assert converted_yaml(of("v1beta3", body)) == head_of("v1") + body
