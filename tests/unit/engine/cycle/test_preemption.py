"""Preemption ends nominations of pods of lower priority, and the preemptor is tried again after the evictions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from plugins.node_resources.fit import NodeResourcesFit
from scheduler.engine.cycle.scheduling import run_now
from scheduler.engine.queue import Place
from scheduler.framework import Status
from tests.support import scripted_plugins as puppets
from tests.support.builders import node, pod
from tests.unit.engine.cycle.cluster import Cluster
from tests.unit.plugins.plugin_calls import made

if TYPE_CHECKING:
    from scheduler.framework import Plugin

NOMINATED = pod("nominated", cpu="2", priority=5)
PREEMPTOR = pod("preemptor", cpu="2", priority=9)


def begun(*plugins: Plugin) -> Cluster:
    """Return a cluster where a pod waits because of another pod's nomination that was not written yet."""
    cluster = Cluster(made(NodeResourcesFit), *plugins, nodes=())
    cluster.nodes.on_add(node("n1", cpu="2"))
    for each in (NOMINATED, PREEMPTOR):
        cluster.api.create(each)
        assert cluster.queue.pop() is not None
    cluster.queue.nominate(NOMINATED.uid, "n1")
    cluster.api.create(pod("low", cpu="1"))
    low = cluster.pop()
    assert run_now(cluster.schedule_one(low)) is None
    assert cluster.place_of("low") is Place.UNSCHEDULABLE
    return cluster


async def preempt(cluster: Cluster) -> None:
    victim = pod("victim", cpu="2", node="n1")
    async with cluster.tasks:
        cluster.preemptions.start(PREEMPTOR, "n1", [victim], "DefaultPreemption")
        await asyncio.sleep(0.1)


async def test_an_unwritten_nomination_that_ends_requeues_the_pods_that_it_rejected():
    cluster = begun()
    await preempt(cluster)

    assert cluster.nominator.node_of(NOMINATED.uid) == ""
    assert cluster.place_of("low") is not Place.UNSCHEDULABLE


async def test_a_nomination_that_the_server_has_ends_by_the_watch():
    cluster = begun()
    written = pod("nominated", cpu="2", priority=5, status={"nominatedNodeName": "n1"})
    cluster.api.update(written)
    await preempt(cluster)

    assert cluster.api.patches[-1] == ("default/nominated", None, "")
    assert cluster.nominator.node_of(NOMINATED.uid) == "n1"


async def test_a_deferred_decision_applies_the_end_of_the_nomination():
    cluster = begun()
    cluster.parts.freeze.begin()
    await preempt(cluster)
    assert cluster.nominator.node_of(NOMINATED.uid) == "n1"

    await cluster.parts.freeze.end()
    assert cluster.nominator.node_of(NOMINATED.uid) == ""


async def test_a_new_nomination_to_another_node_stays():
    cluster = begun()
    cluster.parts.freeze.begin()
    await preempt(cluster)
    cluster.queue.nominate(NOMINATED.uid, "n2")
    await cluster.parts.freeze.end()

    assert cluster.nominator.node_of(NOMINATED.uid) == "n2"


async def test_an_unwritten_nomination_ends_with_its_pod():
    cluster = begun()
    cluster.api.delete(NOMINATED.key)

    assert cluster.place_of("low") is not Place.UNSCHEDULABLE


@pytest.mark.parametrize("refused_by", ["Filter", "Reserve"])
async def test_an_unwritten_nomination_ends_with_an_attempt_that_does_not_renew_it(refused_by: str) -> None:
    cluster = begun(puppets.Reserve("No", Status.unschedulable("no")))
    if refused_by == "Filter":
        cluster.nodes.on_update(node("n1", cpu="2"), node("n1", cpu="1"))
    assert cluster.place_of("low") is Place.UNSCHEDULABLE
    nominated = cluster.queue.get(NOMINATED.uid)
    assert nominated is not None
    assert run_now(cluster.schedule_one(nominated)) is None

    assert cluster.nominator.node_of(NOMINATED.uid) == ""
    assert cluster.place_of("nominated") is Place.UNSCHEDULABLE
    assert cluster.place_of("low") is not Place.UNSCHEDULABLE


