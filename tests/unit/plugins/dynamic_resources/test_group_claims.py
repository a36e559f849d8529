"""Claims of a PodGroup: they are reserved for the group, and members without a place give them back.

Source:
    kube-scheduler v1.36, plugins/dynamicresources/dynamicresources.go, podResourceClaimBindings, bindClaim and
    unreservePodGroupClaims.
"""

from __future__ import annotations

from typing import Any

import pytest

from plugins.dynamic_resources.plugin import after_claim_change
from scheduler.framework import Code, PodGroup, QueueingHint, Status
from scheduler.objects.pod_group import POD_GROUPS, GroupKey
from scheduler.testing.devices import allocation, device_class, resource_claim, resource_slice
from scheduler.testing.fakes import FakeFeatures
from tests.support.builders import node, pod
from tests.unit.plugins.dynamic_resources.kit import Kit, placed

KEY = GroupKey(POD_GROUPS, "default", "g")
OF_TEMPLATE = {"name": "c", "resourceClaimTemplateName": "t"}
OWNER = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "kind": "PodGroup",
    "name": "g",
    "uid": "uid-of-g",
    "controller": True,
}
GROUP_CONSUMER = {
    "apiGroup": "scheduling.k8s.io",
    "resource": "podgroups",
    "name": "g",
    "uid": "uid-of-g",
}


def member(name: str, claim: dict[str, Any] = OF_TEMPLATE, **more: Any) -> Any:
    made = [{"name": claim["name"], "resourceClaimName": "made"}]
    return pod(
        name,
        schedulingGroup={"podGroupName": "g"},
        resourceClaims=[claim],
        status={"resourceClaimStatuses": made},
        **more,
    )


A, B = member("a"), member("b")


def pod_group(*claims: dict[str, Any], made: str | None = "made") -> dict[str, Any]:
    status = {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": made}]} if made else {}
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default", "uid": "uid-of-g"},
        "spec": {"resourceClaims": list(claims)},
        "status": status,
    }


def kit(group: dict[str, Any] | None, *, version: str = "1.37", is_on: bool = True, **claim: Any) -> Kit:
    features = FakeFeatures(version, GenericWorkload=True, DRAWorkloadResourceClaims=is_on)
    made = resource_claim("made", **{"ownerReferences": [OWNER], **claim})
    it = Kit(*(node(name) for name in "nm"), device_class(), resource_slice("n", 1), made, features=features)
    groups = it.table.watch_kind(POD_GROUPS)
    if group is not None:
        groups["default/g"] = group
    return it


def reserved(it: Kit) -> list[dict[str, Any]]:
    return it.api.claims["default/made"]["status"].get("reservedFor", [])


def attempted_group() -> PodGroup:
    return PodGroup(KEY, "uid-of-g")


@pytest.mark.parametrize("version", ["1.36", "1.37"])
async def test_a_claim_of_the_group_is_reserved_for_the_group_once(version: str):
    it = kit(pod_group(OF_TEMPLATE), version=version)
    group = attempted_group()
    first, second = placed(it, A, "n", group), placed(it, B, "n", group)

    assert await first.pre_bind("n") is None
    assert await second.pre_bind("n") is None

    assert reserved(it) == [GROUP_CONSUMER]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"name": "d", "resourceClaimTemplateName": "t"}, id="other name"),
        pytest.param({"name": "c", "resourceClaimTemplateName": "u"}, id="other template"),
        pytest.param({"name": "c", "resourceClaimName": "t"}, id="a claim instead of a template"),
    ],
)
async def test_a_claim_that_differs_from_the_groups_claims_is_reserved_for_the_pod(other: dict[str, Any]):
    it = kit(pod_group(other))

    assert await placed(it, A, "n").pre_bind("n") is None

    assert reserved(it) == [{"resource": "pods", "name": "a", "uid": A.uid}]


async def test_an_unneeded_claim_before_it_does_not_change_for_whom_a_claim_is_reserved():
    it = kit(pod_group(OF_TEMPLATE))
    unneeded = {"name": "none", "resourceClaimTemplateName": "t"}
    both = pod(
        "a",
        schedulingGroup={"podGroupName": "g"},
        resourceClaims=[unneeded, OF_TEMPLATE],
        status={"resourceClaimStatuses": [{"name": "none"}, {"name": "c", "resourceClaimName": "made"}]},
    )

    assert await placed(it, both, "n").pre_bind("n") is None

    assert reserved(it) == [GROUP_CONSUMER]


async def test_a_claim_that_is_reserved_for_the_group_is_not_written_again():
    it = kit(
        pod_group(OF_TEMPLATE),
        allocated=allocation("gpu-0", node="n"),
    )
    it.api.change("default/made", reservedFor=[GROUP_CONSUMER])
    it.watch_shows("default/made")
    attempt = placed(it, A, "n")

    assert await attempt.pre_bind("n") is None
    attempt.unreserve("n")

    assert it.api.writes == []
    assert it.fakes.background.started == [], "other members may need it"


async def test_a_pod_uses_a_claim_of_its_group_by_another_name_without_a_reservation_of_its_own():
    it = kit(pod_group(OF_TEMPLATE), allocated=allocation("gpu-0", node="n"))
    it.api.change("default/made", reservedFor=[GROUP_CONSUMER])
    it.watch_shows("default/made")
    named = member("a", {"name": "other", "resourceClaimName": "made"})

    assert await placed(it, named, "n").pre_bind("n") is None

    assert reserved(it) == [GROUP_CONSUMER]


