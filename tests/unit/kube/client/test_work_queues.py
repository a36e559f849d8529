"""Metrics of the queues of status patches and events, with the names of Kubernetes' own work queues."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

from scheduler.daemon.metrics import Metrics
from scheduler.kube.client.writer import ApiWriter
from scheduler.objects.v1 import PodCondition
from tests.support.builders import pod
from tests.support.virtual_time import LoopClock
from tests.unit.daemon.metrics.exposition import families
from tests.unit.kube.client.scripted_server import Answer, ScriptedServer, failure, scripted_server
from tests.unit.kube.client.test_writer import Note

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scheduler.errors import ApiError

STATUS = "/api/v1/namespaces/default/pods/a/status"


class Shown:
    """The scraped metrics of one queue."""

    def __init__(self, metrics: Metrics, queue: str) -> None:
        self._families = families(metrics.text()[0].decode())
        self._queue = queue

    def __getitem__(self, name: str) -> float:
        family = name.removesuffix("_sum").removesuffix("_count")
        return self._families[f"workqueue_{family}"].series[f'workqueue_{name}{{name="{self._queue}"}}']


@asynccontextmanager
async def writing() -> AsyncIterator[tuple[ScriptedServer, ApiWriter, Metrics]]:
    metrics = Metrics()
    async with (
        scripted_server() as server,
        server.connection() as connection,
        ApiWriter(connection, LoopClock(), random=Random(7), observer=metrics) as writer,
    ):
        yield server, writer, metrics


def why(message: str) -> PodCondition:
    return PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=message)


async def test_both_queues_have_metrics_from_the_start() -> None:
    async with writing() as (_, _, metrics):
        for queue in ("status", "events"):
            shown = Shown(metrics, queue)
            assert [
                shown[name]
                for name in (
                    "adds_total",
                    "retries_total",
                    "depth",
                    "queue_duration_seconds_count",
                    "work_duration_seconds_count",
                    "unfinished_work_seconds",
                    "longest_running_processor_seconds",
                )
            ] == [0.0] * 7


async def test_waiting_and_current_writes_are_counted_and_timed_separately() -> None:
    async with writing() as (server, writer, metrics):
        for n in range(12):  # the limit is 8
            server.script("POST", f"/notes/{n}", Answer(after=2.0))
            writer.queue_event(Note(str(n)))
        await asyncio.sleep(1.5)
        shown = Shown(metrics, "events")
        assert (shown["adds_total"], shown["depth"]) == (12, 4)
        assert shown["unfinished_work_seconds"] == 8 * 1.5
        assert shown["longest_running_processor_seconds"] == 1.5
        assert shown["work_duration_seconds_count"] == 0

        await writer.drain(60)
        shown = Shown(metrics, "events")
        assert (shown["depth"], shown["unfinished_work_seconds"]) == (0, 0)
        assert (shown["queue_duration_seconds_count"], shown["queue_duration_seconds_sum"]) == (12, 4 * 2.0)
        assert (shown["work_duration_seconds_count"], shown["work_duration_seconds_sum"]) == (12, 12 * 2.0)
        assert Shown(metrics, "status")["adds_total"] == 0


async def test_a_deferred_write_is_a_retry_and_waits_again() -> None:
    async with writing() as (server, writer, metrics):
        server.script("POST", "/notes/a", failure(429, Retry_After="3"), Answer())
        writer.queue_event(Note("a"))
        await writer.drain(60)

        shown = Shown(metrics, "events")
        assert (shown["retries_total"], shown["adds_total"]) == (1, 2)
        assert (shown["queue_duration_seconds_count"], shown["work_duration_seconds_count"]) == (2, 2)
        assert 3.0 <= shown["queue_duration_seconds_sum"] < 3.1


async def test_a_pod_has_one_waiting_patch_and_a_bind_removes_it() -> None:
    async with writing() as (server, writer, metrics):
        server.script("PATCH", STATUS, Answer(after=2.0), Answer())
        server.script("POST", "/api/v1/namespaces/default/pods/a/binding", Answer(201))
        low = pod("a", uid="1")
        writer.patch_pod_status(low, condition=why("first"))
        await asyncio.sleep(1.0)
        writer.patch_pod_status(low, condition=why("second"))
        writer.patch_pod_status(low, condition=why("third"))
        shown = Shown(metrics, "status")
        assert (shown["adds_total"], shown["depth"]) == (2, 1)

        await writer.bind(low, "n1")

        shown = Shown(metrics, "status")
        assert (shown["depth"], shown["unfinished_work_seconds"]) == (0, 0)
        assert (shown["work_duration_seconds_count"], shown["work_duration_seconds_sum"]) == (1, 2.0)

        await asyncio.sleep(5.0)
        writer.patch_pod_status(low, condition=why("fourth"))
        shown = Shown(metrics, "status")
        assert (shown["adds_total"], shown["queue_duration_seconds_sum"]) == (3, 0)


async def test_a_write_queued_again_at_its_end_is_a_new_one() -> None:
    class Twice(Note):
        """Happens once more during its sending."""

        times = 0

        def finished(self, error: ApiError | None) -> None:
            self.times += 1
            if self.times == 1:
                writer.queue_event(self)

    async with writing() as (server, writer, metrics):
        server.script("POST", "/notes/a", Answer(after=2.0), Answer(after=3.0))
        writer.queue_event(Twice("a"))
        await writer.drain(60)

        shown = Shown(metrics, "events")
        assert (shown["adds_total"], shown["unfinished_work_seconds"]) == (2, 0)
        assert (shown["work_duration_seconds_count"], shown["work_duration_seconds_sum"]) == (2, 5.0)
