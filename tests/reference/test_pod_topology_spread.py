"""PodTopologySpread against the loop over nodes, while all sorts of things happen to the cluster."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.pod_topology_spread import constraints
from plugins.pod_topology_spread.plugin import PodTopologySpread, PodTopologySpreadArgs
from scheduler.framework import CycleState
from scheduler.objects.meta import OwnerReference
from scheduler.testing.fakes import FakeFeatures, FakeTimeSlice
from tests.reference.cluster_events import HOST, ZONE, EventfulCluster, random_labels
from tests.reference.one_node import verdicts
from tests.reference.topology_spread import SYSTEM, ParseError, SlowSpread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.objects.pod import PodInfo

SELECTORS: tuple[Any, ...] = (
    None,
    {},
    {"matchLabels": {"app": "web"}},
    {"matchLabels": {"app": "web"}},
    {"matchLabels": {"app": "db", "tier": "back"}},
    {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]},
    {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]},
    {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
)
FAULTY = {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["web"]}]}
LIST = (
    {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 3},
    {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"},
    {"maxSkew": 2, "topologyKey": "disk", "whenUnsatisfiable": "ScheduleAnyway"},
    {"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "ScheduleAnyway", "nodeTaintsPolicy": "Honor"},
)


def constraint(random: Random) -> dict[str, Any]:
    written = {
        "maxSkew": random.choice([1, 1, 1, 2, 3, 0]),
        "topologyKey": random.choice([ZONE, ZONE, HOST, "rack", "disk", "nowhere"]),
        "whenUnsatisfiable": random.choice(["DoNotSchedule", "ScheduleAnyway"]),
        "labelSelector": random.choice(SELECTORS) if random.random() < 0.97 else FAULTY,
        "minDomains": random.choice([None, None, 1, 3, 5, 0]),
        "nodeAffinityPolicy": random.choice([None, "Honor", "Ignore"]),
        "nodeTaintsPolicy": random.choice([None, "Honor", "Ignore"]),
        "matchLabelKeys": random.choice([None, None, ["tier"], ["app", "absent"]]),
    }
    return {name: value for name, value in written.items() if value is not None}


def spec(random: Random) -> dict[str, Any]:
    """Return what a pod may say of spreading, and of the nodes that count."""
    written: dict[str, Any] = {}
    if random.random() < 0.7:
        written["topologySpreadConstraints"] = [
            constraint(random) for _ in range(random.choice([1, 2, 2, 3]))
        ]
    if random.random() < 0.2:
        written["nodeSelector"] = {"disk": "ssd"}
    if random.random() < 0.2:
        term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["1", "2"]}]}
        required = {"nodeSelectorTerms": [term]}
        written["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    if random.random() < 0.3:
        written["tolerations"] = [{"key": "spot", "operator": "Exists"}]
    return written


def owned(pod: PodInfo, random: Random) -> PodInfo:
    """Return the pod as some controller's, which may exist or not."""
    kinds = [("apps/v1", "ReplicaSet"), ("apps/v1", "ReplicaSet"), ("apps/v1", "DaemonSet")]
    api_version, kind = random.choice(kinds)
    owner = OwnerReference(api_version, kind, random.choice("xyz"), controller=random.random() < 0.9)
    metadata = msgspec.structs.replace(pod.pod.metadata, owner_references=(owner,))
    return type(pod)(msgspec.structs.replace(pod.pod, metadata=metadata), pod.raw)


