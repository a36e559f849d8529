"""Statuses of objects: made for the version that was seen last, retried, and merged with the conditions of others."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scheduler.errors import ApiError
from scheduler.framework import WantedStatus
from scheduler.kube.client.resources import Resource
from scheduler.kube.client.writer import ApiWriter
from tests.support.virtual_time import LoopClock
from tests.unit.kube.client.scripted_server import Answer, ScriptedServer, failure, scripted_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

QUEUES = Resource("custom-scheduler.io", "v1", "queues", "Queue", namespaced=False)
PATH = "/apis/custom-scheduler.io/v1/queues/a/status"
SINCE = "2020-01-01T00:00:00Z"
OTHERS = {"type": "Checked", "status": "True", "lastTransitionTime": SINCE}


def accepted(status: str, since: str = "") -> dict[str, str]:
    return {"type": "Accepted", "status": status} | ({"lastTransitionTime": since} if since else {})


def seen(version: str = "7", uid: str = "u", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", "uid": uid, "resourceVersion": version}, "status": status}


def written(version: str) -> Answer:
    return Answer(200, msgspec.json.encode(seen(version)))


class Objects:
    """A writer, and the object as the watch has shown it."""

    def __init__(self, server: ScriptedServer, writer: ApiWriter) -> None:
        self.server, self.writer = server, writer
        self.seen: dict[str, Any] | None = seen()

    async def write(self, fields: Mapping[str, Any], *conditions: Mapping[str, str]) -> Any:
        wanted = WantedStatus(fields, conditions)
        types = frozenset({"Accepted"}) if conditions else frozenset[str]()
        return await self.writer.write_status(
            QUEUES, "a", "u", wanted, condition_types=types, newest=lambda: self.seen
        )

    def bodies(self) -> list[Any]:
        return [each.json for each in self.server.received]


@asynccontextmanager
async def writing() -> AsyncIterator[Objects]:
    async with (
        scripted_server() as server,
        server.connection() as connection,
        ApiWriter(connection, LoopClock(), random=Random(7)) as writer,
    ):
        yield Objects(server, writer)


async def test_a_status_is_written_with_the_version_it_was_made_for_and_the_answer_is_returned():
    async with writing() as it:
        it.server.script("PATCH", PATH, written("8"))
        assert (await it.write({"used": 3}))["metadata"]["resourceVersion"] == "8"
        assert it.bodies() == [{"metadata": {"resourceVersion": "7"}, "status": {"used": 3}}]


async def test_conditions_of_others_stay_and_own_ones_that_are_not_wanted_are_removed():
    async with writing() as it:
        own = {"type": "Old", "status": "True", "lastTransitionTime": SINCE}
        it.seen = seen(conditions=[OTHERS, accepted("True", SINCE), own])
        it.server.script("PATCH", PATH, written("8"))
        wanted, types = WantedStatus({}, [accepted("True")]), {"Accepted", "Old"}
        await it.writer.write_status(QUEUES, "a", "u", wanted, condition_types=types, newest=lambda: it.seen)
        assert it.bodies()[0]["status"]["conditions"] == [OTHERS, accepted("True", SINCE)]


async def test_the_time_of_a_condition_changes_with_its_status_only():
    async with writing() as it:
        it.seen = seen(conditions=[accepted("True", SINCE)])
        it.server.script("PATCH", PATH, written("8"), written("9"))
        await it.write({}, accepted("True"))
        await it.write({}, accepted("False"))
        kept, changed = (each["status"]["conditions"][0]["lastTransitionTime"] for each in it.bodies())
        assert kept == SINCE
        assert changed != SINCE


async def test_keys_that_are_no_longer_wanted_are_removed_at_any_depth():
    async with writing() as it:
        it.seen = seen(lastGood={"spec": {"a": 1, "b": {"c": 1, "d": 2}}}, other=1)
        it.server.script("PATCH", PATH, written("8"))
        await it.write({"lastGood": {"spec": {"b": {"d": 3}}}})
        assert it.bodies()[0]["status"] == {"lastGood": {"spec": {"a": None, "b": {"c": None, "d": 3}}}}


async def test_after_a_conflict_the_status_is_made_for_the_newest_version():
    async with writing() as it:
        it.server.script("PATCH", PATH, failure(409, "Conflict"), written("9"))
        write = asyncio.create_task(it.write({}, accepted("True")))
        while not it.bodies():  # noqa: ASYNC110 - the server is no part of the test
            await asyncio.sleep(0)
        it.seen = seen("8", conditions=[OTHERS])
        assert (await write)["metadata"]["resourceVersion"] == "9"
        second = it.bodies()[1]
        assert second["metadata"] == {"resourceVersion": "8"}
        assert [each["type"] for each in second["status"]["conditions"]] == ["Checked", "Accepted"]


async def test_a_status_is_sent_again_no_earlier_than_the_server_asks():
    async with writing() as it:
        busy = replace(failure(429, "TooManyRequests"), headers={"Retry-After": "5"})
        it.server.script("PATCH", PATH, busy, written("8"))
        began = asyncio.get_running_loop().time()
        await it.write({"used": 1})
        assert asyncio.get_running_loop().time() - began >= 5


async def test_a_deleted_or_replaced_object_is_not_written():
    async with writing() as it:
        it.seen = None
        assert await it.write({"used": 1}) is None
        it.seen = seen(uid="another")
        assert await it.write({"used": 1}) is None
        assert it.bodies() == []
        it.seen = seen()
        it.server.script("PATCH", PATH, failure(404, "NotFound"))
        assert await it.write({"used": 1}) is None


async def test_of_several_waiting_statuses_only_the_newest_is_written_and_a_refusal_is_raised():
    async with writing() as it:
        it.server.script("PATCH", PATH, written("8"), written("9"), failure(422, "Invalid"))
        found = await asyncio.gather(*(it.write({"used": number}) for number in range(4)))
        assert [each["status"] for each in it.bodies()] == [{"used": 0}, {"used": 3}]
        assert [each["metadata"]["resourceVersion"] for each in found] == ["8", "9", "9", "9"]
        with pytest.raises(ApiError, match="422"):
            await it.write({"used": 4})
