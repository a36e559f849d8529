"""Files are loaded with all defaults; and the two fields for nodes whose kubelets reject pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scheduler.configuration.defaults import DEFAULT_ARGS, DEFAULT_PLUGINS, with_default_args
from scheduler.configuration.load import default, load, parse
from scheduler.configuration.notes import ConfigurationNote
from scheduler.configuration.types import LeaderElection, Plugin
from scheduler.errors import ConfigurationError
from scheduler.objects.wording import Duration
from tests.unit.configuration.documents import HEAD, parsed


def test_without_a_file_there_is_one_profile_with_the_default_plugins() -> None:
    (profile,) = default().settings.profiles
    assert profile.scheduler_name == "custom-scheduler"
    assert profile.plugins == DEFAULT_PLUGINS
    assert {config.name: config.args for config in profile.plugin_config} == DEFAULT_ARGS


def test_the_only_profile_may_be_given_another_default_name() -> None:
    assert default("default-scheduler").settings.profiles[0].scheduler_name == "default-scheduler"


@pytest.mark.parametrize(
    "body", ["", "profiles: []", "profiles: null", "profiles: [{}]", "profiles: [{plugins: null}]"]
)
def test_any_empty_input_is_the_default(body: str) -> None:
    assert parsed(body) == default()


def test_the_defaults_that_differ_from_kube_scheduler() -> None:
    settings = default().settings
    assert settings.leader_election.resource_name == "custom-scheduler"
    assert settings.client_connection.qps == 0
    assert settings.client_connection.burst == 0
    assert settings.percentage_of_nodes_to_score == 100


def test_the_defaults_that_equal_those_of_kube_scheduler() -> None:
    settings = default().settings
    assert settings.parallelism == 16
    assert settings.leader_election == LeaderElection(
        leader_elect=True,
        lease_duration=Duration.parse("15s"),
        renew_deadline=Duration.parse("10s"),
        retry_period=Duration.parse("2s"),
        resource_lock="leases",
        resource_namespace="kube-system",
        resource_name="custom-scheduler",
    )
    assert (settings.pod_initial_backoff_seconds, settings.pod_max_backoff_seconds) == (1, 10)
    assert (settings.enable_profiling, settings.enable_contention_profiling) == (True, True)
    assert settings.delay_cache_until_active is False
    assert settings.extenders == ()


def test_a_percentage_of_zero_selects_the_formula_of_kube_scheduler() -> None:
    settings = parsed("percentageOfNodesToScore: 0\nprofiles: [{percentageOfNodesToScore: 0}]").settings
    assert settings.percentage_of_nodes_to_score == 0
    assert settings.profiles[0].percentage_of_nodes_to_score == 0


def test_a_profile_without_a_percentage_uses_that_of_the_configuration() -> None:
    assert parsed("percentageOfNodesToScore: 30").settings.profiles[0].percentage_of_nodes_to_score is None


def test_empty_values_mean_defaults_as_in_go() -> None:
    settings = parsed(
        """
        leaderElection: {leaderElect: false, leaseDuration: 0s, resourceName: '', resourceLock: ''}
        clientConnection: {contentType: ''}
        extenders: [{urlPrefix: 'http://a', httpTimeout: '0'}]
        """
    ).settings
    assert settings.leader_election == LeaderElection(leader_elect=False)
    assert settings.client_connection == default().settings.client_connection
    assert settings.extenders[0].http_timeout == Duration.parse("5s")


def test_disabled_leader_election_accepts_any_values() -> None:
    parsed("leaderElection: {leaderElect: false, leaseDuration: 1s, resourceLock: endpoints}")


def test_contention_profiling_follows_profiling_unless_it_is_set() -> None:
    assert parsed("enableProfiling: false").settings.enable_contention_profiling is False
    both = parsed("enableProfiling: false\nenableContentionProfiling: true").settings
    assert both.enable_contention_profiling is True


def test_every_field_of_an_extender_is_read() -> None:
    (extender,) = parsed(
        """
        extenders:
        - urlPrefix: https://gpu.example.com/api
          filterVerb: filter
          preemptVerb: preempt
          prioritizeVerb: prioritize
          weight: 3
          bindVerb: bind
          enableHTTPS: true
          tlsConfig:
            serverName: gpu
            certFile: c.pem
            keyFile: k.pem
            caFile: ca.pem
            certData: Y2VydA==
            keyData: a2V5
            caData: Y2E=
          httpTimeout: 1.5s
          nodeCacheCapable: true
          managedResources:
          - name: example.com/gpu
            ignoredByScheduler: true
          ignorable: true
        """
    ).settings.extenders
    assert extender.enable_https
    assert extender.weight == 3
    assert extender.http_timeout.seconds == 1.5
    assert extender.tls_config is not None
    assert (extender.tls_config.ca_file, extender.tls_config.ca_data) == ("ca.pem", b"ca")
    assert (extender.tls_config.cert_data, extender.tls_config.key_data) == (b"cert", b"key")
    assert extender.managed_resources[0].name == "example.com/gpu"
    assert extender.managed_resources[0].ignored_by_scheduler


def test_the_plugins_of_a_profile_are_merged_with_the_default_ones() -> None:
    plugins = (
        parsed(
            """
        profiles:
        - plugins:
            multiPoint:
              enabled: [{name: gpu.py}, {name: NodeAffinity, weight: 9}]
              disabled: [{name: ImageLocality}, {name: ImageLocality}]
            score:
              disabled: [{name: "*"}]
        """
        )
        .settings.profiles[0]
        .plugins
    )
    names = [plugin.name for plugin in plugins.multi_point.enabled]
    assert names[5] == "NodeAffinity"
    assert plugins.multi_point.enabled[5].weight == 9
    assert "ImageLocality" not in names
    assert names[-1] == "gpu.py"
    assert plugins.score.disabled == (Plugin(name="*"),)


def test_arguments_of_plugins_that_are_not_enabled_are_not_filled_in() -> None:
    profile = parsed("profiles: [{plugins: {multiPoint: {disabled: [{name: '*'}]}}}]").settings.profiles[0]
    assert profile.plugin_config == ()


def test_arguments_of_unknown_plugins_stay_as_they_are() -> None:
    profile = parsed(
        "profiles: [{pluginConfig: [{name: Gpu, args: {a: [1, {b: null}]}}]}]"
    ).settings.profiles[0]
    assert profile.plugin_config[0].args == {"a": [1, {"b": None}]}


_CPU_AND_MEMORY = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]


@pytest.mark.parametrize(
    ("plugin", "args", "filled"),
    [
        ("VolumeBinding", {"bindTimeoutSeconds": 0}, {"bindTimeoutSeconds": 0}),
        ("VolumeBinding", {"bindTimeoutSeconds": None}, {"bindTimeoutSeconds": 600}),
        (
            "DefaultPreemption",
            {"minCandidateNodesAbsolute": 5},
            {"minCandidateNodesAbsolute": 5, "minCandidateNodesPercentage": 10},
        ),
        ("PodTopologySpread", {"defaultingType": ""}, {"defaultingType": "System"}),
        ("NodeResourcesBalancedAllocation", {"resources": []}, {"resources": _CPU_AND_MEMORY}),
        (
            "NodeResourcesBalancedAllocation",
            {"resources": [{"name": "gpu"}, {"name": "x", "weight": 0}, {"name": "y", "weight": 2}]},
            {
                "resources": [
                    {"name": "gpu", "weight": 1},
                    {"name": "x", "weight": 1},
                    {"name": "y", "weight": 2},
                ]
            },
        ),
        (
            "NodeResourcesFit",
            {"scoringStrategy": {"type": "MostAllocated"}},
            {"scoringStrategy": {"type": "MostAllocated", "resources": _CPU_AND_MEMORY}},
        ),
        ("NodeResourcesFit", {"scoringStrategy": 5}, {"scoringStrategy": 5}),
        ("NodeResourcesFit", {"scoringStrategy": {"resources": 5}}, {"scoringStrategy": {"resources": 5}}),
        ("NodeResourcesBalancedAllocation", {"resources": [5]}, {"resources": [5]}),
    ],
)
def test_missing_arguments_are_filled_in_as_kube_scheduler_does(
    plugin: str, args: dict[str, Any], filled: dict[str, Any]
) -> None:
    assert with_default_args(plugin, args) == filled
    assert with_default_args(plugin, filled) == filled


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param("", [], id="the defaults"),
        pytest.param(
            "parallelism: 16\nclientConnection: {contentType: application/json}\nenableProfiling: true",
            [],
            id="nothing new",
        ),
        pytest.param(
            "parallelism: 4",
            [
                ConfigurationNote(
                    "parallelism", "has no effect: all nodes are evaluated at once, in one thread"
                )
            ],
            id="parallelism",
        ),
        pytest.param(
            "clientConnection: {acceptContentTypes: a/b, contentType: a/b, burst: 5}",
            [
                ConfigurationNote(
                    "clientConnection.acceptContentTypes", "has no effect: answers are requested in JSON"
                ),
                ConfigurationNote("clientConnection.contentType", "has no effect: requests are sent as JSON"),
                ConfigurationNote(
                    "clientConnection.burst", "has no effect without a qps: the rate of requests adapts"
                ),
            ],
            id="the client's formats and a burst without a qps",
        ),
        pytest.param("clientConnection: {qps: 50, burst: 100}", [], id="a fixed rate"),
        pytest.param(
            "enableProfiling: false",
            [ConfigurationNote("enableProfiling", "has no effect: there are no Go profiles to serve")],
            id="profiling",
        ),
        pytest.param(
            "enableContentionProfiling: false",
            [
                ConfigurationNote(
                    "enableContentionProfiling", "has no effect: there are no Go profiles to serve"
                )
            ],
            id="contention profiling",
        ),
        pytest.param(
            "profiles: [{plugins: {score: {disabled: [{name: ImageLocalty}, {name: '*'}, {name: NodeName}]}}}]",
            [
                ConfigurationNote(
                    "profiles[0].plugins.score.disabled[0].name",
                    'disables nothing: no plugin "ImageLocalty" is enabled, did you mean "ImageLocality"?',
                )
            ],
            id="a misspelt plugin is not disabled",
        ),
    ],
)
def test_settings_without_effect_are_noted(body: str, expected: list[ConfigurationNote]) -> None:
    assert list(parsed(body).notes) == expected


def test_a_file_knows_its_name_and_folder(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(HEAD, encoding="utf-8-sig")  # Windows editors write a byte order mark
    configuration = load(path)
    assert configuration.source == str(path)
    assert configuration.folder == tmp_path
    assert configuration == default()


def test_a_text_uses_the_working_directory() -> None:
    assert parse(HEAD).folder == Path()


def test_a_configuration_may_be_json() -> None:
    text = '{\n\t"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"\n}'
    assert parse(text.replace("\t", "  ")) == default()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xff\xfe", "not UTF-8: byte 0"),
        (b"a: [", "line 1, column 5: not YAML: expected the node content, but found '<stream end>'"),
    ],
)
def test_an_unreadable_file_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "scheduler.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    assert str(caught.value) == f"{path}: {message}"


def test_a_folder_is_not_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        load(tmp_path)


def test_nodes_pause_for_five_seconds_at_first_and_for_a_minute_at_most() -> None:
    settings = default().settings

    assert (settings.node_pause_initial_seconds, settings.node_pause_max_seconds) == (5, 60)


def test_a_first_pause_of_zero_stays_zero() -> None:
    assert parse(f"{HEAD}nodePauseInitialSeconds: 0\n").settings.node_pause_initial_seconds == 0


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ("nodePauseInitialSeconds: -1", "nodePauseInitialSeconds: must be at least 0, was -1"),
        (
            "nodePauseInitialSeconds: 90",
            "nodePauseMaxSeconds: must be at least nodePauseInitialSeconds (90), was 60",
        ),
        ("nodePauseMaxSeconds: 5s", 'nodePauseMaxSeconds: must be an integer, was "5s"'),
    ],
    ids=["negative", "longer than the longest", "not a number"],
)
def test_an_invalid_pause_is_refused(fields: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(f"{HEAD}{fields}\n")

    assert [str(error) for error in caught.value.errors] == [problem]


@pytest.mark.parametrize(
    ("election", "problem"),
    [
        (
            "leaderElect: false",
            "sharding.enabled: must be false without leaderElection.leaderElect, was true",
        ),
        (
            "leaseDuration: 9s, renewDeadline: 8s",
            "leaderElection.leaseDuration: must be at least 10s with sharding, was 9s",
        ),
        (
            "leaseDuration: 12s, retryPeriod: 5s",
            "leaderElection.leaseDuration: must be greater than 6s and 1.2 times retryPeriod (5s) with sharding, was 12s",
        ),
        (
            f"resourceName: {'n' * 64}",
            'leaderElection.resourceName: must have at most 63 characters with sharding, was "'
            + "n" * 64
            + '"',
        ),
    ],
    ids=["no leader election", "a short lease", "a long retry period", "a long name"],
)
def test_leader_election_that_sharding_cannot_use_is_refused(election: str, problem: str) -> None:
    text = f"{HEAD}leaderElection: {{{election}}}\n"
    parse(text)

    with pytest.raises(ConfigurationError) as caught:
        parse(f"{text}sharding: {{enabled: true}}\n")

    assert [str(error) for error in caught.value.errors] == [problem]
