"""The recorder's clock, and the events that it does not record."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import msgspec
import pytest

from scheduler.daemon.recording.recorder import RecordedHandler, Recorder, packed_error, unpacked_error
from scheduler.daemon.recording.recording_files import Header, Note, ObjectEvent
from scheduler.engine.cycle.time_slices import ClusterFreeze
from scheduler.errors import ApiError, NotLeadingError, ObjectError, SchedulerError
from scheduler.extensions.extender_wire import ExtenderError
from scheduler.framework.status import Status
from scheduler.objects.decode import decode_node
from scheduler.objects.node import NodeObject
from scheduler.testing.builders import node_object
from tests.recording.memory_recording import Tape
from tests.support.builders import pod
from tests.support.manual_clock import ManualClock


class Heard:
    """Reads the clock at every notification; time passes between the readings."""

    def __init__(self, clock: ManualClock, seconds: float) -> None:
        self.read: list[float] = []
        self.recorder: Recorder
        self._clock, self._seconds = clock, seconds

    def on_add(self, _obj: object) -> None:
        for _ in range(3):
            self.read.append(self.recorder.monotonic())
            self._clock.now += self._seconds

    def on_update(self, _old: object, _new: object) -> None: ...
    def on_delete(self, _old: object) -> None: ...
    def on_undecodable(self, *_: object) -> None: ...


def recorder(clock: ManualClock) -> tuple[Recorder, Tape]:
    tape = Tape()
    return Recorder(clock, tape, Header.fresh(clock, Random(1))), tape


def test_time_does_not_advance_within_a_step() -> None:
    clock = ManualClock(5.0)
    made, _ = recorder(clock)
    heard = Heard(clock, 0.01)
    heard.recorder = made
    made.event_handler("v1/pods", heard).on_add(pod("p"))
    made.event_handler("v1/pods", heard).on_add(pod("q"))
    assert heard.read == pytest.approx([5.0] * 3 + [5.03] * 3)
    assert len(set(heard.read)) == 2


def test_a_very_long_step_reads_the_time_again_and_records_it() -> None:
    clock = ManualClock(5.0)
    made, tape = recorder(clock)
    heard = Heard(clock, 0.6)
    heard.recorder = made
    made.event_handler("v1/pods", heard).on_add(pod("p"))
    assert heard.read == pytest.approx([5.0, 5.0, 6.2])
    assert tape.notes[-1] == (Note.READ, 3, 1_200_000)


def test_an_observer_sees_the_current_time() -> None:
    clock = ManualClock(5.0)
    made, tape = recorder(clock)
    clock.now = 7.5
    assert made.monotonic() == 7.5
    assert not tape.notes


def test_a_branch_of_an_observer_is_not_recorded() -> None:
    made, tape = recorder(ManualClock(5.0))
    assert made.measured(True)  # an HTTP endpoint, whose plugin reads the time
    assert not tape.notes


@pytest.mark.parametrize("is_deferred", [False, True])
def test_a_heartbeat_is_recorded_only_if_it_is_deferred(is_deferred: bool) -> None:
    """Deferred changes are made in time slices, and each change takes its place in them."""
    clock = ManualClock(5.0)
    made, tape = recorder(clock)
    freeze = ClusterFreeze()
    made.daemon = SimpleNamespace(parts=SimpleNamespace(freeze=freeze))  # type: ignore[assignment]
    if is_deferred:
        freeze.begin()
    handler: RecordedHandler[object] = made.event_handler("v1/nodes", Heard(clock, 0.0))  # type: ignore[assignment]
    first = decode_node(msgspec.json.encode(node_object("n")))
    second = NodeObject(msgspec.structs.replace(first.node), first.raw)  # the result of `heartbeat`
    handler.on_update(first, second)
    assert [note[:4] for note in tape.notes] == (
        [(Note.TOLD, 0, "v1/nodes", ObjectEvent.UPDATED)] if is_deferred else []
    )


@pytest.mark.parametrize(
    "error",
    [
        ApiError(409, "Conflict", "another", retry_after_seconds=2.0),
        NotLeadingError("a lease"),
        ObjectError("Pod", "a/b", "spec.x", "wrong"),
        ExtenderError("no answer"),
        SchedulerError("no"),
        OSError("GET x: 500"),
        TimeoutError("late"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_come_back_as_they_were(error: Exception) -> None:
    again = unpacked_error(tuple(msgspec.json.decode(msgspec.json.encode(packed_error(error)))))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert Status.failed("x", again).error is again
    if isinstance(error, ApiError):
        assert isinstance(again, ApiError)
        assert (again.status, again.reason) == (error.status, error.reason)


def test_an_unexpected_error_is_restored() -> None:
    assert str(unpacked_error(packed_error(KeyError("x")))) == "KeyError('x')"
