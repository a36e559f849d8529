"""The status of an ElasticQuota."""

from __future__ import annotations

import pytest

from plugins.elastic_quotas import Quota, acceptance_of, part_of_max, used_by_running
from scheduler.framework.statuses import named_in, written
from tests.support.builders import pod

GI = 2**30


@pytest.mark.parametrize(
    ("used", "spec", "expected"),
    [
        ({}, {"min": {"cpu": 1}, "max": {"memory": "1Gi"}}, {"cpu": "0", "memory": "0"}),
        ({"cpu": 1500, "memory": 3 * GI}, {}, {"cpu": "1500m", "memory": "3Gi"}),
        ({"memory": 1000, "nvidia.com/gpu": 2}, {}, {"memory": "1000", "nvidia.com/gpu": "2"}),
    ],
    ids=["what it names is 0", "suffixes", "counts"],
)
def test_amounts_are_written_as_quantities(
    used: dict[str, int], spec: object, expected: dict[str, str]
) -> None:
    assert written(used, named_in(spec)) == expected  # type: ignore[arg-type]


def test_running_pods_of_namespaces_with_a_quota_count() -> None:
    pods = [
        pod("a", cpu="1", status={"phase": "Running"}),
        pod("b", cpu="2", status={"phase": "Pending"}),
        pod("c", cpu="4", status={"phase": "Succeeded"}),
        pod("d", cpu="8", status={"phase": "Running"}, namespace="other"),
    ]
    assert used_by_running(pods, {"default"})["default"]["cpu"] == 1000
    assert used_by_running(pods, {"default"}).keys() == {"default"}


@pytest.mark.parametrize(
    ("key", "holder", "quota", "expected"),
    [
        ("a/x", "a/x", Quota({"cpu": 1}, {"cpu": 1}), ("Valid", "")),
        ("a/x", "a/x", Quota({"cpu": 1}, None), ("Valid", "")),
        ("a/x", "a/w", Quota({}, None), ("Ignored", "metadata.namespace: ElasticQuota w is older, and the first one counts")),
        (
            "a/x",
            "a/x",
            Quota({"cpu": 2, "memory": 2 * GI}, {"cpu": 1, "memory": GI}),
            (
                "MinAboveMax",
                (
                    "spec.min.cpu: must be at most spec.max.cpu (1m), was 2m; max holds; "
                    "spec.min.memory: must be at most spec.max.memory (1Gi), was 2Gi; max holds"
                ),
            ),
        ),
    ],
    ids=["valid", "no max", "second", "min above max"],
)  # fmt: skip
def test_the_verdict_names_the_field(key: str, holder: str, quota: Quota, expected: tuple[str, str]) -> None:
    assert acceptance_of(key, holder, quota) == expected


@pytest.mark.parametrize("holder", ["", "a/w"])
def test_an_invalid_quota_is_reported_beside_any_other_holder(holder: str) -> None:
    reported = acceptance_of("a/x", holder, Quota({}, None) if holder else None, "spec.min.cpu: was nonsense")
    assert reported == ("Invalid", "spec.min.cpu: was nonsense; it does not count")


@pytest.mark.parametrize(
    ("used", "most", "expected"),
    [
        ({"cpu": 500, "memory": 3 * GI}, {"cpu": 1000, "memory": 4 * GI}, 0.75),
        ({}, {"cpu": 1000}, 0.0),
        ({"cpu": 1}, {"cpu": 0}, 0.0),
        ({"cpu": 1}, {}, 0.0),
    ],
    ids=["the greatest", "nothing used", "nothing allowed", "no limit"],
)
def test_the_used_part_of_max(used: dict[str, int], most: dict[str, int], expected: float) -> None:
    assert part_of_max(used, Quota({}, most)) == expected
