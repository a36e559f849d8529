"""Backtests of another configuration with the pods of a recording, from simulated clusters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.daemon.app.daemon import SCHEDULING
from scheduler.daemon.recording.recording_files import Note, RecordingError
from scheduler.tools.whatif.backtest.backtest_run import as_recorded
from scheduler.tools.whatif.backtest.recorded_history import HistoryReader, Pace
from scheduler.tools.whatif.backtest.result import PlacementCause
from tests.recording.backtests import PACKING, SPREADING, delete, material, profile, under
from tests.support.builders import node_object, pod_object

if TYPE_CHECKING:
    from pathlib import Path

    from tests.recording.backtests import Story
    from tests.support.daemon_harness import Cluster


ZONE = "topology.kubernetes.io/zone"


async def eight_on_four(it: Cluster) -> None:
    it.add_nodes(*(node_object(f"n{each}", cpu="4") for each in range(4)))
    for each in range(8):
        it.add_pods(pod_object(f"p{each}", cpu="1"))
        await asyncio.sleep(1.0)


async def coming_and_going(it: Cluster) -> None:
    """Spreads pods over zones by the number of their pods, without terminating ones."""
    it.add_nodes(*(node_object(f"n{each}", cpu="4", labels={ZONE: f"zone-{each % 2}"}) for each in range(6)))
    for each in range(40):
        pod = pod_object(f"p{each}", cpu=f"{(each % 4 + 1) * 200}m", labels={"app": "web"})
        spread = {"maxSkew": 1, "topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "web"}}}
        pod["spec"]["topologySpreadConstraints"] = [{**spread, "whenUnsatisfiable": "ScheduleAnyway"}]
        it.add_pods(pod)
        if each % 3 == 2:
            delete(it, f"p{each - 2}")
        await asyncio.sleep(0.7)
    await asyncio.sleep(40.0)
    it.add_pods(pod_object("last"))
    await asyncio.sleep(1.0)


@pytest.mark.parametrize("story", [eight_on_four, coming_and_going], ids=lambda story: story.__name__)
def test_the_same_configuration_moves_nothing_though_there_are_many_ties(
    tmp_path: Path, story: Story
) -> None:
    recorded = material(tmp_path, story)

    run, was = under(recorded, SPREADING), as_recorded(recorded)

    assert run.moves.elsewhere == run.moves.only_now == run.moves.only_then == 0
    assert run.moves.same == was.figures.placed >= 8
    assert run.figures.unplaced == was.figures.unplaced
    assert run.figures.waits == was.figures.waits
    assert [each.zones for each in run.figures.samples[1:]] == [
        each.zones for each in was.figures.samples[1:]
    ]
    assert run.figures.nodes.mean_in_use == pytest.approx(was.figures.nodes.mean_in_use, abs=0.02)


def test_packing_instead_of_spreading_empties_nodes(tmp_path: Path) -> None:
    recorded = material(tmp_path, eight_on_four)

    packed, was = under(recorded, PACKING), as_recorded(recorded)

    assert (was.figures.nodes.most_in_use, was.figures.nodes.empty_at_end) == (4, 0)
    assert (packed.figures.nodes.most_in_use, packed.figures.nodes.empty_at_end) == (2, 2)
    assert packed.figures.placed == was.figures.placed == 8
    assert {by for causes in packed.moves.causes.values() for by in causes} == {"NodeResourcesFit"}
    assert packed.moves.elsewhere + packed.moves.same == 8
    first = packed.moves.examples[0]
    here, there = first.scores["NodeResourcesFit"]
    assert (first.pod, first.cause, there > here) == ("default/p1", PlacementCause.TIPPED, True)


async def eight_at_once(it: Cluster) -> None:
    it.add_nodes(*(node_object(f"n{each}", cpu="4") for each in range(4)))
    it.add_pods(*(pod_object(f"p{each}", cpu="1") for each in range(8)))
    await asyncio.sleep(9.0)


def test_decisions_take_their_recorded_time(tmp_path: Path) -> None:
    recorded = material(tmp_path, eight_at_once)
    recorded.history.decision_seconds = 0.5

    waits = under(recorded, SPREADING).figures.waits

    assert waits.max == pytest.approx(8 * 0.5, abs=0.01)
    assert waits.mean == pytest.approx(4.5 * 0.5, abs=0.51)  # the others are tried after one or two decisions


def test_bindings_take_their_recorded_time(tmp_path: Path) -> None:
    recorded = material(tmp_path, eight_at_once)
    for life in recorded.lives.values():
        life.asked -= 0.125

    waits = under(recorded, SPREADING).figures.waits

    assert (waits.mean, waits.max) == (0.125, 0.125)


def test_the_pace_is_that_of_the_recording() -> None:
    pace = Pace()
    uids = {"default/p": "uid-p"}
    notes: list[tuple[float, list[Any]]] = [
        (0.0, [Note.STARTED, 0, 7, SCHEDULING]),
        (1.0, [Note.RESUMED, 0, 7]),
        (1.0, [Note.DECIDED, "uid-p", "n", "", ""]),
        (1.0, [Note.DECIDED, "uid-q", "n", "", ""]),
        (1.25, [Note.STARTED, 0, 8, "bind default/p"]),
        (1.25, [Note.ASKED, 1, "bind default/p to n"]),
        (1.25, [Note.ASKED, 2, "bind default/nobody to n"]),
        (1.5, [Note.RESUMED, 0, 8]),
        (2.0, [Note.RESUMED, 0, 7]),
        (60.0, [Note.RESUMED, 0, 7]),
        (60.0, [Note.DECIDED, "uid-r", "", "no room", ""]),
        (60.5, [Note.RESUMED, 0, 7]),
    ]

    for at, note in notes:
        pace.take(note, at, uids)

    assert (pace.decision_seconds, pace.asked) == (0.5, {"uid-p": 1.25})
    assert Pace().decision_seconds == 0.0


async def a_large_pod_waits(it: Cluster) -> None:
    """Spreads two small pods over two nodes, so that the large pods wait until one of them is deleted."""
    it.add_nodes(node_object("n0", cpu="4"), node_object("n1", cpu="4"))
    it.add_pods(pod_object("small-0", cpu="1"))
    await asyncio.sleep(1.0)
    it.add_pods(pod_object("small-1", cpu="1"))
    await asyncio.sleep(9.0)
    it.add_pods(pod_object("large", cpu="4"))
    await asyncio.sleep(10.0)
    it.add_pods(pod_object("next", cpu="4"))
    await asyncio.sleep(40.0)
    delete(it, "small-0")
    await it.until(lambda: bool(it.node_of("large")))
    await asyncio.sleep(50.0)
    delete(it, "large")
    await it.until(lambda: bool(it.node_of("next")))
    await asyncio.sleep(30.0)
    delete(it, "next")
    await asyncio.sleep(30.0)


def test_pods_that_waited_are_placed_earlier_where_they_fit(tmp_path: Path) -> None:
    recorded = material(tmp_path, a_large_pod_waits)

    run, was = under(recorded, PACKING), as_recorded(recorded)

    large, following = (
        next(life for life in recorded.lives.values() if life.pod.name == name) for name in ("large", "next")
    )
    assert was.figures.waits.max == pytest.approx(following.bound - following.came)
    assert large.bound - large.came > 50.0
    # At once, and with the same run time, so that its capacity is free for the next pod that much earlier.
    assert run.figures.waits.p50 == 0.0
    assert run.figures.waits.max == pytest.approx(large.gone - large.bound - 10.0, abs=0.01)
    assert run.figures.placed == was.figures.placed == 4


def test_pods_of_other_schedulers_stay_on_their_nodes(tmp_path: Path) -> None:
    async def beside_another(it: Cluster) -> None:
        it.add_nodes(*(node_object(f"n{each}", cpu="4") for each in range(4)))
        for each in range(4):
            theirs = pod_object(f"theirs-{each}", cpu="1")
            theirs["spec"]["schedulerName"] = "another"
            it.add_pods(theirs)
            it.server.store.bind(f"theirs-{each}", f"n{each}")
            it.add_pods(pod_object(f"ours-{each}", cpu="1"))
            await asyncio.sleep(1.0)
        delete(it, "theirs-0")
        await asyncio.sleep(10.0)
        it.add_pods(pod_object("last"))
        await asyncio.sleep(1.0)

    recorded = material(tmp_path, beside_another)

    packed, was = under(recorded, PACKING), as_recorded(recorded)

    assert {life.pod.name for life in recorded.lives.values()} == {
        "last",
        *(f"ours-{each}" for each in range(4)),
    }
    assert {move.pod.partition("/")[2][:4] for move in packed.moves.examples} == {"ours"}
    assert packed.figures.samples[-1].utilisation == was.figures.samples[-1].utilisation
    assert packed.figures.nodes.least_in_use >= 0
    # Three nodes are used in the recording, all four in the backtest.
    assert packed.figures.nodes.empty_at_end == 0


def test_a_pod_that_was_deleted_while_it_waited_is_deleted_at_that_time(tmp_path: Path) -> None:
    async def too_large(it: Cluster) -> None:
        it.add_nodes(node_object("n0", cpu="4"))
        it.add_pods(pod_object("large", cpu="9"))
        await asyncio.sleep(20.0)
        delete(it, "large")
        it.add_pods(pod_object("last"))
        await asyncio.sleep(10.0)

    recorded = material(tmp_path, too_large)

    for figures in (as_recorded(recorded).figures, under(recorded, PACKING).figures):
        assert [each.pod for each in figures.unplaced] == ["default/large"]
        assert figures.unplaced[0].message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
        assert figures.unplaced[0].waited == pytest.approx(20.0, abs=0.1)
        assert figures.placed == 1


def test_a_gated_pod_waits_from_the_end_of_its_gates(tmp_path: Path) -> None:
    async def gated(it: Cluster) -> None:
        it.add_nodes(node_object("n0", cpu="4"))
        pod = pod_object("gated", cpu="1")
        pod["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
        it.add_pods(pod)
        await asyncio.sleep(30.0)
        it.server.store.patch("pods", "gated", {"spec": {"schedulingGates": []}})
        await asyncio.sleep(5.0)

    recorded = material(tmp_path, gated)

    for figures in (as_recorded(recorded).figures, under(recorded, PACKING).figures):
        assert figures.placed == 1
        assert figures.waits.max < 0.01


def test_a_restart_is_one_history(tmp_path: Path) -> None:
    async def before(it: Cluster) -> None:
        await eight_on_four(it)
        delete(it, "p0")
        await asyncio.sleep(5.0)

    async def unheard(it: Cluster) -> None:
        delete(it, "p2")
        await asyncio.sleep(3.0)

    async def after(it: Cluster) -> None:
        delete(it, "p1")
        for each in range(8, 12):
            it.add_pods(pod_object(f"p{each}", cpu="1"))
            await asyncio.sleep(1.0)

    recorded = material(tmp_path, before, after, unheard=unheard)

    run = under(recorded, SPREADING)

    assert recorded.history.stretches == 2
    assert recorded.history.unheard_seconds == pytest.approx(7.0, abs=1.0)
    assert (run.figures.arrived, run.moves.same, run.moves.elsewhere) == (12, 12, 0)
    assert run.figures.samples[-1].utilisation["cpu"] == 9 / 16  # without p0, p1 and p2


def test_pods_of_profiles_that_no_longer_exist_use_the_first_profile(tmp_path: Path) -> None:
    recorded = material(tmp_path, eight_on_four)

    run = under(recorded, profile("MostAllocated", "another-name"))

    assert (run.renamed, run.figures.placed, run.figures.nodes.empty_at_end) == (8, 8, 2)


def test_a_recording_of_a_standby_is_refused() -> None:
    with pytest.raises(RecordingError, match="placed no pods"):
        HistoryReader("the recording").history()
