"""Keys that tutorials invent, and their messages."""

from __future__ import annotations

import pytest

from tests.unit.configuration.documents import messages

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
