"""The content of a ShardAssignment, and its errors."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from scheduler.daemon.sharding.assignment_object import FORMER, SharedAssignment, decode, encode, ranges_of
from scheduler.daemon.sharding.replica import replica_name
from scheduler.engine.sharding.buckets import BUCKETS
from scheduler.engine.sharding.holding import NOBODY
from scheduler.errors import ApiError, ObjectError
from scheduler.kube.http.request import Response

WANTED = ("a",) * 100 + ("b",) * 156
HELD = ("a",) * 90 + (NOBODY,) * 10 + ("b",) * 155 + (FORMER,)


def found(body: bytes) -> bytes:
    """Return the object as the API server answers it."""
    obj = msgspec.json.decode(body)
    obj["metadata"]["resourceVersion"] = "7"
    return msgspec.json.encode(obj)


def of(*replicas: dict[str, Any], version: str = "7") -> bytes:
    metadata = {"name": "x", "resourceVersion": version}
    return msgspec.json.encode({"metadata": metadata, "spec": {"namespace": "sys", "replicas": replicas}})


def test_an_object_is_read_as_it_was_written() -> None:
    gangs = {"b": "default/g", "c": "default/h"}
    read = decode(found(encode("x", "sys", WANTED, HELD, gangs=gangs))).assignment

    assert (read.version, read.wanted, read.held, read.gangs) == (7, WANTED, HELD, gangs)


def test_buckets_are_written_as_ranges_with_a_summary() -> None:
    spec = msgspec.json.decode(encode("x", "sys", WANTED, HELD))["spec"]

    assert spec["summary"] == "2 replicas, 11 buckets move"
    assert spec["replicas"] == [
        {"name": "a", "wanted": "0-99", "held": "0-89"},
        {"name": "b", "wanted": "100-255", "held": "100-254"},
        {"name": "former-holders", "wanted": "", "held": "255"},
    ]
    assert ranges_of(("a", NOBODY, "a", "a", NOBODY, "a"), "a") == "0,2-3,5"


def test_a_changed_object_keeps_its_other_fields() -> None:
    before = decode(found(encode("x", "sys", WANTED, HELD)))
    before.raw["metadata"]["labels"] = {"team": "infra"}

    after = msgspec.json.decode(encode("x", "sys", WANTED, WANTED, before.raw))

    assert after["metadata"] == {"name": "x", "resourceVersion": "7", "labels": {"team": "infra"}}


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (of({"name": ""}), 'spec.replicas[0].name: must be the name of a Lease, was ""'),
        (of({"name": "../x"}), 'spec.replicas[0].name: must be the name of a Lease, was "../x"'),
        (of({"name": "a"}, {"name": "a"}), 'spec.replicas[1].name: must be in one entry only, was "a"'),
        (of({"name": "a", "held": "0-3,2"}), "spec.replicas[0].held: bucket 2 belongs to a already"),
        (
            of({"name": "a", "wanted": "5"}, {"name": "b", "wanted": "4-6"}),
            "spec.replicas[1].wanted: bucket 5 belongs to a already",
        ),
        (
            of({"name": "a", "held": "250-256"}),
            'spec.replicas[0].held: must be ranges of buckets from 0 to 255, was "250-256"',
        ),
        (
            of({"name": "a", "held": "9-3"}),
            'spec.replicas[0].held: must be ranges of buckets from 0 to 255, was "9-3"',
        ),
        (
            of({"name": "a", "held": "1, 2"}),
            'spec.replicas[0].held: must be ranges of buckets as in 0-63,70, was "1, 2"',
        ),
        (
            of({"name": "a", "held": "-1"}),
            'spec.replicas[0].held: must be ranges of buckets as in 0-63,70, was "-1"',
        ),
        (of({"name": "a"}, version=""), 'metadata.resourceVersion: must be a number, was ""'),
        (of({"name": 3}), "spec: Expected `str`, got `int` - at `$.replicas[0].name`"),
    ],
    ids=str,
)
def test_an_invalid_object_is_refused_with_its_field(body: bytes, problem: str) -> None:
    with pytest.raises(ObjectError) as caught:
        decode(body)

    assert str(caught.value) == f"ShardAssignment x: {problem}"


def test_the_longest_ranges_of_a_replica_are_accepted_by_the_definition() -> None:
    owners = tuple("a" if bucket % 2 else "b" for bucket in range(BUCKETS))

    assert len(ranges_of(owners, "a")) <= 1024


@pytest.mark.parametrize(
    ("identity", "name"),
    [
        ("web-7d9f_1c2d-3", "web-7d9f-1c2d-3"),
        ("My.Host_Name_1c2d", "my.host-name-1c2d"),
        ("_1c2d", "1c2d"),
        ("h" * 300 + "_1c2d", "h" * 200 + "-1c2d"),
    ],
)
def test_the_name_of_a_replica_is_that_of_a_lease(identity: str, name: str) -> None:
    assert replica_name(identity) == name


class Overtaken:
    """A connection whose answers are overtaken by an event of the watch."""

    def __init__(self) -> None:
        self.answers: list[bytes | ApiError] = []
        self.event: bytes | None = None
        self.went_back = 0
        self.shared = SharedAssignment(
            self,  # type: ignore[arg-type]
            "x",
            "sys",
            random=Random(1),
            saw=lambda: None,
            went_back=self._go_back,
        )

    def _go_back(self) -> None:
        self.went_back += 1

    async def send(self, _: object) -> Response:
        answer = self.answers.pop(0)
        if self.event is not None:
            self.shared.on_add(decode(self.event))
            self.event = None
        if isinstance(answer, ApiError):
            raise answer
        return Response(200, answer)

    async def version_after(self, answer: bytes | ApiError, event: bytes | None = None) -> int:
        self.answers, self.event = [answer], event
        await self.shared.read()
        assert self.shared.seen is not None
        return self.shared.seen.assignment.version


async def test_an_answer_that_the_watch_overtakes_does_not_mean_that_the_server_went_back() -> None:
    it = Overtaken()
    assert await it.version_after(of(version="7")) == 7
    assert await it.version_after(of(version="8"), event=of(version="9")) == 9
    assert it.went_back == 0

    assert await it.version_after(of(version="8")) == 9
    assert it.went_back == 1


async def test_an_answer_that_the_watch_overtakes_does_not_mean_that_the_object_is_absent() -> None:
    it = Overtaken()
    missing = ApiError(404, "NotFound", "it does not exist yet")
    assert await it.version_after(missing, event=of(version="7")) == 7
    assert not it.shared.is_absent

    await it.version_after(missing)
    assert it.shared.is_absent
