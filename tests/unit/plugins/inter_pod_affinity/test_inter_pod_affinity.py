from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plugins.inter_pod_affinity.plugin import InterPodAffinity, InterPodAffinityArgs
from plugins.inter_pod_affinity.terms import Domains
from scheduler.framework import SKIP, ActionType, Code, CycleState, EventResource
from scheduler.snapshot import Interned
from scheduler.testing.fakes import FakeFeatures
from tests.support.builders import node, pod
from tests.support.clusters import cluster
from tests.unit.plugins.plugin_calls import faults, made, reasons, requeues, scores

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, Rows, Snapshot
    from tests.support.clusters import Cluster

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WEB = {"app": "web"}
DB = {"app": "db"}
HOST = "kubernetes.io/hostname"

FAR = ("node(s) didn't match pod affinity rules",)
NEAR = ("node(s) didn't match pod anti-affinity rules",)
UNWELCOME = ("node(s) didn't satisfy existing pods anti-affinity rules",)


def term(key: str = "zone", labels: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": WEB if labels is None else labels}, **more}


def weighted(weight: int, term: dict[str, Any]) -> dict[str, Any]:
    return {"weight": weight, "podAffinityTerm": term}


def near(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAffinity": {REQUIRED: list(terms)}}


def apart(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


def rather_near(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAffinity": {PREFERRED: list(terms)}}


def rather_apart(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAntiAffinity": {PREFERRED: list(terms)}}


def asking(*wishes: dict[str, Any], labels: dict[str, str] | None = None, **fields: Any) -> PodInfo:
    affinity: dict[str, Any] = {}
    for wish in wishes:
        affinity.update(wish)
    return pod("p", labels=labels, affinity=affinity, **fields)


def on(name: str, /, *wishes: dict[str, Any], labels: dict[str, str] | None = None, **fields: Any) -> PodInfo:
    affinity: dict[str, Any] = {}
    for wish in wishes:
        affinity.update(wish)
    given = {"name": f"on-{name}", "labels": WEB if labels is None else labels, **fields}
    return pod(node=name, affinity=affinity, **given)


def zones(*pods: PodInfo) -> Cluster:
    """Return a and b in zone 1, c in zone 2, and one node without a zone."""
    return cluster(
        node("a", labels={"zone": "1"}),
        node("b", labels={"zone": "1", "rack": "x"}),
        node("c", labels={"zone": "2", "rack": "y"}),
        node("nowhere"),
        pods=pods,
    )


def plugin(**args: Any) -> InterPodAffinity:
    return made(InterPodAffinity, **args)


def refused(pod: PodInfo, cluster: Cluster) -> dict[str, tuple[str, ...]]:
    return reasons(plugin(), pod, cluster)


# Filter.


def test_a_pod_goes_where_its_required_pods_are():
    assert refused(asking(near(term())), zones(on("a"))) == {"c": FAR, "nowhere": FAR}


def test_every_term_must_hold():
    wanted = asking(near(term(), term("rack")))

    assert refused(wanted, zones(on("b"))) == {"a": FAR, "c": FAR, "nowhere": FAR}


def test_all_terms_must_match_one_pod():
    wanted = asking(near(term(), term(labels={"tier": "front"})))
    either = [on("a"), on("a", name="front", labels={"tier": "front"})]
    both = on("a", labels={**WEB, "tier": "front"})

    assert refused(wanted, zones(*either)) == {"a": FAR, "b": FAR, "c": FAR, "nowhere": FAR}
    assert refused(wanted, zones(both)) == {"c": FAR, "nowhere": FAR}


def test_a_pod_avoids_pods_of_its_anti_affinity():
    assert refused(asking(apart(term())), zones(on("a"))) == {"a": NEAR, "b": NEAR}


def test_any_term_of_anti_affinity_is_enough():
    wanted = asking(apart(term(labels=DB), term("rack")))

    assert refused(wanted, zones(on("b"), on("c", labels=DB))) == {"b": NEAR, "c": NEAR}


def test_existing_pods_reject_a_pod_by_their_anti_affinity():
    holder = on("a", apart(term()), labels=DB)

    assert refused(asking(labels=WEB), zones(holder)) == {"a": UNWELCOME, "b": UNWELCOME}
    assert refused(asking(labels=DB), zones(holder)) == {}


def test_a_node_rejected_for_several_reasons_reports_the_first():
    unwelcome = [on("a", apart(term(labels=WEB)), labels=DB), on("c", apart(term(labels=WEB)), labels=DB)]
    both = asking(near(term("rack", DB)), apart(term(labels=DB)), labels=WEB)
    own = asking(apart(term(labels=DB)), labels=WEB)

    assert refused(both, zones(*unwelcome)) == {"a": FAR, "b": FAR, "c": NEAR, "nowhere": FAR}
    assert refused(own, zones(*unwelcome)) == {"a": NEAR, "b": NEAR, "c": NEAR}


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (asking(near(term(labels=DB))), Code.UNSCHEDULABLE_AND_UNRESOLVABLE),
        (asking(apart(term())), Code.UNSCHEDULABLE),
        (asking(labels={"app": "loud"}), Code.UNSCHEDULABLE),
    ],
    ids=["affinity", "anti-affinity", "anti-affinity of others"],
)
def test_only_affinity_is_unresolvable_by_removing_pods(wanted: PodInfo, code: Code):
    snapshot = zones(on("a", apart(term(labels={"app": "loud"})))).snapshot()
    state = CycleState()
    inter_pod_affinity = plugin()

    assert inter_pod_affinity.pre_filter(state, wanted, snapshot) is None
    assert inter_pod_affinity.filter(state, wanted, snapshot, snapshot.all_rows).of(0).code is code


class TestFirstOfASeries:
    def test_a_pod_that_matches_its_own_terms_goes_anywhere_with_the_label(self):
        assert refused(asking(near(term()), labels=WEB), zones()) == {"nowhere": FAR}

    def test_a_pod_that_matches_only_others_does_not(self):
        assert set(refused(asking(near(term()), labels=DB), zones())) == {"a", "b", "c", "nowhere"}

    def test_it_is_not_the_first_once_another_exists(self):
        assert refused(asking(near(term()), labels=WEB), zones(on("c"))) == {
            "a": FAR,
            "b": FAR,
            "nowhere": FAR,
        }

    def test_a_pod_on_a_node_without_any_of_the_labels_does_not_count(self):
        assert refused(asking(near(term()), labels=WEB), zones(on("nowhere"))) == {"nowhere": FAR}

    def test_a_pod_on_a_node_with_one_of_the_labels_counts(self):
        wanted = asking(near(term(), term("rack")), labels=WEB)

        assert set(refused(wanted, zones(on("a")))) == {"a", "b", "c", "nowhere"}


class TestNamespaces:
    def asked(self, wanted: PodInfo, cluster: Cluster, **namespaces: dict[str, str]) -> set[str]:
        """Return the nodes that are rejected, with these labels of namespaces."""
        table = cluster.table()
        store = table.watch_kind("v1/namespaces")
        for name, labels in namespaces.items():
            store[name] = {"metadata": {"name": name, "labels": labels}}
        snapshot, state, inter_pod_affinity = table.snapshot(), CycleState(), plugin()
        if inter_pod_affinity.pre_filter(state, wanted, snapshot) is SKIP:
            return set()
        passing = inter_pod_affinity.filter(state, wanted, snapshot, snapshot.all_rows).passing
        return {each.name for each, passes in zip(cluster.nodes, passing, strict=True) if not passes}

    @pytest.mark.parametrize(
        ("more", "refused"),
        [
            ({}, "d"),
            ({"namespaces": ["shop"]}, "s"),
            ({"namespaces": ["shop", "default"]}, "ds"),
            ({"namespaceSelector": {"matchLabels": {"team": "red"}}}, "s"),
            ({"namespaces": ["bank"], "namespaceSelector": {"matchLabels": {"team": "red"}}}, "sb"),
            ({"namespaceSelector": {"matchLabels": {"team": "green"}}}, ""),
            ({"namespaceSelector": {}}, "dsbu"),
            (
                {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}},
                "dsbu",
            ),
        ],
        ids=[
            "its own",
            "a named one",
            "several named",
            "chosen by labels",
            "named and chosen",
            "chosen by labels none has",
            "chosen by an empty selector are all",
            "chosen without labels are all",
        ],
    )
    def test_a_term_selects_pods_in_its_namespaces(self, more: dict[str, Any], refused: str):
        # One node for each namespace; `unknown` has pods, but there is no such Namespace object.
        nodes = [node(name) for name in "dsbu"]
        pods = [
            on(name, namespace=space)
            for name, space in zip("dsbu", ("default", "shop", "bank", "unknown"), strict=True)
        ]
        found = self.asked(
            asking(apart(term(HOST, **more))),
            cluster(*nodes, pods=pods),
            default={},
            shop={"team": "red"},
            bank={"team": "blue"},
        )

        assert found == set(refused)

    def test_terms_of_others_match_the_pod_by_the_labels_of_its_namespace(self):
        chosen = term(HOST, namespaceSelector={"matchLabels": {"team": "red"}})
        there = cluster(node("a"), node("b"), pods=[on("a", apart(chosen), namespace="bank")])

        assert self.asked(asking(labels=WEB), there, default={"team": "red"}) == {"a"}
        assert self.asked(asking(labels=WEB), there, default={"team": "blue"}) == set()
        assert self.asked(asking(labels=WEB), there) == set()

    def test_an_unknown_namespace_has_no_labels(self):
        without = {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}
        there = cluster(node("a"), pods=[on("a", apart(term(HOST, namespaceSelector=without)))])

        assert self.asked(asking(labels=WEB), there) == {"a"}

    def test_a_namespace_with_new_labels_is_matched_by_them(self):
        table = cluster(node("a"), pods=[on("a", namespace="shop")]).table()
        store = table.watch_kind("v1/namespaces")
        wanted = asking(apart(term(HOST, namespaceSelector={"matchLabels": {"team": "red"}})))
        inter_pod_affinity = plugin()

        def passes() -> bool:
            snapshot, state = table.snapshot(), CycleState()
            assert inter_pod_affinity.pre_filter(state, wanted, snapshot) is None
            return bool(inter_pod_affinity.filter(state, wanted, snapshot, snapshot.all_rows).passing[0])

        seen = []
        for labels in ({"team": "blue"}, {"team": "red"}, None):
            store["shop"] = {"metadata": {"name": "shop", **({"labels": labels} if labels else {})}}
            seen.append(passes())
        store["shop"] = {"metadata": {"name": "shop", "labels": {"team": "red"}}}
        seen.append(passes())
        del store["shop"]
        seen.append(passes())

        assert seen == [True, False, True, False, True]


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        (
            (near({"topologyKey": "zone", "labelSelector": {"matchLabels": {"-": "x"}}}),),
            "requiredAffinityTerms: ",
        ),
        (
            (
                near({"topologyKey": "zone", "labelSelector": {"matchLabels": {"-": "x"}}}),
                rather_apart(weighted(1, term(namespaceSelector={"matchLabels": {"-": "x"}}))),
            ),
            "[requiredAffinityTerms: ",
        ),
    ],
    ids=["one list", "several lists"],
)
def test_a_pod_with_invalid_terms_is_rejected_for_every_node(
    wishes: tuple[dict[str, Any], ...], message: str
):
    answer = plugin().pre_filter(CycleState(), asking(*wishes), zones().snapshot())

    assert answer is not None
    assert answer.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert answer.message.startswith(f"parsing pod: {message}")
    assert answer.message.endswith("]") == message.startswith("[")


