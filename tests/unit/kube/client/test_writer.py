from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scheduler.errors import ApiError
from scheduler.kube.client import writer as writer_module
from scheduler.kube.client.background import NoWorkObserver
from scheduler.kube.client.connection import CONNECTION_LOST
from scheduler.kube.client.events import EventRecorder
from scheduler.kube.client.writer import ApiWriter
from scheduler.kube.http.request import Request
from scheduler.objects.decode import decode_pod
from scheduler.objects.pod import PodInfo
from scheduler.objects.v1 import PodCondition
from tests.support.builders import pod, pod_object
from tests.support.errors import raises
from tests.support.virtual_time import LoopClock
from tests.unit.kube.client.scripted_server import Answer, NoAnswer, ScriptedServer, failure, scripted_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sized

    from scheduler.clock import Clock


PODS = "/api/v1/namespaces/default/pods"


def rejected(message: str) -> PodCondition:
    return PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=message)


class Counter:
    def __init__(self) -> None:
        self.binds: list[int] = []
        self.drops: list[str] = []

    def bind_answered(self, status: int, seconds: float) -> None:
        self.binds.append(status)

    def dropped(self, queue: str) -> None:
        self.drops.append(queue)

    def work_queue(self, name: str, queue: Sized, clock: Clock) -> NoWorkObserver:
        return NoWorkObserver()


class Note:
    """A job that posts one note."""

    def __init__(self, about: str) -> None:
        self.about = about
        self.tries = 0

    async def send(self, connection: Any) -> None:
        await connection.send(Request("POST", f"/notes/{self.about}", b"{}"))

    def should_retry(self, error: ApiError) -> bool:
        self.tries += 1
        return error.status in {0, 429} and self.tries < 5

    def finished(self, error: ApiError | None) -> None:
        return


@asynccontextmanager
async def writing(**options: Any) -> AsyncIterator[tuple[ScriptedServer, ApiWriter]]:
    async with (
        scripted_server() as server,
        server.connection() as connection,
        ApiWriter(connection, LoopClock(), random=Random(7), **options) as writer,
    ):
        yield server, writer


async def test_a_bind_posts_a_binding_with_the_uid_of_the_pod():
    counter = Counter()
    async with writing(observer=counter) as (server, writer):
        server.script("POST", f"{PODS}/low/binding", Answer(201))

        await writer.bind(pod("low", uid="0fb98389"), "n1")

        assert server.received[0].json == {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": "low", "namespace": "default", "uid": "0fb98389"},
            "target": {"kind": "Node", "name": "n1"},
        }
        assert counter.binds == [201]


def is_kept(name: str) -> bool:
    """Return whether a pod of this name has not been freed."""
    return any(isinstance(each, PodInfo) and each.name == name for each in gc.get_objects())


@pytest.mark.parametrize("status", [403, 404, 422])
async def test_a_refused_status_patch_leaves_no_garbage_that_keeps_the_pod(status: int):
    async with writing() as (server, writer):
        server.script("PATCH", f"{PODS}/refused/status", failure(status, "Whatever"))
        server.script("PATCH", f"{PODS}/next/status", Answer())
        gc.collect()
        gc.disable()
        try:
            writer.patch_pod_status(pod("refused"), condition=rejected("no node fits"))
            await writer.drain(10.0)
            await writer.wait_pod_status_patched(pod("next"), condition=rejected("no node fits"))
            assert not is_kept("refused")
        finally:
            gc.enable()


async def test_a_waiting_status_patch_does_not_keep_the_pod():
    """Thousands may wait, most of them for pods that were deleted meanwhile."""
    async with writing() as (server, writer):
        server.script("PATCH", f"{PODS}/large/status", Answer())
        found = pod_object("large")
        found["metadata"]["generation"] = 7
        large = decode_pod(msgspec.json.encode(found))
        kept = weakref.ref(large)

        writer.patch_pod_status(large, condition=rejected("no node fits"))
        del large

        assert kept() is None
        await writer.drain(10.0)
        (written,) = server.received[0].json["status"]["conditions"]
        assert (written["reason"], written["observedGeneration"]) == ("Unschedulable", 7)