@pytest.mark.parametrize("is_written", [True, False], ids=["written", "not written yet"])
async def test_a_nomination_ends_when_the_pod_is_placed_elsewhere(is_written: bool) -> None:
    only = puppets.NodeFilter(
        "Only", lambda _state, each, there: Status.unschedulable("no", resolvable=False) if each.name == "low" and there.name == "n2" else None
    )  # fmt: skip
    cluster = Cluster(only, made(NodeResourcesFit), nodes=())
    for name, cpu in (("n1", "2"), ("n2", "4")):
        cluster.nodes.on_add(node(name, cpu=cpu))
    status = {"nominatedNodeName": "n1"} if is_written else {}
    cluster.api.create(pod("nominated", cpu="2", priority=5, status=status))
    nominated = cluster.pop()
    cluster.queue.nominate(NOMINATED.uid, "n1")
    cluster.api.create(pod("higher", cpu="1", node="n1"))
    cluster.api.create(pod("low", cpu="1"))
    low = cluster.pop()
    assert run_now(cluster.schedule_one(low)) is None
    assert cluster.place_of("low") is Place.UNSCHEDULABLE
    assumed = run_now(cluster.schedule_one(nominated))
    assert assumed is not None

    assert assumed.node_name == "n2"
    assert cluster.place_of("low") is not Place.UNSCHEDULABLE


@pytest.mark.parametrize(
    ("bound_by", "watch_seconds", "place"),
    [
        ("somebody", 0.0, Place.ACTIVE),
        ("somebody", 60.0, Place.GATED),
        ("us", 60.0, Place.GATED),
        ("nobody", 60.0, Place.ACTIVE),
    ],
    ids=["watched at once", "watched late", "not watched, not even the binding", "the preemptor releases it"],
)
async def test_a_preemptor_is_not_retried_while_its_victims_stay(
    bound_by: str, watch_seconds: float, place: Place
) -> None:
    shut_out = [True]
    cluster = Cluster(puppets.Gate("Gate", lambda _: Status.unschedulable("later") if shut_out else None))
    victim = pod("victim", cpu="2", node="n1" if bound_by == "somebody" else "")
    for each in (victim, PREEMPTOR):
        cluster.api.create(each)
    if bound_by == "us":
        cluster.cache.assume(victim, "n1")
    assert cluster.place_of("preemptor") is Place.GATED
    shut_out.clear()
    cluster.api.watch_seconds = watch_seconds
    async with cluster.tasks:
        cluster.preemptions.start(PREEMPTOR, "n1", [victim], "DefaultPreemption")
        await asyncio.sleep(0.5)
        assert cluster.place_of("preemptor") is place
        await asyncio.sleep(1)
        assert cluster.place_of("preemptor") is Place.ACTIVE


async def test_a_preemption_that_starts_before_another_ends_is_independent() -> None:
    """The watch reports the last victim before the server's response, and more capacity is needed."""
    cluster = Cluster()
    victims = [pod(f"victim-{number}", node="n1") for number in range(3)]
    for each in (PREEMPTOR, *victims):
        cluster.api.create(each)
    cluster.api.patch_seconds = 1.0
    async with cluster.tasks:
        cluster.preemptions.start(PREEMPTOR, "n1", victims[:1], "DefaultPreemption")
        await asyncio.sleep(0.5)
        cluster.preemptions.start(PREEMPTOR, "n1", victims[1:], "DefaultPreemption")
        await asyncio.sleep(0.75)  # the first preemption has ended
        assert cluster.preemptions.is_running(PREEMPTOR.uid)
        await asyncio.sleep(1.5)

    assert not cluster.preemptions.is_running(PREEMPTOR.uid)
    assert not {each.key for each in victims} & cluster.api.pods.keys()


async def test_an_internal_error_fails_one_preemption_only(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    victim = pod("victim", node="n1")
    for each in (PREEMPTOR, victim):
        cluster.api.create(each)
    cluster.queue.pop()
    cluster.api.delete_pod = None  # type: ignore[method-assign, assignment]
    async with cluster.tasks:
        cluster.preemptions.start(PREEMPTOR, "n1", [victim], "DefaultPreemption")
        await asyncio.sleep(0.1)
        assert not cluster.preemptions.is_running(PREEMPTOR.uid)

    assert "Preemption failed" in caplog.messages