def test_filter_is_skipped_without_any_requirements():
    indifferent = [
        on("a", apart(term(labels=DB))),
        on("nowhere", apart(term())),
        on("c", rather_apart(weighted(1, term()))),
    ]

    answer = plugin().pre_filter(CycleState(), asking(labels=WEB), zones(*indifferent).snapshot())

    assert answer is SKIP


class TestDryRuns:
    def verdicts(self, wanted: PodInfo, there: Cluster, **changes: list[tuple[int, PodInfo]]) -> list[bool]:
        """Return which rows pass after pods are added and removed, each row by itself; check that the state is restored."""
        snapshot, state, inter_pod_affinity = there.snapshot(), CycleState(), plugin()
        assert inter_pod_affinity.pre_filter(state, wanted, snapshot) is None
        before = inter_pod_affinity.filter(state, wanted, snapshot, snapshot.all_rows).passing.tolist()
        clone = state.clone()
        inter_pod_affinity.remove_pods(clone, wanted, changes.get("gone", []), snapshot)
        inter_pod_affinity.add_pods(clone, wanted, changes.get("new", []), snapshot)
        after = inter_pod_affinity.filter(clone, wanted, snapshot, snapshot.all_rows).passing.tolist()
        again = inter_pod_affinity.filter(state, wanted, snapshot, snapshot.all_rows).passing.tolist()
        assert again == before
        return after

    def test_a_row_is_free_when_its_own_pods_leave_its_domain_empty(self):
        pods = [on("a"), on("c")]

        gone = [(0, pods[0]), (2, pods[1])]

        # b shares a's zone and still sees the removed pod.
        assert self.verdicts(asking(apart(term())), zones(*pods), gone=gone) == [True, False, True, True]

    def test_a_row_is_not_free_while_its_neighbour_in_the_domain_holds_pods(self):
        pods = [on("a"), on("b")]

        gone = [(0, pods[0]), (1, pods[1])]

        assert self.verdicts(asking(apart(term())), zones(*pods), gone=gone) == [False, False, True, True]

    def test_removed_pods_take_their_anti_affinity_with_them(self):
        holder = on("a", apart(term()), labels=DB)

        after = self.verdicts(asking(labels=WEB), zones(holder), gone=[(0, holder)])

        assert after == [True, False, True, True]

    def test_added_pods_bring_anti_affinity_with_new_topology_keys(self):
        holder, newcomer = on("a", apart(term()), labels=DB), on("c", apart(term("rack")), labels=DB)

        after = self.verdicts(asking(labels=WEB), zones(holder), new=[(2, newcomer), (3, newcomer)])

        assert after == [False, False, False, True]

    def test_terms_with_one_topology_key_are_counted_together(self):
        tier = {"tier": "front"}
        holder = on("a", apart(term(), term(labels=tier)), labels=DB)
        assert self.verdicts(asking(labels={**WEB, **tier}), zones(holder), gone=[(0, holder)])[0]

        meant_twice = on("a", labels={**WEB, **tier})
        wanted = asking(apart(term(), term(labels=tier)))
        assert self.verdicts(wanted, zones(meant_twice), gone=[(0, meant_twice)])[0]

    def test_pods_that_match_no_term_change_nothing(self):
        other = on("a", apart(term(labels={"app": "loud"})), name="other", labels=DB)
        pods = [on("a"), other, on("c", apart(term("rack")), labels=DB)]
        wanted = asking(near(term()), apart(term("rack")), labels=WEB)
        before = self.verdicts(wanted, zones(*pods))

        assert before == [True, True, False, False]
        assert self.verdicts(wanted, zones(*pods), gone=[(0, other)]) == before
        assert self.verdicts(wanted, zones(*pods), new=[(1, other), (2, other)]) == before

    def test_an_added_pod_counts_on_its_row_only(self):
        wanted = asking(near(term()))

        after = self.verdicts(wanted, zones(on("c")), new=[(0, on("a")), (3, on("nowhere"))])

        assert after == [True, False, True, False]

    def test_each_row_decides_by_itself_whether_the_pod_is_the_first_of_a_series(self):
        last = on("c")
        wanted = asking(near(term()), labels=WEB)

        # Without the pod on c no pod matches, but only c sees its removal; elsewhere it still counts.
        assert self.verdicts(wanted, zones(last), gone=[(2, last)]) == [False, False, True, False]
        # If other pods match, the row satisfies no affinity, and its pod is not the first of a series either.
        both = zones(last, on("a"))
        assert self.verdicts(wanted, both, gone=[(2, last)]) == [True, True, False, False]

    def test_a_row_with_an_added_pod_is_near_it_and_the_others_are_still_first(self):
        wanted = asking(near(term()), labels=WEB)

        assert self.verdicts(wanted, zones(), new=[(0, on("a"))]) == [True, True, True, False]


