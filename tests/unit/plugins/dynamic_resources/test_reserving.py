"""From Reserve to PreBind and back: allocations in flight, the writes, and their results."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from plugins.dynamic_resources.claim_writes import FINALIZER
from plugins.dynamic_resources.devices import Devices
from scheduler.daemon.app.capabilities import TableObjects
from scheduler.errors import ApiError
from scheduler.framework import ActionType, ClusterEvent, Code, EventResource, PodGroup, Status
from scheduler.objects.pod_group import POD_GROUPS, GroupKey
from scheduler.testing.devices import (
    DRIVER,
    allocation,
    claims_of,
    device_class,
    resource_claim,
    resource_slice,
)
from tests.support.builders import node, pod
from tests.unit.plugins.dynamic_resources.claims_api import LOST
from tests.unit.plugins.dynamic_resources.kit import Attempt, Kit, placed

if TYPE_CHECKING:
    from collections.abc import Sequence


GPU = "example.com/gpu"
NO_ROOM = "cannot allocate all claims"
FIRST, SECOND = pod("first", resourceClaims=claims_of("one")), pod("second", resourceClaims=claims_of("two"))
SHARING = pod("sharing", resourceClaims=claims_of("one"))
CLAIM_UPDATE = ClusterEvent(EventResource.RESOURCE_CLAIM, ActionType.UPDATE)


def kit(*objects: Any, devices: int = 1, **args: Any) -> Kit:
    return Kit(node("a"), device_class(extended_resource=GPU), resource_slice("a", devices), *objects, **args)


def two_claims(devices: int = 1) -> Kit:
    return kit(resource_claim("one"), resource_claim("two"), devices=devices)


def devices_of(it: Kit) -> Devices:
    return Devices.of(TableObjects(it.table))


CREATED = "scheduler_resourceclaim_creates_total"
ALLOCATED = "scheduler_dra_bindingconditions_allocations_total"
AWAITED = "scheduler_dra_bindingconditions_wait_duration_seconds"


def failed(status: Status | None) -> str:
    assert status is not None
    assert status.code is Code.ERROR
    return status.message


# Allocations in flight.


def test_a_device_is_allocated_from_reserve_on_for_all_profiles():
    it = two_claims()
    placed(it, FIRST, "a")

    it.plugin = it.another()
    assert it.begin(SECOND).reasons() == {"a": NO_ROOM}


def test_a_claim_in_flight_cannot_be_used_by_other_pods():
    it = two_claims()
    placed(it, FIRST, "a")

    waiting = it.begin(SHARING)

    words = "resource claim default/one is in the process of being allocated"
    assert waiting.pre_filter == Status.unschedulable(words, resolvable=False)


def test_members_of_a_group_share_a_claim_in_flight():
    it = Kit(
        *(node(name) for name in "ab"),
        device_class(),
        *(resource_slice(name, 1) for name in "ab"),
        *(resource_claim(name) for name in ("one", "two")),
    )
    group = PodGroup(GroupKey(POD_GROUPS, "default", "g"), "uid-of-g")
    first = placed(it, FIRST, "a", group)
    assert it.begin(SHARING).pre_filter is not None
    assert it.begin(SHARING, replace(group)).pre_filter is not None, "of another attempt"

    second = it.begin(SHARING, group)
    assert second.reasons() == {"b": "resourceclaim not available on the node"}
    assert second.reserve("a") is None

    first.unreserve("a")
    assert it.begin(SECOND).reasons() == {"a": NO_ROOM}
    second.unreserve("a")
    assert it.begin(SECOND).reasons() == {}
    assert devices_of(it).in_flight == {}


def test_reserved_devices_are_free_after_unreserve():
    it = two_claims()
    attempt = placed(it, FIRST, "a")

    attempt.unreserve("a")

    assert it.begin(SECOND).reasons() == {}
    assert it.begin(SHARING).reasons() == {}
    assert it.fakes.background.started == [], "nothing was written"


def test_unreserve_of_a_pod_without_devices_affects_no_other_pod():
    it = two_claims()
    other = it.begin(SHARING)
    placed(it, FIRST, "a")

    other.unreserve("a")

    assert it.begin(SECOND).reasons() == {"a": NO_ROOM}


def test_a_deleted_node_fails_the_attempt():
    it = two_claims()
    attempt = it.begin(FIRST)
    it.table.remove_node("a")

    assert failed(attempt.reserve("a")) == "claim allocation not found for node"


@pytest.mark.parametrize("steps", [["one", "two"], ["two", "one"]], ids=["in order", "the other way round"])
def test_allocated_devices_follow_the_watch(steps: Sequence[str]):
    it = two_claims(devices=2)
    store = it.table.watch_kind("resource.k8s.io/v1/resourceclaims")
    left = []
    for number, name in enumerate(steps):
        store[f"default/{name}"] = resource_claim(
            name, allocated=allocation(f"gpu-{number}", node="a"), version=2
        )
        left.append(it.begin(pod("p", resourceClaims=claims_of("free"))).pre_filter is None)
        store["default/free"] = resource_claim("free")
        left.append(it.begin(pod("p", resourceClaims=claims_of("free"))).reasons() == {})
    assert left == [False, True, True, False]

    del store[f"default/{steps[0]}"]
    assert it.begin(pod("p", resourceClaims=claims_of("free"))).reasons() == {}


def test_a_recreated_claim_releases_the_devices_of_the_old_one():
    it = kit(resource_claim("one", allocated=allocation("gpu-0", node="a")), resource_claim("two"))
    assert it.begin(SECOND).reasons() == {"a": NO_ROOM}

    it.table.watch_kind("resource.k8s.io/v1/resourceclaims")["default/one"] = resource_claim(
        "one", uid="anew"
    )

    assert it.begin(SECOND).reasons() == {}


def test_very_many_changes_cause_a_full_read():
    it = two_claims()
    it.begin(SECOND).reasons()
    store = it.table.watch_kind("resource.k8s.io/v1/resourceclaims")
    store["default/one"] = resource_claim("one", allocated=allocation("gpu-0", node="a"))
    for _ in range(5000):
        store["default/two"] = resource_claim("two")

    assert it.begin(SECOND).reasons() == {"a": NO_ROOM}


# PreBind.


async def test_a_reserved_device_is_written_and_visible_before_the_watch_event():
    it = two_claims()
    attempt = placed(it, FIRST, "a")

    assert await attempt.pre_bind("a") is None

    claim = it.api.claims["default/one"]
    assert claim["metadata"]["finalizers"] == [FINALIZER]
    assert claim["status"]["allocation"]["devices"]["results"] == [
        {"request": "r0", "driver": DRIVER, "pool": "a", "device": "gpu-0"}
    ]
    assert [each["name"] for each in claim["status"]["reservedFor"]] == ["first"]
    assert devices_of(it).in_flight == {}
    assert it.begin(SECOND).reasons() == {"a": NO_ROOM}, "the watch has not shown it yet"
    assert it.begin(SHARING).reasons() == {}, "others may use the claim from now on"


async def test_a_lagging_watch_does_not_release_a_written_device():
    it = two_claims()
    attempt = placed(it, FIRST, "a")
    await attempt.pre_bind("a")

    it.table.watch_kind("resource.k8s.io/v1/resourceclaims")["default/one"] = resource_claim(
        "one", version=101
    )

    assert it.begin(SECOND).reasons() == {"a": NO_ROOM}


async def test_all_pods_that_share_a_claim_are_written_into_it():
    it = two_claims()
    await placed(it, FIRST, "a").pre_bind("a")
    await placed(it, SHARING, "a").pre_bind("a")

    assert [each["name"] for each in it.api.claims["default/one"]["status"]["reservedFor"]] == [
        "first",
        "sharing",
    ]


async def test_a_claim_that_is_already_reserved_for_the_pod_is_not_written_again():
    given = resource_claim("one", allocated=allocation("gpu-0", node="a"), reserved_for=[FIRST])
    it = kit(given)

    assert await placed(it, FIRST, "a").pre_bind("a") is None
    assert it.api.writes == []


async def test_the_257th_pod_of_a_claim_gets_the_message_of_the_api_server():
    it = kit(resource_claim("one", allocated=allocation("gpu-0", node="a")))
    it.api.refusals = [
        ApiError(422, "Invalid", "status.reservedFor: Too many: 257: must have at most 256 items")
    ]

    status = await placed(it, FIRST, "a").pre_bind("a")

    assert failed(status).startswith(
        "add reservation to claim default/one: status.reservedFor: Too many: 257"
    )


async def test_a_refused_write_frees_the_device():
    it = two_claims()
    it.api.refusals = [ApiError(403, "Forbidden", "no")]
    attempt = placed(it, FIRST, "a")

    assert failed(await attempt.pre_bind("a")) == "add finalizer to claim default/one: no"
    attempt.unreserve("a")

    assert it.begin(SECOND).reasons() == {}


async def test_a_write_with_a_lost_response_keeps_its_device_until_it_is_verified():
    it = two_claims()
    it.api.lost = [None, LOST]
    seen = []
    it.api.unread = [LOST]
    sleep = it.fakes.clock.advance
    it.fakes.clock.advance = lambda seconds: (sleep(seconds), seen.append(it.begin(SECOND).reasons()))[0]  # type: ignore[method-assign]

    assert await placed(it, FIRST, "a").pre_bind("a") is None

    assert seen == [{"a": NO_ROOM}]
    assert it.begin(SECOND).reasons() == {"a": NO_ROOM}


class Hanging:
    """An API server that responds to a write only on request."""

    def __init__(self, it: Kit) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self._write = it.api.api_write
        it.api.api_write = self.api_write  # type: ignore[method-assign]

    async def api_write(self, method: str, path: str, *rest: Any, **options: Any) -> Any:
        if path.endswith("/status"):
            self.begun.set()
            await self._write(method, path, *rest, **options)
            await self.go_on.wait()
        return await self._write(method, path, *rest, **options)


async def test_an_abandoned_write_is_verified_before_its_device_is_free():
    it = two_claims()
    attempt = placed(it, FIRST, "a")
    hanging = Hanging(it)
    pre_bind = asyncio.create_task(attempt.pre_bind("a"))
    await hanging.begun.wait()

    pre_bind.cancel()
    await asyncio.wait([pre_bind])
    attempt.unreserve("a")

    assert it.begin(SECOND).reasons() == {"a": NO_ROOM}
    assert it.begin(SHARING).pre_filter is not None
    assert it.begin(FIRST).pre_filter is not None
    await it.fakes.background.carry_out()
    assert it.fakes.activator.activated == [FIRST.uid], "it was refused meanwhile"
    assert it.begin(SECOND).reasons() == {"a": NO_ROOM}, "it was written"
    assert it.begin(FIRST).reasons() == {}


async def test_a_bound_claim_is_released_in_the_background():
    it = two_claims()
    attempt = placed(it, FIRST, "a")
    await attempt.pre_bind("a")

    attempt.unreserve("a")
    assert it.begin(SHARING).reasons() == {}, "others may go on using it"

    await it.fakes.background.carry_out()
    assert it.api.writes[-1].method == "PATCH"
    assert it.api.claims["default/one"]["status"]["reservedFor"] == []
    assert it.fakes.activator.activated == [], "it has its backoff"


async def test_a_pod_waits_while_its_reservation_is_being_removed():
    it = two_claims()
    attempt = placed(it, FIRST, "a")
    await attempt.pre_bind("a")
    attempt.unreserve("a")

    again = it.begin(FIRST)

    words = "resource claim default/one is in the process of being given back"
    assert again.pre_filter == Status.unschedulable(words, resolvable=False)
    await it.fakes.background.carry_out()
    assert it.fakes.activator.activated == [FIRST.uid]


# The claim for extended resources.

ASKS = pod("ai", requests={GPU: 1})
NEW = "default/ai-extended-resources-xyz"


async def test_extended_resources_get_their_own_claim_and_the_pod_status_names_it():
    it = kit(resource_claim("two"))
    it.fakes.happenings.coming = [(CLAIM_UPDATE, None, resource_claim("ai-extended-resources-xyz"))]
    attempt = placed(it, ASKS, "a")
    assert it.begin(SECOND).reasons() == {"a": NO_ROOM}, "it is taken before it is written"
    show = it.fakes.happenings.wait_for_change_of

    async def the_watch_catches_up(*args: Any, **options: Any) -> bool:
        it.watch_shows(NEW)
        return await show(*args, **options)

    it.fakes.happenings.wait_for_change_of = the_watch_catches_up  # type: ignore[method-assign]

    assert await attempt.pre_bind("a") is None

    claim = it.api.claims[NEW]
    assert [(write.method, write.path.rpartition("/")[2]) for write in it.api.writes] == [
        ("POST", "resourceclaims"),
        ("PUT", "ai-extended-resources-xyz"),
        ("PUT", "status"),
        ("PATCH", "status"),
    ]
    assert claim["spec"]["devices"]["requests"] == [
        {
            "name": "container-0-request-0",
            "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
        }
    ]
    assert [each["name"] for each in claim["status"]["reservedFor"]] == ["ai"]
    reported = it.api.writes[-1].body["status"]["extendedResourceClaimStatus"]
    assert reported["resourceClaimName"] == "ai-extended-resources-xyz"
    assert it.fakes.metrics.calls == [(CREATED, ("success",), 1.0)]
    assert devices_of(it).in_flight == {}
    assert it.begin(SECOND).reasons() == {"a": NO_ROOM}


async def test_a_claim_that_cannot_be_created_frees_the_device():
    it = kit(resource_claim("two"))
    it.api.refusals = [ApiError(403, "Forbidden", "no")]
    attempt = placed(it, ASKS, "a")

    assert failed(await attempt.pre_bind("a")) == "create claim for extended resources default/: no"
    attempt.unreserve("a")

    assert it.fakes.metrics.calls == [(CREATED, ("failure",), 1.0)]
    assert it.begin(SECOND).reasons() == {}
    assert it.fakes.background.started == []


@pytest.mark.parametrize(
    "refusals",
    [
        pytest.param([None, ApiError(403, "Forbidden", "no")], id="finalizer"),
        pytest.param([None, None, ApiError(403, "Forbidden", "no")], id="allocation"),
        pytest.param([None, None, None, ApiError(403, "Forbidden", "no")], id="the pod's status"),
    ],
)
async def test_an_unneeded_claim_is_deleted(refusals: list[ApiError | None]):
    it = kit(resource_claim("two"))
    it.api.refusals = refusals
    attempt = placed(it, ASKS, "a")

    assert failed(await attempt.pre_bind("a"))
    attempt.unreserve("a")
    await it.fakes.background.carry_out()

    assert NEW not in it.api.claims
    assert it.begin(SECOND).reasons() == {}


# Binding conditions.

WAITING = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}


def said(kind: str, *, version: int = 900) -> dict[str, Any]:
    """The claim with the driver's condition."""
    conditions = [{"type": kind, "status": "True", "reason": "Burnt", "message": "out"}]
    given = allocation("gpu-0", node="a", timestamp="2026-03-01T08:00:00Z", **WAITING)
    status = [{"driver": DRIVER, "pool": "a", "device": "gpu-0", "conditions": conditions}]
    return resource_claim("one", allocated=given, reserved_for=[FIRST], devices=status, version=version)


