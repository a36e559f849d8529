"""The binding cycle: an assumed pod is bound, or its assumption is undone completely."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.engine.cycle.scheduling import run_now
from scheduler.engine.queue import Place
from scheduler.engine.state.cache import PodState
from scheduler.errors import ApiError, ObjectError
from scheduler.framework import (
    SKIP,
    ActionType,
    ClusterEvent,
    Code,
    EventResource,
    EventWithHint,
    Status,
    Wait,
)
from tests.support import scripted_plugins as puppets
from tests.support import virtual_time
from tests.support.builders import node, pod
from tests.unit.engine.cycle.cluster import Cluster, Event, Patch, terminating

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

WEB = pod("web")
POD_DELETE = (EventWithHint(ClusterEvent(EventResource.ASSIGNED_POD, ActionType.DELETE)),)


class Permit(puppets.Permit):
    """Registers for deleted pods, without a hint."""

    def events(self) -> Sequence[EventWithHint]:
        return POD_DELETE


class Reserve(puppets.Reserve):
    def events(self) -> Sequence[EventWithHint]:
        return POD_DELETE


async def bound(cluster: Cluster, name: str = "web") -> None:
    await cluster.until(lambda: cluster.node_of(name) and not cluster.binding.under_way)


@asynccontextmanager
async def waiting_pod(*plugins: Any) -> AsyncIterator[Cluster]:
    """A cluster in which the pod web waits at Permit, by default for ten minutes at most."""
    async with Cluster(*(plugins or (Permit("Hold", Wait(600)),))).running() as cluster:
        cluster.api.create(WEB)
        await cluster.until(lambda: cluster.waiting_pods.holds(WEB.uid))
        yield cluster


async def test_a_bound_pod_leaves_the_queue_with_an_event():
    async with Cluster().running() as cluster:
        cluster.api.create(WEB)
        await bound(cluster)

        assert cluster.api.binds == [("web", "n1")]
        assert cluster.api.events == [
            Event("default/web", "Normal", "Scheduled", "Successfully assigned default/web to n1")
        ]
        assert cluster.api.patches == []
        assert cluster.place_of("web") is Place.OUTSIDE
        assert cluster.cache.state_of(WEB.uid) is PodState.CONFIRMED
        assert cluster.counts.attempts == [("custom-scheduler", "scheduled")]
        assert cluster.counts.bound_pods == ["web"]


async def test_an_unchanged_node_is_not_evaluated_again_before_a_binding():
    async with Cluster(fit := puppets.NodeFilter("Fit")).running() as cluster:
        cluster.api.create(WEB)
        await bound(cluster)

        assert fit.called() == ["filter_node"]


async def test_a_node_that_changed_after_the_decision_is_evaluated_again_before_a_binding():
    async with waiting_pod(fit := puppets.NodeFilter("Fit"), Permit("Hold", Wait(60))) as cluster:
        cluster.nodes.on_update(node("n1"), node("n1", labels={"new": "label"}))
        cluster.waiting_pods.allow(WEB.uid, "Hold")
        await bound(cluster)

        assert fit.called() == ["filter_node", "filter_node"]


async def test_a_bound_pod_stays_assumed_until_the_watch_confirms_it():
    async with Cluster().running() as cluster:
        cluster.api.create(WEB)
        cluster.api.watch_seconds = 60
        await bound(cluster)
        assert cluster.cache.state_of(WEB.uid) is PodState.ASSUMED
        assert cluster.place_of("web") is Place.OUTSIDE

        await asyncio.sleep(61)
        assert cluster.cache.state_of(WEB.uid) is PodState.CONFIRMED


UNCLEAR = [pytest.param(status, id=str(status)) for status in (0, 409, 500, 502, 503, 504)]


@pytest.mark.parametrize("status", UNCLEAR)
@pytest.mark.parametrize("watch_seconds", [0.0, 60.0], ids=["watch at once", "watch late"])
def test_a_pod_that_is_on_our_node_is_bound_after_any_response(
    status: int, watch_seconds: float, caplog: pytest.LogCaptureFixture
):
    async def scenario() -> None:
        async with Cluster().running() as cluster:
            cluster.api.create(WEB)
            cluster.api.watch_seconds = watch_seconds
            cluster.api.answers = [(ApiError(status, "", "who knows"), True)]
            await bound(cluster)

            assert cluster.cache.state_of(WEB.uid) is (
                PodState.ASSUMED if watch_seconds else PodState.CONFIRMED
            )
            await asyncio.sleep(120)
            assert cluster.cache.state_of(WEB.uid) is PodState.CONFIRMED
            assert cluster.api.binds == [("web", "n1")]
            assert [event.reason for event in cluster.api.events] == ["Scheduled"]
            assert cluster.place_of("web") is Place.OUTSIDE

    with caplog.at_level(logging.INFO):
        virtual_time.run(scenario())
    assert "Pod was bound although the response was an error" in [
        record.getMessage() for record in caplog.records
    ]


async def test_a_pod_that_is_found_bound_elsewhere_is_forgotten_and_not_retried():
    cluster = Cluster()
    cluster.nodes.on_add(node("n2", unschedulable=True))
    async with cluster.running():
        cluster.api.create(WEB)
        cluster.api.watch_seconds = 60
        cluster.api.pods["default/web"] = WEB.placed_on("n9")  # the watch has not reported it yet
        await cluster.until(lambda: cluster.api.binds and not cluster.binding.under_way)

        assert cluster.cache.state_of(WEB.uid) is PodState.OUTSIDE
        assert cluster.place_of("web") is Place.OUTSIDE
        assert cluster.api.events == []
        cluster.api._seen(WEB, WEB.placed_on("n9"))
        assert cluster.cache.state_of(WEB.uid) is PodState.CONFIRMED
        await asyncio.sleep(600)
        assert len(cluster.api.binds) == 1


@pytest.mark.parametrize("successor", [None, pod("web", uid="another")], ids=["deleted", "recreated"])
async def test_a_pod_that_is_found_deleted_is_forgotten_and_not_retried(successor: Any):
    async with Cluster().running() as cluster:
        cluster.api.create(WEB)
        cluster.api.pods.clear()
        if successor is not None:
            cluster.api.pods["default/web"] = successor
        await cluster.until(lambda: cluster.api.binds and not cluster.binding.under_way)

        assert cluster.cache.state_of(WEB.uid) is PodState.OUTSIDE
        assert cluster.place_of("web") is Place.OUTSIDE
        assert cluster.api.events == []
        cluster.api._seen(WEB, None)


async def test_the_capacity_of_a_pod_that_is_found_deleted_requeues_others():
    cluster = Cluster(Permit("Hold", lambda _state, each, _node: Status.unschedulable("no") if each.name == "other" else None))  # fmt: skip
    async with cluster.running():
        cluster.api.create(pod("other"))
        await cluster.until(lambda: cluster.place_of("other") is Place.UNSCHEDULABLE)
        cluster.api.create(WEB)
        cluster.api.pods.pop("default/web")
        await cluster.until(lambda: cluster.api.binds)
        await cluster.until(lambda: len(cluster.notes("other")) == 2, seconds=30)
        cluster.api._seen(WEB, None)


async def test_a_bind_with_an_unknown_outcome_is_retried():
    async with Cluster().running() as cluster:
        cluster.api.create(WEB)
        cluster.api.answers = [ApiError(0, "", "no answer")]
        cluster.api.reads = [ApiError(0, "", "none again")]
        await cluster.until(lambda: cluster.api.patches)
        assert cluster.place_of("web") is Place.BACKOFF
        assert cluster.cache.state_of(WEB.uid) is PodState.OUTSIDE

        await bound(cluster)
        assert len(cluster.api.binds) == 2


async def test_a_pod_that_cannot_be_read_back_is_retried():
    async with Cluster().running() as cluster:
        cluster.api.create(WEB)
        cluster.api.answers = [ApiError(409, "Conflict", "no")]
        cluster.api.reads = [ObjectError("Pod", "default/web", "spec", "odd")]

        await bound(cluster)
        assert len(cluster.api.binds) == 2


async def test_a_refused_bind_is_an_error_and_is_retried_after_a_backoff():
    async with Cluster().running() as cluster:
        cluster.api.create(WEB)
        cluster.api.answers = [
            ApiError(403, "Forbidden", "not allowed"),
            ApiError(403, "Forbidden", "not allowed"),
        ]
        begin = cluster.clock.monotonic()
        await bound(cluster)

        reported = 'running Bind plugin "DefaultBinder": not allowed'
        assert cluster.notes("web") == [reported, reported]
        assert cluster.api.patches[0].condition is not None
        assert cluster.api.patches[0].condition.reason == "SchedulerError"
        assert cluster.api.patches[0].nominated_node_name == ""
        assert len(cluster.api.binds) == 3
        assert cluster.clock.monotonic() - begin >= 3  # one second, then two
        assert cluster.counts.attempts == [
            ("custom-scheduler", result) for result in ("error", "error", "scheduled")
        ]


async def test_a_failed_bind_releases_its_reservations_and_requeues_others():
    reserve = Reserve("Notes")
    waits = Permit(
        "Hold", lambda _state, each, _node: Status.unschedulable("no") if each.name == "other" else None
    )
    async with Cluster(reserve, waits).running() as cluster:
        cluster.api.create(pod("other"))
        await cluster.until(lambda: cluster.place_of("other") is Place.UNSCHEDULABLE)
        reserve.calls.clear()
        cluster.api.answers = [ApiError(403, "Forbidden", "no")]
        cluster.api.create(WEB)
        await bound(cluster)
        await cluster.until(lambda: len(cluster.notes("other")) == 2, seconds=30)

        of_web = [method for method, args in reserve.calls if args[1].name == "web"]
        assert of_web == ["reserve", "unreserve", "reserve"]


async def test_pre_bind_comes_before_bind_and_post_bind_after_it():
    log: list[str] = []

    def notes(text: str) -> Any:
        return lambda *_: log.append(text)

    cluster = Cluster(
        puppets.PreBind("A", pre_bind=notes("pre_bind")), puppets.PostBind("B", notes("post_bind"))
    )
    async with cluster.running():
        cluster.api.create(WEB)
        await bound(cluster)
        await asyncio.sleep(1)

    assert log == ["pre_bind", "post_bind"]


async def test_a_pod_that_waits_in_pre_bind_is_nominated_first():
    async with Cluster(puppets.PreBind("A", pre_bind=lambda *_: asyncio.sleep(300))).running() as cluster:
        cluster.api.create(WEB)
        await cluster.until(lambda: cluster.binding.under_way)
        assert cluster.api.patches == [Patch("default/web", None, "n1")]

        await bound(cluster)


async def test_a_pod_without_work_in_pre_bind_is_not_nominated():
    async with Cluster(
        puppets.PreBind("A", pre_bind_pre_flight=SKIP, pre_bind=KeyError("run"))
    ).running() as cluster:
        cluster.api.create(WEB)
        await bound(cluster)

    assert cluster.api.patches == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(KeyError("x"), "SchedulerError", id="an exception"),
        pytest.param(Status.failed("x"), "SchedulerError", id="an error"),
        pytest.param(Status.unschedulable("x"), "Unschedulable", id="a rejection"),
    ],
)
@pytest.mark.parametrize("kind", [puppets.PreBind, puppets.Bind])
async def test_a_failure_after_permit_is_retried_after_backoff(kind: Any, answer: Any, reason: str):
    plugin = kind("A", **{kind.__name__.lower().replace("preb", "pre_b"): answer})
    async with Cluster(plugin).running() as cluster:
        cluster.api.create(WEB)
        await cluster.until(lambda: cluster.notes("web"))
        assert cluster.place_of("web") is Place.BACKOFF
        assert not cluster.notes("web")[0].startswith("0/1")
        conditions = [patch.condition for patch in cluster.api.patches if patch.condition]
        assert [condition.reason for condition in conditions] == [reason]

        plugin.answers = {}
        plugin.answer = SKIP if kind is puppets.Bind else None
        await bound(cluster)


async def test_a_failing_pre_flight_is_an_error_and_releases_the_waiting_pod():
    async with Cluster(
        Permit("Hold", Wait(600)), puppets.PreBind("A", pre_bind_pre_flight=KeyError("x"))
    ).running() as cluster:
        cluster.api.create(WEB)
        await cluster.until(lambda: cluster.notes("web"))

        assert cluster.notes("web") == ["running PreBindPreFlight \"A\": KeyError: 'x'"]
        assert list(cluster.waiting_pods.waiting()) == []


class TestPermit:
    async def test_a_waiting_pod_is_bound_once_it_is_allowed(self):
        async with waiting_pod() as cluster:
            await asyncio.sleep(60)
            assert cluster.api.binds == []
            assert cluster.api.patches == [Patch("default/web", None, "n1")]
            assert cluster.cache.state_of(WEB.uid) is PodState.ASSUMED

            cluster.waiting_pods.allow(WEB.uid, "Hold")
            await bound(cluster)

    async def test_a_waiting_pod_that_is_rejected_waits_for_events_of_the_rejecting_plugin(self):
        async with waiting_pod() as cluster:
            cluster.waiting_pods.reject(WEB.uid, "Hold", "not today")
            await cluster.until(lambda: cluster.notes("web"))

            assert cluster.notes("web") == ["0/1 nodes are available: 1 not today."]
            queued = cluster.queue.get(WEB.uid)
            assert queued is not None
            assert queued.unschedulable_plugins == {"Hold"}
            # The capacity that it released itself does not requeue it.
            assert cluster.place_of("web") is Place.UNSCHEDULABLE
            assert cluster.cache.state_of(WEB.uid) is PodState.OUTSIDE

    async def test_the_capacity_of_a_rejected_pod_requeues_others(self):
        refuse = Permit(
            "Hold",
            lambda _state, each, _node: Wait(600) if each.name == "web" else Status.unschedulable("no"),
        )
        async with waiting_pod(refuse) as cluster:
            cluster.api.create(pod("other"))
            await cluster.until(lambda: cluster.place_of("other") is Place.UNSCHEDULABLE)
            cluster.waiting_pods.reject(WEB.uid, "Hold", "not today")

            await cluster.until(lambda: len(cluster.notes("other")) == 2, seconds=30)
            assert len(cluster.notes("web")) == 1

    async def test_a_waiting_pod_is_rejected_at_its_timeout(self):
        async with Cluster(Permit("Hold", Wait(90))).running() as cluster:
            cluster.api.create(WEB)
            begin = cluster.clock.monotonic()
            await cluster.until(lambda: cluster.notes("web"))

            reported = "rejected due to timeout after waiting 1m30s at plugin Hold"
            assert cluster.notes("web") == [f"0/1 nodes are available: 1 {reported}."]
            assert cluster.clock.monotonic() - begin == pytest.approx(90, abs=1)

    async def test_many_pods_wait_at_permit_at_once(self):
        async with Cluster(Permit("Hold", Wait(600))).running() as cluster:
            for number in range(20):
                cluster.api.create(pod(f"p{number}"))
            await cluster.until(lambda: len(list(cluster.waiting_pods.waiting())) == 20)
            for each in list(cluster.waiting_pods.waiting()):
                cluster.waiting_pods.allow(each.uid, "Hold")
            await cluster.until(lambda: len(cluster.counts.bound_pods) == 20)


class TestReserveAndPermitAtOnce:
    @pytest.mark.parametrize("kind", [Reserve, Permit])
    def test_a_rejection_has_the_message_of_the_one_remaining_node(self, kind: Any):
        method = kind.__name__.lower()
        plugin = kind("A", **{method: Status.unschedulable("b", "a", "b")})
        cluster = Cluster(plugin)
        cluster.api.create(WEB)
        queued = cluster.pop()

        assert run_now(cluster.schedule_one(queued)) is None
        assert cluster.notes("web") == ["0/1 nodes are available: 1 a, 2 b."]
        assert cluster.place_of("web") is Place.UNSCHEDULABLE
        assert queued.unschedulable_plugins == {"A"}
        assert cluster.cache.counts()["assumed_pods"] == 0
        cluster.check()

    def test_a_rejection_without_reason_has_a_message_without_one(self):
        cluster = Cluster(Reserve("A", reserve=Status.unschedulable()))
        cluster.api.create(WEB)
        queued = cluster.pop()
        run_now(cluster.schedule_one(queued))

        assert cluster.notes("web") == ["0/1 nodes are available:"]

    def test_a_pending_plugin_is_recorded(self):
        cluster = Cluster(Reserve("A", reserve=Status(Code.PENDING, ("soon",))))
        cluster.api.create(WEB)
        queued = cluster.pop()
        run_now(cluster.schedule_one(queued))

        assert queued.pending_plugins == {"A"}

    def test_a_failure_has_its_own_message_and_unreserves(self):
        plugin = Reserve("A", reserve=KeyError("x"))
        cluster = Cluster(plugin)
        cluster.api.create(WEB)
        queued = cluster.pop()
        run_now(cluster.schedule_one(queued))

        assert cluster.notes("web") == ["running Reserve plugin \"A\": KeyError: 'x'"]
        assert plugin.called() == ["reserve", "unreserve"]
        assert cluster.place_of("web") is Place.BACKOFF

    def test_an_immediate_rejection_does_not_requeue_others(self):
        cluster = Cluster(Permit("A", Status.unschedulable("no")))
        cluster.api.create(pod("first"))
        cluster.api.create(pod("second"))
        for _ in range(2):
            queued = cluster.pop()
            run_now(cluster.schedule_one(queued))

        assert cluster.place_of("first") is Place.UNSCHEDULABLE
        assert cluster.place_of("second") is Place.UNSCHEDULABLE


class TestEventsDuringBinding:
    async def test_a_pod_deleted_while_it_waits_at_permit_is_rejected_and_gone(self):
        async with waiting_pod() as cluster:
            cluster.api.delete("default/web")
            await cluster.until(lambda: not cluster.binding.under_way, seconds=5)

            assert cluster.place_of("web") is Place.OUTSIDE
            assert cluster.cache.state_of(WEB.uid) is PodState.OUTSIDE
            assert cluster.api.binds == []
            assert cluster.api.events == []

    async def test_a_pod_deleted_during_binding_frees_its_capacity_at_once(self):
        async with Cluster().running() as cluster:
            cluster.api.bind_seconds = 30
            cluster.api.create(WEB)
            await cluster.until(lambda: cluster.api.binds)
            cluster.api.delete("default/web")
            assert cluster.cache.state_of(WEB.uid) is PodState.OUTSIDE
            await cluster.until(lambda: not cluster.binding.under_way)

            assert cluster.place_of("web") is Place.OUTSIDE
            assert cluster.api.events == []

    async def test_resources_reserved_by_a_pod_deleted_during_binding_requeue_others_later(self):
        reserved: set[str] = set()

        def reserve(_state: Any, each: Any, _node: str) -> Status | None:
            if reserved:
                return Status.unschedulable("it is taken")
            reserved.add(each.name)
            return None

        def unreserve(_state: Any, each: Any, _node: str) -> None:
            reserved.discard(each.name)

        async with Cluster(Reserve("One", reserve=reserve, unreserve=unreserve)).running() as cluster:
            cluster.api.bind_seconds = 30
            cluster.api.create(WEB)
            await cluster.until(lambda: cluster.api.binds)
            cluster.api.create(pod("other"))
            await cluster.until(lambda: cluster.place_of("other") is Place.UNSCHEDULABLE)
            cluster.api.delete("default/web")
            # Because its capacity is already free.
            await cluster.until(lambda: len(cluster.notes("other")) == 2)
            await bound(cluster, "other")

            assert cluster.clock.monotonic() < 100

    async def test_a_pod_that_terminates_while_it_waits_at_permit_is_rejected(self):
        async with waiting_pod() as cluster:
            cluster.api.update(terminating("web"))
            await cluster.until(lambda: not cluster.binding.under_way, seconds=5)
            await asyncio.sleep(30)

            assert cluster.cache.state_of(WEB.uid) is PodState.OUTSIDE
            assert cluster.place_of("web") is Place.OUTSIDE
            assert cluster.notes("web")[-1] == "skip schedule deleting pod: default/web"
            cluster.api.delete("default/web")

    async def test_a_returned_pod_has_its_newest_version(self):
        async with Cluster().running() as cluster:
            cluster.api.bind_seconds = 30
            cluster.api.answers = [ApiError(403, "Forbidden", "no")]
            cluster.api.create(WEB)
            await cluster.until(lambda: cluster.api.binds)
            newest = pod("web", labels={"version": "2"})
            cluster.api.update(newest)
            await cluster.until(lambda: cluster.place_of("web") is Place.BACKOFF)

            queued = cluster.queue.get(WEB.uid)
            assert queued is not None
            assert queued.pod is newest

    async def test_an_update_of_an_unconfirmed_bound_pod_does_not_requeue_it(self):
        async with Cluster().running() as cluster:
            cluster.api.create(WEB)
            cluster.api.watch_seconds = 60
            await bound(cluster)
            cluster.api._seen(WEB, pod("web", labels={"version": "2"}))

            assert cluster.place_of("web") is Place.OUTSIDE
            await asyncio.sleep(61)
            assert cluster.cache.state_of(WEB.uid) is PodState.CONFIRMED

    async def test_events_are_not_recorded_for_a_pod_that_can_only_fail_with_an_error(self):
        cluster = Cluster(
            puppets.PreBind("A", pre_bind=lambda *_: asyncio.sleep(300)), puppets.NodeFilter("B")
        )
        async with cluster.running():
            cluster.api.create(WEB)
            await cluster.until(lambda: cluster.binding.under_way)
            for number in range(10):
                cluster.nodes.on_add(node(f"more-{number}"))
            assert cluster.queue.in_flight_events == {}
            assert cluster.place_of("web") is Place.IN_FLIGHT

    async def test_a_waiting_pod_bound_by_another_scheduler_stays_on_its_node(self):
        async with waiting_pod() as cluster:
            cluster.api.update(WEB.placed_on("n9"))
            await cluster.until(lambda: not cluster.binding.under_way)

            placed = cluster.cache.pod(WEB.uid)
            assert placed is not None
            assert placed.node_name == "n9"
            assert cluster.place_of("web") is Place.OUTSIDE
            assert cluster.api.events == []
