"""Writes to claims, for all responses of the API server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plugins.dynamic_resources.claim_writes import FINALIZER, ClaimError, ClaimWrites
from plugins.dynamic_resources.pod_claims import CLAIMS, HeldClaim, consumer_of
from scheduler.daemon.app.capabilities import TableObjects
from scheduler.errors import ApiError
from scheduler.objects.dynamic_resources import AllocationResult, ResourceClaim
from scheduler.objects.meta import ObjectMeta
from scheduler.objects.v1 import ContainerExtendedResourceRequest
from scheduler.snapshot import ClusterTable
from scheduler.testing.devices import allocation, resource_claim, watch_devices
from scheduler.testing.fakes import FakeSleep
from tests.support.builders import pod
from tests.support.manual_clock import ManualClock
from tests.unit.plugins.dynamic_resources.claims_api import CONFLICT, LOST, ClaimsApi

POD, OTHER = pod("web"), pod("db")
UNAUTHORIZED = ApiError(401, "Unauthorized", "the token has expired")
GIVEN = allocation("gpu-0", node="n1")
ELSEWHERE = allocation("gpu-0", node="n2")
KEY = "default/one"
PATH = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/one"
FREE = resource_claim("one")
HELD = resource_claim("one", allocated=GIVEN, reserved_for=[OTHER])


def given() -> AllocationResult:
    return msgspec.convert(GIVEN, AllocationResult)


class Writing:
    """An API server with one claim, and the writer of the claim."""

    def __init__(self, claim: dict[str, Any]) -> None:
        self.api = ClaimsApi(claim)
        self.clock = ManualClock()
        self.table = ClusterTable()
        watch_devices(self.table, claim)
        self.claim = HeldClaim.of(claim)
        self.writes = ClaimWrites(
            api=self.api,
            reads=self.api,
            objects=TableObjects(self.table),
            sleep=FakeSleep(self.clock),
            clock=self.clock,
        )

    async def reserve(self, *, allocate: bool) -> HeldClaim:
        return await self.writes.reserve(self.claim, consumer_of(POD), given() if allocate else None)

    def requests(self) -> list[str]:
        return [f"{write.method} {write.path.removeprefix(PATH)}" for write in self.api.writes]

    def reserved_for(self) -> list[str]:
        return [each["name"] for each in self.api.claims[KEY]["status"].get("reservedFor", [])]

    def shown(self) -> Any:
        return self.table.watch_kind(CLAIMS)[KEY]


async def test_a_new_allocation_adds_the_finalizer_and_then_writes_its_time_and_pod():
    it = Writing(FREE)

    written = await it.reserve(allocate=True)

    assert it.requests() == ["PUT ", "PUT /status"]
    first, second = it.api.writes
    assert first.body["metadata"]["finalizers"] == [FINALIZER]
    assert second.body["status"] == {
        "allocation": {**GIVEN, "allocationTimestamp": "2026-03-01T08:00:00Z"},
        "reservedFor": [{"resource": "pods", "name": "web", "uid": POD.uid}],
    }
    assert written.obj["metadata"]["resourceVersion"] == "102"


async def test_a_claim_with_the_finalizer_needs_one_write():
    it = Writing(resource_claim("one", finalizers=[FINALIZER]))

    await it.reserve(allocate=True)

    assert it.requests() == ["PUT /status"]


async def test_a_pod_joins_the_consumers_of_an_allocated_claim():
    it = Writing(HELD)

    await it.reserve(allocate=False)

    assert it.requests() == ["PUT /status"]
    assert it.reserved_for() == ["db", "web"]
    assert it.api.claims[KEY]["status"]["allocation"] == GIVEN, "it may not be changed any more"


async def test_a_concurrently_changed_claim_is_read_again():
    it = Writing(FREE)
    it.api.meanwhile = [lambda: it.api.change(KEY, note="somebody else")]

    await it.reserve(allocate=True)

    assert it.requests() == ["PUT ", "PUT ", "PUT /status"]
    assert it.reserved_for() == ["web"]
    assert it.api.claims[KEY]["status"]["note"] == "somebody else"


async def test_a_claim_that_changes_every_time_fails_after_five_tries():
    it = Writing(HELD)
    it.api.refusals = [CONFLICT] * 9

    with pytest.raises(
        ClaimError, match=r"^add reservation to claim default/one: the object has been modified$"
    ):
        await it.reserve(allocate=False)

    assert it.requests() == ["PUT /status"] * 5
    assert it.clock.now == pytest.approx(0.04)


@pytest.mark.parametrize(
    ("claim", "allocate", "meanwhile", "why"),
    [
        pytest.param(FREE, True, {"allocation": GIVEN}, "claim default/one got allocated elsewhere in the meantime", id="allocated"),
        pytest.param(HELD, False, {"allocation": None}, "claim default/one got deallocated elsewhere in the meantime", id="deallocated"),
        pytest.param(HELD, False, {"allocation": ELSEWHERE}, "claim default/one got allocated elsewhere in the meantime", id="allocated to another node"),
    ],
)  # fmt: skip
async def test_concurrent_changes_by_others_are_found(
    claim: dict[str, Any], allocate: bool, meanwhile: dict[str, Any], why: str
):
    it = Writing(claim)
    it.api.meanwhile = [lambda: it.api.change(KEY, **meanwhile)]

    with pytest.raises(ClaimError, match=rf"^{why}$"):
        await it.reserve(allocate=allocate)


async def test_a_claim_that_is_being_deleted_is_not_written():
    it = Writing(resource_claim("one", deleted=True))

    with pytest.raises(ClaimError, match=r"^claim default/one got deleted in the meantime$"):
        await it.reserve(allocate=True)

    assert it.requests() == []


@pytest.mark.parametrize(
    ("refusals", "why"),
    [
        pytest.param([ApiError(403, "Forbidden", "no")], "add finalizer to claim default/one: no", id="finalizer"),
        pytest.param([None, ApiError(422, "Invalid", "Too many: 257")], "add allocation and reservation to claim default/one: Too many: 257", id="status"),
        pytest.param([None, CONFLICT], "get updated claim default/one after conflict: it was deleted, or may not be read", id="reading again"),
    ],
)  # fmt: skip
async def test_a_refusal_has_the_message_of_upstream(refusals: list[ApiError | None], why: str):
    it = Writing(FREE)
    it.api.refusals = refusals
    it.api.unread = [ApiError(503, "", "down"), ApiError(404, "NotFound", "gone")]

    with pytest.raises(ClaimError, match=rf"^{why}$"):
        await it.reserve(allocate=True)


@pytest.mark.parametrize("answer", [LOST, ApiError(502, "", "bad gateway")], ids=["none", "of a balancer"])
async def test_a_write_with_a_lost_response_that_took_effect_is_a_success(answer: ApiError):
    it = Writing(FREE)
    it.api.lost = [None, answer]
    it.api.unread = [answer, ApiError(429, "", "busy", retry_after_seconds=9)]

    written = await it.reserve(allocate=True)

    assert written.obj["metadata"]["resourceVersion"] == "102"
    assert len(it.api.reads) == 3, "it is asked until it answers"
    assert it.clock.now == pytest.approx(1.0 + 9.0)


async def test_a_claim_whose_write_has_no_response_is_read_again_when_the_token_has_expired():
    it = Writing(FREE)
    it.api.lost = [None, LOST]
    it.api.unread = [LOST, *[UNAUTHORIZED] * 50]

    await it.reserve(allocate=True)

    assert it.shown()["status"]["allocation"]["devices"] == GIVEN["devices"], (
        "else its devices were given to the next"
    )


async def test_a_claim_that_may_not_be_read_for_a_minute_has_failed():
    it = Writing(FREE)
    it.api.lost = [None, LOST]
    it.api.unread = [UNAUTHORIZED] * 100

    with pytest.raises(ClaimError, match="connection lost"):
        await it.reserve(allocate=True)

    assert it.clock.now == pytest.approx(60.0)


async def test_a_repeated_write_that_conflicts_with_itself_is_a_success():
    it = Writing(FREE)
    it.api.lost = [None, CONFLICT]

    written = await it.reserve(allocate=True)

    assert it.requests() == ["PUT ", "PUT /status"]
    assert written.obj["metadata"]["resourceVersion"] == "102"


@pytest.mark.parametrize("answer", [CONFLICT, LOST], ids=["a conflict", "none"])
async def test_a_concurrent_allocation_to_another_pod_is_found_at_once(answer: ApiError):
    it = Writing(resource_claim("one", finalizers=[FINALIZER]))
    it.api.refusals = [answer]
    it.api.meanwhile = [lambda: it.api.change(KEY, allocation=GIVEN)]

    with pytest.raises(ClaimError):
        await it.reserve(allocate=True)

    assert it.shown()["status"]["allocation"] == GIVEN, "else its devices were given to the next"


@pytest.mark.parametrize(
    "found",
    [
        pytest.param({}, id="nothing was written"),
        pytest.param({"allocation": allocation("gpu-1", node="n1"), "reservedFor": [{"uid": POD.uid}]}, id="another device"),
        pytest.param({"allocation": GIVEN, "reservedFor": [{"uid": OTHER.uid}]}, id="another pod"),
    ],
)  # fmt: skip
async def test_a_write_with_a_lost_response_that_did_not_take_effect_has_failed(found: dict[str, Any]):
    it = Writing(resource_claim("one", finalizers=[FINALIZER]))
    it.api.refusals = [LOST]
    it.api.meanwhile = [lambda: it.api.change(KEY, **found)]

    with pytest.raises(
        ClaimError, match=r"^add allocation and reservation to claim default/one: connection lost$"
    ):
        await it.reserve(allocate=True)


async def test_a_reservation_of_a_claim_that_moved_to_another_node_has_failed():
    it = Writing(HELD)
    it.api.refusals = [LOST]
    it.api.meanwhile = [lambda: it.api.change(KEY, allocation=ELSEWHERE, reservedFor=[{"uid": POD.uid}])]

    with pytest.raises(ClaimError, match=r"^add reservation to claim default/one: connection lost$"):
        await it.reserve(allocate=False)


async def test_a_claim_that_is_deleted_when_it_is_read_back_has_failed():
    it = Writing(FREE)
    it.api.lost = [LOST]
    it.api.unread = [ApiError(404, "NotFound", "gone")]

    with pytest.raises(ClaimError, match=r"^add finalizer to claim default/one: connection lost$"):
        await it.reserve(allocate=True)


async def test_an_unreserved_claim_keeps_its_other_pods():
    it = Writing(resource_claim("one", allocated=GIVEN, reserved_for=[POD, OTHER]))

    await it.writes.unreserve(it.claim.claim, POD.uid)

    (write,) = it.api.writes
    assert write.body == {
        "metadata": {"uid": "uid-of-default-one"},
        "status": {"reservedFor": [{"$patch": "delete", "uid": POD.uid}]},
    }
    assert it.reserved_for() == ["db"]
    assert it.shown() == it.api.claims[KEY]


async def test_a_deallocated_claim_has_neither_devices_nor_pods_left():
    status = [{"driver": "d", "pool": "p", "device": "x"}]
    it = Writing(resource_claim("one", allocated=GIVEN, reserved_for=[POD], devices=status))
    it.claim.obj["status"]["other"] = "stays"  # type: ignore[index]

    await it.writes.deallocate(it.claim)

    assert it.api.claims[KEY]["status"] == {"other": "stays"}
    assert it.shown()["status"] == {"other": "stays"}


async def test_a_deleted_claim_loses_our_finalizer_first():
    it = Writing(resource_claim("one", allocated=GIVEN, finalizers=["other/one", FINALIZER]))
    it.api.meanwhile = [lambda: it.api.change(KEY, note="somebody else")]

    await it.writes.delete(it.claim)

    assert it.requests() == ["PUT ", "PUT ", "DELETE "]
    assert it.api.writes[1].body["metadata"]["finalizers"] == ["other/one"]
    assert it.api.claims == {}


async def test_the_claim_for_extended_resources_is_created_for_its_pod():
    it = Writing(FREE)
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}

    created = await it.writes.create(ResourceClaim(metadata=ObjectMeta(annotations=annotations)), POD)

    assert it.api.writes[0].body["metadata"]["generateName"] == "web-extended-resources-"
    assert created.claim.key == "default/web-extended-resources-xyz"
    assert created.claim.metadata.annotations == annotations


async def test_a_claim_that_cannot_be_created_is_reported():
    it = Writing(FREE)
    it.api.refusals = [ApiError(403, "Forbidden", "no")]

    with pytest.raises(ClaimError, match=r"^create claim for extended resources default/: no$"):
        await it.writes.create(ResourceClaim(), POD)


async def test_the_pod_status_gets_the_claim_and_a_lost_response_is_retried():
    it = Writing(FREE)
    it.api.refusals = [LOST, None]
    mapping = ContainerExtendedResourceRequest("main", "example.com/gpu", "container-0-request-0")

    await it.writes.tell_pod(POD, it.claim.claim, [mapping])

    first, second = it.api.writes
    assert first == second
    assert first.path == "/api/v1/namespaces/default/pods/web/status"
    assert first.body == {
        "status": {
            "extendedResourceClaimStatus": {
                "resourceClaimName": "one",
                "requestMappings": [
                    {
                        "containerName": "main",
                        "resourceName": "example.com/gpu",
                        "requestName": "container-0-request-0",
                    }
                ],
            }
        }
    }


@pytest.mark.parametrize(
    ("error", "tries"), [pytest.param(LOST, 4, id="lost"), pytest.param(CONFLICT, 1, id="refused")]
)
async def test_a_failed_write_of_the_pod_status_fails_the_attempt(error: ApiError, tries: int):
    it = Writing(FREE)
    it.api.refusals = [error] * 9

    with pytest.raises(ClaimError, match=r"^update pod default/web ExtendedResourceClaimStatus: "):
        await it.writes.tell_pod(POD, it.claim.claim, [])

    assert len(it.api.writes) == tries


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(None, id="deleted"),
        pytest.param(resource_claim("one", version=103), id="it is newer"),
        pytest.param(resource_claim("one", uid="another"), id="it is another of that name"),
    ],
)
async def test_a_response_older_than_the_watch_is_ignored(shown: dict[str, Any] | None):
    it = Writing(FREE)
    store = it.table.watch_kind(CLAIMS)
    if shown is None:
        del store[KEY]
    else:
        store[KEY] = shown

    it.writes.show(await it.reserve(allocate=True))

    assert store.get(KEY) == shown