# Score.


def test_pods_near_a_node_count_with_their_weights():
    wanted = asking(
        rather_near(weighted(40, term()), weighted(10, term("rack"))), rather_apart(weighted(50, term(HOST)))
    )
    # a: 40 - 50, b: 40, c: 10 + 40 - 50 of its own pod, nowhere: 0.
    there = zones(on("a"), on("c"))

    snapshot, state, inter_pod_affinity = there.snapshot(), CycleState(), plugin()
    assert inter_pod_affinity.pre_score(state, wanted, snapshot, snapshot.all_rows) is None
    raw = inter_pod_affinity.score(state, wanted, snapshot, snapshot.all_rows)

    assert raw.tolist() == [-10, 40, 0, 0]
    assert scores(inter_pod_affinity, wanted, there) == {"a": 0, "b": 100, "c": 20, "nowhere": 20}


def test_preferences_of_existing_pods_count_too():
    others = [on("a", rather_near(weighted(30, term()))), on("c", rather_apart(weighted(10, term())))]

    assert scores(plugin(), asking(labels=WEB), zones(*others)) == {"a": 100, "b": 100, "c": 0, "nowhere": 25}


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        (20, {"a": 100, "b": 100, "c": 50, "nowhere": 0}),
        (5, {"a": 50, "b": 50, "c": 100, "nowhere": 0}),
        (0, {"a": 0, "b": 0, "c": 100, "nowhere": 0}),
    ],
    ids=["much", "less", "nothing"],
)
def test_required_affinity_of_existing_pods_counts_with_the_configured_weight(
    weight: int, expected: dict[str, int]
):
    others = [on("a", near(term())), on("c", rather_near(weighted(10, term())))]

    assert scores(plugin(hardPodAffinityWeight=weight), asking(labels=WEB), zones(*others)) == expected


