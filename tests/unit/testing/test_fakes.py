"""Fakes implement their interfaces, and record their calls."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.engine.runtime.plugin_classes import CAPABILITIES
from scheduler.framework import ClusterEvent, EventResource
from scheduler.framework.events import ActionType
from scheduler.testing import Fakes, FakeWeb, pod

OF_PREEMPTION = {"NominatedPods", "PreemptionDryRun", "Preemptions", "VictimReview"}
OF_THE_CLUSTER = {"ClusterObjects"}  # a trial has a cluster, with the objects it was given


def test_every_capability_of_an_author_has_a_fake():
    assert {
        protocol.__name__ for protocol in Fakes().by_protocol()
    } == CAPABILITIES.keys() - OF_PREEMPTION - OF_THE_CLUSTER


@pytest.mark.parametrize("protocol", Fakes().by_protocol(), ids=lambda protocol: protocol.__name__)
def test_a_fake_has_the_methods_of_its_capability(protocol: type):
    fake = Fakes().by_protocol()[protocol]

    assert all(hasattr(fake, name) for name in vars(protocol) if not name.startswith("_"))


def test_sleeping_moves_the_clock_and_takes_no_time():
    fakes = Fakes()
    sleep = fakes.by_protocol()[CAPABILITIES["Sleep"]]

    asyncio.run(sleep.sleep(3600.0))  # type: ignore[attr-defined]

    assert fakes.clock.monotonic() == 3600.0


def test_a_missing_page_is_a_network_error():
    with pytest.raises(OSError, match="GET http://nowhere: 404"):
        asyncio.run(FakeWeb().http_get("http://nowhere"))


def test_events_and_bindings_are_recorded():
    fakes = Fakes()

    fakes.events.record(pod("web"), type_="Normal", reason="Licensed", action="Binding", note="seat 3")
    asyncio.run(fakes.binder.bind(pod("web"), "a"))

    assert fakes.events.recorded == [("default/web", "Normal", "Licensed", "Binding", "seat 3")]
    assert fakes.binder.bound == [("default/web", "a")]


def test_a_wait_ends_by_the_events_that_were_set_before():
    fakes = Fakes()
    added = ClusterEvent(EventResource.NODE, ActionType.ADD)
    before = asyncio.run(fakes.happenings.wait_for_event(lambda *_: True, timeout_seconds=9))
    fakes.happenings.coming.append((added, None, object()))

    after = asyncio.run(
        fakes.happenings.wait_for_event(lambda event, _old, _new: event == added, timeout_seconds=9)
    )

    assert (before, after) == (False, True)
