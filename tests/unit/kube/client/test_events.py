from __future__ import annotations

import asyncio
import json
import re
import socket
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.kube.client.events import KNOWN_LIMIT, EventRecorder, EventRecorders, ObjectReference
from scheduler.kube.client.writer import ApiWriter
from scheduler.objects.decode import decode_pod
from tests.support.builders import pod, pod_object
from tests.support.virtual_time import EPOCH, LoopClock
from tests.unit.kube.client.scripted_server import (
    Answer,
    NoAnswer,
    Received,
    ScriptedServer,
    failure,
    scripted_server,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
FAILED = {"type_": "Warning", "reason": "FailedScheduling", "action": "Scheduling", "note": "no room"}


class Case:
    def __init__(self, server: ScriptedServer, writer: ApiWriter, recorder: EventRecorder) -> None:
        self.server = server
        self.writer = writer
        self.recorder = recorder
        self.creations(Answer(201))

    def creations(self, *answers: Any) -> None:
        self.server._script["POST", EVENTS].clear()
        self.server.script("POST", EVENTS, *answers, *[Answer(201)] * 50)

    def fail(self, name: str = "toobig", **fields: Any) -> None:
        self.recorder.record(pod(name), **{**FAILED, **fields})

    async def written(self) -> list[Received]:
        assert await self.writer.drain(60.0)
        return self.server.received

    def patches(self, *answers: Any) -> None:
        """Script the answers to patches of the first event created."""
        self.server.script("PATCH", f"{EVENTS}/{self.server.received[0].json['metadata']['name']}", *answers)


@asynccontextmanager
async def case() -> AsyncIterator[Case]:
    async with (
        scripted_server() as server,
        server.connection() as connection,
        ApiWriter(connection, LoopClock(), random=Random(7)) as writer,
    ):
        recorders = EventRecorders(writer.queue_event, LoopClock())
        running = asyncio.create_task(recorders.run())
        try:
            yield Case(server, writer, recorders.of("default-scheduler"))
        finally:
            running.cancel()


async def test_an_event_is_written_as_kube_scheduler_does():
    async with case() as at:
        found = pod_object("low", uid="0fb98389")
        found["metadata"]["resourceVersion"] = "200"
        at.recorder.record(
            decode_pod(json.dumps(found).encode()),
            type_="Normal",
            reason="Scheduled",
            action="Binding",
            note="Successfully assigned default/low to n1",
        )
        written = await at.written()

        assert written[0].json == {
            "kind": "Event",
            "apiVersion": "events.k8s.io/v1",
            "metadata": {
                "name": f"low.{int(EPOCH.timestamp()) * 10**9:x}",
                "namespace": "default",
            },
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "default-scheduler",
            "reportingInstance": f"default-scheduler-{socket.gethostname()}",
            "action": "Binding",
            "reason": "Scheduled",
            "regarding": {
                "kind": "Pod",
                "namespace": "default",
                "name": "low",
                "uid": "0fb98389",
                "apiVersion": "v1",
                "resourceVersion": "200",
            },
            "note": "Successfully assigned default/low to n1",
            "type": "Normal",
        }


async def test_the_other_object_of_an_event_is_named():
    async with case() as at:
        other = ObjectReference(kind="Pod", namespace="default", name="high", uid="u", api_version="v1")
        at.fail(related=other)

        assert (await at.written())[0].json["related"] == {
            "kind": "Pod",
            "namespace": "default",
            "name": "high",
            "uid": "u",
            "apiVersion": "v1",
        }


async def test_an_event_about_a_cluster_scoped_object_goes_to_default():
    async with case() as at:
        node = ObjectReference(kind="Node", name="n1", uid="n1", api_version="v1")
        at.recorder.record(node, **FAILED)
        written = await at.written()

        assert written[0].path == EVENTS
        assert written[0].json["metadata"]["namespace"] == "default"


async def test_events_of_the_same_time_have_distinct_names():
    async with case() as at:
        for n in range(20):
            at.fail(reason=f"Reason{n}")

        names = {each.json["metadata"]["name"] for each in await at.written()}
        assert len(names) == 20


async def test_a_name_too_long_for_an_object_is_replaced():
    async with case() as at:
        at.fail("x" * 250)

        name = (await at.written())[0].json["metadata"]["name"]
        assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", name)


@pytest.mark.parametrize(
    ("note", "written"),
    [
        pytest.param("x" * 1024, "x" * 1024, id="as long as may be"),
        pytest.param("x" * 1025, "x" * 1020 + " ...", id="one byte longer"),
        pytest.param("ü" * 513, "ü" * 510 + " ...", id="letters of two bytes"),
        pytest.param("x" + "ü" * 512, "x" + "ü" * 509 + " ...", id="not cut inside a letter"),
    ],
)
async def test_a_long_note_is_cut(note: str, written: str):
    async with case() as at:
        at.fail(note=note)

        assert (await at.written())[0].json["note"] == written


async def test_a_repeated_event_becomes_a_series_and_is_then_only_counted():
    async with case() as at:
        at.fail()
        await at.written()
        at.patches(Answer(), Answer())
        for _ in range(4):
            await asyncio.sleep(20.0)
            at.fail(note="the note does not matter")
        first, second = await at.written()

        assert second.method == "PATCH"
        assert second.headers["Content-Type"] == "application/strategic-merge-patch+json"
        assert second.json == {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:20.000000Z"}}
        assert second.path == f"{EVENTS}/{first.json['metadata']['name']}"


async def test_the_end_of_a_series_writes_its_count_and_the_next_event_is_new():
    async with case() as at:
        at.fail()
        await at.written()
        at.patches(Answer(), Answer())
        for _ in range(4):
            await asyncio.sleep(10.0)
            at.fail()
        await asyncio.sleep(800.0)
        at.fail()
        written = await at.written()

        assert [each.method for each in written] == ["POST", "PATCH", "PATCH", "POST"]
        assert written[2].json["series"]["count"] == 5
        assert written[2].at == pytest.approx(720.0, abs=0.1)
        assert "series" not in written[3].json


async def test_a_single_event_is_dropped_after_six_minutes():
    async with case() as at:
        at.fail()
        await asyncio.sleep(725.0)
        at.fail()

        assert [each.method for each in await at.written()] == ["POST", "POST"]


async def test_a_series_lasts_as_long_whatever_the_time_of_day_does():
    """A host whose time of day is set back or ahead by an hour does not end or prolong series."""
    clock = ShiftedClock()
    queued: list[Any] = []
    recorder = EventRecorder(lambda job: queued.append(job) is None, clock, "default-scheduler")

    def fail() -> None:
        recorder.record(pod("toobig"), **FAILED)

    fail()
    clock.shift = timedelta(hours=1)
    recorder.finish_series()
    fail()
    assert len(queued) == 1, "the same event: no six minutes have passed"

    clock.shift = timedelta(hours=-1)
    await asyncio.sleep(400.0)
    recorder.finish_series()
    fail()
    first, second = dict.fromkeys(queued)
    assert first.count == 2
    assert second.body.metadata.name > first.body.metadata.name, "names stay in order"


class ShiftedClock(LoopClock):
    shift = timedelta()

    def utc_now(self) -> datetime:
        return super().utc_now() + self.shift


async def test_a_long_series_is_refreshed_every_half_hour():
    async with case() as at:
        at.fail()
        await at.written()
        at.patches(*[Answer()] * 10)
        for _ in range(54):
            await asyncio.sleep(70.0)
            at.fail()
        patches = [each for each in await at.written() if each.method == "PATCH"]

        assert [each.at for each in patches] == pytest.approx([70.0, 1800.0, 3600.0], abs=0.1)
        assert patches[1].json["series"]["count"] == 26


@pytest.mark.parametrize(
    "other",
    [
        {"type_": "Normal"},
        {"reason": "Other"},
        {"action": "Other"},
        {"name": "other"},
        {"related": ObjectReference(name="x")},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_different_events_are_no_series(other: dict[str, Any]):
    async with case() as at:
        at.fail()
        at.fail(**other)

        assert [each.method for each in await at.written()] == ["POST", "POST"]


async def test_an_event_repeated_before_it_is_sent_is_sent_once_with_its_count():
    async with case() as at:
        for _ in range(3):
            at.fail()

        written = await at.written()
        assert len(written) == 1
        assert written[0].json["series"]["count"] == 3


async def test_an_event_repeated_while_it_is_sent_is_patched_afterwards():
    async with case() as at:
        at.creations(Answer(201, after=3.0))
        at.fail()
        await asyncio.sleep(1.0)
        at.fail()
        at.patches(Answer())
        written = await at.written()

        assert [(each.method, round(each.at, 1)) for each in written] == [("POST", 0.0), ("PATCH", 3.0)]
        assert written[1].json["series"]["count"] == 2


async def test_a_series_whose_event_has_expired_is_written_whole():
    async with case() as at:
        at.fail()
        await at.written()
        at.patches(failure(404, "NotFound"))
        await asyncio.sleep(1.0)
        at.fail()
        written = await at.written()

        assert [each.method for each in written] == ["POST", "PATCH", "POST"]
        assert written[2].json == {**written[0].json, "series": written[1].json["series"]}


async def test_an_event_with_a_lost_response_is_not_written_twice():
    async with case() as at:
        at.creations(NoAnswer(), failure(409, "AlreadyExists"))
        at.fail()
        await at.written()
        at.patches(Answer())
        at.fail()
        written = await at.written()

        assert [each.method for each in written] == ["POST", "POST", "PATCH"]
        assert written[0].json == written[1].json


async def test_an_event_that_the_server_refuses_is_dropped(caplog: pytest.LogCaptureFixture):
    async with case() as at:
        at.creations(failure(403, "Forbidden"))
        at.fail()

        assert len(await at.written()) == 1
        assert [(record.message, record.object) for record in caplog.records] == [
            ("Write was given up", "default/toobig")
        ]


async def test_the_oldest_events_are_dropped_when_there_are_too_many():
    recorder = EventRecorder(lambda _: True, LoopClock(), "s")
    for n in range(KNOWN_LIMIT + 100):
        recorder.record(ObjectReference(name=f"p{n}"), **FAILED)

    assert len(recorder._known) == KNOWN_LIMIT


async def test_the_last_count_of_a_forgotten_event_is_sent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("scheduler.kube.client.events.KNOWN_LIMIT", 1)
    async with case() as at:
        at.fail()
        await at.written()
        at.patches(Answer(), Answer())
        for _ in range(3):
            at.fail()
            await at.written()
        at.fail("other")

        assert [each.json["series"]["count"] for each in await at.written() if each.method == "PATCH"] == [
            2,
            4,
        ]


async def test_a_flush_writes_every_count():
    async with case() as at:
        at.fail()
        await at.written()
        at.patches(Answer(), Answer())
        for _ in range(5):
            await asyncio.sleep(1.0)
            at.fail()
        at.recorder.flush()

        assert (await at.written())[-1].json["series"]["count"] == 6


async def test_the_events_of_an_object_can_be_listed():
    async with case() as at:
        at.fail("web")
        at.fail("other")
        at.recorder.record(ObjectReference("Queue", "default", "web", "u"), **FAILED)
        at.fail("web")

        [event] = at.recorder.about("Pod", "default/web")
        assert (event.body.reason, event.count) == ("FailedScheduling", 2)
        [queue] = at.recorder.about("Queue", "default/web")
        assert queue.count == 1


async def test_a_series_keeps_the_annotations_of_its_first_event():
    async with case() as at:
        at.fail(annotations={"example.com/reasons": "[1]"})
        await at.written()
        at.patches(Answer())
        at.fail(annotations={"example.com/reasons": "[2]"})
        first, second = await at.written()

        assert first.json["metadata"]["annotations"] == {"example.com/reasons": "[1]"}
        assert second.json.keys() == {"series"}
