"""Deletion costs: the order in which a ReplicaSet loses its pods, and which costs are written."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from plugins.node_preference.deletion_costs import DELETION_COST, FillOrder
from plugins.node_preference.preferences import PreferenceArgs, SetCounts, read_preference
from scheduler.errors import ApiError
from scheduler.framework import CycleState
from scheduler.loop_work import run_to_end
from scheduler.testing.fakes import FakeSleep
from tests.support import virtual_time
from tests.support.builders import pod
from tests.unit.plugins.node_preference.worlds import NODES, ON_DEMAND, SPOT, World, owned

if TYPE_CHECKING:
    from plugins.node_preference.preferences import Preference
    from scheduler.objects.pod import PodInfo

AT_MOST_30 = {**SPOT, "maxReplicas": "30%"}
AT_LEAST_2 = {**ON_DEMAND, "minReplicas": 2}
COSTS = {"writeDeletionCost": True}


def preference(*sets: dict[str, Any]) -> Preference:
    return read_preference(msgspec.convert({"sets": sets}, PreferenceArgs))


def order_of(found: Preference, replicas: int) -> FillOrder:
    order = FillOrder(found)
    run_to_end(order.extend(replicas))
    return order


def kept(found: Preference, pods: list[int], left: int) -> list[int]:
    """Return how many pods are left on each set after a scale-down."""
    order = order_of(found, 10)
    costs = [(cost, place) for place, count in enumerate(pods) for cost in order.costs(place, count)]
    remaining = Counter(place for _, place in sorted(costs, reverse=True)[:left])
    return [remaining[place] for place in range(len(pods))]


class TestOrder:
    @pytest.mark.parametrize("left", range(2, 11))
    def test_the_limits_hold_for_each_smaller_number_of_replicas(self, left: int):
        found = preference(AT_MOST_30, AT_LEAST_2)
        spot, on_demand, others = kept(found, [3, 7, 0], left)

        assert spot <= left * 30 // 100
        assert on_demand >= 2
        assert others == 0

    def test_without_limits_the_last_sets_lose_their_pods_first(self):
        found = preference(SPOT, ON_DEMAND)

        assert kept(found, [5, 4, 1], 9) == [5, 4, 0]
        assert kept(found, [5, 4, 1], 6) == [5, 1, 0]
        assert kept(found, [5, 4, 1], 3) == [3, 0, 0]

    def test_a_minimum_is_kept_to_the_end(self):
        found = preference(SPOT, AT_LEAST_2)

        assert kept(found, [8, 2, 0], 3) == [1, 2, 0]
        assert kept(found, [8, 2, 0], 2) == [0, 2, 0]

    def test_the_order_is_extended_in_steps_and_stays_the_same(self):
        found = preference(AT_MOST_30, AT_LEAST_2)
        order = FillOrder(found)
        assert len(list(order.extend(1000))) == 3

        assert order.costs(0, 4) == order_of(found, 20).costs(0, 4)
        assert list(order.extend(10)) == []

    def test_each_step_of_the_order_is_a_placement_that_the_limits_allow(self):
        found = preference(
            {**SPOT, "minReplicas": "20%", "maxReplicas": "40%"}, {**ON_DEMAND, "maxReplicas": 5}
        )
        order = order_of(found, 12)
        for replicas in range(1, 13):
            pods = [0, 0, 0]
            for place in range(3):
                costs = order.costs(place, 12)
                pods[place] = sum(1_000_000 - cost <= replicas for cost in costs if cost > 0)
            counts = SetCounts(found, replicas, pods)
            assert sum(pods) == replicas
            assert pods[0] >= counts.least[0]
            assert all(
                there <= most for there, most in zip(pods, counts.most, strict=False) if most is not None
            )


def bind(world: World, *names: str) -> list[PodInfo]:
    """Place pods of the controller, and call PostBind for each."""
    placed = list(world.run(*names))
    for each in placed:
        virtual_time.run(world.plugin.post_bind(CycleState(), each, each.node_name))
    return placed


def written(world: World) -> dict[str, int]:
    """Run the writes; return pod -> cost, and show them in the cluster as a watch does."""
    began = len(world.fakes.api.written)
    virtual_time.run(world.fakes.background.carry_out())
    costs = {}
    for method, path, body in world.fakes.api.written[began:]:
        assert method == "PATCH"
        assert body is not None
        name, text = path.rpartition("/")[2], body["metadata"]["annotations"][DELETION_COST]
        costs[name] = int(text)
        show(world, name, text)
    return costs


def find(world: World, name: str) -> tuple[int, PodInfo]:
    return next(
        (row, each)
        for row in world.rows.values()
        for each in world.table.pods_on(row).values()
        if each.name == name
    )


def show(world: World, name: str, cost: str) -> None:
    row, each = find(world, name)
    metadata = msgspec.structs.replace(
        each.pod.metadata,
        annotations={DELETION_COST: cost},
        resource_version=f"{each.resource_version or 0}1",
    )
    world.table.remove_pod(row, each.uid)
    changed = type(each)(msgspec.structs.replace(each.pod, metadata=metadata), node_name=each.node_name)
    world.table.add_pod(row, changed)


def lose(world: World, name: str) -> None:
    row, each = find(world, name)
    world.table.remove_pod(row, each.uid)


class TestWrites:
    def test_bound_pods_get_the_costs_of_their_set(self):
        world = World(AT_MOST_30, AT_LEAST_2, args=COSTS)
        bind(world, "s1", "s1", "d1", "d2", "x")

        found = written(world)
        assert found == {"p-1": 999_996, "p-2": 999_993, "p-3": 999_999, "p-4": 999_998, "p-5": -3}
        assert sorted(found, key=found.__getitem__) == ["p-5", "p-2", "p-1", "p-4", "p-3"]

    def test_pods_that_are_bound_together_are_compared_once(self):
        world = World(AT_MOST_30, AT_LEAST_2, args=COSTS)
        bind(world, "s1", "d1")
        assert len(world.fakes.background.started) == 1
        assert len(written(world)) == 2
        assert world.fakes.clock.now == 1.0

    def test_only_costs_that_differ_are_written(self):
        world = World(AT_MOST_30, AT_LEAST_2, args=COSTS)
        bind(world, *["d1"] * 5)
        assert len(written(world)) == 5
        bind(world, "d2")
        assert set(written(world)) == {"p-6"}
        bind(world, "s1")
        assert set(written(world)) == {"p-7"}

    def test_a_pod_that_replaces_another_one_gets_its_cost(self):
        world = World(AT_MOST_30, AT_LEAST_2, args=COSTS)
        bind(world, *["d1"] * 3)
        before = written(world)
        lose(world, "p-1")
        bind(world, "d2")
        assert written(world) == {"p-4": before["p-1"]}

    def test_a_cost_is_not_written_again_before_the_watch_shows_it(self):
        world = World(AT_MOST_30, AT_LEAST_2, args=COSTS)
        bind(world, "d1")
        virtual_time.run(world.fakes.background.carry_out())
        bind(world, "d2")
        virtual_time.run(world.fakes.background.carry_out())
        assert [path.rpartition("/")[2] for _, path, _ in world.fakes.api.written] == ["p-1", "p-2"]

    def test_pods_of_others_are_not_written(self):
        world = World(AT_MOST_30, AT_LEAST_2, args=COSTS)
        world.run("d1", labels={"app": "db"})
        world.run("d1", metadata={"owner_references": ()})
        bind(world, "d1")
        assert set(written(world)) == {"p-3"}

    @pytest.mark.parametrize(
        ("kind", "args"),
        [
            pytest.param("ReplicaSet", {}, id="without the argument"),
            pytest.param("StatefulSet", COSTS, id="of a StatefulSet"),
        ],
    )
    def test_other_pods_get_no_costs(self, kind: str, args: dict[str, Any]):
        world = World(AT_MOST_30, args=args, kind=kind)
        bind(world, "d1")
        assert world.fakes.background.started == []

    def test_a_replica_set_without_a_preference_gets_no_costs(self):
        world = World(args=COSTS)
        bind(world, "d1")
        assert written(world) == {}

    @pytest.mark.parametrize("status", [404, 409])
    def test_a_deleted_pod_is_left_out(self, status: int):
        world = World(AT_MOST_30, AT_LEAST_2, args=COSTS)
        world.fakes.api.refusals.append(ApiError(status, "", "gone"))
        bind(world, "d1", "d2")
        assert set(written(world)) == {"p-2"}

    def test_after_an_error_the_next_bound_pod_starts_the_writes_again(self):
        world = World(AT_MOST_30, AT_LEAST_2, args=COSTS)
        world.fakes.api.refusals.append(ApiError(403, "Forbidden", "no right"))
        bind(world, "d1")
        with pytest.raises(ApiError, match="no right"):
            virtual_time.run(world.fakes.background.carry_out())
        bind(world, "d2")
        assert set(written(world)) == {"p-1", "p-2"}

    def test_an_error_for_one_replica_set_keeps_no_other_from_its_costs(self):
        world = World(AT_MOST_30, AT_LEAST_2, args=COSTS)
        sets = world.table.watch_kind("apps/v1/replicasets")
        its = json.loads(json.dumps(sets["default/web-1"]).replace("web-1", "web-2"))
        its["spec"]["selector"] = {"matchLabels": {"app": "other"}}
        sets["default/web-2"] = its
        bind(world, "d1")
        other = owned(pod("other", node="d2", labels={"app": "other"}), name="web-2")
        world.table.add_pod(world.rows["d2"], other)
        virtual_time.run(world.plugin.post_bind(CycleState(), other, "d2"))
        world.fakes.api.refusals.append(ApiError(403, "Forbidden", "no right"))
        with pytest.raises(ApiError, match="no right"):
            virtual_time.run(world.fakes.background.carry_out())

        assert [path.rpartition("/")[2] for _, path, _ in world.fakes.api.written] == ["other"]

    def test_written_costs_are_counted(self):
        world = World(AT_MOST_30, AT_LEAST_2, args=COSTS)
        bind(world, "d1", "d2")
        written(world)
        name = "custom_scheduler_pod_deletion_costs_written_total"
        assert world.fakes.metrics.calls == [(name, (), 1.0)] * 2

    def test_the_number_of_replicas_does_not_limit_the_time_of_a_step(self):
        world = World(AT_MOST_30, AT_LEAST_2, args=COSTS, spec={"replicas": 2**31 - 1})
        bind(world, "d1")
        assert written(world) == {"p-1": 999_999}

    def test_many_nodes_are_read_in_steps(self, monkeypatch: pytest.MonkeyPatch):
        world = World(AT_MOST_30, AT_LEAST_2, args=COSTS)
        pauses: list[float] = []

        async def sleep(_self: FakeSleep, seconds: float) -> None:
            pauses.append(seconds)

        monkeypatch.setattr(FakeSleep, "sleep", sleep)
        monkeypatch.setattr("plugins.node_preference.deletion_costs._NODES_A_STEP", 2)
        bind(world, *NODES)
        written(world)
        assert pauses == [1.0, 0.0, 0.0, 0.0]

    def test_it_needs_the_right_to_patch_pods_and_their_annotations(self):
        needs = World(args=COSTS).plugin.needs
        assert needs.rights == {"patch v1/pods"}
        assert needs.bound_pod_annotations