@pytest.mark.parametrize("status", [404, 409, 500])
async def test_a_refused_bind_is_an_error_and_is_sent_once(status: int):
    counter = Counter()
    async with writing(observer=counter) as (server, writer):
        server.script("POST", f"{PODS}/low/binding", failure(status, "Whatever"))

        with pytest.raises(ApiError) as caught:
            await writer.bind(pod("low"), "n1")

        assert (caught.value.status, len(server.received), counter.binds) == (status, 1, [status])


async def test_a_bind_with_a_lost_response_is_an_error_without_status_and_is_sent_once():
    async with writing() as (server, writer):
        server.script("POST", f"{PODS}/low/binding", NoAnswer())

        with raises(ApiError, status=0, reason=CONNECTION_LOST):
            await writer.bind(pod("low"), "n1")
        assert len(server.received) == 1


async def test_deferred_binds_keep_their_order():
    async with writing() as (server, writer):
        for name in "abc":
            server.script("POST", f"{PODS}/{name}/binding", failure(429, Retry_After="5"), Answer(201))
        server.script("POST", f"{PODS}/d/binding", Answer(201))

        async with asyncio.TaskGroup() as tasks:
            for name in "abc":
                tasks.create_task(writer.bind(pod(name), "n1"))
            await asyncio.sleep(1.0)
            tasks.create_task(writer.bind(pod("d"), "n1"))

        tried = [(each.path.split("/")[-2], each.at) for each in server.received]
        assert [name for name, _ in tried] == list("abcabcd")
        assert all(at >= 5.0 for _, at in tried[3:])


async def test_a_bind_waits_neither_for_patches_nor_for_events():
    async with writing() as (server, writer):
        server.script("POST", f"{PODS}/now/binding", Answer(201))
        for n in range(100):  # the server never answers them
            writer.patch_pod_status(pod(f"p{n}"), condition=rejected("no"))
            writer.queue_event(Note(f"e{n}"))
        await asyncio.sleep(1.0)

        await writer.bind(pod("now"), "n1")

        assert asyncio.get_running_loop().time() == pytest.approx(1.0)


async def test_patches_precede_events_and_leave_them_one_place():
    async with writing() as (server, writer):
        for n in range(40):
            writer.queue_event(Note(f"e{n}"))
        for n in range(40):
            writer.patch_pod_status(pod(f"p{n}"), condition=rejected("no"))
        before = len(server.received)
        assert before == 0
        for n in range(40):
            server.script("POST", f"/notes/e{n}", Answer(after=1.0))
            server.script("PATCH", f"{PODS}/p{n}/status", Answer(after=1.0))

        await asyncio.sleep(1.5)

        second = [each.method for each in server.received if each.at >= 0.5]
        assert (second.count("PATCH"), second.count("POST")) == (7, 1)


async def test_other_writes_use_fewer_places_while_binds_wait():
    async with writing() as (server, writer):
        binds = [asyncio.create_task(writer.bind(pod(f"b{n}"), "n1")) for n in range(100)]
        await asyncio.sleep(1.0)
        for n in range(40):
            writer.queue_event(Note(f"e{n}"))
        await asyncio.sleep(1.0)

        assert len(server.of("POST", "/notes")) == 4
        for bind in binds:
            bind.cancel()
        await asyncio.gather(*binds, return_exceptions=True)


async def test_waiting_patches_of_a_pod_are_merged_field_by_field():
    async with writing() as (server, writer):
        for n in range(8):  # reaches the limit
            writer.queue_event(Note(f"e{n}"))
            server.script("POST", f"/notes/e{n}", Answer(after=1.0))
        await asyncio.sleep(0.5)
        server.script("PATCH", f"{PODS}/a/status", Answer())
        assert writer.patch_pod_status(pod("a"), condition=rejected("one"), nominated_node_name="n1")
        assert writer.patch_pod_status(pod("a"), condition=rejected("two"))
        assert writer.patch_pod_status(pod("a"), nominated_node_name="n2")

        assert await writer.drain(10.0)

        patches = server.of("PATCH")
        assert len(patches) == 1
        assert patches[0].headers["Content-Type"] == "application/strategic-merge-patch+json"
        status = patches[0].json["status"]
        assert (status["conditions"][0]["message"], status["nominatedNodeName"]) == ("two", "n2")


