"""Invalid configurations, keys in the wrong place, and the exact messages for their authors."""

from __future__ import annotations

import pytest

from tests.unit.configuration.documents import HEAD, messages, messages_of

GROUP = "kubescheduler.config.k8s.io/v1"
NO_EXTENDED_RESOURCE = "must be the name of an extended resource as in example.com/gpu"
EXTENDER = "extenders:\n- urlPrefix: http://a:1/\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", ["is empty"], id="an empty file"),
        pytest.param("---\n# later\n", ["is empty"], id="only a comment"),
        pytest.param(
            "- a",
            ["must be a mapping with apiVersion and kind, was a list"],
            id="a list instead of a mapping",
        ),
        pytest.param(
            "hello",
            ['must be a mapping with apiVersion and kind, was "hello"'],
            id="text instead of a mapping",
        ),
        pytest.param(
            "profiles: [",
            ["line 1, column 12: not YAML: expected the node content, but found '<stream end>'"],
            id="no YAML",
        ),
        pytest.param(
            f"{HEAD}---\n{HEAD}",
            ["line 4: a second document begins, one configuration is one document"],
            id="two documents",
        ),
        pytest.param(
            "parallelism: x",
            [
                f"apiVersion: is missing, must be {GROUP}",
                "kind: is missing, must be KubeSchedulerConfiguration",
            ],
            id="neither version nor kind, and nothing else is validated",
        ),
        pytest.param(
            "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: Policy",
            ['kind: must be KubeSchedulerConfiguration, was "Policy"'],
            id="an old version and another kind",
        ),
        pytest.param(
            f"apiversion: {GROUP}\nkind: KubeSchedulerConfiguration",
            [
                f"apiVersion: is missing, must be {GROUP}",
                'apiversion: unknown field, did you mean "apiVersion"?',
            ],
            id="a field in the wrong case",
        ),
        pytest.param(
            f"{HEAD}parallelism: 1\nparallelism: 2",
            ["parallelism: given twice, on lines 3 and 4"],
            id="a key twice",
        ),
    ],
)
def test_an_invalid_configuration_is_refused(text: str, expected: list[str]) -> None:
    assert messages_of(text) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(
            "paralelism: 4", ['paralelism: unknown field, did you mean "parallelism"?'], id="a misspelt field"
        ),
        pytest.param("zzz: 4", ["zzz: unknown field"], id="a field like no other"),
        pytest.param("parallelism: 0", ["parallelism: must be at least 1, was 0"], id="no parallelism"),
        pytest.param(
            "parallelism: 3000000000",
            ["parallelism: must be at most 2147483647, was 3000000000"],
            id="a number beyond 32 bits",
        ),
        pytest.param('parallelism: "4"', ['parallelism: must be an integer, was "4"'], id="a number as text"),
        pytest.param("parallelism: 1.5", ["parallelism: must be an integer, was 1.5"], id="half a number"),
        pytest.param("parallelism: true", ["parallelism: must be an integer, was true"], id="true for 1"),
        pytest.param(
            "enableProfiling: 1", ["enableProfiling: must be true or false, was 1"], id="1 for true"
        ),
        pytest.param(
            "percentageOfNodesToScore: 101",
            ["percentageOfNodesToScore: must be 0 to 100, was 101"],
            id="a percentage above 100",
        ),
        pytest.param(
            "profiles: [{percentageOfNodesToScore: -1}]",
            ["profiles[0].percentageOfNodesToScore: must be 0 to 100, was -1"],
            id="a profile's negative percentage",
        ),
        pytest.param(
            "podInitialBackoffSeconds: 0",
            ["podInitialBackoffSeconds: must be greater than 0, was 0"],
            id="no first backoff",
        ),
        pytest.param(
            "podInitialBackoffSeconds: 20",
            ["podMaxBackoffSeconds: must be at least podInitialBackoffSeconds (20), was 10"],
            id="the last backoff below the first",
        ),
        pytest.param(
            "podInitialBackoffSeconds: 1s\npodMaxBackoffSeconds: 0",
            [
                'podInitialBackoffSeconds: must be an integer, was "1s"',
                "podMaxBackoffSeconds: must be at least podInitialBackoffSeconds (1), was 0",
            ],
            id="one fault does not hide the next",
        ),
        pytest.param(
            "clientConnection: {qps: fast, burst: -1}",
            [
                'clientConnection.qps: must be a number, was "fast"',
                "clientConnection.burst: must be at least 0, was -1",
            ],
            id="rates of requests",
        ),
        pytest.param(
            "leaderElection: on", ["leaderElection: must be a mapping, was true"], id="a section as a flag"
        ),
        pytest.param(
            "leaderElection: {leaseDuration: 15}",
            ["leaderElection.leaseDuration: must be a duration as in 15s or 1m30s, was 15"],
            id="a duration without a unit",
        ),
        pytest.param(
            "leaderElection: {leaseDuration: 10s}",
            ["leaderElection.leaseDuration: must be greater than renewDeadline (10s), was 10s"],
            id="a lease that ends while it may be renewed",
        ),
        pytest.param(
            "leaderElection: {retryPeriod: 9s}",
            ["leaderElection.renewDeadline: must be greater than 1.2 times retryPeriod (9s), was 10s"],
            id="no time for a second try",
        ),
        pytest.param(
            "leaderElection: {retryPeriod: -1s, resourceLock: endpoints}",
            [
                "leaderElection.retryPeriod: must be greater than 0, was -1s",
                'leaderElection.resourceLock: must be "leases", was "endpoints"',
            ],
            id="a negative duration and an old lock",
        ),
        # Profiles.
        pytest.param("profiles: {a: 1}", ["profiles: must be a list, was a mapping"], id="no list"),
        pytest.param("profiles: [null]", ["profiles[0]: must be a mapping, was null"], id="an empty entry"),
        pytest.param(
            "profiles: [{schedulerName: ''}]",
            ["profiles[0].schedulerName: must not be empty"],
            id="an empty name",
        ),
        pytest.param(
            "profiles: [{schedulerName: a}, {}]",
            ["profiles[1].schedulerName: must not be empty"],
            id="several profiles of which one has no name",
        ),
        pytest.param(
            "profiles: [{schedulerName: a}, {schedulerName: b}, {schedulerName: a}]",
            ['profiles[2].schedulerName: "a" is the name of profiles[0] already'],
            id="a name twice",
        ),
        pytest.param(
            "profiles: [{plugin: {}}]",
            ['profiles[0].plugin: unknown field, did you mean "plugins"?'],
            id="misspelt",
        ),
        pytest.param(
            "profiles: [{plugins: {scores: {}}}]",
            ['profiles[0].plugins.scores: unknown field, did you mean "score"?'],
            id="no such extension point",
        ),
        pytest.param(
            "profiles: [{plugins: {score: {enabled: [NodeName]}}}]",
            ['profiles[0].plugins.score.enabled[0]: must be a mapping, was "NodeName"'],
            id="a plugin's name alone",
        ),
        pytest.param(
            "profiles: [{plugins: {score: {enabled: [{weight: 1}], disabled: [{}]}}}]",
            [
                "profiles[0].plugins.score.enabled[0].name: is missing",
                "profiles[0].plugins.score.disabled[0].name: is missing",
            ],
            id="a plugin without a name",
        ),
        pytest.param(
            "profiles: [{plugins: {score: {enabled: [{name: A}, {name: B}, {name: A}]}}}]",
            ['profiles[0].plugins.score.enabled[2].name: "A" is listed already at enabled[0]'],
            id="a plugin enabled twice",
        ),
        pytest.param(
            "profiles: [{plugins: {score: {enabled: [{name: A, weight: -1}]}}}]",
            ["profiles[0].plugins.score.enabled[0].weight: must be at least 0, was -1"],
            id="a negative weight",
        ),
        pytest.param(
            "profiles: [{plugins: {score: {enabled: [{name: '*'}]}}}]",
            ['profiles[0].plugins.score.enabled[0].name: "*" can only be disabled'],
            id="all plugins enabled",
        ),
        pytest.param(
            "profiles: [{plugins: {filter: {enabled: [{name: EBSLimits}]}}}]",
            [
                (
                    f'profiles[0].plugins.filter.enabled[0].name: "EBSLimits" is no plugin any more in {GROUP},'
                    " NodeVolumeLimits does its work"
                )
            ],
            id="a removed plugin",
        ),
        pytest.param(
            "profiles: [{plugins: {queueSort: {enabled: [{name: A}, {name: B}]}}}]",
            ["profiles[0].plugins.queueSort.enabled: only one queue sort plugin can be enabled, found 2"],
            id="two orders of the queue",
        ),
        pytest.param(
            "profiles: [{pluginConfig: [{name: A}, {name: A}, {args: {}}]}]",
            [
                'profiles[0].pluginConfig[1].name: "A" has its arguments already at pluginConfig[0]',
                "profiles[0].pluginConfig[2].name: is missing",
            ],
            id="arguments twice and without a name",
        ),
        pytest.param(
            "profiles: [{pluginConfig: [{name: A, args: [1]}]}]",
            ["profiles[0].pluginConfig[0].args: must be a mapping, was a list"],
            id="arguments that are no mapping",
        ),
        pytest.param(
            "profiles: [{pluginConfig: [{name: NodeAffinity, args: {apiVersion: v1, kind: PodAffinityArgs}}]}]",
            [
                f'profiles[0].pluginConfig[0].args.apiVersion: must be "{GROUP}", was "v1"',
                'profiles[0].pluginConfig[0].args.kind: must be "NodeAffinityArgs", was "PodAffinityArgs"',
            ],
            id="arguments of another plugin",
        ),
        pytest.param(
            "profiles: [{schedulerName: 7}, {schedulerName: 7}]",
            [
                "profiles[0].schedulerName: must be text, was 7",
                "profiles[1].schedulerName: must be text, was 7",
            ],
            id="later errors of an invalid field are left out",
        ),
        # Extenders.
        pytest.param(
            "extenders: [{filterVerb: filter}]", ["extenders[0].urlPrefix: is missing"], id="no address"
        ),
        pytest.param(
            "extenders: [{urlPrefix: 'localhost:8888'}]",
            ['extenders[0].urlPrefix: must be an http:// or https:// address, was "localhost:8888"'],
            id="an address without a scheme",
        ),
        pytest.param(
            "extenders: [{urlPrefix: 'http://[::1'}]",
            ['extenders[0].urlPrefix: must be an http:// or https:// address, was "http://[::1"'],
            id="half an IPv6 address",
        ),
        pytest.param(
            EXTENDER + "  prioritizeVerb: score",
            ["extenders[0].weight: must be at least 1 for an extender with a prioritizeVerb, was 0"],
            id="scores without a weight",
        ),
        pytest.param(
            EXTENDER + f"  prioritizeVerb: score\n  weight: {2**63 // 100 + 1}",
            ["extenders: the weights are so large that the sum of scores could overflow"],
            id="a weight too large",
        ),
        pytest.param(
            EXTENDER
            + f"  prioritizeVerb: score\n  weight: {2**62 // 100 + 1}\n"
            + f"- urlPrefix: http://b/\n  prioritizeVerb: score\n  weight: {2**62 // 100 + 1}",
            ["extenders: the weights are so large that the sum of scores could overflow"],
            id="weights too large together",
        ),
        pytest.param(
            EXTENDER + "  bindVerb: bind\n- urlPrefix: http://b/\n  bindVerb: bind",
            ["extenders[1].bindVerb: only one extender can bind, extenders[0] does already"],
            id="two binders",
        ),
        pytest.param(
            EXTENDER
            + "  managedResources: [{name: example.com/gpu}, {name: example.com/gpu}, {name: cpu}, {}]",
            [
                'extenders[0].managedResources[1].name: "example.com/gpu" is managed by extenders[0] already',
                f'extenders[0].managedResources[2].name: {NO_EXTENDED_RESOURCE}, was "cpu"',
                f'extenders[0].managedResources[3].name: {NO_EXTENDED_RESOURCE}, was ""',
            ],
            id="resources twice, native, and without a name",
        ),
        pytest.param(
            EXTENDER + "  enableHttps: true",
            ['extenders[0].enableHttps: unknown field, did you mean "enableHTTPS"?'],
            id="a field in the wrong case",
        ),
        pytest.param(
            EXTENDER + "  httpTimeout: -1s",
            ["extenders[0].httpTimeout: must not be negative, was -1s"],
            id="a negative timeout",
        ),
        pytest.param(
            EXTENDER + "  tlsConfig: {insecure: true, caFile: ca.pem, certFile: c.pem}",
            [
                "extenders[0].tlsConfig.insecure: cannot be combined with caFile or caData",
                "extenders[0].tlsConfig: a client certificate needs its key: keyFile or keyData",
            ],
            id="TLS that contradicts itself",
        ),
        pytest.param(
            EXTENDER + "  tlsConfig: {keyData: not base64!}",
            ["extenders[0].tlsConfig.keyData: must be base64 text"],
            id="a key that is no base64 is not repeated",
        ),
    ],
)
def test_invalid_settings_profiles_and_extenders_are_named(body: str, expected: list[str]) -> None:
    assert messages(body) == expected


