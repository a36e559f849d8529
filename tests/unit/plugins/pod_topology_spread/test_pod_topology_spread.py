from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from plugins.pod_topology_spread.constraints import pods_by_domain
from plugins.pod_topology_spread.plugin import PodTopologySpread
from scheduler.framework import SKIP, ActionType, Code, CycleState, EventResource
from scheduler.objects.v1 import Toleration
from scheduler.snapshot import ClusterTable
from scheduler.testing.fakes import FakeFeatures
from tests.support.builders import node, pod
from tests.support.clusters import cluster
from tests.unit.plugins.plugin_calls import made, reasons, requeues, scores

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo
    from tests.support.clusters import Cluster

HOST = "kubernetes.io/hostname"
WEB = {"app": "web"}
SKEWED = ("node(s) didn't match pod topology spread constraints",)
UNLABELLED = ("node(s) didn't match pod topology spread constraints (missing required label)",)


def constraint(key: str = "zone", **fields: Any) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": WEB},
        **fields,
    }


def spread(*constraints: dict[str, Any], labels: dict[str, str] | None = None, **fields: Any) -> PodInfo:
    return pod(
        "p", labels=WEB if labels is None else labels, topologySpreadConstraints=list(constraints), **fields
    )


def on(name: str, number: int = 1, **fields: Any) -> list[PodInfo]:
    return [pod(f"on-{name}-{index}", node=name, **{"labels": WEB, **fields}) for index in range(number)]


def zones(*pods: PodInfo) -> Cluster:
    """Return a and b in zone 1, c in zone 2, and one node without a zone."""
    return cluster(
        node("a", labels={"zone": "1"}),
        node("b", labels={"zone": "1"}),
        node("c", labels={"zone": "2", "disk": "ssd"}, taints=["old:NoSchedule"]),
        node("nowhere"),
        pods=pods,
    )


def plugin(**args: Any) -> PodTopologySpread:
    return made(PodTopologySpread, **args)


def refused(each: PodInfo, on_nodes: list[PodInfo], **args: Any) -> dict[str, tuple[str, ...]]:
    return reasons(plugin(**args), each, zones(*on_nodes))


