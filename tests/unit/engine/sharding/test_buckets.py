from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.sharding.buckets import (
    BUCKETS,
    NodeBuckets,
    bucket_of,
    key_of,
    wanted_owners,
)
from scheduler.objects.decode import decode_pod
from scheduler.objects.pod import PodInfo
from scheduler.snapshot import ClusterTable
from tests.support.builders import node, pod, pod_object

members = st.lists(st.integers(0, 10**6).map("replica-{}".format), min_size=1, max_size=40, unique=True)


@given(members)
def test_each_member_owns_as_many_buckets_as_any_other_or_one_more(names: list[str]):
    sizes = Counter(wanted_owners(names))

    assert set(sizes) == set(names)
    assert max(sizes.values()) - min(sizes.values()) <= 1


@given(members)
def test_if_a_member_joins_its_buckets_are_all_that_move(names: list[str]):
    before = wanted_owners(names)
    after = wanted_owners([*names, "new"], before)

    moved = {owner for was, owner in zip(before, after, strict=True) if was != owner}
    assert moved == {"new"}
    assert after.count("new") == BUCKETS // (len(names) + 1)
    assert max(Counter(after).values()) - min(Counter(after).values()) <= 1


@given(members.filter(lambda names: len(names) > 1), st.integers(0, 10**6))
def test_if_a_member_leaves_only_its_buckets_move(names: list[str], number: int):
    before = wanted_owners(names)
    gone = names[number % len(names)]
    after = wanted_owners([name for name in names if name != gone], before)

    assert {was for was, owner in zip(before, after, strict=True) if was != owner} == {gone}
    assert max(Counter(after).values()) - min(Counter(after).values()) <= 1


@given(members, st.randoms(use_true_random=False))
def test_every_replica_computes_the_same_owners(names: list[str], random: Any):
    shuffled = random.sample(names, len(names))

    assert wanted_owners(shuffled) == wanted_owners(names)
    assert wanted_owners(shuffled, wanted_owners(names)) == wanted_owners(names)


@pytest.mark.parametrize("number", [0, BUCKETS + 1])
def test_a_number_of_members_that_cannot_own_the_buckets_is_refused(number: int):
    with pytest.raises(ValueError, match=rf"{number} members cannot own 256 buckets"):
        wanted_owners([str(each) for each in range(number)])


def test_every_replica_has_nodes_of_every_zone():
    names = [f"replica-{number}" for number in range(8)]
    owners = wanted_owners(names)
    for zone in "abc":
        shares = Counter(owners[bucket_of(f"node-{zone}-{number}")] for number in range(400))
        assert set(shares) == set(names)
        assert min(shares.values()) > 0.6 * 400 / 8
        assert max(shares.values()) < 1.5 * 400 / 8


def test_the_bucket_of_a_node_depends_on_its_name_alone_and_never_changes():
    # Replicas of two versions run at the same time during an upgrade.
    assert [bucket_of(name) for name in ("n", "node-1", "ip-10-0-0-1.eu-west-1.compute.internal")] == [
        180,
        41,
        114,
    ]


# Which pods meet in one replica.


def controlled(uid: str, **fields: Any) -> PodInfo:
    obj = pod_object("p", **fields)
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": uid, "uid": uid, "controller": True}
    obj["metadata"]["ownerReferences"] = [reference]
    return decode_pod(msgspec.json.encode(obj))


def spread(key: str, when: str = "DoNotSchedule") -> dict[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": {}}
    return {"topologySpreadConstraints": [constraint]}


def terms(kind: str, key: str, **more: Any) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {}, **more}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({}, "controller/c"),
        (spread(ZONE), "namespace/default"),
        (spread(ZONE, "ScheduleAnyway"), "controller/c"),
        (spread(HOST), "controller/c"),
        (terms("podAntiAffinity", ZONE), "namespace/default"),
        (terms("podAntiAffinity", HOST), "controller/c"),
        (terms("podAffinity", HOST), "namespace/default"),
        (terms("podAffinity", ZONE, namespaces=["default"]), "namespace/default"),
        (terms("podAffinity", ZONE, namespaces=["other"]), "namespaces"),
        (terms("podAntiAffinity", ZONE, namespaceSelector={}), "namespaces"),
        ({**spread(ZONE), "schedulingGroup": {"podGroupName": "g"}}, "groups/default"),
    ],
)
def test_pods_whose_required_constraints_count_each_other_meet(fields: dict[str, Any], key: str):
    assert key_of(controlled("c", **fields)) == key


def test_a_pod_without_a_controller_has_a_key_of_its_own():
    assert key_of(pod("a")) != key_of(pod("b"))


def test_all_pods_with_quotas_meet():
    assert key_of(controlled("c", **spread(ZONE)), has_quota=True) == key_of(pod("b"), has_quota=True)


def test_each_row_has_the_bucket_of_its_node_also_after_nodes_came_and_went():
    table, buckets = ClusterTable(), NodeBuckets()
    for number in range(30):
        table.add_node(node(f"n-{number}"))
    for change in (
        lambda: None,
        lambda: table.add_node(node("new")),
        lambda: table.remove_node("new"),  # the last row
        lambda: table.remove_node("n-3"),
        lambda: (table.remove_node("n-4"), table.add_node(node("another"))),
        lambda: [table.remove_node(f"n-{number}") for number in range(10, 25)],
    ):
        change()
        snapshot = table.snapshot()
        assert buckets.of(snapshot).tolist() == [bucket_of(name) for name in snapshot.names]
