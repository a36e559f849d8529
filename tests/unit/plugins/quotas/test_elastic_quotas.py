"""ElasticQuotas: amounts, and the status of the objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.quotas.elastic_quotas import (
    ELASTIC_QUOTAS,
    NamespaceUsage,
    Quota,
    Quotas,
    acceptance_of,
    exceeds,
    part_of_max,
    used_by_running,
)
from scheduler.engine.state.cache import Cache
from scheduler.framework.status_sources import named_in, written
from scheduler.loop_work import run_to_end
from scheduler.snapshot import ClusterTable
from tests.support.builders import node, pod

if TYPE_CHECKING:
    from collections.abc import Mapping

NATIVE = ("cpu", "memory", "ephemeral-storage")
NAMES = (*NATIVE, "example.com/gpu", "hugepages-2Mi")
AMOUNTS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3))


def slowly_over(
    asked: Mapping[str, int], used: Mapping[str, int], limit: Mapping[str, int], *, unlisted: float
) -> bool:
    """scheduler-plugins' cmp2: three fields, 0 for missing ones; then the other resources of the first list."""
    for name in NAMES:
        amount = asked.get(name, 0) + used.get(name, 0)
        if name in NATIVE:
            if amount > limit.get(name, 0):
                return True
        elif name in asked and amount > limit.get(name, unlisted):
            return True
    return False


@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_max_is_compared_as_in_upstream(
    more: dict[str, int], used: dict[str, int], limit: dict[str, int]
) -> None:
    assert Quota({}, limit).over_max(used, more) == slowly_over(more, used, limit, unlisted=float("inf"))
    assert not Quota({}, None).over_max(used, more)


@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_min_is_compared_as_in_upstream(
    more: dict[str, int], used: dict[str, int], limit: dict[str, int]
) -> None:
    quota = Quota(limit, None)

    assert quota.over_min_with(used, more) == slowly_over(more, used, limit, unlisted=0)
    assert quota.over_min(used) == slowly_over(used, {}, limit, unlisted=0)
    assert exceeds(used, limit) == slowly_over(used, {}, limit, unlisted=0)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 5), st.integers(0, 3)),
        st.tuples(st.just("take"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("add node"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("remove node"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("quotas"), st.integers(0, 7), st.just(0)),
        st.tuples(st.just("anew"), st.just(0), st.just(0)),
    ),
    max_size=20,
)


@given(STEPS)
def test_incremental_usage_follows_any_events(steps: list[tuple[str, int, int]]) -> None:
    """Pod number i is in namespace i % 3 and requests i cpus; pods on unknown nodes do not count."""
    cache, usage, there = Cache(), NamespaceUsage(), dict[int, str]()
    nodes: set[str] = set()
    with_quota: dict[str, None] = {}
    for what, number, place in steps:
        if what == "put" and number not in there:
            there[number] = f"n{place}"
            cache.add_pod(pod(f"p{number}", namespace=f"s{number % 3}", cpu=str(number), node=f"n{place}"))
        elif what == "take" and number in there:
            del there[number]
            cache.remove_pod(f"uid-of-s{number % 3}-p{number}")
        elif what == "add node":
            nodes.add(f"n{number}")
            cache.add_node(node(f"n{number}"))
        elif what == "remove node":
            nodes.discard(f"n{number}")
            cache.remove_node(f"n{number}")
        elif what == "quotas":
            with_quota = {f"s{bit}": None for bit in range(3) if number >> bit & 1}
        elif what == "anew":
            cache.recount()
        snapshot = cache.snapshot()
        assert snapshot.changes is not None
        usage.follow(snapshot, snapshot.changes, with_quota)
        counted = {number for number, on in there.items() if on in nodes}
        for namespace in range(3):
            milli = sum(1000 * number for number in counted if number % 3 == namespace)
            assert usage.by_namespace.get(f"s{namespace}", {}).get("cpu", 0) == milli
        total = sum(1000 * number for number in counted if f"s{number % 3}" in with_quota)
        assert usage.total.get("cpu", 0) == total
        assert NamespaceUsage.of(snapshot, with_quota).total.get("cpu", 0) == total


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


@pytest.mark.parametrize("field", ["min", "max"])
def test_a_quota_of_too_many_resources_is_invalid(field: str) -> None:
    table = ClusterTable()
    objects = table.watch_kind(ELASTIC_QUOTAS)
    for namespace, count in (("a", 256), ("b", 257)):
        amounts = {f"example.com/{number}": "1" for number in range(count)}
        objects[f"{namespace}/e"] = {
            "metadata": {"name": "e", "namespace": namespace},
            "spec": {field: amounts},
        }
    quotas = Quotas()

    run_to_end(quotas.reading(objects))

    assert quotas.by_namespace.keys() == {"a"}
    assert quotas.wrong == {"b/e": f"spec.{field}: at most 256 resources are expected, were 257"}


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
