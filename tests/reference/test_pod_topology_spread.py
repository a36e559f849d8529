"""PodTopologySpread against the loop over nodes, while all sorts of things happen to the cluster."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.pod_topology_spread import constraints
from plugins.pod_topology_spread.plugin import PodTopologySpread
from scheduler.objects.meta import OwnerReference
from tests.reference.cluster_events import HOST, ZONE, EventfulCluster
from tests.reference.judge import Judge
from tests.reference.topology_spread import SYSTEM, SlowSpread
from tests.unit.plugins.plugin_calls import made

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
ERRORS = (
    "Error: get constraints from pod: obtaining pod's hard topology spread constraints: ",
    "Error: calculating preScoreState: obtaining pod's soft topology spread constraints: ",
)
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


def judge_of(random: Random, cluster: EventfulCluster, defaults: Sequence[dict[str, Any]] | None) -> Judge:
    """Return the judge with constraints for pods without their own; None are the system's."""
    system = defaults is None
    args = {} if system else {"defaultingType": "List", "defaultConstraints": defaults}
    fast: PodTopologySpread = made(PodTopologySpread, **args)
    slow = SlowSpread(cluster, SYSTEM if defaults is None else defaults, system)
    return Judge(random, cluster, fast, slow, ERRORS)


@given(st.integers(0, 2**32), st.integers(0, 120), st.sampled_from([None, LIST, ()]))
@settings(deadline=None)
def test_a_fresh_snapshot_agrees_with_the_reference_loop(seed: int, events: int, defaults: Any):
    random = Random(seed)
    cluster = EventfulCluster(random, spec)
    for _ in range(events):
        cluster.happens()

    judge = judge_of(random, cluster, defaults)

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
    judge = judge_of(random, cluster, defaults)
    # The same pods again and again, so that what is kept for them is what changed in the meantime.
    regulars = [owned(cluster.pending_pod(), random) for _ in range(12)]

    judge.follow(regulars, events=300, asked=2)

    assert judge.seen >= {
        "Success",
        "Unschedulable",
        "UnschedulableAndUnresolvable",
        "changed",
        "scored apart",
    }
