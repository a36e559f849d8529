"""Pods that wait at Permit: they are allowed, rejected, or rejected after a timeout."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.engine.runtime.calls import NoInstruments
from scheduler.engine.runtime.waiting_pods import WaitingPodsMap
from scheduler.framework import Code, Status
from scheduler.framework.capabilities import WaitingPods
from scheduler.framework.reasons import Cause
from tests.support.builders import pod

POD = pod("web")


class Waits(NoInstruments):
    def __init__(self) -> None:
        self.told: list[tuple[Code, float]] = []

    def permit_wait(self, code: Code, seconds: float) -> None:
        self.told.append((code, seconds))


async def decide(pods: WaitingPodsMap, *moves: tuple[float, str, str]) -> tuple[Status, float]:
    """Hold the pod and run actions at given times; return the outcome and its time."""
    loop = asyncio.get_running_loop()
    for at, verb, plugin in moves:
        if verb == "allow":
            loop.call_at(at, pods.allow, POD.uid, plugin)
        else:
            loop.call_at(at, pods.reject, POD.uid, plugin, "not today")
    status = await pods.wait_until_decided(POD.uid)
    return status, loop.time()


async def test_a_waiting_pod_continues_when_all_its_plugins_allowed_it():
    pods = WaitingPodsMap()
    pods.hold(POD, {"A": 10, "B": 20})

    assert await decide(pods, (4, "allow", "A"), (7, "allow", "B")) == (Status(Code.SUCCESS), 7)
    assert not pods.holds(POD.uid)


async def test_only_a_plugin_that_holds_a_pod_can_allow_it():
    pods = WaitingPodsMap()
    pods.hold(POD, {"A": 10})

    status, _ = await decide(pods, (4, "allow", "B"))

    assert status.is_rejected


async def test_one_rejection_by_any_plugin_is_enough():
    pods = WaitingPodsMap()
    pods.hold(POD, {"A": 10, "B": 20})

    assert await decide(pods, (4, "reject", "C")) == (Status(Code.UNSCHEDULABLE, ("not today",), "C"), 4)


async def test_the_first_result_counts():
    pods = WaitingPodsMap()
    pods.hold(POD, {"A": 10})
    pods.reject(POD.uid, "A", "first")
    pods.allow(POD.uid, "A")
    pods.reject(POD.uid, "A", "second")

    assert (await pods.wait_until_decided(POD.uid)).message == "first"


@pytest.mark.parametrize(
    ("seconds", "written"), [(10, "10s"), (90, "1m30s"), (900, "15m0s"), (0.5, "500ms"), (0, "0s")]
)
async def test_the_shortest_timeout_ends_the_wait_and_is_written_as_in_go(seconds: float, written: str):
    pods = WaitingPodsMap()
    pods.hold(POD, {"B": 1000, "A": seconds})

    status, at = await decide(pods)

    assert (status.code, status.plugin, at) == (Code.UNSCHEDULABLE, "A", pytest.approx(seconds))
    assert status.message == f"rejected due to timeout after waiting {written} at plugin A"
    assert status.causes == (Cause("PermitTimeout", "A"),)


async def test_the_timeout_of_a_plugin_that_allowed_no_longer_counts():
    pods = WaitingPodsMap()
    pods.hold(POD, {"A": 5, "B": 20})

    assert (await decide(pods, (4, "allow", "A"), (19, "allow", "B")))[1] == 19


async def test_the_seconds_left_are_those_of_the_plugins_that_still_hold_the_pod():
    pods = WaitingPodsMap()
    pods.hold(POD, {"A": 5, "B": 20})
    await asyncio.sleep(2)
    pods.allow(POD.uid, "A")

    assert pods.seconds_left(POD.uid) == {"B": pytest.approx(18)}
    assert pods.seconds_left("nobody") == {}
    pods.release(POD.uid)


async def test_a_pod_without_waiting_plugins_continues_at_once():
    assert (await WaitingPodsMap().wait_until_decided(POD.uid)).is_success


async def test_a_result_for_a_pod_that_does_not_wait_is_ignored():
    pods = WaitingPodsMap()
    pods.allow("nobody", "A")
    pods.reject("nobody", "A", "no")
    pods.release("nobody")

    assert list(pods.waiting()) == []


async def test_plugins_see_the_waiting_pods():
    pods = WaitingPodsMap()
    pods.hold(POD, {"A": 10})

    assert isinstance(pods, WaitingPods)
    assert list(pods.waiting()) == [POD]


async def test_a_released_pod_does_not_wait_and_its_timers_are_gone():
    pods = WaitingPodsMap()
    pods.hold(POD, {"A": 10})
    outcome = pods._pods[POD.uid].outcome
    pods.release(POD.uid)
    await asyncio.sleep(60)

    assert not pods.holds(POD.uid)
    assert not outcome.done()


async def test_the_duration_of_the_wait_is_measured():
    waits = Waits()
    pods = WaitingPodsMap(waits)
    pods.hold(POD, {"A": 10})
    await decide(pods, (4, "allow", "A"))
    pods.hold(POD, {"A": 10})
    await decide(pods)
    await pods.wait_until_decided("nobody")

    assert waits.told == [(Code.SUCCESS, 4), (Code.UNSCHEDULABLE, 10)]