def test_preferences_of_existing_pods_can_be_ignored_for_pods_without_any():
    there = zones(on("a", rather_near(weighted(30, term()))))
    ignoring = plugin(ignorePreferredTermsOfExistingPods=True)
    preferring = asking(rather_near(weighted(30, term("rack"))), labels=WEB)

    assert scores(ignoring, asking(near(term()), labels=WEB), there) is None
    assert scores(ignoring, preferring, there) == {"a": 100, "b": 100, "c": 0, "nowhere": 0}


def test_score_is_skipped_without_matching_terms():
    there = [
        on("nowhere", rather_near(weighted(1, term()))),
        on("a", rather_near(weighted(1, term(labels=DB)))),
        on("b", apart(term())),
    ]

    assert scores(plugin(), asking(labels=WEB), zones(*there)) is None
    assert scores(plugin(hardPodAffinityWeight=0), asking(labels=WEB), zones(on("a", near(term())))) is None


def test_terms_that_cancel_out_score_0_and_are_not_skipped():
    there = zones(on("a", rather_near(weighted(5, term())), rather_apart(weighted(5, term()))))

    assert scores(plugin(), asking(labels=WEB), there) == {"a": 0, "b": 0, "c": 0, "nowhere": 0}


def test_scores_are_scaled_between_feasible_nodes_and_truncated_as_in_go():
    raw = np.array([0, 29, 100, 10_000], dtype=np.int64)

    normalized = plugin().normalize(CycleState(), asking(), raw, np.array([0, 1, 2]))

    assert normalized[:3].tolist() == [0, 28, 100]  # 100 * 0.29 is a little less than 29


