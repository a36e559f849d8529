"""The state at the beginning of a file, and a daemon that resumes from it."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import msgspec

from scheduler.configuration.load import default
from scheduler.configuration.overrides import with_leader_election
from scheduler.daemon.app.daemon import Daemon
from scheduler.daemon.app.watches import NODE_KIND
from scheduler.daemon.recording.recorder import Recorder
from scheduler.daemon.recording.recording_files import Header, Note
from scheduler.daemon.recording.state import State, is_quiet, resume, state_notes
from scheduler.engine.state.cache import PodState
from scheduler.tools.whatif.replay.replay import RecordedServer
from tests.recording.memory_recording import Tape
from tests.support.builders import node, pod
from tests.support.manual_clock import ManualClock


def daemon() -> Daemon:
    connection: Any = RecordedServer()
    configuration = with_leader_election(default(), leader_elect=False)
    return Daemon(connection, configuration, clock=ManualClock(9.0), random=Random(1), no_bind=True)


def test_a_daemon_continues_from_the_state_of_another() -> None:
    async def story() -> tuple[Daemon, Daemon]:
        first, second = daemon(), daemon()
        pods = [pod(name) for name in ("assumed", "nominated", "waiting")]
        pods.append(pod("gated", gates=("example.com/quota",)))
        for each in (first, second):
            each.parts.pods.update({known.key: known for known in pods})
        first.parts.cache.add_node(node("n1"))
        first.parts.cache.add_node(node("n2"))
        first.parts.cache.assume(pods[0], "n1")
        beside = pod("beside").placed_on("n1")
        first.parts.cache.add_pod(beside)
        first.parts.cache.replace(pods[0].placed_on("n1"))  # is behind the other pod on the node now
        for known in (first, second):
            known.parts.pods[beside.key] = beside
        first.parts.queue.add(pods[1])
        first.parts.queue.add(pods[2])
        first.parts.queue.add(pods[3])
        first.parts.nominator.add(pods[1], "n2")
        first.parts.cache.pauses.rejected("n2", "why", at=9.0)
        first.cycles.sampling.next_start = 1
        (_, _, said), *_ = state_notes(first, Random(1).getstate(), 0)
        state = msgspec.convert(msgspec.msgpack.decode(msgspec.msgpack.encode(said)), State)
        nodes = {each.name: each for each in first.parts.cache.table.nodes}
        resume(second, state, {NODE_KIND: nodes})
        return first, second

    first, second = asyncio.run(story())
    assumed, nominated, waiting, gated, *_ = second.parts.pods.values()
    on_first, on_second = (
        [each.name for each in one.parts.cache.snapshot().pods_on(0)] for one in (first, second)
    )
    assert on_first == on_second == ["beside", "assumed"]
    assert second.parts.cache.state_of(assumed.uid) is PodState.ASSUMED
    assert second.parts.cache.was_assumed(assumed.uid)
    assert second.parts.nominator.node_of(nominated.uid) == "n2"
    assert second.parts.cache.pauses.kept() == first.parts.cache.pauses.kept()
    assert second.cycles.sampling.next_start == 1
    assert [queued.pod.uid for queued in second.parts.queue.in_turn()] == [
        nominated.uid,
        waiting.uid,
        gated.uid,
    ]
    assert second.parts.queue.rejections_by_code == first.parts.queue.rejections_by_code
    assert len(second.parts.queue.rejections_by_code) == 1
    second.parts.cache.check()
    second.parts.queue.check()


def test_no_file_begins_while_a_pod_that_left_its_node_waits_to_be_read() -> None:
    """The state has no such pods."""
    one = daemon()
    assert is_quiet(one)
    one.cycles.rejections.left(pod("left").placed_on("n1"))
    assert not is_quiet(one)


def test_a_file_begins_without_cached_results() -> None:
    """A daemon that continues has none; work whose results are known takes fewer time slices."""
    one = daemon()
    one.parts.cache.add_node(node("n1"))
    classes = one.generations.active.frameworks["custom-scheduler"]._classes
    snapshot = one.parts.cache.snapshot()
    first, second = [classes.of(pod(name), None, snapshot) for name in ("first", "second")]
    assert first is not None
    assert second is not None
    assert (first.is_kept, second.is_kept) == (False, True)

    list(state_notes(one, Random(1).getstate(), 0))

    third = classes.of(pod("third"), None, snapshot)
    assert third is not None
    assert not third.is_kept


class Deaf:
    """A handler of events without effect."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def test_a_file_that_begins_at_an_event_has_the_objects_after_it() -> None:
    """The store removes an object, and then calls the handler for the deletion."""
    clock, tape = ManualClock(9.0), Tape()
    recorder = Recorder(clock, tape, Header.fresh(clock, Random(1)))
    recorder.daemon, tape.wants_state = daemon(), True
    handler: Any = recorder.event_handler("v1/pods", Deaf())
    handler.on_delete(pod("p"))
    assert [note[0] for note in tape.notes] == [Note.TOLD, Note.STATE]
