from __future__ import annotations

import asyncio
import itertools
import json
import logging
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scheduler.errors import ObjectError
from scheduler.kube.client.reflector import REFUSED_SECONDS, Reflector
from scheduler.kube.client.resources import REPLICA_SETS, Resource
from scheduler.kube.client.watch import next_limit
from scheduler.kube.client.wire import ObjectIdentity
from tests.unit.kube.client.scripted_server import (
    Answer,
    Received,
    ScriptedServer,
    Stream,
    failure,
    scripted_server,
    status,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator

PATH = "/apis/apps/v1/replicasets"
OF_NAMESPACE = "/apis/apps/v1/namespaces/ns/replicasets"


def obj(name: str, version: int, *, uid: str = "", **more: Any) -> dict[str, Any]:
    return {
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
            "managedFields": [{"manager": "someone"}],
        },
        **more,
    }


def event(kind: str, name: str, version: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "object": obj(name, version, **more)}


def bookmark(version: int, *, ends: bool = False) -> dict[str, Any]:
    annotations = {"annotations": {"k8s.io/initial-events-end": "true"}} if ends else {}
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version), **annotations}}}


def quiet(version: int) -> list[Any]:
    """Four hundred seconds without events."""
    return [80.0, *[bookmark(version), 80.0] * 4]


def error(code: int, reason: str) -> dict[str, Any]:
    return {"type": "ERROR", "object": status(code, reason)}


def listing(version: int, *objects: dict[str, Any], more: str = "") -> Answer:
    return Answer(
        200,
        {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(objects) or None},
    )


EXPIRED = error(410, "Expired")
BEGINNING = [event("ADDED", "a", 5), event("ADDED", "b", 3), bookmark(9, ends=True)]


def decode(raw: bytes) -> str:
    found = json.loads(raw)
    metadata = found["metadata"]
    if "bad" in found:
        raise ObjectError("ReplicaSet", metadata["name"], "spec.replicas", "expected a number")
    return f"{metadata['name']}@{metadata['resourceVersion']}"


