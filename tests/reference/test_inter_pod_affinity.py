"""InterPodAffinity against the loop over nodes and pods, while all sorts of things happen to the cluster."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.inter_pod_affinity import plugin as affinity_plugin
from plugins.inter_pod_affinity.plugin import InterPodAffinity
from scheduler.framework import SKIP, CycleState
from tests.reference.cluster_events import HOST, ZONE, EventfulCluster, nothing_special
from tests.reference.inter_pod_affinity import PREFERRED, REQUIRED, SlowInterPodAffinity
from tests.reference.one_node import verdicts
from tests.reference.topology_spread import ParseError
from tests.unit.plugins.plugin_calls import made

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

    from scheduler.objects.pod import PodInfo

SELECTORS: tuple[Any, ...] = (
    None,
    {},
    {"matchLabels": {"app": "web"}},
    {"matchLabels": {"app": "db"}},
    {"matchLabels": {"app": "web", "tier": "front"}},
    {"matchLabels": {"app": "nobody"}},
    {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]},
    {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]},
    {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
)
FAULTY = {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["web"]}]}
NAMESPACE_SELECTORS: tuple[Any, ...] = (
    {},
    {"matchLabels": {"team": "red"}},
    {"matchExpressions": [{"key": "team", "operator": "In", "values": ["red", "blue"]}]},
    {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]},
    {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
)
KEYS = (ZONE, ZONE, ZONE, HOST, "rack", "disk", "nowhere")


def term(random: Random) -> dict[str, Any]:
    written: dict[str, Any] = {"topologyKey": random.choice(KEYS)}
    selector = random.choice(SELECTORS) if random.random() < 0.99 else FAULTY
    if selector is not None:
        written["labelSelector"] = selector
    if random.random() < 0.3:
        written["namespaces"] = random.sample(["shop", "bank", "lab", "gone"], random.choice([1, 2]))
    if random.random() < 0.3:
        written["namespaceSelector"] = random.choice(NAMESPACE_SELECTORS)
    return written


def terms(random: Random, chance: float) -> list[dict[str, Any]]:
    return [term(random) for _ in range(random.choice([1, 1, 2]))] if random.random() < chance else []


def weighted(random: Random) -> list[dict[str, Any]]:
    return [
        {"weight": random.choice([1, 1, 50, 100]), "podAffinityTerm": each} for each in terms(random, 0.3)
    ]


def affinity(random: Random, chance: float = 0.25) -> dict[str, Any]:
    """Return fields of a pod's spec: any of the four lists, or nothing."""
    if random.random() < 0.4:
        return {}
    return {
        "affinity": {
            "podAffinity": {REQUIRED: terms(random, chance), PREFERRED: weighted(random)},
            "podAntiAffinity": {REQUIRED: terms(random, chance), PREFERRED: weighted(random)},
        }
    }


