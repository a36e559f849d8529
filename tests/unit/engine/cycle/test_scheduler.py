"""The scheduling loop: the order of attempts, and its progress after any failure."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.engine.cycle.scheduling import run_now
from scheduler.engine.queue import Place
from scheduler.engine.state.cache import PodState
from scheduler.errors import ApiError
from scheduler.framework import (
    ActionType,
    ClusterEvent,
    Code,
    CycleState,
    EventResource,
    EventWithHint,
    PostFilterResult,
    Status,
    Wait,
)
from tests.support import scripted_plugins as puppets
from tests.support import virtual_time
from tests.support.builders import node, pod
from tests.unit.engine.cycle.cluster import PROFILE, Cluster, terminating

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

WEB = pod("web")


def at_most(pods: int) -> Any:
    """A function for filter_node: a node has capacity for a number of pods."""
    return lambda _state, _pod, node: (
        Status.unschedulable("Too many pods") if len(list(node.pods)) >= pods else None
    )


class Room(puppets.NodeFilter):
    """Rejects full nodes; registers for added nodes and deleted pods. Its results are cached."""

    def signature(self, pod: Any) -> str:
        return "all alike"

    def events(self) -> Any:
        return [
            EventWithHint(ClusterEvent(EventResource.NODE, ActionType.ADD)),
            EventWithHint(ClusterEvent(EventResource.ASSIGNED_POD, ActionType.DELETE)),
        ]


async def test_pods_are_bound_in_order_of_arrival_and_priority():
    cluster = Cluster()
    for name, priority in [("low", 0), ("high", 9), ("middle", 5)]:
        cluster.api.create(pod(name, priority=priority))
    async with cluster.running():
        await cluster.until(lambda: len(cluster.api.binds) == 3)
        await asyncio.sleep(3600)
        cluster.api.create(pod("late"))
        await cluster.until(lambda: cluster.node_of("late"), seconds=1)

    assert [name for name, _ in cluster.api.binds] == ["high", "middle", "low", "late"]


def with_terms(name: str, count: int) -> PodInfo:
    """Return a pod on a node with a number of affinity terms."""
    selectors = [
        {"matchExpressions": [{"key": f"{name}-{number}", "operator": "DoesNotExist"}]}
        for number in range(count)
    ]
    terms = [{"topologyKey": "zone", "labelSelector": selector} for selector in selectors]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return pod(name, node="n1", affinity=affinity)


async def test_pods_do_not_wait_until_the_affinity_terms_of_a_bound_pod_are_counted():
    async with Cluster(slice_seconds=0.005).running() as cluster:
        await asyncio.sleep(1)
        cluster.api.create(with_terms("greedy", 6000))
        for name in ("a", "b", "c"):
            cluster.api.create(pod(name))
        bound_while_behind = 0
        while cluster.cache.is_behind:
            bound_while_behind = len(cluster.api.binds)
            await asyncio.sleep(0)
        assert bound_while_behind == 3
        cluster.api.delete("default/greedy")
        await cluster.until(lambda: not cluster.cache.is_behind, seconds=1)

    assert len(cluster.notes("greedy", "AffinityCountedLate")) == 1
    assert "6000 inter-pod affinity terms" in cluster.notes("greedy", "AffinityCountedLate")[0]
    assert cluster.counts.late == 1


@pytest.mark.parametrize(("terms", "waits"), [(1000, True), (6000, False)], ids=["few", "very many"])
async def test_a_first_attempt_waits_until_few_affinity_terms_are_counted(terms: int, waits: bool):
    cluster = Cluster(slice_seconds=0.005)
    for number in range(5):
        cluster.api.create(with_terms(f"there-{number}", terms))
    cluster.api.create(pod("web"))
    were_counted = []
    cluster.scheduler.at_work = lambda asked: were_counted.append(asked and not cluster.cache.is_behind)

    async with cluster.running():
        await cluster.until(lambda: cluster.api.binds)
        await cluster.until(lambda: not cluster.cache.is_behind)

    assert were_counted == [waits, None]


async def test_the_pod_of_the_current_attempt_is_reported_until_the_attempt_ends():
    reported: list[str | None] = []

    cluster = Cluster()
    cluster.scheduler.at_work = lambda asked: reported.append(asked and asked.name)
    original = cluster.pod_cycle.note

    def note(attempt: Any, *decided: Any) -> None:
        original(attempt, *decided)
        if attempt.queued.pod.name == "breaks":
            raise RuntimeError("a mistake of ours")

    cluster.pod_cycle.note = note
    for name in ("web", "breaks"):
        cluster.api.create(pod(name))
    async with cluster.running():
        await asyncio.sleep(0.5)

    assert reported == ["web", None, "breaks", None]


async def test_data_by_row_are_dropped_while_a_pod_waits_to_be_bound_and_the_rest_stays():
    kept = []

    def write(state: CycleState, *_: object) -> None:
        state.write("Rows", list(range(1000)), by_row=True)
        state.write("Plugin", "told")

    def look(state: CycleState, *_: object) -> None:
        kept.append(("Rows" in state, state.read("Plugin", str)))

    cluster = Cluster(puppets.PreFilter("Told", pre_filter=write), puppets.Reserve("Reserved", reserve=look))
    cluster.api.create(WEB)
    async with cluster.running():
        await cluster.until(lambda: cluster.node_of("web"))

    assert kept == [(False, "told")]


async def test_each_pod_sees_the_placements_of_those_before_it():
    cluster = Cluster(Room(answer=at_most(2)), nodes=("n1", "n2", "n3"))
    cluster.api.bind_seconds = 5
    async with cluster.running():
        for number in range(7):
            cluster.api.create(pod(f"p{number}"))
        await cluster.until(lambda: len(cluster.counts.bound_pods) == 6)

        nodes = [cluster.cache.snapshot().pod_count.tolist()]
        assert nodes == [[2, 2, 2]]
        [left] = [each.name for each in cluster.api.pods.values() if not each.node_name]
        assert cluster.notes(left) == ["0/3 nodes are available: 3 Too many pods."]


async def test_a_rejected_pod_waits_for_an_event_that_may_help():
    cluster = Cluster(Room("Room", at_most(1)))
    cluster.api.create(pod("first"))
    cluster.api.create(pod("second"))
    async with cluster.running():
        await cluster.until(lambda: cluster.place_of("second") is Place.UNSCHEDULABLE)
        await asyncio.sleep(200)
        assert len(cluster.notes("second")) == 1

        cluster.nodes.on_add(node("n2"))
        await cluster.until(lambda: cluster.node_of("second") == "n2", seconds=15)


async def test_a_deleted_pod_frees_capacity_for_a_waiting_one():
    cluster = Cluster(Room("Room", at_most(1)))
    cluster.api.create(pod("first"))
    cluster.api.create(pod("second"))
    async with cluster.running():
        await cluster.until(lambda: cluster.place_of("second") is Place.UNSCHEDULABLE)
        cluster.api.delete("default/first")
        await cluster.until(lambda: cluster.node_of("second") == "n1", seconds=15)


async def test_without_nodes_a_pod_is_retried_after_a_backoff_and_bound_to_a_new_node():
    cluster = Cluster(nodes=())
    cluster.api.create(WEB)
    async with cluster.running():
        await cluster.until(lambda: len(cluster.notes("web")) == 3)
        assert set(cluster.notes("web")) == {"no nodes available to schedule pods"}
        cluster.nodes.on_add(node("n1"))
        await cluster.until(lambda: cluster.node_of("web"), seconds=15)


async def test_a_pod_that_is_being_deleted_is_skipped_with_an_event():
    cluster = Cluster()
    cluster.api.create(terminating("web"))
    async with cluster.running():
        await cluster.until(lambda: cluster.api.events)
        await asyncio.sleep(60)

    assert cluster.notes("web") == ["skip schedule deleting pod: default/web"]
    assert cluster.place_of("web") is Place.OUTSIDE
    assert cluster.counts.attempts == []
    assert cluster.api.binds == []
    cluster.api.delete("default/web")


def test_a_pod_that_is_already_counted_is_not_placed_again():
    cluster = Cluster()
    cluster.queue.add(WEB)
    cluster.cache.add_pod(WEB.placed_on("n1"))
    queued = cluster.pop()

    assert run_now(cluster.schedule_one(queued)) is None
    assert cluster.place_of("web") is Place.OUTSIDE
    assert cluster.counts.decisions == []


def test_a_pod_of_a_removed_profile_is_dropped():
    cluster = Cluster()
    cluster.queue.add(WEB)
    queued = cluster.pop()
    cluster.profiles.swap({"another": cluster.framework})

    assert run_now(cluster.schedule_one(queued)) is None
    assert cluster.queue.count(Place.IN_FLIGHT) == 0


def test_a_nomination_counts_at_once_and_keeps_others_off_the_node():
    full = puppets.NodeFilter("Full", Status.unschedulable("full"))
    cluster = Cluster(full, puppets.PostFilter("Evict", PostFilterResult(Status(Code.SUCCESS), "n1")))
    cluster.api.create(pod("high", priority=9))
    queued = cluster.pop()
    run_now(cluster.schedule_one(queued))
    assert cluster.nominator.node_of(queued.pod.uid) == "n1"
    assert cluster.api.patches[-1].nominated_node_name == "n1"

    full.answer = at_most(1)
    cluster.api.create(pod("low", priority=0))
    low = cluster.pop()
    run_now(cluster.schedule_one(low))
    assert cluster.notes("low") == ["0/1 nodes are available: 1 Too many pods."]


async def test_a_plugin_that_awaits_a_cancelled_task_fails_one_attempt():
    async def waits(*_: Any) -> None:
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        await task

    full = puppets.NodeFilter("Full", Status.unschedulable("full"))
    async with Cluster(full, puppets.PostFilter("Evict", waits)).running() as cluster:
        cluster.api.create(WEB)
        await cluster.until(lambda: cluster.notes("web"), seconds=5)
        full.answer = None
        cluster.api.create(pod("other"))

        await cluster.until(lambda: cluster.node_of("other"), seconds=5)


async def test_a_nomination_ends_when_the_pod_is_placed():
    cluster = Cluster()
    cluster.api.bind_seconds = 30
    async with cluster.running():
        cluster.api.create(pod("web", status={"nominatedNodeName": "n1"}))
        await cluster.until(lambda: cluster.api.binds)

        assert cluster.cache.state_of(WEB.uid) is PodState.ASSUMED
        assert cluster.nominator.node_of(WEB.uid) == ""


async def test_a_rejected_pod_whose_nomination_is_not_renewed_loses_it():
    async with Cluster(Room("Room", at_most(0))).running() as cluster:
        cluster.api.create(pod("web", status={"nominatedNodeName": "n1"}))
        await cluster.until(lambda: cluster.api.patches)

        assert cluster.api.patches[0].nominated_node_name == ""
        assert cluster.nominator.node_of(WEB.uid) == ""


async def test_shutdown_finishes_the_current_bindings():
    async with Cluster().running() as cluster:
        cluster.api.bind_seconds = 5
        cluster.api.create(WEB)
        await cluster.until(lambda: cluster.api.binds)

    assert cluster.node_of("web") == "n1"
    assert cluster.binding.under_way == 0


async def test_shutdown_does_not_wait_for_pods_at_permit(caplog: pytest.LogCaptureFixture):
    async with Cluster(puppets.Permit("Hold", Wait(600))).running() as cluster:
        cluster.api.create(WEB)
        await cluster.until(lambda: cluster.binding.under_way)
        begin = cluster.clock.monotonic()

    assert cluster.clock.monotonic() - begin == pytest.approx(10)
    assert cluster.api.binds == []
    assert cluster.api.events == []
    [record] = caplog.records
    assert (record.getMessage(), vars(record)["task"]) == ("Binding cycle is abandoned", "bind default/web")


async def test_pods_dropped_at_shutdown_are_not_reported_as_errors():
    async with Cluster(puppets.Permit("Hold", Wait(600))).running() as cluster:
        cluster.api.create(WEB)
        await cluster.until(lambda: cluster.binding.under_way)

    assert cluster.place_of("web") is Place.IN_FLIGHT
    assert cluster.scheduler.has_in_hand(WEB.uid)


async def test_a_failed_binding_wakes_the_loop_for_its_backoff():
    async with Cluster().running() as cluster:
        cluster.api.bind_seconds = 30
        cluster.api.answers = [ApiError(403, "Forbidden", "no")]
        cluster.api.create(WEB)
        await cluster.until(lambda: cluster.api.binds)
        cluster.cache.forget(WEB.uid)  # as at the start of its deletion: there is no capacity to report
        await cluster.until(lambda: cluster.node_of("web"), seconds=70)


async def test_an_update_that_helps_a_waiting_pod_wakes_the_loop():
    gate = puppets.Gate("Gate", lambda each: None if each.labels else Status.unschedulable("unlabelled"))
    async with Cluster(gate).running() as cluster:
        cluster.api.create(WEB)
        await asyncio.sleep(60)
        assert cluster.place_of("web") is Place.GATED

        cluster.api.update(pod("web", labels={"a": "b"}))
        await cluster.until(lambda: cluster.node_of("web"), seconds=1)


class TestInternalErrors:
    """A bug affects one attempt only."""

    async def test_an_internal_error_wakes_the_loop_for_its_pod(self):
        cluster = Cluster(puppets.PreBind("Slow", pre_bind=lambda *_: asyncio.sleep(30)))
        _break_once(cluster.framework, "run_bind")
        async with cluster.running():
            cluster.api.create(WEB)
            await cluster.until(lambda: cluster.node_of("web"), seconds=70)

    async def test_an_internal_error_releases_its_pod_from_permit(self):
        cluster = Cluster(puppets.Permit("Hold", Wait(600)))
        _break_once(cluster.api, "patch_pod_status")
        async with cluster.running():
            cluster.api.create(WEB)
            await cluster.until(lambda: cluster.place_of("web") is Place.BACKOFF)
            assert not cluster.waiting_pods.holds(WEB.uid)

            await cluster.until(lambda: cluster.waiting_pods.holds(WEB.uid))
            cluster.waiting_pods.allow(WEB.uid, "Hold")
            await cluster.until(lambda: cluster.node_of("web"))

    @pytest.mark.parametrize(
        ("where", "answers", "message"),
        [
            ("run_pre_bind", [], "Binding cycle failed"),
            ("run_bind", [], "Binding cycle failed"),
            ("run_pre_bind_pre_flights", [], "Binding cycle failed"),
            ("run_unreserve", [ApiError(403, "Forbidden", "no")], "Binding cycle failed"),
            ("run_post_bind", [ApiError(403, "Forbidden", "no")], "Binding cycle failed"),
            ("run_reserve", [], "Scheduling cycle failed"),
            ("run_permit", [], "Scheduling cycle failed"),
            ("measure_plugins", [], "Scheduling cycle failed"),
        ],
    )
    async def test_an_error_in_a_cycle_is_logged_and_the_pods_are_bound(
        self, where: str, answers: list[ApiError], message: str, caplog: pytest.LogCaptureFixture
    ):
        cluster = Cluster()
        cluster.api.answers = list(answers)
        _break_once(cluster.framework, where)
        async with cluster.running():
            cluster.api.create(WEB)
            cluster.api.create(pod("other"))
            await cluster.until(lambda: cluster.node_of("web") and cluster.node_of("other"))
        assert message in [record.getMessage() for record in caplog.records]

    async def test_an_error_in_reporting_is_logged_and_the_pods_are_bound(
        self, caplog: pytest.LogCaptureFixture
    ):
        cluster = Cluster(Room("Room", at_most(1)))
        _break_once(cluster.api, "record")
        _break_once(cluster.api, "patch_pod_status")
        async with cluster.running():
            for name in ("a", "b", "c"):
                cluster.api.create(pod(name))
            await cluster.until(lambda: cluster.queue.count(Place.UNSCHEDULABLE) == 2)
            cluster.nodes.on_add(node("n2"))
            cluster.nodes.on_add(node("n3"))
            await cluster.until(lambda: all(each.node_name for each in cluster.api.pods.values()))
        assert caplog.records


def _break_once(owner: Any, method: str) -> None:
    """Let the next call of a method raise; later calls work."""
    whole = getattr(owner, method)

    def broken(*_args: Any, **_more: Any) -> Any:
        setattr(owner, method, whole)
        raise RuntimeError(f"{method} broke")

    setattr(owner, method, broken)


# Everything at once.


class Flaky:
    """Sometimes raises, rejects, waits or returns invalid values."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.works = False

    def __call__(self, *_: Any) -> Any:
        if self.works:
            return None
        luck = self.random.random()
        if luck < 0.02:
            raise RuntimeError("flaky")
        if luck < 0.03:
            return "nonsense"
        if luck < 0.04:
            return Status.failed("flaky")
        return None

    def refusing(self, *args: Any) -> Any:
        answer = self(*args)
        if answer is None and not self.works and self.random.random() < 0.05:
            return Status.unschedulable("flaky")
        return answer

    def waiting(self, *args: Any) -> Any:
        answer = self.refusing(*args)
        return Wait(self.random.uniform(0, 30)) if answer is None and self.random.random() < 0.1 else answer

    async def slowly(self, *args: Any) -> Any:
        await asyncio.sleep(self.random.uniform(0, 20))
        return self.refusing(*args)

    def score(self, *args: Any) -> Any:
        answer = self(*args)
        return self.random.randrange(100) if answer is None else answer