def test_a_pod_with_invalid_terms_cannot_be_scored():
    faulty = asking(rather_near(weighted(1, term(labels={"-": "x"}))))

    answer = plugin().pre_score(CycleState(), faulty, zones().snapshot(), np.arange(4))

    assert answer is not None
    assert answer.code is Code.ERROR
    assert answer.message.startswith("failed to parse pod: preferredAffinityTerms: ")


# Arguments and events.


def test_arguments_have_the_defaults_of_kube_scheduler():
    args = InterPodAffinityArgs()

    assert (args.hard_pod_affinity_weight, args.ignore_preferred_terms_of_existing_pods) == (1, False)


@pytest.mark.parametrize("weight", [-1, 101])
def test_a_weight_out_of_range_is_an_error(weight: int):
    assert faults(InterPodAffinityArgs, hardPodAffinityWeight=weight) == [
        f"hardPodAffinityWeight: Invalid value: {weight}: not in valid range [0, 100]"
    ]


@pytest.mark.parametrize("weight", [0, 100])
def test_a_weight_in_range_is_accepted(weight: int):
    assert faults(InterPodAffinityArgs, hardPodAffinityWeight=weight) == []


def test_it_registers_for_the_events_of_upstream():
    assert {each.event.resource: each.event.action for each in plugin().events()} == {
        EventResource.POD: ActionType.ADD | ActionType.UPDATE_POD_LABEL | ActionType.DELETE,
        EventResource.NODE: ActionType.ADD | ActionType.UPDATE_NODE_LABEL,
    }


_NEAR_WEB = asking(near(term()), labels=DB)
_FAR_FROM_WEB = asking(apart(term()), labels=DB)
_FAULTY = asking(near(term(labels={"-": "x"})))
_WAITING = pod("waiting", labels=WEB)
_NOMINATED = pod("waiting", labels=WEB, status={"nominatedNodeName": "a"})
_BY_NAMESPACE = asking(near(term(namespaceSelector={"matchLabels": {"team": "red"}})))
_ANYWHERE = asking(near(term(namespaceSelector={})))