class Judge:
    """Asks both, and demands the same answer.

    Args:
        random: decides what is asked.
        cluster: what it is asked about.
        hard_weight: hardPodAffinityWeight.
        ignores_others: ignorePreferredTermsOfExistingPods.
    """

    def __init__(
        self,
        random: Random,
        cluster: EventfulCluster,
        *,
        hard_weight: int = 1,
        ignores_others: bool = False,
    ) -> None:
        self._random = random
        self._cluster = cluster
        self.fast: InterPodAffinity = made(
            InterPodAffinity,
            hardPodAffinityWeight=hard_weight,
            ignorePreferredTermsOfExistingPods=ignores_others,
        )
        self.slow = SlowInterPodAffinity(cluster, hard_weight=hard_weight, ignores_others=ignores_others)
        self.seen: set[str] = set()

    def compare(self, pod: PodInfo) -> None:
        self._compare_filter(pod)
        self._compare_score(pod)

    def _compare_filter(self, pod: PodInfo) -> None:
        snapshot, state = self._cluster.snapshot, CycleState()
        answer = self.fast.pre_filter(state, pod, snapshot)
        try:
            expected = self.slow.pre_filter(pod)
        except ParseError:
            assert answer is not None
            assert answer.code.value == "UnschedulableAndUnresolvable"
            assert answer.message.startswith("parsing pod: ")
            self.seen.add("faulty")
            return
        if expected is None:
            assert answer is SKIP
            self.seen.add("filter skipped")
            return
        assert answer is None
        nodes = snapshot.nodes
        found = verdicts(self.fast.filter(state, pod, snapshot, snapshot.all_rows))
        assert found == [self.slow.filter(expected, node) for node in nodes]
        self.seen.update(reason for _, reasons in found for reason in reasons)

        # On each row some pods go, and some of them or new ones come: all rows at once, each by itself.
        gone = [
            (row, each)
            for row in range(snapshot.n_nodes)
            for each in snapshot.pods_on(row)
            if self._random.random() < 0.7
        ]
        back = [pair for pair in gone if self._random.random() < 0.3]
        new = [
            (row, self._cluster.pending_pod())
            for row in range(snapshot.n_nodes)
            if self._random.random() < 0.3
        ]
        clone, each_row = state.clone(), [expected.clone() for _ in nodes]
        changes: tuple[tuple[Callable[..., None], Sequence[tuple[int, PodInfo]], int], ...] = (
            (self.fast.remove_pods, gone, -1),
            (self.fast.add_pods, back, 1),
            (self.fast.add_pods, new, 1),
        )
        for change, pairs, sign in changes:
            change(clone, pod, pairs, snapshot)
            for row, changed in pairs:
                each_row[row].update_with_pod(changed, nodes[row], sign)
            after = verdicts(self.fast.filter(clone, pod, snapshot, snapshot.all_rows))
            assert after == [
                self.slow.filter(its_state, node) for its_state, node in zip(each_row, nodes, strict=True)
            ]
            self.seen.update("changed" for _ in range(after != found))
        assert verdicts(self.fast.filter(state, pod, snapshot, snapshot.all_rows)) == found

    def _compare_score(self, pod: PodInfo) -> None:
        snapshot, state = self._cluster.snapshot, CycleState()
        feasible = np.array(
            [row for row in range(snapshot.n_nodes) if self._random.random() < 0.8], dtype=np.intp
        )
        answer = self.fast.pre_score(state, pod, snapshot, feasible)
        try:
            expected = self.slow.pre_score(pod)
        except ParseError:
            assert answer is not None
            assert answer.code.value == "Error"
            assert answer.message.startswith("failed to parse pod: ")
            return
        if expected is None:
            assert answer is SKIP
            self.seen.add("score skipped")
            return
        assert answer is None
        nodes = [snapshot.nodes[row] for row in feasible]
        raw = {node.name: self.slow.score(expected, node) for node in nodes}
        scores = self.fast.score(state, pod, snapshot, feasible)
        assert {node.name: scores[row] for row, node in zip(feasible, nodes, strict=True)} == raw
        normalized = self.fast.normalize(state, pod, scores, feasible)
        assert {node.name: normalized[row] for row, node in zip(feasible, nodes, strict=True)} == (
            self.slow.normalize(raw)
        )
        self.seen.update("scored apart" for _ in range(len(set(raw.values())) > 1))


@given(
    st.integers(0, 2**32),
    st.integers(0, 120),
    st.sampled_from([affinity, nothing_special]),
    st.sampled_from([0, 1, 100]),
    st.booleans(),
)
@settings(deadline=None)
def test_a_fresh_snapshot_agrees_with_the_reference_loop(
    seed: int, events: int, spec: Any, hard_weight: int, ignores_others: bool
):
    random = Random(seed)
    cluster = EventfulCluster(random, spec)
    for _ in range(events):
        cluster.happens()

    judge = Judge(random, cluster, hard_weight=hard_weight, ignores_others=ignores_others)

    for _ in range(3):
        judge.compare(cluster.pending_pod(**affinity(random)))


def test_counts_that_are_updated_by_events_agree_with_the_reference_loop():
    # In some clusters most pods have no terms, so that more is left for others' terms to decide.
    assert set().union(*(seen_in(seed, 0.1 if seed % 2 else 0.3) for seed in range(4))) >= {
        "node(s) didn't match pod affinity rules",
        "node(s) didn't match pod anti-affinity rules",
        "node(s) didn't satisfy existing pods anti-affinity rules",
        "changed",
        "scored apart",
        "score skipped",
    }


def test_terms_that_are_counted_together_agree_with_the_reference_loop(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(affinity_plugin, "MOST_ONE_BY_ONE", -1)

    assert set().union(*(seen_in(seed, 0.1 if seed % 2 else 0.3) for seed in range(4))) >= {
        "node(s) didn't match pod affinity rules",
        "node(s) didn't match pod anti-affinity rules",
        "changed",
        "scored apart",
    }


def seen_in(seed: int, chance: float) -> set[str]:
    """Let much happen to a cluster and compare after each event; return what was met."""
    random = Random(seed)
    cluster = EventfulCluster(random, lambda random: affinity(random, chance))
    judge = Judge(random, cluster, hard_weight=seed % 3)
    # The same pods again and again, so that what is kept for them is what changed in the meantime.
    regulars = [cluster.pending_pod(**affinity(random, 0.35)) for _ in range(16)]
    story = []

    for _ in range(250):
        story.append(cluster.happens())
        for pod in random.sample(regulars, 4):
            try:
                judge.compare(pod)
            except AssertionError as error:
                error.add_note("\n".join([f"seed {seed}", *story[-10:], f"{pod}: {pod.pod.spec}"]))
                raise
    return judge.seen