class TestFilter:
    def test_a_domain_above_the_maximum_skew_is_rejected(self):
        assert refused(spread(constraint()), on("a")) == {"a": SKEWED, "b": SKEWED, "nowhere": UNLABELLED}
        assert refused(spread(constraint(maxSkew=2)), on("a")) == {"nowhere": UNLABELLED}

    def test_a_node_without_the_label_is_unresolvable_and_one_above_the_skew_is_not(self):
        snapshot, state = zones(*on("a")).snapshot(), CycleState()
        each = spread(constraint())
        plugin().pre_filter(state, each, snapshot)

        outcomes = plugin().filter(state, each, snapshot, snapshot.all_rows)

        assert outcomes.of(0).code is Code.UNSCHEDULABLE
        assert outcomes.of(3).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE

    def test_the_first_violated_constraint_gives_the_reason(self):
        host, zone = constraint(HOST), constraint()
        assert refused(spread(host, zone), on("a", 2)) == {"a": SKEWED, "b": SKEWED, "nowhere": UNLABELLED}
        assert refused(spread(constraint("disk"), zone), on("a")) == {
            "a": UNLABELLED,
            "b": UNLABELLED,
            "nowhere": UNLABELLED,
        }

    def test_a_pod_outside_its_own_selector_does_not_count_itself(self):
        assert refused(spread(constraint(), labels={}), on("a")) == {"nowhere": UNLABELLED}

    @pytest.mark.parametrize(
        "others",
        [
            pytest.param(on("a", labels={"app": "db"}), id="with other labels"),
            pytest.param(on("a", namespace="elsewhere"), id="in another namespace"),
        ],
    )
    def test_pods_that_do_not_count(self, others: list[PodInfo]):
        assert refused(spread(constraint()), others) == {"nowhere": UNLABELLED}

    def test_terminating_pods_do_not_count(self):
        (there,) = on("a")
        metadata = msgspec.structs.replace(there.pod.metadata, deletion_timestamp="2026-03-01T09:00:00Z")
        going = type(there)(msgspec.structs.replace(there.pod, metadata=metadata))

        assert refused(spread(constraint()), [going]) == {"nowhere": UNLABELLED}

    @pytest.mark.parametrize(
        ("selector", "expected"),
        [
            pytest.param(None, {"nowhere": UNLABELLED}, id="no selector matches none"),
            pytest.param({}, {"nowhere": UNLABELLED}, id="an empty one counts none, but the pod itself"),
        ],
    )
    def test_a_selector_without_requirements_counts_nothing(self, selector: Any, expected: Any):
        assert refused(spread(constraint(labelSelector=selector)), on("a", 3)) == expected

    def test_with_too_few_domains_the_minimum_is_zero(self):
        pods = [*on("a"), *on("c")]

        assert refused(spread(constraint(minDomains=2)), pods) == {"nowhere": UNLABELLED}
        assert refused(spread(constraint(minDomains=3)), pods) == {
            "a": SKEWED,
            "b": SKEWED,
            "c": SKEWED,
            "nowhere": UNLABELLED,
        }

    def test_nodes_outside_the_node_affinity_count_only_if_it_is_ignored(self):
        only_c = {"nodeSelector": {"disk": "ssd"}}
        crowded = on("c", 2)

        assert refused(spread(constraint(), **only_c), crowded) == {"nowhere": UNLABELLED}
        ignoring = constraint(nodeAffinityPolicy="Ignore")
        assert refused(spread(ignoring, **only_c), crowded) == {"c": SKEWED, "nowhere": UNLABELLED}

    def test_tainted_nodes_count_unless_the_policy_honours_taints(self):
        honouring = constraint(nodeTaintsPolicy="Honor")
        tolerant = {"tolerations": [Toleration("old", "Exists")]}

        assert set(refused(spread(constraint()), on("a"))) == {"a", "b", "nowhere"}
        assert set(refused(spread(honouring), on("a"))) == {"nowhere"}
        assert set(refused(spread(honouring, **tolerant), on("a"))) == {"a", "b", "nowhere"}

    def test_match_label_keys_narrow_the_selector(self):
        keyed = constraint(matchLabelKeys=["version", "absent"])
        old, each = on("a", 2, labels={**WEB, "version": "1"}), plugin()
        same = spread(keyed, labels={**WEB, "version": "1"})
        newer = spread(keyed, labels={**WEB, "version": "2"})

        assert set(reasons(each, same, zones(*old))) == {"a", "b", "nowhere"}
        assert set(reasons(each, newer, zones(*old))) == {"nowhere"}
        off = FakeFeatures(MatchLabelKeysInPodTopologySpread=False)
        assert set(refused(newer, old, features=off)) == {"a", "b", "nowhere"}

    def test_tolerations_compare_the_numbers_of_taints_with_the_gate(self):
        honouring = constraint(nodeTaintsPolicy="Honor")
        tolerations = [Toleration("old", "Gt", "3", "NoSchedule")]
        nodes = cluster(
            node("a", labels={"zone": "1"}),
            node("c", labels={"zone": "2"}, taints=["old=5:NoSchedule"]),
            pods=on("a"),
        )
        waiting = spread(honouring, tolerations=tolerations)
        comparing = FakeFeatures(TaintTolerationComparisonOperators=True)

        assert set(reasons(plugin(features=comparing), waiting, nodes)) == {"a"}
        assert set(reasons(plugin(), waiting, nodes)) == set()

    def test_an_invalid_selector_is_an_error(self):
        wrong = {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["web"]}]}
        snapshot = zones().snapshot()
        hard = plugin().pre_filter(CycleState(), spread(constraint(labelSelector=wrong)), snapshot)
        soft_pod = spread(constraint(labelSelector=wrong, whenUnsatisfiable="ScheduleAnyway"))
        soft = plugin().pre_score(CycleState(), soft_pod, snapshot, snapshot.all_rows)

        assert hard is not None
        assert hard.code is Code.ERROR
        assert hard.message.startswith(
            "get constraints from pod: obtaining pod's hard topology spread constraints: matchExpressions[0]"
        )
        assert soft is not None
        assert soft.code is Code.ERROR
        assert soft.message.startswith(
            "calculating preScoreState: obtaining pod's soft topology spread constraints: matchExpressions[0]"
        )

    def test_pods_without_hard_constraints_are_skipped(self):
        snapshot = zones().snapshot()
        for each in (pod("p"), spread(constraint(whenUnsatisfiable="ScheduleAnyway"))):
            assert plugin().pre_filter(CycleState(), each, snapshot) is SKIP


