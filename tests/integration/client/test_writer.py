from __future__ import annotations

import asyncio
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scheduler.errors import ApiError
from scheduler.kube.client.connect import connect
from scheduler.kube.client.connection import ApiConnection
from scheduler.kube.client.events import EventRecorder
from scheduler.kube.client.writer import ApiWriter
from scheduler.kube.http.endpoint import Endpoint
from scheduler.kube.http.request import Request
from scheduler.objects.decode import decode_pod
from scheduler.objects.v1 import PodCondition
from scheduler.tools.simulator.faults import binds, requests
from scheduler.tools.simulator.server import ApiServer
from tests.support.builders import pod_object
from tests.support.errors import raises
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scheduler.objects.pod import PodInfo


class Story:
    def __init__(self, server: ApiServer, writer: ApiWriter, recorder: EventRecorder) -> None:
        self.server = server
        self.writer = writer
        self.recorder = recorder

    def create(self, name: str) -> PodInfo:
        pod = pod_object(name)
        pod["metadata"].pop("uid", None)
        self.server.store.create("pods", pod)
        return self.read(name)

    def read(self, name: str) -> PodInfo:
        return decode_pod(msgspec.json.encode(self.raw(name)))

    def raw(self, name: str) -> Any:
        return self.server.store.get("pods", name)


@asynccontextmanager
async def story() -> AsyncIterator[Story]:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "s")
        async with (
            ApiServer(clock=LoopClock(), socket_path=path) as server,
            ApiConnection(Endpoint(server.url, unix_socket=path)) as connection,
            ApiWriter(connection, LoopClock(), random=Random(7)) as writer,
        ):
            recorder = EventRecorder(writer.queue_event, LoopClock(), "custom-scheduler")
            yield Story(server, writer, recorder)


def rejected(message: str) -> PodCondition:
    return PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=message)


async def test_a_bound_pod_is_on_its_node():
    async with story() as at:
        await at.writer.bind(at.create("a"), "n1")

        assert at.raw("a")["spec"]["nodeName"] == "n1"


async def test_binding_twice_is_a_conflict_and_binding_a_deleted_pod_not_found():
    async with story() as at:
        pod = at.create("a")
        await at.writer.bind(pod, "n1")
        with pytest.raises(ApiError) as bound:
            await at.writer.bind(pod, "n2")
        at.server.store.delete("pods", "a", grace_period_seconds=0)
        with pytest.raises(ApiError) as deleted:
            await at.writer.bind(pod, "n2")
        at.create("a")
        with pytest.raises(ApiError) as succeeded:
            await at.writer.bind(pod, "n2")

        assert [caught.value.status for caught in (bound, deleted, succeeded)] == [409, 404, 409]
        assert "nodeName" not in at.raw("a")["spec"]


async def test_a_bind_with_a_lost_response_takes_effect_and_reports_an_unknown_outcome():
    async with story() as at:
        pod = at.create("a")
        at.server.faults.lose_answers(binds)

        with raises(ApiError, status=0):
            await at.writer.bind(pod, "n1")
        assert at.raw("a")["spec"]["nodeName"] == "n1"


async def test_every_pod_is_bound_once_while_the_server_is_overloaded():
    async with story() as at:
        pods = [at.create(f"p{n}") for n in range(200)]
        at.server.faults.refuse(429, binds, probability=0.05, retry_after_seconds=1)
        at.server.faults.delay((0.001, 0.05), binds)

        await asyncio.gather(*(at.writer.bind(pod, "n1") for pod in pods))

        assert all(at.raw(pod.name)["spec"]["nodeName"] == "n1" for pod in pods)
        answers = [each.status for each in at.server.requests.matching(method="POST", path="/binding")]
        assert answers.count(201) == 200
        assert answers.count(429) > 0


async def test_status_patches_arrive_and_an_equal_condition_writes_nothing():
    async with story() as at:
        assert at.writer.patch_pod_status(
            at.create("a"), condition=rejected("no room"), nominated_node_name="n1"
        )
        assert await at.writer.drain(5.0)
        first = at.raw("a")["status"]
        assert first["nominatedNodeName"] == "n1"
        (condition,) = (each for each in first["conditions"] if each["type"] == "PodScheduled")
        assert condition["message"] == "no room"

        await asyncio.sleep(10.0)
        assert not at.writer.patch_pod_status(at.read("a"), condition=rejected("no room"))
        assert at.writer.patch_pod_status(
            at.read("a"), condition=rejected("still no room"), nominated_node_name=""
        )
        assert await at.writer.drain(5.0)

        second = at.raw("a")["status"]
        (changed,) = (each for each in second["conditions"] if each["type"] == "PodScheduled")
        assert changed == {**condition, "message": "still no room"}  # its time has not moved
        assert not second.get("nominatedNodeName")


async def test_a_victim_is_marked_and_then_deleted():
    async with story() as at:
        victim = at.create("a")
        await at.writer.bind(victim, "n1")
        mark = PodCondition(
            type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message="m"
        )

        await at.writer.wait_pod_status_patched(at.read("a"), condition=mark)
        kinds = [each["type"] for each in at.raw("a")["status"]["conditions"]]
        await at.writer.delete_pod(victim)

        assert kinds == ["PodScheduled", "DisruptionTarget"]
        remaining = at.server.store.find("pods", "a")
        assert remaining is None or remaining["metadata"]["deletionTimestamp"]


async def test_the_successor_of_a_victim_is_spared():
    async with story() as at:
        victim = at.create("a")
        at.server.store.delete("pods", "a", grace_period_seconds=0)
        at.create("a")

        with raises(ApiError, status=409):
            await at.writer.delete_pod(victim)
        assert at.server.store.find("pods", "a") is not None


async def test_events_are_accepted_by_the_server_and_combined():
    async with story() as at:
        pod = at.create("a")
        for _ in range(3):
            at.recorder.record(
                pod, type_="Warning", reason="FailedScheduling", action="Scheduling", note="x" * 2000
            )
            assert await at.writer.drain(5.0)
            await asyncio.sleep(1.0)

        at.recorder.flush()
        assert await at.writer.drain(5.0)

        (event,) = at.server.store.list("events.events.k8s.io")
        assert event["series"]["count"] == 3
        assert len(event["note"]) == 1024
        assert event["regarding"]["uid"] == pod.uid


async def test_events_survive_an_outage_of_the_event_api():
    async with story() as at:
        refusal = at.server.faults.refuse(503, requests(resource="events"))
        for n in range(30):
            at.recorder.record(
                at.create(f"p{n}"), type_="Normal", reason="Scheduled", action="Binding", note="n"
            )
        await asyncio.sleep(2.0)
        at.server.faults.remove(refusal)

        assert await at.writer.drain(60.0)
        assert len(at.server.store.list("events.events.k8s.io")) == 30


def test_a_kubeconfig_with_a_token_connects_to_the_server(tmp_path: Path):
    async def ask() -> tuple[int, int]:
        async with ApiServer(token="secret") as server:
            kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
            async with connect(str(kubeconfig)) as connection:
                answer = await connection.send(Request("GET", "/api/v1/namespaces"))
            async with ApiConnection(Endpoint(server.url)) as nobody:
                with pytest.raises(ApiError) as caught:
                    await nobody.send(Request("GET", "/api/v1/namespaces"))
            return answer.status, caught.value.status

    assert asyncio.run(ask()) == (200, 403)
