"""Fingerprints of pods: equal to those of the agents that write them."""

from __future__ import annotations

import pytest

from plugins.node_resource_topology.pod_fingerprint import fingerprint, xxh64


@pytest.mark.parametrize(
    ("text", "seed", "expected"),
    [
        pytest.param("", 0, 0xEF46DB3751D8E999, id="nothing"),
        pytest.param("a", 0, 0xD24EC4F1A98C6E5B, id="one byte"),
        pytest.param("abc", 0, 0x44BC2CF5AD770999, id="a few bytes"),
        pytest.param("xxhash", 20141025, 0xB559B98D844E0635, id="with a seed"),
        pytest.param(
            "Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1, id="longer than a stripe"
        ),
    ],
)
def test_the_hash_is_that_of_the_specification(text: str, seed: int, expected: int):
    assert xxh64(text.encode(), seed) == expected


def test_a_fingerprint_is_that_of_the_agents():
    assert fingerprint([("namespace1", "pod1")]) == "pfp0v0019e0420efb37746c6"


def test_the_order_of_pods_does_not_matter_but_each_pod_does():
    pods = [("a", "x"), ("a", "y"), ("b", "x")]

    assert fingerprint(pods) == fingerprint(reversed(pods))
    assert len({fingerprint(pods[:count]) for count in range(4)}) == 4
    assert fingerprint([("a", "b")]) != fingerprint([("b", "a")])