class TestAddedAndRemovedPods:
    def verdicts(self, state: CycleState, each: PodInfo, nodes: Cluster) -> list[bool]:
        snapshot = nodes.snapshot()
        return plugin().filter(state, each, snapshot, snapshot.all_rows).passing.tolist()[:3]

    @pytest.fixture
    def nodes(self) -> Cluster:
        return zones(*on("a"), *on("b"), *on("c"))

    @pytest.fixture
    def each(self) -> PodInfo:
        return spread(constraint())

    @pytest.fixture
    def state(self, each: PodInfo, nodes: Cluster) -> CycleState:
        state = CycleState()
        plugin().pre_filter(state, each, nodes.snapshot())
        return state

    def test_each_row_is_evaluated_with_its_own_removed_pods_only(
        self, each: PodInfo, nodes: Cluster, state: CycleState
    ):
        assert self.verdicts(state, each, nodes) == [False, False, True]
        removed = [(0, on("a")[0]), (1, on("b")[0])]

        plugin().remove_pods(state, each, removed, nodes.snapshot())

        # Both at once would leave zone 1 empty; one by one it has as many as zone 2.
        assert self.verdicts(state, each, nodes) == [True, True, True]

    def test_added_pods_count_in_their_own_domain(self, each: PodInfo, nodes: Cluster, state: CycleState):
        added = [(2, pod(f"new-{number}", labels=WEB)) for number in range(2)]

        plugin().add_pods(state, each, added, nodes.snapshot())

        assert self.verdicts(state, each, nodes) == [False, False, False]

    def test_a_clone_has_its_own_changes(self, each: PodInfo, nodes: Cluster, state: CycleState):
        clone = state.clone()
        plugin().remove_pods(clone, each, [(0, on("a")[0])], nodes.snapshot())

        assert self.verdicts(clone, each, nodes) == [True, False, True]
        assert self.verdicts(state, each, nodes) == [False, False, True]

    def test_terminating_pods_count_in_dry_runs(self, each: PodInfo, nodes: Cluster, state: CycleState):
        (there,) = on("c", labels=WEB)
        metadata = msgspec.structs.replace(there.pod.metadata, deletion_timestamp="2026-03-01T09:00:00Z")
        going = type(there)(msgspec.structs.replace(there.pod, metadata=metadata))

        plugin().add_pods(state, each, [(2, going), (2, going)], nodes.snapshot())

        assert self.verdicts(state, each, nodes)[2] is False

    def test_pods_of_other_namespaces_change_nothing(self, each: PodInfo, nodes: Cluster, state: CycleState):
        plugin().remove_pods(state, each, on_row(0, on("a", namespace="elsewhere")), nodes.snapshot())

        assert self.verdicts(state, each, nodes) == [False, False, True]

    def test_nodes_that_do_not_count_are_unchanged(self, nodes: Cluster):
        each = spread(constraint(nodeTaintsPolicy="Honor"))
        state = CycleState()
        plugin().pre_filter(state, each, nodes.snapshot())
        before = self.verdicts(state, each, nodes)

        plugin().add_pods(state, each, on_row(2, on("c", 5)), nodes.snapshot())

        assert self.verdicts(state, each, nodes) == before == [True, True, True]


