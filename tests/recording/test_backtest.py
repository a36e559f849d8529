"""What another configuration does with the pods of a recording, made on simulated clusters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.app.daemon import SCHEDULING
from scheduler.configuration.load import parse
from scheduler.recording.files import RecordingError
from scheduler.recording.notes import Note
from scheduler.testing.storage import claim, mounted, storage_class
from scheduler.whatif.backtest.history import HistoryReader
from scheduler.whatif.backtest.pace import Pace
from scheduler.whatif.backtest.result import Cause
from scheduler.whatif.backtest.run import as_recorded, backtest, material_of
from tests import virtual_time
from tests.builders import node_object, pod_object
from tests.daemon_harness import cluster
from tests.integration.test_volumes_in_the_daemon import create, local
from tests.recording.taped import Taped
from tests.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from scheduler.whatif.backtest.result import Run
    from scheduler.whatif.backtest.run import Material
    from tests.daemon_harness import Cluster

    Story = Callable[[Cluster], Awaitable[None]]

ZONE = "topology.kubernetes.io/zone"
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def profile(strategy: str, name: str = "custom-scheduler") -> str:
    return (
        HEAD
        + f"""
profiles:
- schedulerName: {name}
  pluginConfig:
  - name: NodeResourcesFit
    args: {{scoringStrategy: {{type: {strategy}, resources: [{{name: cpu, weight: 1}}]}}}}
  plugins:
    multiPoint:
      enabled: [{{name: NodeResourcesFit, weight: 10}}]