def to_be_made_ready(**args: Any) -> Kit:
    cluster = [
        node("a"),
        device_class(),
        resource_slice("a", [{"name": "gpu-0", **WAITING}]),
        resource_claim("one"),
    ]
    return Kit(*cluster, **args)


def when_asked(it: Kit, *changes: dict[str, Any] | None) -> list[float]:
    """End a wait with a change of the claim, or, with None, with its timeout; return the times."""
    times: list[float] = []
    coming = iter(changes)

    async def wait_for_change_of(_objects: Any, *, timeout_seconds: float) -> bool:
        times.append(timeout_seconds)
        change = next(coming)
        if change is None:
            it.fakes.clock.advance(timeout_seconds)
            return False
        it.table.watch_kind("resource.k8s.io/v1/resourceclaims")["default/one"] = change
        return True

    it.fakes.happenings.wait_for_change_of = wait_for_change_of  # type: ignore[method-assign]
    return times


async def test_a_pod_waits_until_its_devices_are_ready():
    it = to_be_made_ready()
    times = when_asked(it, said("Other"), said("Ready", version=901))

    assert await placed(it, FIRST, "a").pre_bind("a") is None

    assert times == [600.0, 600.0]
    (event,) = it.fakes.events.recorded
    assert event == (
        "default/first",
        "Normal",
        "BindingConditionsPending",
        "Scheduling",
        "waiting for binding conditions for device on node a",
    )
    assert it.fakes.metrics.calls == [
        (AWAITED, ("custom-scheduler", DRIVER, "success"), 0.0),
        (ALLOCATED, ("custom-scheduler", DRIVER, "success"), 1.0),
    ]