def on_row(row: int, pods: list[PodInfo]) -> list[tuple[int, PodInfo]]:
    return [(row, each) for each in pods]


SOFT = {"whenUnsatisfiable": "ScheduleAnyway"}


class TestScore:
    def test_a_domain_with_fewer_pods_scores_higher(self):
        each = spread(constraint(**SOFT))

        # Two zones weigh log(4): one pod makes 1.39, rounded to 1; the zone without has 0.
        assert scores(plugin(), each, zones(*on("a"))) == {"a": 0, "b": 0, "c": 100, "nowhere": 0}

    def test_for_the_hostname_nodes_count_their_own_pods(self):
        each = spread(constraint(HOST, **SOFT))

        # Four nodes weigh log(6): 3.58 for two pods and 1.79 for one.
        found = scores(plugin(), each, zones(*on("a", 2), *on("b")))
        assert found == {"a": 0, "b": 50, "c": 100, "nowhere": 100}

    def test_nodes_that_do_not_count_still_count_their_own_pods(self):
        each = spread(constraint(HOST, nodeTaintsPolicy="Honor", **SOFT))
        found = scores(plugin(), each, zones(*on("c")))

        assert found == {"a": 100, "b": 100, "c": 0, "nowhere": 100}

    def test_the_weight_counts_domains_of_feasible_nodes_only(self):
        nodes = cluster(
            *(node(f"n{number}", labels={"zone": str(number)}) for number in range(9)), pods=on("n0", 3)
        )
        each, snapshot, state = spread(constraint(**SOFT)), nodes.snapshot(), CycleState()

        plugin().pre_score(state, each, snapshot, np.array([0, 1]))
        few = plugin().score(state, each, snapshot, np.array([0, 1]))
        plugin().pre_score(state, each, snapshot, snapshot.all_rows)
        all_of_them = plugin().score(state, each, snapshot, snapshot.all_rows)

        assert (few[0], all_of_them[0]) == (4, 7)  # three times log(4), and log(11)

    def test_a_larger_skew_reduces_differences(self):
        pods = on("a", 3)

        assert scores(plugin(), spread(constraint(maxSkew=1, **SOFT)), zones(*pods))["a"] == 0  # type: ignore[index]
        assert scores(plugin(), spread(constraint(maxSkew=5, **SOFT)), zones(*pods))["a"] == 50  # type: ignore[index]

    def test_pods_without_soft_constraints_are_skipped(self):
        assert scores(plugin(), spread(constraint()), zones()) is None
        assert scores(plugin(), spread(constraint(**SOFT)), cluster()) is None


def with_service(nodes: Cluster, selector: dict[str, str]) -> Any:
    table = nodes.table()
    table.watch_kind("v1/services")["default/web"] = {"spec": {"selector": selector}}
    return table.snapshot()


def ranked(each: PodInfo, snapshot: Any, **args: Any) -> list[int] | None:
    asked, state, rows = plugin(**args), CycleState(), snapshot.all_rows
    if asked.pre_score(state, each, snapshot, rows) is SKIP:
        return None
    return asked.normalize(state, each, asked.score(state, each, snapshot, rows), rows).tolist()


HARD = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}