async def test_patches_of_one_pod_are_sent_one_after_the_other():
    async with writing() as (server, writer):
        server.script("PATCH", f"{PODS}/a/status", Answer(after=3.0), Answer())
        writer.patch_pod_status(pod("a"), condition=rejected("one"))
        await asyncio.sleep(1.0)
        writer.patch_pod_status(pod("a"), condition=rejected("two"))

        assert await writer.drain(10.0)

        assert [each.at for each in server.of("PATCH")] == pytest.approx([0.0, 3.0], abs=0.01)


async def test_a_patch_that_changes_nothing_is_not_sent():
    async with writing() as (server, writer):
        said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}

        assert not writer.patch_pod_status(
            pod("a", status={"conditions": [said]}), condition=rejected("no"), nominated_node_name=""
        )
        await writer.wait_pod_status_patched(
            pod("a", status={"conditions": [said]}), condition=rejected("no")
        )
        assert await writer.drain(1.0)

        assert server.received == []


@pytest.mark.parametrize("seconds", [0.5, 5.0], ids=["under way", "answered"])
async def test_an_earlier_write_that_no_watch_has_delivered_is_replaced(seconds: float):
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}
    seen = pod("a", status={"conditions": [said]})
    async with writing() as (server, writer):
        server.script("PATCH", f"{PODS}/a/status", Answer(after=1.0), Answer())
        writer.patch_pod_status(seen, condition=rejected("full"), nominated_node_name="n1")
        await asyncio.sleep(seconds)
        assert writer.patch_pod_status(seen, condition=rejected("no"), nominated_node_name="")
        assert await writer.drain(10.0)
        assert not writer.patch_pod_status(seen, condition=rejected("no"), nominated_node_name="")

        last = server.of("PATCH")[-1].json["status"]
        assert len(server.of("PATCH")) == 2
        assert (last["conditions"][0]["message"], last["nominatedNodeName"]) == ("no", None)


async def test_an_earlier_write_that_a_watch_has_delivered_is_not_repeated():
    def seen(version: str, message: str) -> PodInfo:
        said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        found = pod_object("a", status={"conditions": [said]})
        found["metadata"] |= {"resourceVersion": version, "uid": "a"}
        return decode_pod(msgspec.json.encode(found))

    async with writing() as (server, writer):
        server.script("PATCH", f"{PODS}/a/status", Answer())
        writer.patch_pod_status(seen("1", "no"), condition=rejected("full"))
        assert await writer.drain(10.0)

        assert not writer.patch_pod_status(seen("2", "full"), condition=rejected("full"))


@pytest.mark.parametrize(
    ("newest", "patched"),
    [
        pytest.param(pod("a"), True, id="still pending"),
        pytest.param(None, True, id="never read"),
        pytest.param(pod("a", node="n1"), False, id="already bound"),
        pytest.param(pod("a", uid="another"), False, id="recreated under its name"),
    ],
)
async def test_a_patch_that_is_outdated_at_its_turn_is_not_sent(newest: PodInfo | None, patched: bool):
    async with writing(newest=lambda _: newest) as (server, writer):
        server.script("PATCH", f"{PODS}/a/status", Answer())

        await writer.wait_pod_status_patched(pod("a"), condition=rejected("no"))

        assert bool(server.received) is patched


async def test_a_patch_of_a_bound_pod_is_sent():
    async with writing(newest=lambda _: pod("a", node="n1")) as (server, writer):
        server.script("PATCH", f"{PODS}/a/status", Answer())
        mark = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")

        await writer.wait_pod_status_patched(pod("a", node="n1"), condition=mark)

        assert len(server.received) == 1


async def test_a_bind_removes_waiting_patches_and_waits_for_the_current_one():
    async with writing() as (server, writer):
        server.script("PATCH", f"{PODS}/a/status", Answer(after=3.0), Answer())
        server.script("POST", f"{PODS}/a/binding", Answer(201))
        writer.patch_pod_status(pod("a"), condition=rejected("one"))
        await asyncio.sleep(1.0)
        writer.patch_pod_status(pod("a"), condition=rejected("two"))

        await writer.bind(pod("a"), "n1")
        assert await writer.drain(10.0)

        assert [(each.method, round(each.at, 1)) for each in server.received] == [
            ("PATCH", 0.0),
            ("POST", 3.0),
        ]


async def test_a_caller_that_waits_for_a_patch_gets_its_result():
    async with writing() as (server, writer):
        server.script("PATCH", f"{PODS}/a/status", Answer())
        server.script("PATCH", f"{PODS}/b/status", failure(404, "NotFound"))

        await writer.wait_pod_status_patched(pod("a"), condition=rejected("no"))
        with raises(ApiError, status=404):
            await writer.wait_pod_status_patched(pod("b"), condition=rejected("no"))