def flaky_plugins(flaky: Flaky) -> list[Any]:
    return [
        Room("Room", at_most(8)),
        puppets.Gate("Gate", flaky.refusing),
        puppets.PreFilter("PreFilter", flaky.refusing),
        puppets.NodeFilter("NodeFilter", flaky.refusing),
        puppets.PostFilter("PostFilter", flaky),
        puppets.PreScore("PreScore", flaky),
        puppets.NodeScore("NodeScore", flaky.score),
        puppets.Reserve("Reserve", flaky.refusing),
        puppets.Permit("Permit", flaky.waiting),
        puppets.PreBind("PreBind", pre_bind_pre_flight=flaky, pre_bind=flaky.slowly),
        puppets.PostBind("PostBind", flaky),
    ]


class Trouble:
    """A cluster with random changes of pods and nodes, and random errors of the API server."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.flaky = Flaky(Random(seed + 1))
        self.cluster = Cluster(*flaky_plugins(self.flaky), nodes=("n1", "n2", "n3"), seed=seed)
        self.api = self.cluster.api
        self.api.watch_seconds = 0.5
        self.serial = 0

    async def go_on(self, seconds: int) -> None:
        for _ in range(seconds):
            self.one_second()
            await asyncio.sleep(1)
            self.cluster.check()
            crowds = Counter(each.node_name for each in self.api.pods.values() if each.node_name)
            assert all(crowd <= 8 for crowd in crowds.values()), crowds

    def one_second(self) -> None:
        random, api = self.random, self.api
        if random.random() < 0.7:
            self.serial += 1
            api.create(pod(f"p{self.serial}", priority=random.choice([0, 0, 5])))
        if random.random() < 0.2:
            error = ApiError(random.choice([0, 0, 403, 409, 500]), "", "trouble")
            api.answers.append((error, True) if error.status == 0 and random.random() < 0.5 else error)
        api.bind_seconds = random.choice([0.0, 0.1, 3.0])
        pending = [each for each in api.pods.values() if not each.node_name]
        if pending and random.random() < 0.1:
            api.delete(random.choice(pending).key)
        if pending and random.random() < 0.2:
            each = random.choice(pending)
            if each.key in api.pods:
                api.update(pod(each.name, priority=each.priority, labels={"at": str(self.serial)}))
        running = [each for each in api.pods.values() if each.node_name]
        if running and random.random() < 0.3:
            api.delete(random.choice(running).key)
        if random.random() < 0.05:
            self.a_node_comes_or_goes()

    def a_node_comes_or_goes(self) -> None:
        name = self.random.choice(["n3", "n4", "n5"])
        if self.cluster.cache.table.row_of(name) is None:
            self.cluster.nodes.on_add(node(name))
        else:
            self.cluster.nodes.on_delete(node(name))


@pytest.mark.parametrize("seed", range(4))
def test_no_pod_is_lost_for_any_results_of_plugins_and_the_api_server(
    seed: int, caplog: pytest.LogCaptureFixture
):
    async def scenario() -> None:
        trouble = Trouble(seed)
        cluster, api = trouble.cluster, trouble.api
        async with cluster.running():
            await trouble.go_on(150)
            assert len(cluster.counts.bound_pods) > 30
            trouble.flaky.works = True
            api.answers.clear()
            for name in ("n3", "n4", "n5", *(f"more-{number}" for number in range(20))):
                cluster.nodes.on_add(node(name))
            await asyncio.sleep(1200)

            left = {each.key: cluster.place_of(each.name) for each in api.pods.values() if not each.node_name}
            assert left == {}
            assert cluster.cache.counts()["assumed_pods"] == 0
            assert cluster.cache.counts()["pods"] == len(api.pods)
            assert list(cluster.waiting_pods.waiting()) == []
            assert cluster.queue.count(Place.IN_FLIGHT) == 0
            assert cluster.binding.under_way == 0
            for each in api.pods.values():
                assert cluster.cache.state_of(each.uid) is PodState.CONFIRMED
        assert {profile for profile, _ in cluster.counts.attempts} == {PROFILE}

    with caplog.at_level(logging.CRITICAL):
        virtual_time.run(scenario())


async def test_bindings_end_with_a_loop_that_is_cancelled():
    cluster = Cluster()
    cluster.api.bind_seconds = 60
    running = asyncio.create_task(cluster.scheduler.run())
    cluster.api.create(WEB)
    await cluster.until(lambda: cluster.api.binds)
    running.cancel()
    await asyncio.wait({running})

    assert cluster.binding.under_way == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}