class TestDefaults:
    NODES = (
        node("a", labels={"topology.kubernetes.io/zone": "1"}),
        node("b", labels={"topology.kubernetes.io/zone": "2"}),
        node("nowhere"),
    )

    def test_a_pod_of_a_service_is_spread_over_nodes_and_zones_by_default(self):
        snapshot = with_service(cluster(*self.NODES, pods=on("a", 4)), WEB)

        found = ranked(pod("p", labels=WEB), snapshot)

        assert found is not None
        assert found[0] < found[1] < found[2]  # a node without a zone is compared too

    def test_a_pod_without_a_matching_service_is_not_spread(self):
        snapshot = with_service(cluster(*self.NODES, pods=on("a", 4)), {"app": "db"})

        assert ranked(pod("p", labels=WEB), snapshot) is None
        assert plugin().pre_filter(CycleState(), pod("p", labels=WEB), snapshot) is SKIP

    def test_a_pod_with_its_own_constraints_has_no_default_ones(self):
        snapshot = with_service(cluster(*self.NODES, pods=on("a", 4)), WEB)
        own = spread(constraint("topology.kubernetes.io/zone", labelSelector=None, **SOFT))

        assert ranked(own, snapshot) == [100, 100, 0]

    def test_a_list_of_constraints_replaces_those_of_the_system(self):
        snapshot = with_service(cluster(*self.NODES, pods=on("a")), WEB)
        each, args = pod("p", labels=WEB), {"defaultingType": "List", "defaultConstraints": [HARD]}
        asked, state = plugin(**args), CycleState()

        assert asked.pre_filter(state, each, snapshot) is None
        assert asked.filter(state, each, snapshot, snapshot.all_rows).passing.tolist() == [False, True, False]
        assert ranked(each, snapshot, **args) is None

    def test_nodes_without_all_labels_of_a_list_are_not_scored(self):
        soft = {**HARD, "whenUnsatisfiable": "ScheduleAnyway"}
        snapshot = with_service(cluster(*self.NODES), WEB)

        found = ranked(pod("p", labels=WEB), snapshot, defaultingType="List", defaultConstraints=[soft])

        assert found == [100, 100, 0]

    def test_pods_are_placed_without_watched_objects(self):
        assert ranked(pod("p", labels=WEB), cluster(*self.NODES).snapshot()) is None