async def test_a_patch_is_retried_after_temporary_errors():
    async with writing() as (server, writer):
        server.script(
            "PATCH",
            f"{PODS}/a/status",
            failure(409, "Conflict"),
            failure(401, "Unauthorized"),
            NoAnswer(),
            failure(429, "TooManyRequests", Retry_After="4"),
            failure(503, "ServiceUnavailable"),
            failure(504, "Timeout"),
            failure(502),
            Answer(),
        )
        await writer.wait_pod_status_patched(pod("a"), condition=rejected("no"))

        times = [each.at for each in server.received]
        assert len(times) == 8
        assert times[4] - times[3] >= 4.0


@pytest.mark.parametrize("status", [401, 502])
async def test_an_event_is_sent_again_after_a_temporary_error(status: int):
    async with writing() as (server, writer):
        server.script("POST", "/apis/events.k8s.io/v1/namespaces/default/events", failure(status), Answer())
        recorder = EventRecorder(writer.queue_event, LoopClock(), "mine")
        recorder.record(pod("a"), type_="Warning", reason="Failed", action="Scheduling", note="no")

        assert await writer.drain(20.0)

        assert len(server.received) == 2


async def test_all_events_wait_while_the_server_is_overloaded():
    async with writing() as (server, writer):
        server.script("POST", "/notes/a", failure(429, "TooManyRequests", Retry_After="9"), Answer())
        server.script("POST", "/notes/b", Answer())
        writer.queue_event(Note("a"))
        await asyncio.sleep(1.0)
        writer.queue_event(Note("b"))

        assert await writer.drain(20.0)

        assert [each.path for each in server.received] == ["/notes/a", "/notes/a", "/notes/b"]
        assert server.received[1].at >= 9.0


async def test_a_retried_write_precedes_the_waiting_ones():
    async with writing() as (server, writer):
        server.script("POST", "/notes/e0", failure(429, "TooManyRequests", Retry_After="9"), Answer())
        for n in range(1, 20):
            server.script("POST", f"/notes/e{n}", Answer())
        for n in range(20):
            writer.queue_event(Note(f"e{n}"))

        assert await writer.drain(20.0)

        assert server.received[8].path == "/notes/e0"


async def test_events_over_the_capacity_are_dropped_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writer_module, "EVENT_CAPACITY", 10)
    counter = Counter()
    async with writing(observer=counter) as (server, writer):
        for n in range(40):
            server.script("POST", f"/notes/{n}", Answer(201))
        kept = [writer.queue_event(Note(str(n))) for n in range(40)]
        assert await writer.drain(10.0)

        assert sum(kept) == 18  # 8 in flight, 10 waiting
        assert counter.drops == ["events"] * 22
        assert len(server.received) == 18
        assert [record.message for record in caplog.records] == [
            "Write queue is full, dropping",
            "Write queue has free capacity again",
        ]
        assert caplog.records[1].dropped_in_all == 22


async def test_a_patch_over_the_capacity_is_counted_and_fails_for_its_caller(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writer_module, "STATUS_CAPACITY", 1)
    counter = Counter()
    async with writing(observer=counter) as (_, writer):
        for n in range(8):
            writer.patch_pod_status(pod(f"p{n}"), condition=rejected("no"))

        with pytest.raises(ApiError, match="is full"):
            await writer.wait_pod_status_patched(pod("last"), condition=rejected("no"))
        assert counter.drops == ["status"]


async def test_an_error_in_one_write_stops_no_other(caplog: pytest.LogCaptureFixture):
    class Broken(Note):
        async def send(self, connection: Any) -> None:
            raise ZeroDivisionError(connection)

    async with writing() as (server, writer):
        server.script("POST", "/notes/b", Answer())
        writer.queue_event(Broken("a"))
        writer.queue_event(Note("b"))

        assert await writer.drain(10.0)

        assert len(server.received) == 1
        assert [(record.message, record.object) for record in caplog.records] == [("Write failed", "a")]


async def test_a_pod_is_deleted_only_with_its_uid():
    async with writing() as (server, writer):
        server.script("DELETE", f"{PODS}/a", failure(429, Retry_After="2"), failure(409, "Conflict"))

        with raises(ApiError, status=409):
            await writer.delete_pod(pod("a", uid="u-1"))
        assert server.received[1].json == {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {"uid": "u-1"},
        }