@pytest.mark.parametrize(
    ("waiting", "old", "new", "helps"),
    [
        (_NEAR_WEB, None, on("a"), True),
        (_NEAR_WEB, None, on("a", labels=DB), False),
        (_NEAR_WEB, None, on("a", namespace="shop"), False),
        (_NEAR_WEB, None, _WAITING, False),
        (_NEAR_WEB, None, _NOMINATED, True),
        (_NEAR_WEB, on("a"), None, False),
        (_NEAR_WEB, on("a", labels=DB), on("a"), True),
        (_NEAR_WEB, on("a"), on("a", labels={**WEB, "tier": "front"}), False),
        (_NEAR_WEB, pod("waiting", labels=DB), _NOMINATED, False),
        (asking(near(term(), term(labels=DB))), None, on("a"), False),
        (asking(near(term(), term(labels=DB))), None, on("a", labels={**WEB, **DB}), False),
        (asking(near(term(), term(labels={"tier": "x"}))), None, on("a", labels={**WEB, "tier": "x"}), True),
        (_BY_NAMESPACE, None, on("a"), False),
        (_ANYWHERE, None, on("a", namespace="shop"), True),
        (_FAR_FROM_WEB, None, on("a"), False),
        (_FAR_FROM_WEB, on("a"), None, True),
        (_FAR_FROM_WEB, on("a", labels=DB), None, False),
        (_FAR_FROM_WEB, _WAITING, None, False),
        (_FAR_FROM_WEB, on("a"), on("a", labels=DB), True),
        (_FAR_FROM_WEB, on("a", labels=DB), on("a"), False),
        (asking(apart(term(), term(labels={"tier": "x"}))), on("a"), None, False),
        (asking(labels=DB), on("a", apart(term(labels=DB))), None, True),
        (asking(labels=WEB), on("a", apart(term(labels=DB))), None, False),
        (asking(labels=DB), on("a", apart(term(labels=DB), term())), None, False),
        (asking(labels=DB), on("a", apart(term(labels={"-": "x"}))), None, True),
        (asking(labels=DB), asking(labels=DB), asking(labels=WEB), True),
        (_FAULTY, None, on("a", labels=DB), True),
        (_FAULTY, None, _WAITING, False),
    ],
    ids=[
        "a pod it must be near is added",
        "another pod is added",
        "a pod of another namespace is added",
        "a pod without a node is added",
        "a nominated pod is added",
        "a pod it must be near is deleted",
        "a pod starts to match",
        "a pod matches as before",
        "a pod without a node starts to match",
        "a pod that one term matches is added",
        "a pod that contradicting terms match is added",
        "a pod that all terms match is added",
        "a pod in a namespace selected by labels is added",
        "a pod is added with every namespace selected",
        "a pod it must not be near is added",
        "a pod it must not be near is deleted",
        "another pod is deleted",
        "a pod without a node is deleted",
        "a pod it must not be near ceases to match",
        "a pod starts to match its anti affinity",
        "a pod that only one of the terms matches is deleted",
        "a pod that rejected it is deleted",
        "a pod that rejected others is deleted",
        "a pod with one matching term of several is deleted",
        "a pod with invalid terms is deleted",
        "its own labels change",
        "its terms cannot be read",
        "its terms cannot be read and the other is nowhere",
    ],
)
def test_a_change_of_a_pod_requeues_the_pods_that_it_may_help(
    waiting: PodInfo, old: PodInfo | None, new: PodInfo | None, helps: bool
):
    assert requeues(plugin(), EventResource.POD, waiting, old, new) is helps


@pytest.mark.parametrize(
    ("waiting", "old", "new", "before", "since"),
    [
        pytest.param(_NEAR_WEB, None, on("a"), True, True, id="a pod it must be near is added"),
        pytest.param(_NEAR_WEB, None, _NOMINATED, False, True, id="a nominated pod is added"),
        pytest.param(_FAR_FROM_WEB, on("a"), None, True, True, id="a pod it must not be near is deleted"),
        pytest.param(
            asking(labels=DB), on("a", apart(term(labels=DB))), None, False, True, id="one that rejected it"
        ),
        pytest.param(
            asking(labels=DB), asking(labels=DB), asking(labels=WEB), False, True, id="its own labels change"
        ),
        pytest.param(_FAULTY, on("a"), None, True, True, id="its terms cannot be read"),
    ],
)
def test_fewer_pods_requeue_it_before_kubernetes_1_36(
    waiting: PodInfo, old: PodInfo | None, new: PodInfo | None, before: bool, since: bool
):
    """The expected values follow from plugins/interpodaffinity/plugin.go of kube-scheduler v1.34, v1.35 and v1.36."""
    helps = {
        version: requeues(plugin(features=FakeFeatures(version)), EventResource.POD, waiting, old, new)
        for version in ("1.34", "1.35", "1.36")
    }

    assert helps == {"1.34": before, "1.35": before, "1.36": since}