def test_all_errors_are_reported_at_once() -> None:
    assert messages(
        """
        parallelism: -3
        podInitialBackoffSecond: 2
        leaderElection: {renewDeadline: 20s}
        profiles:
        - schedulerName: a
          plugins:
            score:
              enabled:
              - {name: A, weigth: 2}
              - {name: A}
        - schedulerName: a
        extenders:
        - filterVerb: f
        """
    ) == [
        'podInitialBackoffSecond: unknown field, did you mean "podInitialBackoffSeconds"?',
        "parallelism: must be at least 1, was -3",
        'profiles[0].plugins.score.enabled[0].weigth: unknown field, did you mean "weight"?',
        "leaderElection.leaseDuration: must be greater than renewDeadline (20s), was 15s",
        'profiles[0].plugins.score.enabled[1].name: "A" is listed already at enabled[0]',
        'profiles[1].schedulerName: "a" is the name of profiles[0] already',
        "extenders[0].urlPrefix: is missing",
    ]


OF_EXTENDER = "extenders: [{urlPrefix: 'http://a', %s}]"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("extenderConfig: {}", 'extenderConfig: unknown field, did you mean "extenders"?'),
        ("extender: []", 'extender: unknown field, did you mean "extenders"?'),
        ("schedulerName: a", 'schedulerName: unknown field, did you mean "profiles[].schedulerName"?'),
        ("filterVerb: f", 'filterVerb: unknown field, did you mean "extenders[].filterVerb"?'),
        ("plugins: {}", 'plugins: unknown field, did you mean "profiles[].plugins"?'),
        (
            "profiles: [{extenders: []}]",
            'profiles[0].extenders: unknown field, did you mean "extenders", beside profiles: all profiles share them?',
        ),
        (
            "profiles: [{pluginConfig: [{name: A, config: {}}]}]",
            'profiles[0].pluginConfig[0].config: unknown field, did you mean "args"?',
        ),
        (
            OF_EXTENDER % "enableHttps: true",
            'extenders[0].enableHttps: unknown field, did you mean "enableHTTPS"?',
        ),
        (
            OF_EXTENDER % "trustedCaFile: ca.pem",
            'extenders[0].trustedCaFile: unknown field, did you mean "tlsConfig.caFile"?',
        ),
        (
            OF_EXTENDER % "insecure: true",
            'extenders[0].insecure: unknown field, did you mean "tlsConfig.insecure"?',
        ),
        (
            OF_EXTENDER % "tlsConfig: {trustedCaFile: ca.pem}",
            'extenders[0].tlsConfig.trustedCaFile: unknown field, did you mean "caFile"?',
        ),
        (
            OF_EXTENDER % "httpTimeOut: 3s",
            'extenders[0].httpTimeOut: unknown field, did you mean "httpTimeout"?',
        ),
        (
            "bindTimeoutSeconds: 3",
            (
                "bindTimeoutSeconds: unknown field: was removed after v1alpha2, use bindTimeoutSeconds of "
                "VolumeBinding's arguments"
            ),
        ),
        ("zzzz: 3", "zzzz: unknown field"),
    ],
)
def test_a_key_in_the_wrong_place_is_reported_with_the_right_one(body: str, expected: str) -> None:
    assert messages(body) == [expected]