async def test_draining_waits_for_all_writes():
    async with writing() as (server, writer):
        server.script("POST", f"{PODS}/a/binding", Answer(201, after=3.0))
        server.script("PATCH", f"{PODS}/b/status", Answer(after=4.0))
        server.script("POST", "/notes/c", Answer(after=5.0))
        bind = asyncio.create_task(writer.bind(pod("a"), "n1"))
        writer.patch_pod_status(pod("b"), condition=rejected("no"))
        writer.queue_event(Note("c"))
        await asyncio.sleep(0.1)
        assert writer.pending() == {"binds": 1, "status": 1, "events": 1}

        assert await writer.drain(10.0)

        assert asyncio.get_running_loop().time() == pytest.approx(5.0, abs=0.1)
        assert bind.done()
        assert writer.pending() == {"binds": 0, "status": 0, "events": 0}


async def test_draining_has_a_time_limit_and_logs_the_remaining_writes(caplog: pytest.LogCaptureFixture):
    async with writing() as (_, writer):
        writer.queue_event(Note("a"))

        assert not await writer.drain(5.0)

        assert asyncio.get_running_loop().time() == pytest.approx(5.0)
        assert caplog.records[0].pending == {"binds": 0, "status": 0, "events": 1}


async def test_the_events_of_a_burst_follow_its_bindings_within_a_response_time():
    async with writing() as (server, writer):

        async def bind(name: str) -> float:
            await writer.bind(pod(name), "n1")
            writer.queue_event(Note(name))
            return asyncio.get_running_loop().time()

        names = [f"p{n}" for n in range(1000)]
        for name in names:
            server.script("POST", f"{PODS}/{name}/binding", Answer(201, after=0.1))
            server.script("POST", f"/notes/{name}", Answer(201, after=0.1))
        bound = dict(zip(names, await asyncio.gather(*map(bind, names)), strict=True))
        assert await writer.drain(10.0)

        sent = {each.path.split("/")[-1]: each.at for each in server.of("POST", "/notes")}
        assert max(bound.values()) > 1.0, "the burst takes a while"
        assert max(sent[name] - bound[name] for name in names) < 0.11


async def test_unanswered_events_do_not_accumulate_on_the_server():
    async with writing() as (server, writer):

        async def bind(name: str) -> None:
            await writer.bind(pod(name), "n1")
            writer.queue_event(Note(name))

        for n in range(400):
            server.script("POST", f"{PODS}/p{n}/binding", Answer(201, after=0.1))
        await asyncio.gather(*(bind(f"p{n}") for n in range(400)))

        assert 8 <= len(server.of("POST", "/notes")) <= 2 * 128, (
            "as many places as binds have, and as many lent"
        )


async def test_other_writes_get_all_places_once_no_bind_waits():
    async with writing() as (server, writer):
        for n in range(40):
            server.script("POST", f"/notes/e{n}", Answer(after=1.0))
        binds = [asyncio.create_task(writer.bind(pod(f"b{n}"), "n1")) for n in range(20)]
        await asyncio.sleep(0)
        for n in range(40):
            writer.queue_event(Note(f"e{n}"))
        await asyncio.sleep(0.5)
        assert len(server.of("POST", "/notes")) == 4
        for bind in binds[4:]:
            bind.cancel()
        await asyncio.sleep(1.0)

        assert len(server.of("POST", "/notes")) == 4 + 8
        for bind in binds:
            bind.cancel()
        await asyncio.gather(*binds, return_exceptions=True)


async def test_other_pods_do_not_wait_until_hundreds_of_group_members_are_bound() -> None:
    async with writing() as (server, writer):
        pods = [pod("alone")]
        for number in range(200):
            member = pod_object(f"m{number}")
            member["spec"]["schedulingGroup"] = {"podGroupName": "g"}
            pods.insert(number, decode_pod(msgspec.json.encode(member)))
        for each in pods:
            server.script("POST", f"{PODS}/{each.name}/binding", Answer(after=0.1))
        await asyncio.gather(*(writer.bind(each, "n1") for each in pods))
        paths = [request.path for request in server.of("POST")]
        assert paths.index(f"{PODS}/alone/binding") < 20
