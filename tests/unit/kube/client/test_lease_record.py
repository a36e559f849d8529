from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from scheduler.errors import ObjectError
from scheduler.kube.client.lease import Claim, Lease, LeaseRecord, released

NOW = datetime(2026, 11, 21, 1, 34, 13, 5, tzinfo=UTC)
MOMENT = "2026-11-21T01:34:13.000005Z"
BEFORE = "2026-11-21T01:00:00.000000Z"


def lease(**spec: Any) -> Lease:
    return decoded({"metadata": {"name": "l", "resourceVersion": "7"}, "spec": spec})


def decoded(raw: Any) -> Lease:
    return Lease.decode(json.dumps(raw).encode(), "kube-system/l")


def test_a_new_lease_has_its_holder_time_and_duration():
    assert Claim("me", 15.0).on_new("kube-system", "l", NOW) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l", "namespace": "kube-system"},
        "spec": {
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "acquireTime": MOMENT,
            "renewTime": MOMENT,
            "leaseTransitions": 0,
        },
    }


def test_a_renewal_changes_only_the_renew_time():
    held = lease(
        holderIdentity="me",
        leaseDurationSeconds=15,
        acquireTime=BEFORE,
        renewTime=BEFORE,
        leaseTransitions=3,
    )

    assert Claim("me", 15.0).on(held, NOW)["spec"] == {**held.raw["spec"], "renewTime": MOMENT}


@pytest.mark.parametrize("holder", ["another", "", None])
def test_a_takeover_increments_the_transitions(holder: str | None):
    found = lease(holderIdentity=holder, acquireTime=BEFORE, leaseTransitions=3)

    spec = Claim("me", 15.0).on(found, NOW)["spec"]

    assert (spec["holderIdentity"], spec["leaseTransitions"], spec["acquireTime"]) == ("me", 4, MOMENT)


@pytest.mark.parametrize("change", [lambda it: Claim("me", 15.0).on(it, NOW), lambda it: released(it, NOW)])
def test_unknown_fields_of_a_lease_are_kept(change: Any):
    raw = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l", "resourceVersion": "7", "annotations": {"a": "b"}, "new": [1]},
        "spec": {"holderIdentity": "another", "strategy": "OldestEmulationVersion", "new": {"deep": None}},
        "more": True,
    }

    changed = change(decoded(raw))

    assert {**changed, "spec": {}} == {**raw, "spec": {}}
    assert changed["spec"]["strategy"] == "OldestEmulationVersion"
    assert changed["spec"]["new"] == {"deep": None}


def test_a_released_lease_is_free_at_once_and_keeps_its_transitions():
    held = lease(holderIdentity="me", leaseDurationSeconds=15, leaseTransitions=3, acquireTime=BEFORE)

    assert released(held, NOW)["spec"] == {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "acquireTime": MOMENT,
        "renewTime": MOMENT,
        "leaseTransitions": 3,
    }


@pytest.mark.parametrize(("seconds", "written"), [(15.0, 15), (1.5, 2), (0.2, 1)])
def test_a_written_duration_is_never_shorter_than_the_real_one(seconds: float, written: int):
    assert Claim("me", seconds).on(lease(), NOW)["spec"]["leaseDurationSeconds"] == written


@pytest.mark.parametrize("raw", [{}, {"spec": None}, {"spec": {}}], ids=["none", "null", "empty"])
def test_a_lease_without_a_spec_has_no_holder(raw: dict[str, Any]):
    found = decoded(raw)

    assert found.record == LeaseRecord()
    assert Claim("me", 15.0).on(found, NOW)["spec"]["leaseTransitions"] == 1


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"null", b"\xff", b'{"spec": []}', b'{"spec": {"leaseTransitions": "many"}}'],
    ids=["nothing", "a list", "null", "no text", "a spec that is a list", "a number that is text"],
)
def test_an_invalid_lease_is_an_error_that_names_it(body: bytes):
    with pytest.raises(ObjectError, match=r"Lease kube-system/l: unreadable"):
        Lease.decode(body, "kube-system/l")
