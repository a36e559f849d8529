"""Pods that wait at Permit: they are allowed, rejected, or rejected after a timeout."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.engine.runtime.instruments import NoInstruments
from scheduler.engine.runtime.waiting_pods import WaitingPodsMap
from scheduler.framework import Code, Status
from scheduler.framework.capabilities import WaitingPods
from tests.support.builders import pod
from tests.support.virtual_time_test import virtually

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


@virtually
async def test_a_pod_goes_on_when_all_that_hold_it_allowed_it():
    pods = WaitingPodsMap()
    pods.hold(POD, {"A": 10, "B": 20})

    assert await decide(pods, (4, "allow", "A"), (7, "allow", "B")) == (Status(Code.SUCCESS), 7)
    assert not pods.holds(POD.uid)


@virtually
async def test_who_does_not_hold_it_cannot_let_it_go():
    pods = WaitingPodsMap()
    pods.hold(POD, {"A": 10})

    status, _ = await decide(pods, (4, "allow", "B"))

    assert status.is_rejected


@virtually
async def test_one_rejection_is_enough_and_need_not_be_of_one_who_holds_it():
    pods = WaitingPodsMap()
    pods.hold(POD, {"A": 10, "B": 20})

    assert await decide(pods, (4, "reject", "C")) == (Status(Code.UNSCHEDULABLE, ("not today",), "C"), 4)


@virtually
async def test_the_first_word_counts():
    pods = WaitingPodsMap()
    pods.hold(POD, {"A": 10})
    pods.reject(POD.uid, "A", "first")
    pods.allow(POD.uid, "A")
    pods.reject(POD.uid, "A", "second")

    assert (await pods.wait_until_decided(POD.uid)).message == "first"


@pytest.mark.parametrize(
    ("seconds", "written"), [(10, "10s"), (90, "1m30s"), (900, "15m0s"), (0.5, "500ms"), (0, "0s")]
)
def test_the_shortest_time_ends_the_wait_and_is_written_as_go_does(seconds: float, written: str):
    @virtually
    async def wait() -> None:
        pods = WaitingPodsMap()
        pods.hold(POD, {"B": 1000, "A": seconds})

        status, at = await decide(pods)

        assert (status.code, status.plugin, at) == (Code.UNSCHEDULABLE, "A", pytest.approx(seconds))
        assert status.message == f"rejected due to timeout after waiting {written} at plugin A"

    wait()


@virtually
async def test_the_time_of_one_that_allowed_no_longer_counts():
    pods = WaitingPodsMap()
    pods.hold(POD, {"A": 5, "B": 20})

    assert (await decide(pods, (4, "allow", "A"), (19, "allow", "B")))[1] == 19


@virtually
async def test_a_pod_that_nobody_holds_goes_on_at_once():
    assert (await WaitingPodsMap().wait_until_decided(POD.uid)).is_success


@virtually
async def test_a_word_about_a_pod_that_is_not_held_is_no_mistake():
    pods = WaitingPodsMap()
    pods.allow("nobody", "A")
    pods.reject("nobody", "A", "no")
    pods.release("nobody")

    assert list(pods.waiting()) == []


@virtually
async def test_plugins_see_the_pods_that_are_held():
    pods = WaitingPodsMap()
    pods.hold(POD, {"A": 10})

    assert isinstance(pods, WaitingPods)
    assert list(pods.waiting()) == [POD]


@virtually
async def test_a_released_pod_is_not_held_and_its_timers_are_gone():
    pods = WaitingPodsMap()
    pods.hold(POD, {"A": 10})
    outcome = pods._pods[POD.uid].outcome
    pods.release(POD.uid)
    await asyncio.sleep(60)

    assert not pods.holds(POD.uid)
    assert not outcome.done()


@virtually
async def test_the_length_of_the_wait_is_told():
    waits = Waits()
    pods = WaitingPodsMap(waits)
    pods.hold(POD, {"A": 10})
    await decide(pods, (4, "allow", "A"))
    pods.hold(POD, {"A": 10})
    await decide(pods)
    await pods.wait_until_decided("nobody")

    assert waits.told == [(Code.SUCCESS, 4), (Code.UNSCHEDULABLE, 10)]
