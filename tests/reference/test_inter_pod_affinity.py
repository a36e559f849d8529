"""InterPodAffinity against the loop over nodes and pods, while all sorts of things happen to the cluster."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.inter_pod_affinity import plugin as affinity_plugin
from plugins.inter_pod_affinity.plugin import InterPodAffinity
from tests.reference.cluster_events import HOST, ZONE, EventfulCluster, nothing_special
from tests.reference.inter_pod_affinity import PREFERRED, REQUIRED, SlowInterPodAffinity
from tests.reference.judge import Judge
from tests.unit.plugins.plugin_calls import made

if TYPE_CHECKING:
    import pytest


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
ERRORS = ("UnschedulableAndUnresolvable: parsing pod: ", "Error: failed to parse pod: ")
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


def judge_of(
    random: Random, cluster: EventfulCluster, *, hard_weight: int, ignores_others: bool = False
) -> Judge:
    fast: InterPodAffinity = made(
        InterPodAffinity, hardPodAffinityWeight=hard_weight, ignorePreferredTermsOfExistingPods=ignores_others
    )
    slow = SlowInterPodAffinity(cluster, hard_weight=hard_weight, ignores_others=ignores_others)
    return Judge(random, cluster, fast, slow, ERRORS)


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

    judge = judge_of(random, cluster, hard_weight=hard_weight, ignores_others=ignores_others)

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
        "pre_score skipped",
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
    judge = judge_of(random, cluster, hard_weight=seed % 3)
    # The same pods again and again, so that what is kept for them is what changed in the meantime.
    regulars = [cluster.pending_pod(**affinity(random, 0.35)) for _ in range(16)]

    judge.follow(regulars, events=250, asked=4)
    return judge.seen