class Listener:
    """Records all notifications, as handler and as observer."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.lists = 0
        self.ends: list[str] = []

    def on_add(self, new: str) -> None:
        self.told.append(f"+{new}")

    def on_update(self, old: str, new: str) -> None:
        self.told.append(f"{old}>{new}")

    def on_delete(self, old: str) -> None:
        self.told.append(f"-{old}")

    def on_undecodable(self, identity: ObjectIdentity, error: ObjectError) -> None:
        self.told.append(f"?{identity.key} {identity.uid} {error.path}")

    def listed(self, resource: Resource) -> None:
        self.lists += 1

    def watch_ended(self, resource: Resource, reason: str) -> None:
        self.ends.append(reason)


class Followed:
    """Records its notifications and their times."""

    def __init__(self) -> None:
        self.told: list[tuple[str, float]] = []

    def broke(self, kind: str) -> None:
        self._note("broke")

    def resumed(self, kind: str) -> None:
        self._note("resumed")

    def complete(self, kind: str) -> None:
        self._note("complete")

    def _note(self, what: str) -> None:
        self.told.append((what, asyncio.get_running_loop().time()))


class Case:
    """A reflector of a scripted server."""

    def __init__(self, server: ScriptedServer, reflector: Reflector[str], listener: Listener) -> None:
        self.server = server
        self.reflector = reflector
        self.listener = listener
        self.told = listener.told

    def watch(self, *steps: dict[str, Any] | bytes | float, then: str = "hang") -> None:
        self.server.script("GET", PATH, Stream(list(steps), then))

    def script(self, *steps: Any) -> None:
        self.server.script("GET", PATH, *steps)

    @property
    def asked(self) -> list[Received]:
        return self.server.received

    @property
    def asked_to_watch(self) -> list[Received]:
        return [each for each in self.asked if "watch" in each.query]

    @property
    def versions(self) -> list[str | None]:
        """The versions from which requests resumed."""
        return [each.query.get("resourceVersion") for each in self.asked]


@asynccontextmanager
async def case(**options: Any) -> AsyncIterator[Case]:
    listener = Listener()
    async with scripted_server() as server, server.connection() as connection:
        reflector = Reflector(
            connection,
            REPLICA_SETS,
            handler=listener,
            random=Random(7),
            observer=listener,
            **{"decode": decode, **options},
        )
        running = asyncio.create_task(reflector.run())
        try:
            yield Case(server, reflector, listener)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_the_first_watch_begins_with_all_objects():
    async with case(field_selector="a!=b") as at:
        at.watch(*BEGINNING)
        assert not at.reflector.has_synced
        await at.reflector.wait_synced()

        query = at.asked[0].query
        assert 300 <= int(query.pop("timeoutSeconds")) <= 600
        assert query == {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "fieldSelector": "a!=b",
        }
        assert at.reflector.store == {"ns/a": "a@5", "ns/b": "b@3"}
        assert at.told == ["+a@5", "+b@3"]
        assert at.reflector.resource_version == "9"
        assert (at.listener.lists, at.listener.ends) == (1, [])


@pytest.mark.parametrize("metadata", [None, {"annotations": []}, {"annotations": {"a": 1}}])
async def test_an_unreadable_bookmark_is_ignored(metadata: Any):
    async with case() as at:
        at.watch({"type": "BOOKMARK", "object": {"metadata": metadata}}, *BEGINNING)
        async with asyncio.timeout(1.0):
            await at.reflector.wait_synced()

        assert at.told == ["+a@5", "+b@3"]


async def test_changes_are_delivered_in_order():
    async with case() as at:
        at.watch(
            *BEGINNING, 1.0, event("MODIFIED", "a", 10), event("DELETED", "b", 11), event("ADDED", "c", 12)
        )
        await asyncio.sleep(2.0)

        assert at.told[2:] == ["a@5>a@10", "-b@3", "+c@12"]
        assert at.reflector.resource_version == "12"


class _Named(msgspec.Struct):
    metadata: ObjectIdentity


class InSteps:
    """A decoder with two steps; notes its calls and the turns of other tasks."""

    struct = _Named

    def __init__(self) -> None:
        self.noted: list[str] = []

    def __call__(self, raw: bytes, decoded: _Named | str | None = None) -> str:
        self.noted.append("call")
        return decoded if isinstance(decoded, str) else "in one turn"

    def in_steps(self, raw: bytes, decoded: _Named | None = None) -> Generator[None, None, str]:
        assert decoded is None or decoded.metadata.name == "a"
        self._note("first step")
        yield
        self._note("last step")
        if b"invalid" in raw:
            raise ObjectError("ReplicaSet", "ns/a", "spec", "is invalid")
        return "in steps"

    def _note(self, what: str) -> None:
        self.noted.append(what)
        asyncio.get_running_loop().call_soon(self.noted.append, "others")


IN_STEPS = ["first step", "others", "last step", "others", "call"]


@pytest.mark.parametrize(
    ("content", "noted", "stored"),
    [
        ("x" * 100, ["call"], "in one turn"),
        ("x" * 200_000, IN_STEPS, "in steps"),
        ("invalid" * 40_000, IN_STEPS, "in one turn"),
    ],
    ids=["small", "large", "invalid"],
)
@pytest.mark.parametrize("is_listed", [False, True])
async def test_a_large_object_is_decoded_in_turns_of_its_own(
    content: str, noted: list[str], stored: str, *, is_listed: bool
):
    decoder = InSteps()
    async with case(decode=decoder) as at:
        if is_listed:
            at.script(failure(500), listing(9, obj("a", 5, x=content)))
            at.watch()
        else:
            at.watch(
                event("ADDED", "a", 5, x=content),
                bookmark(9, ends=True),
                event("DELETED", "a", 11, x=content),
            )
        await asyncio.sleep(5.0)

        assert decoder.noted == noted
        assert at.told == [f"+{stored}", f"-{stored}"][: 1 if is_listed else 2]


async def test_a_watch_that_the_server_ends_continues_from_the_last_version():
    async with case() as at:
        at.watch(*BEGINNING, *quiet(9), bookmark(50), then="close")
        at.watch(event("MODIFIED", "a", 51), *quiet(51), then="close")
        at.watch()
        await asyncio.sleep(790.0)

        assert at.versions == [None, "50"]
        await asyncio.sleep(20.0)
        assert at.versions == [None, "50", "51"]
        assert "sendInitialEvents" not in at.asked[1].query
        assert at.asked[1].at == pytest.approx(400.0, abs=0.1)
        assert at.listener.ends == ["closed", "closed"]
        assert at.listener.lists == 1


async def test_a_silent_watch_is_dropped_and_resumed():
    async with case() as at:
        at.watch(*BEGINNING)
        at.watch(event("MODIFIED", "a", 10))
        at.server.script("GET", OF_NAMESPACE, listing(5, obj("a", 5)))
        await asyncio.sleep(95.0)

        assert [each.query.get("resourceVersion") for each in at.asked_to_watch] == [None, "5"]
        assert at.told[2:] == ["a@5>a@10"]
        assert at.listener.ends == ["stalled"]


@pytest.mark.parametrize(
    ("then", "last", "answers", "goes_on_from"),
    [
        pytest.param([], "a@5", [obj("a", 5)], "5", id="an object as it was"),
        pytest.param(
            [event("MODIFIED", "b", 12), bookmark(50)], "b@12", [obj("b", 12)], "12", id="not the bookmark"
        ),
        pytest.param([event("DELETED", "b", 12)], "b@12", [None, obj("b", 3)], "12", id="a deletion"),
    ],
)
async def test_a_suspect_watch_continues_from_the_last_change_the_server_confirms(
    then: list[Any], last: str, answers: list[Any], goes_on_from: str
):
    async with case() as at:
        at.watch(*BEGINNING, *then, 5.0, then="cut")
        at.watch(event("MODIFIED", "a", 60), bookmark(61), 5.0, then="cut")
        at.watch()
        at.server.script("GET", OF_NAMESPACE, *(listing(99, *filter(None, [each])) for each in answers))
        await asyncio.sleep(1.0)
        at.reflector.suspect_restore()
        await asyncio.sleep(20.0)

        assert [each.query.get("resourceVersion") for each in at.asked_to_watch] == [None, goes_on_from, "61"]
        asked = [each.query for each in at.asked if each.path == OF_NAMESPACE]
        name, version = last.split("@")
        assert asked[0] == {
            "limit": "64",
            "fieldSelector": f"metadata.name={name}",
            "resourceVersion": version,
            "resourceVersionMatch": "Exact",
        }
        assert len(asked) == len(answers), "asked no more once it was confirmed"
        assert at.told[-1] == "a@5>a@60"
        assert at.listener.lists == 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(listing(99), id="it is not there"),
        pytest.param(listing(99, obj("a", 4)), id="it is as it was before"),
        pytest.param(listing(99, obj("a", 5, uid="other")), id="it is another"),
        pytest.param(
            Answer(504, status(504, "Timeout", "Timeout: Too large resource version: 5, current: 4")),
            id="the version is yet to come",
        ),
        pytest.param(
            Answer(500, status(500, "", "etcdserver: mvcc: required revision is a future revision")),
            id="the same by an older server",
        ),
    ],
)
async def test_a_different_history_causes_a_list(answer: Answer, caplog: pytest.LogCaptureFixture):
    async with case() as at:
        at.watch(*BEGINNING, 5.0, then="cut")
        at.watch(event("MODIFIED", "b", 11))  # not read
        at.watch(event("ADDED", "c", 2), bookmark(12, ends=True))
        at.server.script("GET", OF_NAMESPACE, answer)
        await asyncio.sleep(1.0)
        at.reflector.suspect_restore()
        await asyncio.sleep(10.0)

        assert at.told[2:] == ["+c@2", "-a@5", "-b@3"]
        assert at.listener.ends == ["error", "expired"]
        assert [each.message for each in caplog.records if each.levelno == logging.WARNING][-1] == (
            "The API server has gone back to an older state"
        )


async def test_a_list_older_than_the_known_version_shows_a_restore(caplog: pytest.LogCaptureFixture):
    async with case() as at:
        at.watch(*BEGINNING, bookmark(40), 5.0, EXPIRED)
        at.watch(event("ADDED", "a", 5), bookmark(39, ends=True), EXPIRED)
        at.watch(event("ADDED", "a", 5), bookmark(39, ends=True))
        await asyncio.sleep(60.0)

        reported = [each for each in caplog.records if "older state" in each.message]
        assert [each.__dict__["why"] for each in reported] == ["it is at version 39, and was at 40"]
        assert at.told[2:] == ["-b@3", "a@5>a@5"], "version 5 of it may be another now"


async def test_after_a_restore_a_known_version_is_decoded_again():
    future = status(504, "Timeout", "Timeout: Too large resource version: 9, current: 6")
    async with case() as at:
        at.watch(*BEGINNING, 5.0, then="cut")
        at.script(Answer(504, future))
        at.watch(event("ADDED", "a", 5), event("ADDED", "b", 4), bookmark(9, ends=True))
        await asyncio.sleep(10.0)

        assert at.told[2:] == ["a@5>a@5", "b@3>b@4"]


async def test_a_suspect_empty_kind_is_listed_again():
    async with case() as at:
        at.watch(bookmark(9, ends=True), 5.0, then="cut")
        at.watch(bookmark(12, ends=True))
        await asyncio.sleep(1.0)
        at.reflector.suspect_restore()
        await asyncio.sleep(10.0)

        assert at.versions == [None, None]


async def test_a_server_that_cannot_answer_is_checked_again_later():
    async with case() as at:
        at.watch(*BEGINNING, 5.0, then="cut")
        at.watch()
        at.watch(event("MODIFIED", "a", 10))
        at.server.script("GET", OF_NAMESPACE, failure(503), listing(5, obj("a", 5)))
        await asyncio.sleep(1.0)
        at.reflector.suspect_restore()
        await asyncio.sleep(10.0)

        assert [each.query.get("resourceVersion") for each in at.asked_to_watch] == [None, "5", "5"]
        assert at.told[2:] == ["a@5>a@10"]


async def test_bookmarks_keep_an_idle_watch_alive():
    async with case() as at:
        at.watch(*BEGINNING, 80.0, bookmark(20), 80.0, bookmark(30), 80.0)
        await asyncio.sleep(230.0)

        assert len(at.asked) == 1


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(b'{"type":"MODIFIED","object":{"metadata":{"name":"a","res', id="in a line"),
        pytest.param(b"", id="between lines"),
    ],
)
@pytest.mark.parametrize("then", ["close", "cut"])
async def test_an_interrupted_watch_continues_from_the_last_whole_line(cut: bytes, then: str):
    async with case() as at:
        at.watch(*BEGINNING, 30.0, event("MODIFIED", "a", 10), cut, then=then)
        at.watch(event("MODIFIED", "a", 11))
        await asyncio.sleep(40.0)

        assert at.versions == [None, "10"]
        assert at.told[2:] == ["a@5>a@10", "a@10>a@11"]


@pytest.mark.parametrize("by", ["status", "event"])
async def test_an_expired_version_causes_a_list_and_its_difference(by: str):
    async with case() as at:
        at.watch(*BEGINNING, 30.0, then="close")
        at.script(failure(410, "Expired") if by == "status" else Stream([EXPIRED]))
        at.watch(
            event("ADDED", "a", 5),  # unchanged
            event("ADDED", "c", 40),  # new; b was deleted in between
            bookmark(60, ends=True),
        )
        await asyncio.sleep(40.0)

        assert at.versions == [None, "9", None]
        assert at.asked[2].query["sendInitialEvents"] == "true"
        assert at.told[2:] == ["+c@40", "-b@3"]
        assert at.reflector.store == {"ns/a": "a@5", "ns/c": "c@40"}
        assert at.listener.ends == ["closed", "expired"]
        assert at.listener.lists == 2


async def test_an_object_recreated_in_a_gap_is_deleted_and_added():
    async with case() as at:
        at.watch(*BEGINNING, 30.0, EXPIRED)
        at.watch(event("ADDED", "a", 40, uid="other"), event("ADDED", "b", 3), bookmark(60, ends=True))
        await asyncio.sleep(40.0)

        assert at.told[2:] == ["-a@5", "+a@40"]


async def test_an_object_recreated_within_a_watch_is_deleted_and_added_once():
    async with case() as at:
        at.watch(*BEGINNING, 30.0, event("DELETED", "a", 10), event("ADDED", "a", 11, uid="other"))
        await asyncio.sleep(40.0)

        assert at.told[2:] == ["-a@5", "+a@11"]


async def test_repeated_events_are_handled_once():
    async with case() as at:
        at.watch(*BEGINNING, 30.0, event("MODIFIED", "a", 10), event("MODIFIED", "a", 10))
        await asyncio.sleep(40.0)

        assert at.told[2:] == ["a@5>a@10"]


async def test_an_interrupted_initial_list_is_requested_again_and_deletes_nothing():
    async with case() as at:
        at.watch(event("ADDED", "a", 5), then="cut")
        at.watch(event("ADDED", "b", 3), event("ADDED", "a", 5), bookmark(9, ends=True))
        await at.reflector.wait_synced()

        assert at.versions == [None, None]
        assert at.told == ["+a@5", "+b@3"]


async def test_an_interrupted_relist_deletes_nothing_yet():
    async with case() as at:
        at.watch(*BEGINNING, 30.0, EXPIRED)
        at.watch(event("ADDED", "a", 5), then="close")
        at.watch()
        await asyncio.sleep(60.0)

        assert len(at.asked) == 3
        assert at.told[2:] == []
        assert at.listener.ends == ["expired", "error"]


async def test_a_server_without_initial_events_is_listed_and_watched():
    async with case() as at:
        at.script(failure(422, "Invalid"), listing(9, obj("a", 5), obj("b", 3)))
        at.watch(30.0, EXPIRED)
        at.script(listing(20, obj("a", 5)))
        at.watch()
        await asyncio.sleep(60.0)

        assert "watch" not in at.asked[1].query
        assert at.asked[2].query["resourceVersion"] == "9"
        assert "watch" not in at.asked[3].query
        assert at.asked[4].query["resourceVersion"] == "20"
        assert at.told == ["+a@5", "+b@3", "-b@3"]
        assert at.listener.lists == 2


async def test_a_server_that_fails_to_stream_a_list_gets_a_plain_request_each_time():
    async with case() as at:
        at.script(failure(500, "InternalError"), failure(503, "ServiceUnavailable"), listing(9, obj("a", 5)))
        at.watch(30.0, EXPIRED)
        at.watch(*BEGINNING, bookmark(30))
        await asyncio.sleep(60.0)

        asked = [each.query for each in at.asked]
        assert [query.get("sendInitialEvents") for query in asked] == ["true", None, None, None, "true"]
        assert ["watch" in query for query in asked] == [True, False, False, True, True]
        assert at.listener.lists == 2


async def test_a_server_that_ignores_initial_events_is_finally_listed():
    async with case() as at:
        at.watch(event("ADDED", "a", 5))
        at.script(listing(9, obj("a", 5)))
        at.watch()
        await at.reflector.wait_synced()

        assert at.told == ["+a@5"]
        assert "watch" not in at.asked[1].query


async def test_a_list_comes_in_pages():
    async with case(field_selector="x=y") as at:
        at.script(failure(400, "BadRequest"))
        at.script(listing(9, obj("a", 5), more="next"), listing(9, obj("b", 3)))
        at.watch()
        await at.reflector.wait_synced()

        assert [each.query for each in at.asked[1:3]] == [
            {"fieldSelector": "x=y", "limit": "64"},
            {"fieldSelector": "x=y", "limit": "500", "continue": "next"},
        ]
        assert at.told == ["+a@5", "+b@3"]


async def test_pages_are_smaller_where_objects_are_large():
    large = {"metadata": {**obj("a", 5)["metadata"], "annotations": {"large": "x" * 2**20}}}
    async with case() as at:
        at.script(failure(400, "BadRequest"))
        at.script(
            listing(9, large, *(obj(f"{n}", n) for n in range(20)), more="next"), listing(9, obj("b", 3))
        )
        at.watch()
        await at.reflector.wait_synced()

        assert int(at.asked[1].query["limit"]) < 100, "the first page, whatever the objects are"
        assert [next_limit(64, n * 2**20) for n in (0, 1, 64, 600)] == [500, 500, 8, 1]
        assert at.asked[2].query["limit"] == "500"


async def test_expired_pages_are_listed_in_one_piece_without_deleted_objects():
    async with case() as at:
        at.script(failure(400, "BadRequest"))
        at.script(
            listing(9, obj("a", 5), obj("gone", 4), more="next"),
            failure(410, "Expired"),
            listing(30, obj("a", 5), obj("b", 20)),
        )
        at.watch()
        await at.reflector.wait_synced()

        assert at.asked[3].query == {}
        assert at.told == ["+a@5", "+gone@4", "+b@20", "-gone@4"]


async def test_a_list_without_items_is_valid():
    async with case() as at:
        at.script(failure(400, "BadRequest"), listing(9))
        at.watch()
        await at.reflector.wait_synced()

        assert at.reflector.store == {}


async def test_an_undecodable_object_does_not_stop_the_others():
    async with case() as at:
        at.watch(
            *BEGINNING,
            event("MODIFIED", "a", 10, bad=1),
            {
                "type": "ADDED",
                "object": {"metadata": {"name": 7, "uid": "u", "resourceVersion": "11"}, "bad": 1},
            },
            event("ADDED", "c", 12),
        )
        await asyncio.sleep(1.0)

        assert at.told[2:] == ["?ns/a uid-a spec.replicas", "? u spec.replicas", "+c@12"]
        assert at.reflector.store["ns/a"] == "a@5"
        assert len(at.asked) == 1


async def test_waits_grow_during_failures_and_shrink_afterwards():
    async with case() as at:
        at.script(*[failure(500, "InternalError")] * 7, listing(9))
        at.watch(5.0, then="close")
        at.script(*[failure(500, "InternalError")] * 2)
        at.watch()
        await asyncio.sleep(200.0)

        times = [each.at for each in at.asked]
        waits = [after - before for before, after in itertools.pairwise(times)]
        for wait, ceiling in zip(waits, [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0], strict=False):
            assert ceiling / 2 <= wait <= ceiling + 0.1
        assert waits[7] == pytest.approx(0.0, abs=0.1)  # after the list, the watch
        assert waits[8] == pytest.approx(5.0, abs=0.1)  # at once after a watch that ended in order
        assert 0.4 <= waits[9] <= 0.9
        assert 0.8 <= waits[10] <= 1.7


async def test_a_watch_that_ends_at_once_is_not_restarted_immediately():
    async with case() as at:
        at.watch(*BEGINNING)
        at.server._script["GET", PATH][0].then = "close"
        at.script(*[Stream([bookmark(9 + n)], "close") for n in range(100)])
        await asyncio.sleep(10.0)

        assert len(at.asked) <= 26


async def test_too_many_requests_are_retried_after_the_requested_time():
    async with case() as at:
        at.script(failure(429, "TooManyRequests", Retry_After="17"))
        at.watch(*BEGINNING)
        await at.reflector.wait_synced()

        assert 17.0 <= at.asked[1].at <= 18.0


async def test_a_server_is_found_again_after_an_outage():
    async with case() as at:
        at.watch(*BEGINNING, 5.0, then="cut")
        at.watch(event("MODIFIED", "a", 10))
        await asyncio.sleep(10.0)

        assert at.told[2:] == ["a@5>a@10"]
        assert at.listener.ends == ["error"]


async def test_a_version_refused_for_other_reasons_is_finally_dropped():
    async with case() as at:
        at.watch(*BEGINNING, 5.0, then="close")
        at.script(*[Stream([error(500, "InternalError")])] * 5)
        at.watch(event("ADDED", "a", 5), bookmark(70, ends=True))
        await asyncio.sleep(100.0)

        assert at.versions == [None, *["9"] * 5, None]
        assert at.told[2:] == ["-b@3"]


async def test_a_server_with_a_lagging_cache_has_not_gone_back(caplog: pytest.LogCaptureFixture):
    async with case() as at:
        # For the request of all objects, without a version: the server's cache lags behind its storage.
        at.script(Answer(504, status(504, "Timeout", "Too large resource version: 9, current: 4")))
        at.script(listing(9, obj("a", 5)))
        at.watch()
        await asyncio.sleep(5.0)

        assert at.told == ["+a@5"]
        assert at.listener.ends == ["error"]
        assert "gone back" not in caplog.text


async def test_a_future_version_causes_a_list():
    async with case() as at:
        at.watch(*BEGINNING, 5.0, then="close")
        at.script(Answer(504, status(504, "Timeout", "Too large resource version: 9, current: 4")))
        at.watch(event("ADDED", "a", 2), bookmark(4, ends=True))
        await asyncio.sleep(20.0)

        assert at.told[2:] == ["a@5>a@2", "-b@3"]


@pytest.mark.parametrize(
    ("code", "message", "named"),
    [
        pytest.param(
            403, "No permission to list and watch this kind", "list and watch on replicasets in API", id="403"
        ),
        pytest.param(401, "No permission to list and watch this kind", "credentials", id="401"),
        pytest.param(404, "The API server does not serve this kind; install or enable it", None, id="404"),
    ],
)
async def test_a_forbidden_kind_is_logged_once_and_requested_slowly(
    code: int, message: str, named: str | None, caplog: pytest.LogCaptureFixture
):
    async with case() as at:
        at.script(*[failure(code)] * 12)
        at.watch(*BEGINNING)
        await at.reflector.wait_synced()

        waits = [after - before for before, after in itertools.pairwise(each.at for each in at.asked)]
        for wait, ceiling in zip(waits, [1.0, 2.0, 4.0, 8.0, 16.0, *[REFUSED_SECONDS] * 7], strict=True):
            assert ceiling / 2 <= wait <= ceiling + 0.1
        records = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert [record.message for record in records] == [message]
        assert records[0].resource == "replicasets.apps"
        if named is not None:
            assert named in records[0].fix


@pytest.mark.parametrize("code", [401, 403, 404])
async def test_refusals_of_a_starting_server_are_retried_soon_without_a_log_line(
    code: int, caplog: pytest.LogCaptureFixture
):
    async with case(optional=True) as at:
        at.watch(*BEGINNING, 30.0, then="cut")
        at.script(*[failure(code)] * 2)
        at.watch(event("MODIFIED", "a", 10))
        await asyncio.sleep(34.0)

        assert at.asked[-1].at - 30.0 <= 3.1
        assert at.told[2:] == ["a@5>a@10"]
        assert not [record for record in caplog.records if "may" in record.message.lower()]


async def test_an_optional_kind_that_was_removed_is_dropped():
    async with case(optional=True) as at:
        at.watch(*BEGINNING, 30.0, then="cut")
        at.script(*[failure(404)] * 20)
        await asyncio.sleep(60.0)

        assert at.told[2:] == ["-a@5", "-b@3"]


async def test_an_expired_version_is_relisted_at_once_even_after_long_trouble():
    async with case() as at:
        at.watch(*BEGINNING, 30.0, then="cut")
        at.script(*[failure(502)] * 4, failure(410, "Expired"))
        at.watch(event("ADDED", "c", 40), bookmark(60, ends=True))
        await asyncio.sleep(60.0)

        assert at.asked[6].at - at.asked[5].at < 0.1
        assert sorted(at.reflector.store) == ["ns/c"]


async def test_lists_that_expire_repeatedly_are_delayed():
    async with case() as at:
        at.watch(*BEGINNING, 30.0, then="close")
        at.script(*[failure(410, "Expired")] * 100)
        await asyncio.sleep(60.0)

        assert len(at.asked) < 10


async def test_the_end_of_an_outage_ends_the_wait_and_resets_the_backoff():
    over = asyncio.Event()

    async def pause(seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await over.wait()
        except TimeoutError:
            return False

    async with case(pause=pause) as at:
        at.script(*[failure(503)] * 7)
        await asyncio.sleep(60.0)
        assert len(at.asked) == 7
        at.script(failure(503), listing(9, obj("a", 5)))
        asyncio.get_running_loop().call_later(0.2, over.clear)
        over.set()
        ended = asyncio.get_running_loop().time()
        await asyncio.sleep(5.0)

        assert at.asked[7].at == ended
        assert at.asked[8].at - ended <= 0.9
        assert at.reflector.has_synced


async def test_an_absent_kind_refused_by_a_starting_server_does_not_delay_the_start():
    state_listener = Followed()
    async with case(state_listener=state_listener, optional=True) as at:
        at.script(*[failure(404)] * 5, failure(403), failure(404))
        await asyncio.sleep(60.0)

    (broke, began), (complete, ended) = state_listener.told[-2:]
    assert (broke, complete) == ("broke", "complete")
    assert ended - began <= 1.1


async def test_a_listener_is_notified_of_a_stale_kind():
    state_listener = Followed()
    async with case(state_listener=state_listener) as at:
        at.script(failure(500))  # not stale, because nothing was known
        at.script(listing(9, obj("a", 5)))
        at.watch(30.0, bookmark(10), then="close")
        at.watch(30.0, bookmark(11), then="cut")
        at.watch(30.0, EXPIRED)
        at.watch(event("ADDED", "a", 5), bookmark(60, ends=True))
        await asyncio.sleep(110.0)

    assert [reported for reported, _ in state_listener.told] == [
        "complete", "resumed",  # list, then watch
        "resumed",  # after a watch that ended in order
        "broke", "resumed",
        "broke", "complete",
    ]  # fmt: skip


async def test_a_kind_that_is_optional_and_absent_counts_as_empty():
    async with case(optional=True) as at:
        at.script(failure(404, "NotFound"))
        at.watch(*BEGINNING)
        await at.reflector.wait_synced()
        assert at.reflector.store == {}

        await asyncio.sleep(REFUSED_SECONDS + 1.0)
        assert set(at.reflector.store) == {"ns/a", "ns/b"}
