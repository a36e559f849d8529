"""A recorder notes what passes through the ports; a replay repeats it, without a call."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.configuration.types import Extender
from scheduler.daemon.app.api_access import ApiAccess
from scheduler.daemon.app.assembly import Parts
from scheduler.daemon.recording.recording_files import Note
from scheduler.engine.cycle.observer import NoObserver
from scheduler.framework import HttpGet, WantedStatus
from scheduler.kube.http.client import HttpClient
from scheduler.kube.http.request import Response
from scheduler.tools.whatif.replay.replayed_ports import ReplayedPorts
from scheduler.tools.whatif.replay.script import Script
from tests.recording.memory_recording import Taped
from tests.support.builders import pod
from tests.support.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.daemon.recording.ports import ObservedPorts

    Use = Callable[[ObservedPorts, Any], Any]

P = pod("p")


class World:
    """Everything outside of the engine; each method returns its answer."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        async def method(*_arguments: Any, **_options: Any) -> Any:
            self.calls.append(name)
            return self.answer

        return method

    @property
    def is_stale(self) -> bool:
        return bool(self.answer)


def access(ports: ObservedPorts, world: Any) -> ApiAccess:
    return ports.api_access(ApiAccess(**{field.name: world for field in fields(ApiAccess)}))


def extender(ports: ObservedPorts, world: World, monkeypatch: pytest.MonkeyPatch) -> Any:
    async def send(*_arguments: Any, **_options: Any) -> Response:
        world.calls.append("send")
        return Response(200, world.answer)

    monkeypatch.setattr(HttpClient, "send", send)
    return ports.extender(Extender(url_prefix="http://e", bind_verb="bind"), "extenders[0]")


CALLS: list[tuple[str, Use, Any]] = [
    ("bind default/p to n1", lambda ports, world: access(ports, world).binder.bind(P, "n1"), None),
    ("GET /a", lambda ports, world: access(ports, world).get.api_get("/a"), b"a"),
    ("PUT /a", lambda ports, world: access(ports, world).write.api_write("PUT", "/a", {}), {"kind": "A"}),
    (
        "PATCH /apis/example.com/v1/namespaces/a/racks/b/status",
        lambda ports, world: access(ports, world).statuses.write_status(
            "example.com/v1/racks", "a/b", "u", WantedStatus({})
        ),
        {"kind": "Rack"},
    ),
    ("read default/p", lambda ports, world: access(ports, world).reader.read_pod("default", "p"), None),
    ("patch default/p", lambda ports, world: access(ports, world).writer.wait_pod_status_patched(P), 0),
    ("delete default/p", lambda ports, world: access(ports, world).writer.delete_pod(P), None),
    ("GET http://w/a", lambda ports, world: ports.http_get(world).http_get("http://w/a"), b"a"),
    ("cache gate", lambda ports, world: ports.cache_gate(world).wait(), None),
]

CONDITIONS: list[tuple[str, Use]] = [
    ("measured", lambda ports, world: ports.measured(world.answer)),
    ("is_over", lambda ports, world: ports.is_over(0.0 if world.answer else float("inf"))),
    ("has_elapsed", lambda ports, world: ports.has_elapsed(0.0, 0.0 if world.answer else float("inf"))),
    ("is_stale", lambda ports, world: ports.cache_gate(world).is_stale),
    ("is_leading", lambda ports, world: not ports.is_leading(lambda: not world.answer)()),
]


def replayed(taped: Taped) -> ReplayedPorts:
    return ReplayedPorts(Script(taped.notes()), taped.header, Random(1))


async def answered(ports: ReplayedPorts, taped: Taped, call: Any) -> Any:
    """Make a call in a replay, and return the recorded answer."""
    running = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    ports.answer(list(taped.notes())[-1])
    return await running


@pytest.mark.parametrize(("what", "use", "answer"), CALLS, ids=[what for what, _, _ in CALLS])
async def test_a_call_is_recorded_and_a_replay_has_its_answer(what: str, use: Use, answer: Any) -> None:
    taped, world, other = Taped(ManualClock(5.0)), World(answer), World("another answer")
    assert await use(taped.recorder, world) == answer
    assert len(world.calls) == 1
    assert taped.tape.notes[0] == (Note.ASKED, 1, what)

    ports = replayed(taped)
    assert await answered(ports, taped, use(ports, other)) == answer
    assert not other.calls
    assert ports.difference is None


async def test_a_call_of_an_extender_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    taped, world, other = Taped(ManualClock(5.0)), World(b'{"error":""}'), World(b"")
    await extender(taped.recorder, world, monkeypatch).bind(P, "n1")
    assert world.calls == ["send"]
    assert taped.tape.notes[0] == (Note.ASKED, 1, "POST http://e/bind")

    ports = replayed(taped)
    await answered(ports, taped, extender(ports, other, monkeypatch).bind(P, "n1"))
    assert not other.calls
    assert ports.difference is None


@pytest.mark.parametrize(("_name", "use"), CONDITIONS, ids=[name for name, _ in CONDITIONS])
@pytest.mark.parametrize("is_so", [True, False])
def test_a_condition_is_recorded_and_a_replay_repeats_it(_name: str, use: Use, is_so: bool) -> None:
    taped = Taped(ManualClock(5.0))
    taped.recorder.is_telling = True  # within a step
    assert use(taped.recorder, World(is_so)) is is_so
    assert taped.tape.notes == ([(Note.OBSERVED, 1)] if is_so else [])
    assert use(replayed(taped), World(not is_so)) is is_so


def test_the_clock_for_measurements_does_not_count_as_the_time_of_decisions() -> None:
    taped = Taped(ManualClock(5.0))
    taped.tape.notes.append((Note.READ, 1, 2_000_000))
    ports = replayed(taped)
    ports.begin(1_000_000)
    assert ports.clock.monotonic() == pytest.approx(6.0)
    assert ports.monotonic() == pytest.approx(7.0)


async def test_the_parts_of_a_scheduler_use_the_given_ports() -> None:
    taped = Taped(ManualClock(5.0))
    parts = Parts(ManualClock(5.0), NoObserver(), {}, ports=taped.recorder)
    parts.web = World(b"a")  # type: ignore[assignment]
    web: Any = parts.capabilities()[HttpGet]
    assert await web.http_get("http://w/a") == b"a"
    assert taped.tape.notes[0] == (Note.ASKED, 1, "GET http://w/a")

    parts.budget._on_stopped()
    assert taped.tape.notes[-1] == (Note.STOPPED,)