class Judge:
    """Asks both, and demands the same answer.

    Args:
        random: decides what is asked.
        cluster: what it is asked about.
        defaults: the constraints of pods without their own; None are the system's.
    """

    def __init__(
        self, random: Random, cluster: EventfulCluster, defaults: Sequence[dict[str, Any]] | None = None
    ) -> None:
        self._random = random
        self._cluster = cluster
        system = defaults is None
        args = {} if system else {"defaultingType": "List", "defaultConstraints": defaults}
        self.fast = PodTopologySpread(
            args=msgspec.convert(args, PodTopologySpreadArgs),
            time_slice=FakeTimeSlice(),
            features=FakeFeatures(),
        )
        self.slow = SlowSpread(cluster, SYSTEM if defaults is None else defaults, system)
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
            assert answer.message.startswith(
                "get constraints from pod: obtaining pod's hard topology spread constraints: "
            )
            self.seen.add("faulty")
            return
        if expected is None:
            assert answer is not None
            assert answer.code.value == "Skip"
            return
        assert answer is None
        nodes = snapshot.nodes
        found = verdicts(self.fast.filter(state, pod, snapshot, snapshot.all_rows))
        assert found == [self.slow.filter(expected, pod, node) for node in nodes]
        self.seen.update(code for code, _ in found)

        # On each row some pods go, and some of them or new ones come: all rows at once, each by itself.
        gone = [
            (row, each)
            for row in range(snapshot.n_nodes)
            for each in snapshot.pods_on(row)
            if self._random.random() < 0.6
        ]
        back = [pair for pair in gone if self._random.random() < 0.4]
        new = [
            (row, self._cluster.pending_pod(labels=random_labels(self._random)))
            for row in range(snapshot.n_nodes)
            if self._random.random() < 0.4
        ]
        clone, each_row = state.clone(), [expected.clone() for _ in nodes]
        for pairs, sign in ((gone, -1), (back, 1), (new, 1)):
            change = self.fast.remove_pods if sign < 0 else self.fast.add_pods
            change(clone, pod, pairs, snapshot)
            for row, changed in pairs:
                self.slow.update_with_pod(each_row[row], changed, pod, nodes[row], sign)
            after = verdicts(self.fast.filter(clone, pod, snapshot, snapshot.all_rows))
            assert after == [
                self.slow.filter(its_state, pod, node)
                for its_state, node in zip(each_row, nodes, strict=True)
            ]
            self.seen.update("changed" for _ in range(after != found))
        assert verdicts(self.fast.filter(state, pod, snapshot, snapshot.all_rows)) == found

    def _compare_score(self, pod: PodInfo) -> None:
        snapshot, state = self._cluster.snapshot, CycleState()
        feasible = np.array(
            [row for row in range(snapshot.n_nodes) if self._random.random() < 0.8], dtype=np.intp
        )
        nodes = [snapshot.nodes[row] for row in feasible]
        answer = self.fast.pre_score(state, pod, snapshot, feasible)
        try:
            expected = self.slow.pre_score(pod, nodes)
        except ParseError:
            assert answer is not None
            assert answer.message.startswith(
                "calculating preScoreState: obtaining pod's soft topology spread constraints: "
            )
            return
        if expected is None:
            assert answer is not None
            assert answer.code.value == "Skip"
            return
        assert answer is None
        raw = {node.name: self.slow.score(expected, pod, node) for node in nodes}
        scores = self.fast.score(state, pod, snapshot, feasible)
        assert {node.name: scores[row] for row, node in zip(feasible, nodes, strict=True)} == raw
        normalized = self.fast.normalize(state, pod, scores, feasible)
        assert {node.name: normalized[row] for row, node in zip(feasible, nodes, strict=True)} == (
            self.slow.normalize(expected, raw)
        )
        self.seen.add("scored")
        self.seen.update("ignored" for _ in expected.ignored)


@given(st.integers(0, 2**32), st.integers(0, 120), st.sampled_from([None, LIST, ()]))
@settings(deadline=None)
def test_a_fresh_snapshot_agrees_with_the_reference_loop(seed: int, events: int, defaults: Any):
    random = Random(seed)
    cluster = EventfulCluster(random, spec)
    for _ in range(events):
        cluster.happens()

    judge = Judge(random, cluster, defaults)

    for _ in range(4):
        judge.compare(owned(cluster.pending_pod(), random))


@pytest.mark.parametrize("defaults", [None, LIST], ids=["system defaults", "a list of defaults"])
def test_pods_that_are_counted_for_all_constraints_at_once_agree_with_the_loop(
    defaults: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(constraints, "MOST_REQUIREMENTS", -1)

    test_counts_that_are_updated_by_events_agree_with_the_reference_loop(7, defaults)


@pytest.mark.parametrize("defaults", [None, LIST], ids=["system defaults", "a list of defaults"])
@pytest.mark.parametrize("seed", range(3))
def test_counts_that_are_updated_by_events_agree_with_the_reference_loop(seed: int, defaults: Any):
    random = Random(seed)
    cluster = EventfulCluster(random, spec)
    judge = Judge(random, cluster, defaults)
    # The same pods again and again, so that what is kept for them is what changed in the meantime.
    regulars = [owned(cluster.pending_pod(), random) for _ in range(12)]
    story = []

    for _ in range(300):
        story.append(cluster.happens())
        for pod in random.sample(regulars, 2):
            try:
                judge.compare(pod)
            except AssertionError as error:
                error.add_note("\n".join([*story[-10:], f"{pod}: {pod.pod.spec}"]))
                raise

    assert judge.seen >= {"Success", "Unschedulable", "UnschedulableAndUnresolvable", "changed", "scored"}