"""
    )


SPREADING, PACKING = profile("LeastAllocated"), profile("MostAllocated")


def material(
    folder: Path,
    *stories: Story,
    configuration: str = SPREADING,
    unheard: Story | None = None,
    controllers: bool = False,
    only_last: bool = False,
) -> Material:
    """Record stories, each with a daemon of its own, that follow each other on one cluster; `unheard` is told to nobody.

    With `only_last`, what was recorded of the others is lost.
    """
    tapes: list[Taped] = []

    async def main() -> None:
        async with cluster(folder, kubelet=True, controllers=controllers) as it:
            for story in stories:
                tapes.append(Taped(LoopClock()))
                async with it.daemon(configuration, steps=tapes[-1].steps) as daemon:
                    tapes[-1].steps.daemon = daemon
                    await asyncio.sleep(1.0)
                    await story(it)
                if unheard is not None and story is not stories[-1]:
                    await unheard(it)

    virtual_time.run(main())
    reader = HistoryReader("the recording")
    for tape in tapes[-1:] if only_last else tapes:
        reader.read(tape.header.wall, tape.notes())
    return material_of(reader.history())


def under(recorded: Material, configuration: str) -> Run:
    return backtest(recorded, parse(configuration), "another")


def delete(it: Cluster, name: str) -> None:
    it.server.store.delete("pods", name, "default")


def owned(name: str, owner: str, kind: str = "ReplicaSet", **fields: Any) -> dict[str, Any]:
    pod = pod_object(name, **fields)
    reference = {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "name": owner,
        "uid": owner,
        "controller": True,
    }
    pod["metadata"]["ownerReferences"] = [reference]
    return pod


async def eight_on_four(it: Cluster) -> None:
    it.add_nodes(*(node_object(f"n{each}", cpu="4") for each in range(4)))
    for each in range(8):
        it.add_pods(pod_object(f"p{each}", cpu="1"))
        await asyncio.sleep(1.0)


async def coming_and_going(it: Cluster) -> None:
    """Pods that are spread over zones by how many there are: those that are about to go do not count."""
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
def test_the_same_configuration_moves_nothing_though_ties_are_many(tmp_path: Path, story: Story) -> None:
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
    assert (first.pod, first.cause, there > here) == ("default/p1", Cause.TIPPED, True)


async def eight_at_once(it: Cluster) -> None:
    it.add_nodes(*(node_object(f"n{each}", cpu="4") for each in range(4)))
    it.add_pods(*(pod_object(f"p{each}", cpu="1") for each in range(8)))
    await asyncio.sleep(9.0)


def test_decisions_take_the_time_they_took(tmp_path: Path) -> None:
    recorded = material(tmp_path, eight_at_once)
    recorded.history.decision_seconds = 0.5

    waits = under(recorded, SPREADING).figures.waits

    assert waits.max == pytest.approx(8 * 0.5, abs=0.01)
    assert waits.mean == pytest.approx(
        4.5 * 0.5, abs=0.51
    )  # the others have their turn after one or two decisions


def test_bindings_take_the_time_they_took(tmp_path: Path) -> None:
    recorded = material(tmp_path, eight_at_once)
    for life in recorded.lives.values():
        life.asked -= 0.125

    waits = under(recorded, SPREADING).figures.waits

    assert (waits.mean, waits.max) == (0.125, 0.125)


def test_the_pace_is_that_of_the_notes() -> None:
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
    """Two small pods are spread over two nodes, so that the large ones wait until one of them is gone."""
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


def test_pods_that_waited_are_placed_earlier_where_there_is_room(tmp_path: Path) -> None:
    recorded = material(tmp_path, a_large_pod_waits)

    run, was = under(recorded, PACKING), as_recorded(recorded)

    large, following = (
        next(life for life in recorded.lives.values() if life.pod.name == name) for name in ("large", "next")
    )
    assert was.figures.waits.max == pytest.approx(following.bound - following.came)
    assert large.bound - large.came > 50.0
    # At once, and it runs as long as it did, so that its room is free for the next one so much earlier.
    assert run.figures.waits.p50 == 0.0
    assert run.figures.waits.max == pytest.approx(large.gone - large.bound - 10.0, abs=0.01)
    assert run.figures.placed == was.figures.placed == 4


async def two_on_two(it: Cluster, owner: str) -> None:
    it.add_nodes(node_object("n0", cpu="4"), node_object("n1", cpu="4"))
    it.add_pods(owned(f"{owner}-0", owner, cpu="1"))
    await asyncio.sleep(1.0)
    it.add_pods(owned(f"{owner}-1", owner, cpu="1"))


async def small_ones_then_a_large_one(it: Cluster) -> None:
    await two_on_two(it, "low")
    await asyncio.sleep(5.0)
    it.add_pods(pod_object("high", cpu="4", priority=10))


async def one_sends_another_away(it: Cluster) -> None:
    await small_ones_then_a_large_one(it)
    await it.until(lambda: bool(it.node_of("high")))
    it.add_pods(owned("low-2", "low", cpu="1"))
    await asyncio.sleep(60.0)


def test_who_is_sent_away_only_in_the_recording_stays_and_the_one_in_its_place_does_not_come(
    tmp_path: Path,
) -> None:
    recorded = material(tmp_path, one_sends_another_away)

    again, packed, was = under(recorded, SPREADING), under(recorded, PACKING), as_recorded(recorded)

    assert (was.figures.preemptions, was.figures.evictions, was.figures.arrived) == (1, 1, 4)
    assert (again.figures.preemptions, again.figures.evictions, again.figures.placed) == (1, 1, 4)
    assert again.moves.elsewhere == 0
    assert (packed.figures.preemptions, packed.figures.evictions, packed.figures.placed) == (0, 0, 3)
    assert (packed.dropped, packed.run_on) == (1, 0)
    assert packed.figures.samples[-1].utilisation["cpu"] == 6 / 8


def test_who_is_sent_away_only_now_comes_again(tmp_path: Path) -> None:
    async def room_for_all(it: Cluster) -> None:
        await small_ones_then_a_large_one(it)
        await asyncio.sleep(60.0)
        it.add_pods(pod_object("last"))
        await asyncio.sleep(1.0)

    recorded = material(tmp_path, room_for_all, configuration=PACKING)

    spread, was = under(recorded, SPREADING), as_recorded(recorded)

    assert (was.figures.preemptions, was.figures.evictions, was.figures.placed) == (0, 0, 4)
    assert (spread.figures.preemptions, spread.figures.evictions, spread.figures.placed) == (1, 1, 5)
    assert spread.figures.samples[-1].utilisation["cpu"] == 6 / 8


@pytest.mark.parametrize(
    ("kind", "until"),
    [("ReplicaSet", 61.0), ("Job", 70.0), ("StatefulSet", 91.0)],
    ids=["replica-set-at-once-for-the-rest", "job-at-once-anew", "stateful-set-when-it-is-gone-for-the-rest"],
)
def test_how_long_pods_run_that_come_again(tmp_path: Path, kind: str, until: float) -> None:
    async def low_pods_run_for_a_minute(it: Cluster) -> None:
        it.add_nodes(node_object("n0", cpu="4"), node_object("n1", cpu="4"))
        it.add_pods(owned("low-0", "low", kind, cpu="1"))
        await asyncio.sleep(1.0)
        it.add_pods(owned("low-1", "low", kind, cpu="1"))
        await asyncio.sleep(9.0)
        it.add_pods(pod_object("high", cpu="4", priority=10))
        await asyncio.sleep(50.0)
        for name in ("low-0", "low-1"):
            it.server.store.delete("pods", name, "default", grace_period_seconds=0)
        await asyncio.sleep(60.0)
        it.add_pods(pod_object("last"))
        await asyncio.sleep(1.0)

    recorded = material(tmp_path, low_pods_run_for_a_minute, configuration=PACKING)

    spread = under(recorded, SPREADING)

    # low-1 is asked to go after 11 s, of which it has run 9, and takes 30 s for it.
    assert (spread.figures.evictions, spread.figures.placed) == (1, 5)
    beside_high = [each.at for each in spread.figures.samples if each.utilisation.get("cpu", 0) > 4 / 8]
    assert max(beside_high) == pytest.approx(until, abs=1.0)


def test_pods_of_other_schedulers_stay_where_they_were(tmp_path: Path) -> None:
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
    assert packed.figures.nodes.empty_at_end == 0  # theirs hold three, ours the fourth or not


def test_pods_of_a_node_that_goes_come_again_and_who_comes_for_them_in_the_recording_does_not(
    tmp_path: Path,
) -> None:
    async def a_node_goes(it: Cluster) -> None:
        await two_on_two(it, "web")
        await asyncio.sleep(10.0)
        gone = it.node_of("web-0")
        it.server.store.delete("nodes", gone)
        delete(it, "web-0")
        it.add_pods(owned("web-2", "web", cpu="1"))
        await asyncio.sleep(20.0)
        it.add_pods(pod_object("last"))
        await asyncio.sleep(1.0)

    recorded = material(tmp_path, a_node_goes)

    again, packed = under(recorded, SPREADING), under(recorded, PACKING)

    for run in (again, packed):
        assert run.dropped == 1
        assert run.figures.samples[-1].utilisation["cpu"] == 2 / 4
    assert again.figures.evictions == 1
    assert packed.figures.evictions == 2


def test_a_drained_node_sends_away_who_is_on_it_now(tmp_path: Path) -> None:
    async def drained(it: Cluster) -> None:
        it.add_nodes(node_object("n0", cpu="4"), node_object("n1", cpu="4"))
        for each in range(2):
            it.add_pods(owned(f"web-{each}", "web", cpu="1"))
            await asyncio.sleep(1.0)
        node = it.node_of("web-0")
        it.server.store.patch("nodes", node, {"spec": {"unschedulable": True}})
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        it.server.store.patch(
            "pods", "web-0", {"status": {"conditions": [condition]}}, "default", subresource="status"
        )
        delete(it, "web-0")
        it.add_pods(owned("web-2", "web", cpu="1"))
        await asyncio.sleep(60.0)
        it.add_pods(pod_object("last"))
        await asyncio.sleep(1.0)

    recorded = material(tmp_path, drained)

    again, packed = under(recorded, SPREADING), under(recorded, PACKING)

    assert [run.figures.evictions for run in (again, packed)] == [1, 2]
    assert [run.dropped for run in (again, packed)] == [1, 1]
    for run in (again, packed):
        assert run.figures.samples[-1].utilisation["cpu"] == 2 / 8
        assert run.figures.samples[-1].in_use == 1


async def with_volumes(it: Cluster) -> None:
    """Each of two claims is bound to a volume of the node where its pod goes; a third was bound when the pod came."""
    it.add_nodes(node_object("n0", cpu="4"), node_object("n1", cpu="4"))
    create(it, storage_class("local", provisioner="kubernetes.io/no-provisioner"))
    for each in range(2):
        create(it, *(local(f"on-n{node}-{each}", f"n{node}") for node in range(2)))
        create(it, claim(f"data-{each}", class_name="local"))
        it.add_pods(pod_object(f"db-{each}", cpu="1", volumes=mounted(f"data-{each}")))
        await it.until(lambda each=each: it.node_of(f"db-{each}"))
    delete(it, "db-0")
    await asyncio.sleep(40.0)
    it.add_pods(pod_object("db-0-next", cpu="1", volumes=mounted("data-0")))
    await asyncio.sleep(5.0)


def test_claims_are_bound_anew_where_their_pods_go(tmp_path: Path) -> None:
    recorded = material(tmp_path, with_volumes, controllers=True)

    again, packed = under(recorded, SPREADING), under(recorded, PACKING)

    assert (again.moves.elsewhere, packed.moves.elsewhere) == (0, 1)
    assert [run.figures.samples[-1].in_use for run in (again, packed)] == [2, 1]
    assert (again.figures.placed, packed.figures.placed) == (3, 3)
    assert (again.held, packed.held) == (0, 0)


def test_pods_whose_claims_an_earlier_placement_has_bound_follow_them_and_are_counted(tmp_path: Path) -> None:
    async def another_daemon(it: Cluster) -> None:
        delete(it, "db-0-next")
        await asyncio.sleep(40.0)
        it.add_pods(pod_object("db-0-last", cpu="1", volumes=mounted("data-0")))
        await asyncio.sleep(5.0)

    recorded = material(tmp_path, with_volumes, another_daemon, controllers=True, only_last=True)

    packed = under(recorded, PACKING)

    assert (packed.moves.same, packed.moves.elsewhere, packed.held) == (1, 0, 1)


def test_who_was_deleted_while_it_waited_goes_then(tmp_path: Path) -> None:
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


def test_a_gated_pod_waits_from_when_it_may(tmp_path: Path) -> None:
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


def test_pods_of_profiles_that_are_no_more_go_by_the_first(tmp_path: Path) -> None:
    recorded = material(tmp_path, eight_on_four)

    run = under(recorded, profile("MostAllocated", "another-name"))

    assert (run.renamed, run.figures.placed, run.figures.nodes.empty_at_end) == (8, 8, 2)


def test_a_recording_of_one_who_stood_by_is_refused() -> None:
    with pytest.raises(RecordingError, match="did not place pods"):
        HistoryReader("the recording").history()
