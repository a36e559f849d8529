"""Plans of evictions: each move is the scheduler's own, and the objective improves."""

from __future__ import annotations

import time
from typing import Any

import pytest

from scheduler.framework.preemption import RecentEvictions
from scheduler.tools.whatif.rebalancing.rebalancer import Refusal, VoidPlanError
from tests.support.builders import node_object, pod_object
from tests.unit.tools.whatif.rebalancing.rebalanced_clusters import (
    PACKING,
    ZONE,
    budget,
    moves,
    rebalancer_of,
    replica,
    spread,
)

SPREADING = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
"""


def nodes(*names: str, **fields: Any) -> list[dict[str, Any]]:
    return [node_object(name, **fields) for name in names]


def zoned(name: str) -> dict[str, Any]:
    """Return a node whose zone is the first letter of its name."""
    return node_object(name, labels={ZONE: name[0]})


class TestNodesInUse:
    def test_a_node_is_emptied_if_its_pods_fit_on_used_nodes(self):
        cluster = rebalancer_of(
            *nodes("n1", "n2"), *(replica(f"p{number}", "n1") for number in range(2)), replica("q", "n2")
        )

        plan = cluster.plan(most_evictions=20, most_tries=2000)

        assert [(step.pod, step.from_node, step.to_node) for step in plan.steps] == [
            ("default/q", "n2", "n1")
        ]
        assert (plan.before["nodes"], plan.after["nodes"]) == (2, 1)
        assert plan.steps[0].why == "nodes in use 2 -> 1"
        assert plan.steps[0].score is not None
        assert plan.steps[0].old_score is not None
        assert plan.steps[0].score > plan.steps[0].old_score

    def test_a_profile_that_spreads_pods_empties_no_node(self):
        objects = [
            *nodes("n1", "n2"),
            *(replica(f"p{number}", "n1") for number in range(2)),
            replica("q", "n2"),
        ]

        cluster = rebalancer_of(*objects, config=SPREADING)
        plan = cluster.plan(most_evictions=20, most_tries=2000)

        assert plan.steps == []
        assert plan.after == plan.before
        assert plan.not_evicted == {"would be placed on its node again": 2}

    def test_a_node_that_cannot_be_emptied_keeps_all_its_pods(self):
        bare = pod_object("bare", cpu="1", node="n2")
        cluster = rebalancer_of(*nodes("n1", "n2"), replica("p", "n1", "2"), replica("q", "n2"), bare)

        plan = cluster.plan(most_evictions=20, most_tries=2000)

        assert plan.steps == []
        assert "has no controller, so no pod would replace it" in plan.not_evicted

    def test_pods_that_belong_to_the_node_keep_no_node_in_use(self):
        agents = [
            replica(f"agent-{name}", name, "100m", kind="DaemonSet", owner="agent") for name in ("n1", "n2")
        ]
        cluster = rebalancer_of(*nodes("n1", "n2"), *agents, replica("p", "n1"))

        assert cluster.numbers()["nodes"] == 1

    def test_a_partly_emptied_node_is_left_as_it_was(self):
        # The second pod of n2 fits on no other node, so the first one stays as well.
        cluster = rebalancer_of(
            *nodes("n1", "n2"), replica("p", "n1", "3"), replica("q", "n2", "900m"), replica("r", "n2", "1")
        )
        before = cluster.numbers()

        assert moves(cluster) == []
        assert cluster.numbers() == before

    def test_all_evictions_of_a_node_have_the_same_gain(self):
        cluster = rebalancer_of(
            *nodes("n1", "n2"), replica("p", "n1", "2"), replica("q", "n2", "1"), replica("r", "n2", "500m")
        )

        plan = cluster.plan(most_evictions=20, most_tries=2000)

        assert [step.pod for step in plan.steps] == ["default/q", "default/r"], "large pods first"
        assert {step.why for step in plan.steps} == {"nodes in use 2 -> 1 with 2 evictions"}

    def test_more_evictions_than_the_limit_are_not_begun(self):
        objects = [
            *nodes("n1", "n2"),
            replica("p", "n1", "2"),
            replica("q", "n2"),
            replica("r", "n2", "500m"),
        ]

        plan = rebalancer_of(*objects).plan(most_evictions=1, most_tries=2000)

        assert plan.steps == []

    def test_the_search_ends_with_its_tries(self):
        objects = [
            *nodes("n1", "n2"),
            replica("p", "n1", "2"),
            replica("q", "n2"),
            replica("r", "n2", "500m"),
        ]

        plan = rebalancer_of(*objects).plan(most_evictions=20, most_tries=1)

        assert (plan.steps, plan.tries, plan.is_complete) == ([], 1, False)

    def test_a_budget_that_allows_one_eviction_allows_one_after_another(self):
        objects = [
            *nodes("n1", "n2"),
            replica("p", "n1", "2"),
            replica("q", "n2"),
            replica("r", "n2", "500m"),
        ]

        assert moves(rebalancer_of(*objects, budget("b", 1))) == ["q n2 n1", "r n2 n1"]
        assert moves(rebalancer_of(*objects, budget("b", 0))) == []

    def test_among_equal_nodes_the_smallest_name_is_expected(self):
        full = [replica(f"p-{name}", name, "2") for name in ("n2", "n1")]
        cluster = rebalancer_of(*nodes("n2", "n1", "n3"), *full, replica("q", "n3", "500m"))

        (step,) = cluster.plan(most_evictions=1, most_tries=2000).steps

        assert (step.to_node, step.equal_nodes) == ("n1", 2)

    def test_equal_clusters_have_equal_plans(self):
        objects = [
            *nodes("n1", "n2", "n3", "n4"),
            *(replica(f"p{number}", f"n{number % 4 + 1}", "600m") for number in range(9)),
        ]
        first = rebalancer_of(*objects).plan(most_evictions=20, most_tries=2000)
        second = rebalancer_of(*reversed(objects)).plan(most_evictions=20, most_tries=2000)

        assert len(first.steps) > 1
        assert first == second


class TestSpread:
    def cluster(self, *names: str, **fields: Any) -> Any:
        constraint = [spread(**fields)]
        pods = [replica(name, name[:2], "100m", topology_spread_constraints=constraint) for name in names]
        return rebalancer_of(*map(zoned, ("a1", "a2", "b1", "c1")), *pods, objective="spread")

    def test_pods_leave_domains_with_too_many(self):
        cluster = self.cluster("a1-1", "a1-2", "a2-1", "a2-2", "b1-1", "b1-2")

        plan = cluster.plan(most_evictions=20, most_tries=2000)

        assert plan.before["spread"] == 4, "3 of zone a and 1 of zone b are more than c has, and maxSkew"
        assert plan.after["spread"] == 0
        assert {step.to_node for step in plan.steps} == {"c1"}
        assert len(plan.steps) == 2, "1 above the fewest is enough"

    def test_pods_within_the_skew_stay(self):
        assert moves(self.cluster("a1-1", "a1-2", "b1-1", "c1-1")) == []
        assert moves(self.cluster("a1-1", "a1-2", "a1-3", "b1-1", max_skew=3)) == []

    def test_with_fewer_domains_than_the_minimum_the_fewest_are_none(self):
        names = ("a1-1", "a1-2", "b1-1", "b1-2", "c1-1", "c1-2")

        assert self.cluster(*names).numbers()["spread"] == 0
        hard = {"minDomains": 4, "whenUnsatisfiable": "DoNotSchedule"}
        assert self.cluster(*names, **hard).numbers()["spread"] == 3

    def test_nodes_outside_of_the_affinity_are_no_domain(self):
        names, policy = ("a1-1", "a1-2", "a1-3"), {"nodeAffinityPolicy": "Ignore"}
        elsewhere = {"node_selector": {ZONE: "a"}}

        def excess(**fields: Any) -> float:
            pods = [
                replica(name, "a1", "100m", topology_spread_constraints=[spread(**fields)], **elsewhere)
                for name in names
            ]
            return rebalancer_of(zoned("a1"), zoned("b1"), *pods, objective="spread").numbers()["spread"]

        assert excess() == 0
        assert excess(**policy) == 2

    def test_label_keys_of_a_constraint_divide_the_pods(self):
        pods = [
            replica(
                f"p{number}",
                "a1",
                labels={"app": "web", "version": str(number % 2)},
                topology_spread_constraints=[spread(matchLabelKeys=["version"])],
            )
            for number in range(2)
        ]

        assert rebalancer_of(zoned("a1"), zoned("b1"), *pods).numbers()["spread"] == 0


class TestFragmentation:
    def test_free_capacity_is_joined_so_that_large_pods_fit(self):
        # About one core of each node is free, and half of the pods need two: two free cores of one node are better.
        pods = [replica(f"big-{name}", name, "2", owner="big") for name in ("n1", "n2")]
        small = replica("small-1", "n1", "1", owner="small"), replica("small-2", "n2", "900m", owner="small")
        cluster = rebalancer_of(*nodes("n1", "n2"), *pods, *small, objective="fragmentation")

        plan = cluster.plan(most_evictions=20, most_tries=2000)

        assert [(step.pod, step.to_node) for step in plan.steps] == [("default/small-2", "n1")]
        assert plan.after["fragmentation"] < plan.before["fragmentation"]

    def half_full(self, count: int, pending: int) -> list[Any]:
        """Return nodes with one free core each, and pending pods that need all four cores of a node."""
        names = [f"n{number:02}" for number in range(count)]
        small = [replica(f"{name}-{number}", name) for name in names for number in range(3)]
        return [*nodes(*names), *small, *(pod_object(f"big-{number}", cpu="4") for number in range(pending))]

    def test_a_node_is_emptied_for_a_pending_pod_that_fits_no_node(self):
        cluster = rebalancer_of(*self.half_full(40, 1), objective="fragmentation")

        plan = cluster.plan(most_evictions=20, most_tries=2000)

        assert [step.from_node for step in plan.steps] == ["n00"] * 3, "there is no other pending pod"
        assert all(step.why.endswith("pending pods that fit 0 -> 1 with 3 evictions") for step in plan.steps)
        assert plan.after["fragmentation"] < plan.before["fragmentation"]

    def test_capacity_of_a_resource_that_pods_lack_nowhere_does_not_count(self):
        full = [replica("p", "n1", "4")]
        cluster = rebalancer_of(*nodes("n1", "n2"), *full, replica("q", "n2", "2"), objective="fragmentation")

        assert cluster.numbers()["fragmentation"] == 0, "memory of n1 is free, but cpus are scarce"

    def test_the_node_with_most_unusable_capacity_of_the_scarce_resource_is_tried_first(self):
        pods = [replica("p", "n1", "4", memory="1Gi"), replica("q", "n2", "3100m", memory="2Gi")]
        waiting = [pod_object(f"w{number}", cpu="1", memory="1Gi") for number in range(5)]
        small = [node_object("n1", cpu="4", memory="64Gi"), node_object("n2", cpu="4", memory="16Gi")]
        cluster = rebalancer_of(*small, *pods, *waiting, objective="fragmentation")

        first = next(iter(cluster.objective.candidates()))

        assert [pod.name for pod in first] == ["q"], "n1 has more free memory, but no free cpu"

    def test_free_capacity_that_no_pod_can_use_is_the_fragmentation(self):
        cluster = rebalancer_of(*self.half_full(4, 12), objective="fragmentation")

        assert cluster.numbers()["fragmentation"] == 0.5, (
            "half of the pods need four cores, and none of them fits"
        )


class TestMove:
    @pytest.mark.parametrize(("count", "moves_away"), [(9, False), (10, True)])
    def test_one_of_few_equal_nodes_is_likely_the_old_one(self, count: int, moves_away: bool):
        names = [f"n{number}" for number in range(count)]
        cluster = rebalancer_of(*nodes(*names), *(replica(f"p-{name}", name) for name in names))

        moved = cluster.move(cluster.pods["default/p-n0"])

        assert (moved == Refusal("would be placed on its node again")) is not moves_away

    def test_the_replacement_of_a_terminating_pod_finds_its_capacity_still_used(self):
        # With the terminating pod both nodes are equally full, so the replacement may return.
        cluster = rebalancer_of(*nodes("n1", "n2"), replica("p", "n1"), replica("q", "n2"))

        assert cluster.move(cluster.pods["default/q"]) == Refusal("would be placed on its node again")

    def test_the_replacement_of_a_stateful_pod_finds_its_capacity_free(self):
        pods = replica("p", "n1"), replica("q", "n2", kind="StatefulSet", owner="db")
        cluster = rebalancer_of(*nodes("n1", "n2"), *pods)

        moved = cluster.move(cluster.pods["default/q"])

        assert not isinstance(moved, Refusal)
        assert moved.node_name == "n1"

    def test_a_pod_that_fits_only_after_its_end_returns_to_its_node(self):
        cluster = rebalancer_of(*nodes("n1", "n2"), replica("p", "n1", "3"), replica("q", "n2", "3"))

        moved = cluster.move(cluster.pods["default/q"])

        assert moved == Refusal("would be placed on its node again")

    def test_a_pod_that_fits_nowhere_any_more_would_be_pending(self):
        cordoned = node_object("n2", unschedulable=True)
        cluster = rebalancer_of(*nodes("n1", cpu="1"), cordoned, replica("q", "n2", "3"))

        moved = cluster.move(cluster.pods["default/q"])

        assert isinstance(moved, Refusal)
        assert moved.pending
        assert moved.text.startswith("would be pending: 0/2 nodes are available: ")

    def test_an_undone_move_leaves_the_cluster_as_it_was(self):
        cluster = rebalancer_of(
            *nodes("n1", "n2"), replica("o", "n1"), replica("p", "n1"), replica("q", "n2")
        )
        before, cache = cluster.numbers(), cluster._scheduler.cache
        pods = {pod.uid: pod.node_name for pod in cache.pods()}

        moved = cluster.move(cluster.pods["default/q"])
        assert not isinstance(moved, Refusal)
        assert cluster.numbers() != before
        cluster.undo(moved)

        assert cluster.numbers() == before
        assert {pod.uid: pod.node_name for pod in cache.pods()} == pods
        cache.check()


class TestConfirm:
    PODS = (replica("p", "n1", "2"), replica("q", "n2"), replica("r", "n2", "500m"))

    def plan(self) -> Any:
        return rebalancer_of(*nodes("n1", "n2"), *self.PODS).plan(most_evictions=20, most_tries=2000).steps

    def test_a_plan_is_confirmed_by_the_cluster_it_was_made_for(self):
        cluster = rebalancer_of(*nodes("n1", "n2"), *self.PODS)

        assert cluster.confirm(self.plan()) == "n1"
        assert cluster.confirm(self.plan()) == "n1", "nothing is changed"

    @pytest.mark.parametrize(
        ("objects", "expected"),
        [
            pytest.param([replica("p", "n1", "2")], "default/q does not exist any more", id="a pod is gone"),
            pytest.param(
                [replica("p", "n1", "2"), replica("q", "n2", uid="another")],
                "default/q does not exist any more",
                id="a pod is another one",
            ),
            pytest.param(
                [replica("p", "n1", "2"), replica("q", "n1")], "is on n1, expected on n2", id="a pod moved"
            ),
            pytest.param([*PODS, budget("b", 0)], "allows 0 evictions now", id="a budget is used up"),
            pytest.param([*PODS, replica("s", "n1", "2")], "would be placed on its node again", id="no room"),
            pytest.param(
                [*PODS, pod_object("s", cpu="100m", node="n2")],
                "the rest of the plan gains nothing any more (nodes in use 2 -> 2)",
                id="a new pod keeps the node in use",
            ),
        ],
    )
    def test_a_changed_cluster_makes_a_plan_void(self, objects: list[Any], expected: str):
        cluster = rebalancer_of(*nodes("n1", "n2"), *objects)

        with pytest.raises(VoidPlanError, match=expected.replace("(", r"\(").replace(")", r"\)")):
            cluster.confirm(self.plan())

    def test_the_number_on_another_node_is_known_without_a_move(self):
        cluster = rebalancer_of(*nodes("n1", "n2", "n3"), replica("p", "n1"), replica("q", "n2"))
        pod = cluster.pods["default/q"]

        assert [cluster.value_on(pod, name) for name in ("n1", "n2", "n3", "gone")] == [1, 2, 2, float("inf")]


class TestLimitsOfEvictions:
    LIMITED = f"{PACKING}  - name: DefaultPreemption\n    args: {{protection: {{evictionsPerHour: {{controller: 1}}}}}}\n"
    PODS = (replica("p", "n1", "2"), replica("q", "n2"), replica("r", "n3", "500m"))

    def test_the_evictions_of_a_plan_count_for_the_limits(self):
        objects = [*nodes("n1", "n2", "n3"), *self.PODS]

        assert moves(rebalancer_of(*objects)) == ["r n3 n1", "q n2 n1"]
        cluster = rebalancer_of(*objects, config=self.LIMITED)
        plan = cluster.plan(most_evictions=20, most_tries=2000)

        assert [step.pod for step in plan.steps] == ["default/r"]
        (why,) = [text for text in plan.not_evicted if text.startswith("is protected")]
        assert why.endswith(", by evictionsPerHour.controller of the profile")

    def test_moves_that_are_undone_do_not_count(self):
        cluster = rebalancer_of(*nodes("n1", "n2", "n3"), *self.PODS, config=self.LIMITED)
        q, r = cluster.pods["default/q"], cluster.pods["default/r"]

        moved = cluster.move(q)
        assert not isinstance(moved, Refusal)
        assert "evictionsPerHour" in cluster.evictable.why_not(r)
        cluster.undo(moved)

        assert cluster.evictable.why_not(r) == ""

    def test_evictions_that_were_carried_out_count_when_a_plan_is_confirmed(self):
        cluster = rebalancer_of(*nodes("n1", "n2", "n3"), *self.PODS, config=self.LIMITED)
        steps = cluster.plan(most_evictions=1, most_tries=2000).steps
        now = rebalancer_of(*nodes("n1", "n2", "n3"), *self.PODS, config=self.LIMITED)
        assert now.confirm(steps) == "n1"
        carried_out = RecentEvictions()
        carried_out.note([now.pods["default/p"]], time.monotonic())

        now.count(carried_out)

        with pytest.raises(VoidPlanError, match=r"by evictionsPerHour\.controller"):
            now.confirm(steps)