_TWO_TERMS = asking(apart(term(), term(labels={"tier": "x"})))


@pytest.mark.parametrize(
    ("waiting", "old", "new", "helps"),
    [
        pytest.param(_TWO_TERMS, on("a"), None, True, id="a pod that one of its terms matches is deleted"),
        pytest.param(_TWO_TERMS, on("a", labels=DB), None, False, id="a pod that no term matches is deleted"),
        pytest.param(_TWO_TERMS, on("a"), on("a", labels=DB), True, id="one term ceases to match"),
        pytest.param(_TWO_TERMS, on("a", labels=DB), on("a"), False, id="one term begins to match"),
        pytest.param(
            asking(labels=DB),
            on("a", apart(term(labels=DB), term())),
            None,
            True,
            id="a pod is deleted of which one of several terms rejected it",
        ),
        pytest.param(_TWO_TERMS, _WAITING, None, False, id="a pod without a node is deleted"),
    ],
)
def test_one_term_of_anti_affinity_is_enough_since_kubernetes_1_37(
    waiting: PodInfo, old: PodInfo | None, new: PodInfo | None, helps: bool
):
    asked = plugin(features=FakeFeatures("1.37"))

    assert requeues(asked, EventResource.POD, waiting, old, new) is helps
    assert not requeues(plugin(), EventResource.POD, waiting, old, new)


_ZONED = node("a", labels={"zone": "1"})
_ELSEWHERE = node("a", labels={"zone": "2"})
_BARE = node("a")


@pytest.mark.parametrize(
    ("waiting", "old", "new", "helps"),
    [
        (_NEAR_WEB, None, _ZONED, True),
        (_NEAR_WEB, None, _BARE, False),
        (_NEAR_WEB, _BARE, _ZONED, True),
        (_NEAR_WEB, _ZONED, _ELSEWHERE, True),
        (_NEAR_WEB, _ZONED, _BARE, False),
        (_NEAR_WEB, _ZONED, _ZONED, False),
        (_FAR_FROM_WEB, None, _BARE, True),
        (_FAR_FROM_WEB, _BARE, _ZONED, False),
        (_FAR_FROM_WEB, _ZONED, _ELSEWHERE, True),
        (_FAR_FROM_WEB, _ZONED, _BARE, True),
        (asking(labels=WEB), None, _ZONED, False),
        (_FAULTY, _ZONED, _ZONED, True),
    ],
    ids=[
        "affinity: a node with the label is added",
        "affinity: a node without the label is added",
        "affinity: a node gets the label",
        "affinity: a node changes its domain",
        "affinity: a node loses the label",
        "affinity: a node stays where it is",
        "anti-affinity: any node is added",
        "anti-affinity: a node gets the label",
        "anti-affinity: a node changes its domain",
        "anti-affinity: a node loses the label",
        "no terms: a node is added",
        "terms that cannot be read: anything",
    ],
)
def test_a_change_of_a_node_requeues_the_pods_that_it_may_help(
    waiting: PodInfo, old: Any, new: Any, helps: bool
):
    assert requeues(plugin(), EventResource.NODE, waiting, old, new) is helps


def test_domains_with_a_positive_number_are_found_by_domain_also_where_a_row_differs():
    label = zones().table().snapshot().label("zone")
    domains = Domains.added_up(label, np.array([0, 2]), np.array([1, 0]))
    assert domains is not None
    for changes in ({}, {0: -1}, {1: 1, 2: 5}, {2: -7, 3: 9}):
        domains.change(changes)
        assert domains.are_positive().tolist() == (domains.here() > 0).tolist()