def test_without_the_gate_a_claim_of_the_group_belongs_to_no_pod():
    it = kit(pod_group(OF_TEMPLATE), is_on=False)

    refusal = it.begin(A).pre_filter

    words = "ResourceClaim default/made was not created for Pod default/a (Pod is not owner)"
    assert refusal == Status.unschedulable(words, resolvable=False)
    assert POD_GROUPS not in it.plugin.needs.kinds


def test_with_the_gate_groups_are_watched():
    assert POD_GROUPS in kit(None).plugin.needs.kinds


@pytest.mark.parametrize(
    "change",
    [{"name": "h"}, {"kind": "Job"}, {"apiVersion": "batch/v1"}, {"controller": False}],
    ids=str,
)
def test_a_claim_of_another_owner_is_refused(change: dict[str, Any]):
    it = kit(pod_group(OF_TEMPLATE), ownerReferences=[OWNER | change])

    refusal = it.begin(A).pre_filter

    owners = "neither Pod nor PodGroup g is the owner"
    words = f"ResourceClaim default/made was not created for Pod default/a ({owners})"
    assert refusal == Status.unschedulable(words, resolvable=False)


def test_a_pod_waits_for_its_group():
    refusal = kit(None).begin(A).pre_filter

    words = 'podgroup.scheduling.k8s.io "g" not found'
    assert refusal == Status.unschedulable(words, resolvable=False)


def test_a_group_with_an_unknown_kind_of_claim_holds_its_pods():
    refusal = kit(pod_group({"name": "c"})).begin(A).pre_filter

    words = "PodGroup default/g claim c: none of the supported fields are set"
    assert refusal == Status.unschedulable(words, resolvable=False)


def test_a_new_claim_of_the_group_helps_its_members():
    it = kit(pod_group(OF_TEMPLATE))
    claims = it.table.watch_kind("resource.k8s.io/v1/resourceclaims")
    new = claims["default/made"]

    assert after_claim_change(claims, A, None, new, of_groups=True) is QueueingHint.QUEUE
    assert after_claim_change(claims, A, None, new) is QueueingHint.SKIP


# Groups without a place give their claims back.


def stuck(group: dict[str, Any] | None = None) -> Kit:
    """Return a cluster where the claim is allocated on n and reserved for the group."""
    it = kit(group or pod_group(OF_TEMPLATE), allocated=allocation("gpu-0", node="n"))
    it.api.change("default/made", reservedFor=[GROUP_CONSUMER])
    it.watch_shows("default/made")
    return it


async def test_a_group_without_a_placed_member_gives_its_claim_back():
    it = stuck()
    attempt = it.begin(A, attempted_group())
    assert attempt.reasons() == {"m": "resourceclaim not available on the node"}

    words = "ResourceClaim unreserved for PodGroup"
    assert attempt.post_filter() == Status.unschedulable(words, resolvable=False)

    words = "resource claim default/made is in the process of being given back"
    assert it.begin(B).pre_filter == Status.unschedulable(words, resolvable=False)
    await it.fakes.background.carry_out()
    assert reserved(it) == []
    assert it.fakes.activator.activated == [A.uid], "it was refused meanwhile"
    assert it.begin(B).reasons() == {"m": "resourceclaim not available on the node"}


async def test_a_claim_that_was_given_back_is_deallocated_by_the_next_attempt():
    it = stuck()
    first = it.begin(A)
    first.filter()
    first.post_filter()
    await it.fakes.background.carry_out()

    second = it.begin(A)
    second.filter()
    assert second.post_filter() == Status.unschedulable("deallocation of ResourceClaim completed")


def test_a_group_with_a_placed_member_keeps_its_claim():
    it = stuck()
    it.fakes.pod_groups.on_nodes[KEY] = [member("placed", node="n")]
    attempt = it.begin(A)
    attempt.filter()

    assert attempt.post_filter() == Status.unschedulable("still not schedulable")
    assert it.fakes.background.started == []


def test_members_placed_in_the_same_attempt_do_not_keep_a_claim():
    it = stuck()
    group = attempted_group()
    placed(it, B, "n", group)
    it.fakes.pod_groups.on_nodes[KEY] = [B]
    attempt = it.begin(A, group)
    attempt.filter()

    assert attempt.post_filter().message == "ResourceClaim unreserved for PodGroup"

    later = it.begin(member("c"), attempted_group())
    assert later.pre_filter is not None, "its release is in flight"


@pytest.mark.parametrize(
    ("group", "words"),
    [
        (pod_group(OF_TEMPLATE, made=None), "PodGroup default/g: ResourceClaim not created yet"),
        (pod_group(OF_TEMPLATE, made="lost"), 'could not find ResourceClaim "default/lost"'),
    ],
    ids=["not created", "deleted"],
)
def test_a_group_whose_claim_cannot_be_found_fails(group: dict[str, Any], words: str):
    attempt = stuck(group).begin(A)
    attempt.filter()

    found = attempt.post_filter()

    assert (found.code, found.message) == (Code.ERROR, words)


async def test_without_the_gate_no_claim_is_given_back():
    features = FakeFeatures("1.37", GenericWorkload=True)
    made = resource_claim("made", allocated=allocation("gpu-0", node="n"), owner=A)
    it = Kit(node("m"), device_class(), resource_slice("n", 1), made, features=features)
    it.api.change("default/made", reservedFor=[GROUP_CONSUMER])
    it.watch_shows("default/made")
    attempt = it.begin(A)
    attempt.filter()

    assert attempt.post_filter() == Status.unschedulable("still not schedulable")
    assert it.fakes.background.started == []
