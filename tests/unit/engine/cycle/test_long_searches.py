"""A long search for victims lets other pods be tried, and evicts no pod because of an outdated result."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from plugins.node_resources.fit import NodeResourcesFit
from plugins.preemption.candidates import Progress, search
from plugins.preemption.default_preemption import DefaultPreemption
from plugins.preemption.disruption_budgets import BUDGETS, DisruptionBudgets
from scheduler.engine.cycle.preemption import ExtenderReview, NoPreemptions
from scheduler.engine.cycle.shared import Profiles
from scheduler.engine.cycle.time_slices import ClusterFreeze, TimeSlices
from scheduler.engine.ports import Time
from scheduler.engine.queue import Place
from scheduler.engine.runtime.dry_run import DryRun
from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.engine.state.cache import Cache
from scheduler.engine.state.pod_groups import PodGroups
from scheduler.framework import Status
from scheduler.loop_work import run_to_end
from scheduler.testing.fakes import FakeFeatures, FakeMetrics, FakeQueuedPods, ManualClock
from tests.support.builders import node, pod
from tests.support.scripted_plugins import NodeFilter
from tests.unit.engine.cycle.cluster import Cluster
from tests.unit.engine.cycle.test_time_slices import SlowClock, full
from tests.unit.plugins.plugin_calls import made

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler.objects.pod import PodInfo

N_NODES = 30


class Started(NoPreemptions):
    """Records preemptions without evicting pods.

    Attributes:
        found: preemptor -> node, and the names of the victims.
        attempts: the number of searches for victims.
    """

    def __init__(self) -> None:
        self.found: dict[str, tuple[str, list[str]]] = {}
        self.attempts = 0

    def attempted(self) -> None:
        self.attempts += 1

    def start(
        self, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo], plugin: str, quota: str = ""
    ) -> None:
        assert preemptor.name not in self.found
        self.found[preemptor.name] = node_name, sorted(victim.name for victim in victims)


class Searching:
    """A cluster of full nodes and one node that is too small for the preemptor; rows are evaluated one by one.

    Attributes:
        cluster: the cluster; n0, n3 and so on have the pods of the lowest priority.
        started: the recorded preemptions.
    """

    def __init__(self, *, hopeless: bool = False) -> None:
        """Create the cluster; with `hopeless`, each node has one pod of a higher priority."""
        dry_run, freeze, self.started = DryRun(), ClusterFreeze(), Started()
        self.plugin = DefaultPreemption(
            args=DefaultPreemption.Args(min_candidate_nodes_percentage=100),
            dry_run=dry_run,
            review=ExtenderReview(Cluster().profiles),
            preemptions=self.started,
            work=TimeSlices(freeze, Time(SlowClock(0.0))),
            members=PodGroups(),
            groups=Profiles(),
            features=FakeFeatures(),
            clock=ManualClock(),
            queued=FakeQueuedPods(),
            metrics=FakeMetrics(),
        )
        whole_cluster = NodeFilter("Whole", None)  # its rows cannot be evaluated together
        self.cluster = Cluster(made(NodeResourcesFit), whole_cluster, self.plugin, nodes=(), freeze=freeze)
        dry_run.filtering = self.cluster.framework.filtering
        self.cluster.cache.table.watch_kind(BUDGETS)
        full(self.cluster, N_NODES)
        for number in range(N_NODES if hopeless else 0):
            self.cluster.api.delete(f"default/v{number}-1")
            self.cluster.api.create(pod(f"v{number}-1", cpu="1", node=f"n{number}", priority=99))
        self.cluster.nodes.on_add(node("small", cpu="1"))

    async def meanwhile(self, meddle: Callable[[Cluster], Any], *preemptors: PodInfo) -> None:
        """Run an action during each search for victims, and wait until the searches end."""
        cluster = self.cluster
        for each in preemptors:
            cluster.api.create(each)
        async with cluster.running():
            await soon(lambda: all(each.uid in cluster.scheduler._long for each in preemptors))
            meddle(cluster)
            await soon(lambda: all(self.has_ended(each.name) for each in preemptors))

    def has_ended(self, name: str) -> object:
        return name in self.started.found or self.cluster.node_of(name) or self.cluster.notes(name)


async def soon(holds: Callable[[], object]) -> None:
    """Yield to the event loop until a condition is true."""
    while not holds():  # noqa: ASYNC110 - each turn counts
        await asyncio.sleep(0)


def urgent(name: str = "urgent", **more: Any) -> PodInfo:
    return pod(name, cpu="2", priority=9, **more)


def nothing(_: Cluster) -> None:
    pass


async def test_other_pods_are_bound_during_a_search_for_victims() -> None:
    it = Searching()
    cluster = it.cluster
    cluster.api.create(urgent())
    async with cluster.running():
        await soon(lambda: urgent().uid in cluster.scheduler._long)
        for number in range(5):
            cluster.api.create(pod(f"web-{number}", cpu="100m"))
        await soon(lambda: len(cluster.api.binds) == 5)
        assert cluster.place_of("urgent") is Place.IN_FLIGHT
        assert not it.started.found
        await soon(lambda: it.started.found)
    assert it.started.found == {"urgent": ("n0", ["v0-0", "v0-1"])}
    assert it.started.attempts == 1
    assert len(cluster.notes("urgent")) == 1
    assert not it.plugin._searches.of(urgent())


async def test_a_node_whose_pods_leave_during_the_search_is_chosen_without_evictions() -> None:
    it = Searching()

    def leave(cluster: Cluster) -> None:
        for victim in range(2):
            cluster.api.delete(f"default/v9-{victim}")

    await it.meanwhile(leave, urgent())
    assert it.cluster.node_of("urgent") == "n9"
    assert not it.started.found


async def test_new_pods_of_higher_priority_are_not_evicted() -> None:
    it = Searching()

    def replace(cluster: Cluster) -> None:
        for victim in range(2):
            cluster.api.delete(f"default/v0-{victim}")
            cluster.api.create(pod(f"w0-{victim}", cpu="1", node="n0", priority=99))

    await it.meanwhile(replace, urgent())
    assert it.started.found == {"urgent": ("n3", ["v3-0", "v3-1"])}


async def test_the_victims_are_those_present_at_the_end_of_the_search() -> None:
    it = Searching()

    def replace(cluster: Cluster) -> None:
        for number in range(0, N_NODES, 3):
            cluster.api.delete(f"default/v{number}-0")
            cluster.api.create(pod(f"w{number}-0", cpu="1", node=f"n{number}"))

    await it.meanwhile(replace, urgent())
    assert it.started.found == {"urgent": ("n0", ["v0-1", "w0-0"])}


async def test_a_rejected_node_is_evaluated_again_if_its_pods_have_changed() -> None:
    it = Searching(hopeless=True)

    def replace(cluster: Cluster) -> None:
        cluster.api.delete("default/v0-1")
        cluster.api.create(pod("w0-1", cpu="1", node="n0"))

    await it.meanwhile(replace, urgent())
    assert it.started.found == {"urgent": ("n0", ["v0-0", "w0-1"])}


async def test_a_node_deleted_during_the_search_is_not_chosen_and_a_new_one_is() -> None:
    it = Searching()
    await it.meanwhile(lambda cluster: cluster.nodes.on_delete(node("n0", cpu="2")), urgent())
    assert it.started.found == {"urgent": ("n3", ["v3-0", "v3-1"])}

    it = Searching()
    await it.meanwhile(lambda cluster: cluster.nodes.on_add(node("new", cpu="4")), urgent())
    await it.cluster.until(lambda: True)
    assert it.cluster.node_of("urgent") == "new"


async def test_two_concurrent_searches_do_not_evict_for_the_same_capacity() -> None:
    it = Searching()
    await it.meanwhile(nothing, urgent("one"), urgent("two"))
    assert it.started.found == {"one": ("n0", ["v0-0", "v0-1"]), "two": ("n3", ["v3-0", "v3-1"])}
    assert it.started.attempts == 2


async def test_the_search_of_a_deleted_pod_is_dropped() -> None:
    it = Searching()
    cluster = it.cluster
    cluster.api.create(urgent())
    async with cluster.running():
        await soon(lambda: it.plugin._searches.of(urgent()))
        cluster.api.delete("default/urgent")
        await cluster.until(lambda: cluster.queue.get(urgent().uid) is None, seconds=1)
    assert not it.started.found
    assert not it.plugin._searches._under_way


def test_the_number_of_evaluated_nodes_is_bounded_by_the_time() -> None:
    tried: list[int] = []

    class Counting(DryRun):
        def steps(self, state: Any, pod: Any, snapshot: Any, removable: Any, *_: Any) -> Any:
            tried.extend(removable)
            yield
            return dict.fromkeys(removable, Status.unschedulable("no"))

    cluster = Cluster(nodes=())
    full(cluster, 1000)
    progress = Progress(urgent(), range(1000), 1000, cluster.cache.snapshot())
    for expected in (34, 68):
        looking = search(
            Counting(),
            AttemptState(),
            urgent(),
            cluster.cache.snapshot(),
            range(1000),
            budgets=DisruptionBudgets(),
            nominated={},
            enough=1000,
            progress=progress,
            has_time=lambda: False,
        )
        assert not run_to_end(looking).is_complete
        assert len(progress.own.by_row) == expected
    assert tried == list(range(68))


def test_a_search_continues_in_its_order_with_new_nodes_last() -> None:
    cache = Cache()
    for name in ("a", "b", "c", "d"):
        cache.add_node(node(name))
    progress = Progress(pod("urgent"), [2, 0, 3], 1, cache.snapshot())

    assert progress.in_turn([0, 1, 2, 3], cache.snapshot()) == [2, 0, 3, 1]

    cache.remove_node("a")
    cache.add_node(node("e"))
    snapshot = cache.snapshot()
    in_turn = progress.in_turn([snapshot.row_of(name) for name in ("b", "c", "d", "e")], snapshot)
    assert [snapshot.name_of(row) for row in in_turn] == ["c", "d", "b", "e"]