@pytest.mark.parametrize("span", [1, 7, 29, 100, 400])
def test_scores_are_scaled_the_same_for_few_and_for_many_values(span: int):
    scores = np.random.default_rng(span).integers(-3, span, 1000)
    feasible = np.flatnonzero(np.arange(1000) % 3)
    lowest, highest = scores[feasible].min(), scores[feasible].max()

    scaled = plugin().normalize(CycleState(), asking(), scores, feasible)[feasible]

    assert scaled.tolist() == [
        int(100.0 * ((each - lowest) / (highest - lowest))) for each in scores[feasible]
    ]


def ranked(inter_pod_affinity: InterPodAffinity, snapshot: Snapshot, feasible: Rows) -> tuple[Int64s, Int64s]:
    """Return the scores of a web server before and after they are normalized."""
    state, wanted = CycleState(), asking(labels=WEB)
    assert inter_pod_affinity.pre_score(state, wanted, snapshot, feasible) is None
    raw = inter_pod_affinity.score(state, wanted, snapshot, feasible)
    return raw, inter_pod_affinity.normalize(state, wanted, raw, feasible)


def test_pods_with_the_same_pods_near_each_node_share_their_scores():
    table = zones(on("a", near(term())), on("c", near(term()), near(term("rack")))).table()
    inter_pod_affinity, every = plugin(), table.snapshot().all_rows
    raw, normalized = ranked(inter_pod_affinity, table.snapshot(), every)

    again, normalized_again = ranked(inter_pod_affinity, table.snapshot(), every[:3])
    assert again is raw
    assert normalized_again is not normalized  # the lowest score is that of the node without a zone
    assert ranked(inter_pod_affinity, table.snapshot(), every)[1] is normalized

    table.add_pod(1, on("b", near(term()), name="another"))
    assert ranked(inter_pod_affinity, table.snapshot(), every)[0] is not raw


def test_scores_by_two_labels_with_the_same_values_are_not_shared():
    labels = [{"zone": "1", "rack": "1"}, {"zone": "1", "rack": "2"}, {"zone": "2", "rack": "2"}]
    table = cluster(*[node(name, labels=its) for name, its in zip("abc", labels, strict=True)]).table()
    inter_pod_affinity, found = plugin(), []
    for key in ("zone", "rack"):
        near_it = on("a", near(term(key)))
        table.add_pod(0, near_it)
        snapshot = table.snapshot()
        found.append(ranked(inter_pod_affinity, snapshot, snapshot.all_rows)[0].tolist())
        table.remove_pod(0, near_it.uid)

    assert found == [[1, 1, 0], [1, 0, 0]]


def test_shared_scores_are_those_of_a_plugin_that_scores_each_pod_anew():
    random, table, shares = Random(1), zones().table(), plugin()
    placed: list[tuple[int, PodInfo]] = []
    n_shared, last = 0, None
    for number in range(600):
        row, what = random.randrange(3), random.random()
        if what < 0.1:
            table.update_node(
                node("abc"[row], labels={key: random.choice("12") for key in ("zone", "rack")[number % 2 :]})
            )
        elif what < 0.3 or not placed:
            placed.append(
                (row, on("abc"[row], near(term(random.choice(["zone", "rack"]))), name=str(number)))
            )
            table.add_pod(*placed[-1])
        elif what < 0.5:
            row, gone = placed.pop(random.randrange(len(placed)))
            table.remove_pod(row, gone.uid)
        snapshot = table.snapshot()
        feasible = np.array(sorted(random.sample(range(4), random.randint(1, 4))))
        if plugin().pre_score(CycleState(), asking(labels=WEB), snapshot, feasible) is SKIP:
            continue

        found, expected = ranked(shares, snapshot, feasible), ranked(plugin(), snapshot, feasible)

        assert found[0].tolist() == expected[0].tolist()
        assert found[1][feasible].tolist() == expected[1][feasible].tolist()
        n_shared, last = n_shared + (found[0] is last), found[0]
    assert n_shared > 100


@pytest.mark.parametrize("rows", [np.array([0, 100, 200, 299]), np.arange(300)], ids=["few", "many"])
def test_pods_of_few_and_of_many_domains_are_added_up(rows: Rows):
    label = Interned(np.arange(300, dtype=np.int32) % 100, [*map(str, range(99)), None])

    domains = Domains.added_up(label, rows, rows)

    assert domains is not None
    expected = [
        0 if code == 99 else sum(row for row in rows.tolist() if row % 100 == code) for code in range(100)
    ]
    assert domains.here().tolist() == [expected[code] for code in label.codes.tolist()]