class TestHints:
    EACH = spread(constraint(), constraint(HOST))

    def of_pod(self, old: PodInfo | None, new: PodInfo | None, each: PodInfo = EACH) -> bool:
        return requeues(plugin(), EventResource.POD, each, old, new)

    def of_node(self, old: Any, new: Any, each: PodInfo = EACH) -> bool:
        return requeues(plugin(), EventResource.NODE, each, old, new)

    def test_the_registered_events(self):
        assert {each.event.resource: each.event.action for each in plugin().events()} == {
            EventResource.POD: (
                ActionType.ADD
                | ActionType.UPDATE_POD_LABEL
                | ActionType.UPDATE_POD_TOLERATION
                | ActionType.DELETE
            ),
            EventResource.NODE: (
                ActionType.ADD
                | ActionType.DELETE
                | ActionType.UPDATE_NODE_LABEL
                | ActionType.UPDATE_NODE_TAINT
            ),
        }

    @pytest.mark.parametrize(
        ("changed", "helps"),
        [
            pytest.param(on("a")[0], True, id="that matches"),
            pytest.param(on("a", labels={})[0], False, id="that does not match"),
            pytest.param(on("a", namespace="elsewhere")[0], False, id="of another namespace"),
            pytest.param(pod("pending", labels=WEB), False, id="that is on no node"),
            pytest.param(
                pod("nominated", labels=WEB, status={"nominatedNodeName": "a"}), True, id="that is nominated"
            ),
        ],
    )
    def test_an_added_or_deleted_pod_may_help(self, changed: PodInfo, helps: bool):
        assert self.of_pod(None, changed) is helps
        assert self.of_pod(changed, None) is helps

    @pytest.mark.parametrize(("version", "helps"), [("1.34", False), ("1.35", False), ("1.36", True)])
    def test_nominated_pods_help_since_kubernetes_1_36(self, version: str, helps: bool):
        nominated = pod("nominated", labels=WEB, status={"nominatedNodeName": "a"})
        asked = plugin(features=FakeFeatures(version))

        assert requeues(asked, EventResource.POD, self.EACH, None, nominated) is helps
        assert requeues(asked, EventResource.POD, self.EACH, None, on("a")[0])

    def test_labels_must_start_or_stop_matching(self):
        web, db, other = (on("a", labels=labels)[0] for labels in (WEB, {"app": "db"}, {}))

        assert self.of_pod(web, db)
        assert self.of_pod(db, web)
        assert not self.of_pod(db, other)
        assert not self.of_pod(web, web)

    def test_new_tolerations_of_the_pod_help_if_the_policy_honours_taints(self):
        for policy, helps in (("Honor", True), ("Ignore", False)):
            before = spread(constraint(nodeTaintsPolicy=policy))
            after = spread(constraint(nodeTaintsPolicy=policy), tolerations=[Toleration("old", "Exists")])

            assert self.of_pod(before, after, before) is helps

    @pytest.mark.parametrize(
        ("old", "new", "helps"),
        [
            pytest.param(None, node("a", labels={"zone": "1"}), True, id="a node with all keys is added"),
            pytest.param(None, node("a"), False, id="a node without keys is added"),
            pytest.param(node("a", labels={"zone": "1"}), None, True, id="a node with all keys is deleted"),
            pytest.param(node("a"), None, False, id="a node without keys is deleted"),
            pytest.param(node("a"), node("a", labels={"zone": "1"}), True, id="a key is added"),
            pytest.param(node("a", labels={"zone": "1"}), node("a"), True, id="a key is removed"),
            pytest.param(
                node("a", labels={"zone": "1"}), node("a", labels={"zone": "2"}), True, id="a value changes"
            ),
            pytest.param(
                node("a", labels={"zone": "1"}),
                node("a", labels={"zone": "1", "disk": "ssd"}),
                False,
                id="another label changes",
            ),
            pytest.param(
                node("a", labels={"zone": "1"}, taints=["old:NoSchedule"]),
                node("a", labels={"zone": "1"}),
                True,
                id="taints change",
            ),
            pytest.param(
                node("a", taints=["old:NoSchedule"]), node("a"), False, id="taints of one without change"
            ),
        ],
    )
    def test_a_node_must_have_all_keys_before_or_after(self, old: Any, new: Any, helps: bool):
        assert self.of_node(old, new) is helps

    def test_any_event_requeues_a_pod_with_an_invalid_selector(self):
        wrong = constraint(labelSelector={"matchExpressions": [{"key": "app", "operator": "Like"}]})

        assert self.of_pod(None, on("a", labels={})[0], spread(wrong))
        assert self.of_node(None, node("a"), spread(wrong))

    def test_the_selectors_of_services_at_the_time_of_the_event_count(self):
        asked = plugin(
            defaultingType="List",
            defaultConstraints=[{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        )
        table = zones().table()
        services = table.watch_kind("v1/services")
        services["default/web"] = {"spec": {"selector": WEB}}
        each, other = pod("p", labels={**WEB, "tier": "front"}), on("a", labels={"tier": "front"})[0]
        asked.pre_filter(CycleState(), each, table.snapshot())

        assert not requeues(asked, EventResource.POD, each, None, other)
        services["default/web"] = {"spec": {"selector": {"tier": "front"}}}
        assert requeues(asked, EventResource.POD, each, None, other)


@pytest.mark.parametrize("nodes_with_pods", [0, 1, 3, 16])
@pytest.mark.parametrize("counted", [None, [True, False] * 8])
def test_pods_are_added_up_by_domain_whether_few_nodes_have_some_or_most(
    nodes_with_pods: int, counted: list[bool] | None
):
    table = ClusterTable()
    for number in range(16):
        table.add_node(node(f"n{number}", labels={"zone": f"z{number % 3}"}))
    label = table.snapshot().label("zone")
    pods = np.array([number + 1 if number < nodes_with_pods else 0 for number in range(16)])

    found = pods_by_domain(label, pods, None if counted is None else np.array(counted))

    wanted = dict.fromkeys(("z0", "z1", "z2", None), 0)
    for number, amount in enumerate(pods.tolist()):
        if counted is None or counted[number]:
            wanted[f"z{number % 3}"] += amount
    assert {
        label.values[code]: amount for code, amount in enumerate(found.tolist())
    }.items() <= wanted.items()
    assert sum(found.tolist()) == sum(wanted.values())