async def test_a_failed_device_ends_the_wait():
    it = to_be_made_ready()
    when_asked(it, said("Broken"))

    status = await placed(it, FIRST, "a").pre_bind("a")

    assert failed(status) == 'device binding failed: claim=one, reason=Burnt, message="out"'
    assert it.fakes.metrics.calls[-1] == (ALLOCATED, ("custom-scheduler", DRIVER, "failed"), 1.0)


async def test_the_wait_ends_at_its_timeout():
    it = to_be_made_ready(bindingTimeout="30s")
    times = when_asked(it, None)

    status = await placed(it, FIRST, "a").pre_bind("a")

    assert failed(status) == "device binding timeout: claim=one"
    assert times == [30.0]
    assert it.fakes.metrics.calls[0] == (AWAITED, ("custom-scheduler", DRIVER, "timeout"), 30.0)


async def test_a_deleted_claim_ends_the_wait():
    it = to_be_made_ready()
    attempt: Attempt = placed(it, FIRST, "a")
    store = it.table.watch_kind("resource.k8s.io/v1/resourceclaims")

    async def it_goes(*_: Any, **_options: Any) -> bool:
        del store["default/one"]
        return True

    it.fakes.happenings.wait_for_change_of = it_goes  # type: ignore[method-assign]

    assert failed(await attempt.pre_bind("a")) == 'could not find ResourceClaim "default/one"'


async def test_a_pod_without_binding_conditions_does_not_wait():
    it = two_claims()

    assert await placed(it, FIRST, "a").pre_bind("a") is None

    assert it.fakes.events.recorded == []
    assert it.fakes.metrics.calls == []
