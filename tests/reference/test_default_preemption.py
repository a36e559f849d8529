"""Preemption against the loop of upstream: node by node and victim by victim, each trial on a new cluster.

Source:
    kube-scheduler v1.36, framework/preemption/preemption.go, and plugins/defaultpreemption/default_preemption.go.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plugins.inter_pod_affinity.plugin import InterPodAffinity
from plugins.node_ports import NodePorts
from plugins.node_resources.fit import NodeResourcesFit
from plugins.pod_topology_spread.plugin import PodTopologySpread
from plugins.preemption.default_preemption import DefaultPreemption
from plugins.taint_toleration import TaintToleration
from scheduler.engine.cycle.preemption import ExtenderReview, NoPreemptions
from scheduler.engine.cycle.shared import Profiles
from scheduler.engine.runtime.dry_run import DryRun
from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.engine.state.nominator import Nominator
from scheduler.engine.state.pod_groups import PodGroups
from scheduler.framework import Code, Diagnosis, Outcomes
from scheduler.framework.preemption import REPORT, PreemptionReport
from scheduler.framework.sliced_work import WithoutSlices
from scheduler.snapshot import ClusterTable
from scheduler.testing.fakes import FakeFeatures, FakeMetrics, FakeQueuedPods, ManualClock
from tests.support.builders import node, pod
from tests.support.clusters import Cluster
from tests.support.scripted_plugins import Filter, NodeFilter, framework_of
from tests.unit.plugins.plugin_calls import made

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scheduler.engine.runtime.filtering import Filtering
    from scheduler.framework import Plugin
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

BUDGETS = "policy/v1/poddisruptionbudgets"
APPS = ("a", "b", "c")
N_NODES = 6

Found = dict[str, tuple[list[str], int]]
"""Node -> the victims, most important first; how many of them break a budget."""


@dataclass
class World:
    """One random situation."""

    cluster: Cluster
    preemptor: PodInfo
    budgets: list[dict[str, Any]]
    nominated: dict[int, list[PodInfo]] = field(default_factory=dict)

    def snapshot(self, pods: dict[str, list[PodInfo]] | None = None) -> Snapshot:
        table = Cluster(self.cluster.nodes, self.cluster.pods if pods is None else pods).table()
        kinds = {kind for plugin in plugins() for kind in plugin.needs.kinds}
        for kind in kinds - {BUDGETS}:
            table.watch_kind(kind)
        table.watch_kind(BUDGETS).update(
            (f"default/{each['metadata']['name']}", each) for each in self.budgets
        )
        return table.snapshot()


def plugins() -> list[Plugin]:
    return [
        TaintToleration(features=FakeFeatures()),
        NodePorts(),
        made(NodeResourcesFit),
        made(PodTopologySpread),
        made(InterPodAffinity),
    ]


def filtering_of(*more: Plugin) -> Filtering:
    return framework_of(*plugins(), *more).filtering


def constraints(random: Random) -> dict[str, Any]:
    """Return what a pod says of other pods: a spread, anti-affinity, affinity or nothing."""
    selector = {"matchLabels": {"app": random.choice(APPS)}}
    key, kind = random.choice(["zone", "host"]), random.random()
    if kind < 0.2:
        rule = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
        return {"topologySpreadConstraints": [{**rule, "labelSelector": selector}]}
    if kind < 0.5:
        side = "podAntiAffinity" if kind < 0.4 else "podAffinity"
        terms = [{"topologyKey": key, "labelSelector": selector}]
        return {"affinity": {side: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    return {}


def random_pod(
    random: Random, name: str, priority: int, cpu: int, *, free: list[int] | None = None, **fields: Any
) -> PodInfo:
    """Return a pod; a host port it has is taken out of `free`, since no kubelet runs two pods with the same."""
    container: dict[str, Any] = {"name": "c", "resources": {"requests": {"cpu": f"{cpu}m"}}}
    free = [80, 81] if free is None else free
    if free and random.random() < 0.25:
        container["ports"] = [{"containerPort": 1, "hostPort": free.pop(random.randrange(len(free)))}]
    labels = {"app": random.choice(APPS)} if random.random() < 0.9 else {}
    fields = {**constraints(random), **fields}
    return pod(name, priority=priority, labels=labels, containers=[container], **fields)


def world(seed: int) -> World:
    random = Random(seed)
    nodes = [
        node(
            f"n{number}",
            cpu="2",
            labels={"zone": f"z{number % 3}", "host": f"n{number}"},
            taints=["k:NoSchedule"] if random.random() < 0.1 else [],
        )
        for number in range(N_NODES)
    ]
    pods = {
        each.name: [
            random_pod(
                random,
                f"{each.name}-{number}",
                random.choice([-5, 0, 0, 1, 3, 9]),
                random.choice([100, 300, 500, 900]),
                free=free,
                node=each.name,
                status={"startTime": f"2026-03-01T08:0{random.randrange(6)}:00Z"},
            )
            for number in range(random.randrange(6))
        ]
        for each in nodes
        for free in [[80, 81]]
    }
    budgets = [
        {
            "metadata": {"name": f"budget-{app}", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {
                "disruptionsAllowed": random.randrange(3),
                "disruptedPods": {"n0-0": "2026-03-01T08:00:00Z"},
            },
        }
        for app in APPS
        if random.random() < 0.5
    ]
    nominated = {
        row: [random_pod(random, f"soon-{row}", random.choice([5, 9]), random.choice([300, 900]))]
        for row in range(N_NODES)
        if random.random() < 0.3
    }
    preemptor = random_pod(random, "preemptor", 5, random.choice([500, 1500]))
    return World(Cluster(nodes, pods), preemptor, budgets, nominated)


def silent_plugins(it: World) -> frozenset[str]:
    """Return the plugins that PreFilter leaves out of this pod's whole cycle."""
    state, snapshot = AttemptState(), it.snapshot()
    filtering_of().run_pre_filter(state, it.preemptor, snapshot, Diagnosis.blank(snapshot.n_nodes))
    return state.skipped_filters


def verdict(it: World, pods: dict[str, list[PodInfo]], row: int, nominated: bool) -> Code:
    """Say what all filters say of one node when everything is counted anew.

    A plugin whose PreFilter had nothing to say about the cluster as it is stays silent, as it does upstream
    (RunPreFilterExtensionAddPod): pods that only may come do not wake it.
    """
    name = it.cluster.nodes[row].name
    if nominated:
        pods = {**pods, name: [*pods.get(name, []), *it.nominated[row]]}
    filtering, snapshot, state = filtering_of(), it.snapshot(pods), AttemptState()
    diagnosis = Diagnosis.blank(snapshot.n_nodes)
    status = filtering.run_pre_filter(state, it.preemptor, snapshot, diagnosis)
    assert status.is_success, status
    state.skipped_filters |= silent_plugins(it)
    rows = np.array([row], dtype=np.intp)
    if filtering.run_filters(state, it.preemptor, snapshot, rows, diagnosis).size:
        return Code.SUCCESS
    refused = diagnosis.outcome_of(row)
    assert refused is not None
    return refused[1].code


def verdict_of_both(it: World, pods: dict[str, list[PodInfo]], row: int) -> Code:
    """With the pods that are expected there, and without."""
    if row in it.nominated:
        code = verdict(it, pods, row, nominated=True)
        if code is not Code.SUCCESS:
            return code
    return verdict(it, pods, row, nominated=False)


def importance(each: PodInfo) -> tuple[int, str]:
    return -each.priority, str(each.pod.status.start_time)


def breaking(it: World, victims: list[PodInfo]) -> list[PodInfo]:
    """Return the victims whose leaving breaks a budget, each one that leaves using it up."""
    left = {each["metadata"]["name"]: each["status"]["disruptionsAllowed"] for each in it.budgets}
    found = []
    for victim in victims:
        breaks = False
        for budget in it.budgets:
            name, wanted = budget["metadata"]["name"], budget["spec"]["selector"]["matchLabels"]["app"]
            if victim.labels.get("app") != wanted or victim.name in budget["status"]["disruptedPods"]:
                continue
            left[name] -= 1
            if left[name] < 0:
                breaks = True
        if breaks:
            found.append(victim)
    return found


def select_victims_on_node(it: World, row: int) -> tuple[list[PodInfo], int] | None:
    name = it.cluster.nodes[row].name
    lower = [each for each in it.cluster.pods[name] if each.priority < it.preemptor.priority]
    if not lower:
        return None
    there = [each for each in it.cluster.pods[name] if each not in lower]
    if verdict_of_both(it, {**it.cluster.pods, name: there}, row) is not Code.SUCCESS:
        return None
    lower.sort(key=importance)
    protected = breaking(it, lower)
    victims, violations = [], 0
    for each in protected + [other for other in lower if other not in protected]:
        if verdict_of_both(it, {**it.cluster.pods, name: [*there, each]}, row) is Code.SUCCESS:
            there = [*there, each]
        else:
            victims.append(each)
            violations += each in protected
    return sorted(victims, key=importance), violations


def pick(found: dict[str, tuple[list[PodInfo], int]]) -> set[str]:
    """Filter the candidates by one criterion after another."""

    def first_start(victims: list[PodInfo]) -> str:
        top = max(each.priority for each in victims)
        return min(str(each.pod.status.start_time) for each in victims if each.priority == top)

    names = list(found)
    measures: tuple[Callable[[str], int], ...] = (
        lambda name: found[name][1],
        lambda name: found[name][0][0].priority,
        lambda name: sum(each.priority + 2**31 for each in found[name][0]),
        lambda name: len(found[name][0]),
    )
    for measure in measures:
        least = min((measure(name) for name in names), default=0)
        names = [name for name in names if measure(name) == least]
    latest = max((first_start(found[name][0]) for name in names), default="")
    return {name for name in names if first_start(found[name][0]) == latest}


def by_hand(it: World) -> tuple[Found, set[str]]:
    found = {}
    for row, each in enumerate(it.cluster.nodes):
        if verdict_of_both(it, dict(it.cluster.pods), row) is not Code.UNSCHEDULABLE:
            continue
        selected = select_victims_on_node(it, row)
        if selected is not None:
            found[each.name] = selected
    reported = {name: ([each.name for each in victims], broken) for name, (victims, broken) in found.items()}
    return reported, pick(found)


def by_the_plugin(it: World, *more: Plugin) -> tuple[Found, set[str], list[str]]:
    """Return what the plugin finds, and the nodes that are feasible without it."""
    filtering, snapshot = filtering_of(*more), it.snapshot()
    state, diagnosis = AttemptState(it.nominated, exhaustive=True), Diagnosis.blank(snapshot.n_nodes)
    assert filtering.run_pre_filter(state, it.preemptor, snapshot, diagnosis).is_success
    rows = filtering.find_feasible(
        state, it.preemptor, snapshot, diagnosis, rows=snapshot.all_rows, nominated=it.nominated
    )
    plugin, _ = kept(filtering)
    asyncio.run(plugin.post_filter(state, it.preemptor, snapshot, diagnosis))
    report = state.read(REPORT, PreemptionReport)
    found = {
        snapshot.name_of(row): ([each.name for each in victims], broken)
        for row, (victims, broken) in report.candidates.items()
    }
    best = {snapshot.name_of(row) for row in report.nominated}
    return found, best, [snapshot.name_of(row) for row in rows.tolist()]


@pytest.mark.parametrize("seed", range(40))
def test_the_plugin_finds_the_victims_of_the_reference_loop(seed: int) -> None:
    it = world(seed)
    found, best, feasible = by_the_plugin(it)

    assert (found, best) == by_hand(it)
    judged = [verdict_of_both(it, dict(it.cluster.pods), row) for row in range(N_NODES)]
    assert feasible == [f"n{row}" for row in range(N_NODES) if judged[row] is Code.SUCCESS]


@pytest.mark.parametrize("seed", range(40))
def test_a_plugin_that_reads_the_whole_cluster_changes_only_the_speed(seed: int) -> None:
    it = world(seed)
    wide = Filter("Wide", lambda _state, _pod, snapshot, _rows: Outcomes.all_pass(snapshot.n_nodes))
    state = AttemptState()
    assert len(filtering_of(wide).apart(state, it.preemptor, [0, 1])) == 2

    assert by_the_plugin(it, wide) == by_the_plugin(it)


class Counted(DryRun):
    """Counts the nodes that are tried."""

    tried = 0

    def steps(self, *args: Any, **options: Any) -> Any:
        found = yield from super().steps(*args, **options)
        self.tried += len(found)
        return found


def kept(filtering: Filtering) -> tuple[DefaultPreemption, Counted]:
    """Return a plugin that lives on, as in the daemon, and its dry run."""
    dry_run = Counted()
    dry_run.filtering = filtering
    plugin = DefaultPreemption(
        args=DefaultPreemption.Args(),
        dry_run=dry_run,
        review=ExtenderReview(Profiles()),
        preemptions=NoPreemptions(),
        work=WithoutSlices(),
        members=PodGroups(),
        groups=Profiles(),
        features=FakeFeatures(),
        clock=ManualClock(),
        queued=FakeQueuedPods(),
        metrics=FakeMetrics(),
    )
    return plugin, dry_run


def reported(
    plugin: DefaultPreemption,
    filtering: Filtering,
    preemptor: PodInfo,
    snapshot: Snapshot,
    nominated: Mapping[int, Sequence[PodInfo]],
) -> tuple[dict[int, tuple[list[str], int]], list[int]]:
    """Return the report of one attempt, with the names of the victims."""
    report = report_of(plugin, filtering, preemptor, snapshot, nominated)
    victims = {row: ([each.name for each in its], broken) for row, (its, broken) in report.candidates.items()}
    return victims, list(report.nominated)


def report_of(
    plugin: DefaultPreemption,
    filtering: Filtering,
    preemptor: PodInfo,
    snapshot: Snapshot,
    nominated: Mapping[int, Sequence[PodInfo]],
) -> PreemptionReport:
    state = AttemptState(nominated, exhaustive=True)
    diagnosis = Diagnosis.blank(snapshot.n_nodes)
    assert filtering.run_pre_filter(state, preemptor, snapshot, diagnosis).is_success
    filtering.find_feasible(
        state, preemptor, snapshot, diagnosis, rows=snapshot.all_rows, nominated=state.nominated
    )
    asyncio.run(plugin.post_filter(state, preemptor, snapshot, diagnosis))
    return state.read(REPORT, PreemptionReport)


class ChangingCluster:
    """Twelve nodes, whose pods and budgets change at random."""

    def __init__(self, random: Random) -> None:
        self.random, self.table, self._made = random, ClusterTable(), 0
        self.budgets = self.table.watch_kind(BUDGETS)
        for kind in {kind for plugin in plugins() for kind in plugin.needs.kinds} - {BUDGETS}:
            self.table.watch_kind(kind)
        for number in range(12):
            row = self.table.add_node(node(f"n{number}", cpu="2", labels={"zone": f"z{number % 3}"}))
            for _ in range(3):
                self.add_pod(row)

    def add_pod(self, row: int) -> None:
        self._made += 1
        random, status = self.random, {"startTime": f"2026-03-01T08:{self._made % 60:02}:00Z"}
        priority, cpu = random.choice([0, 1, 3, 9]), random.choice([300, 500, 900])
        there = self.table.nodes[row].name
        added = random_pod(random, f"v{self._made}", priority, cpu, free=[], node=there, status=status)
        self.table.add_pod(row, added)

    def change(self) -> None:
        row = self.random.randrange(self.table.n_nodes)
        there = list(self.table.pods_on(row).values())
        match self.random.randrange(5):
            case 0 if there:
                self.table.remove_pod(row, self.random.choice(there).uid)
            case 1:
                self.add_pod(row)
            case 2 if there:
                one = self.random.choice(there)
                self.table.remove_pod(row, one.uid)
                later = pod(one.name, uid=one.uid, priority=one.priority, node=one.node_name)
                self.table.add_pod(row, later)
            case 3:
                self.budgets["default/a"] = {
                    "metadata": {"name": "a", "namespace": "default"},
                    "spec": {"selector": {"matchLabels": {"app": self.random.choice(APPS)}}},
                    "status": {"disruptionsAllowed": self.random.randrange(2)},
                }
            case 4 if self.table.n_nodes > 6:
                self.table.remove_node(self.table.nodes[row].name)


@pytest.mark.parametrize("seed", range(25))
def test_equal_pods_share_the_results_of_nodes_that_do_not_change(seed: int) -> None:
    random = Random(seed)
    changing, filtering, alone = ChangingCluster(random), filtering_of(), 0
    plugin, dry_run = kept(filtering)
    nominator = Nominator()
    for number in range(40):
        changing.change()
        snapshot = changing.table.snapshot()
        priority, cpu = random.choice([(5, "1500m"), (2, "1500m"), (5, "700m")])
        preemptor = pod(f"p{number}", priority=priority, cpu=cpu)
        nominate(nominator, preemptor, snapshot, random)
        nominated = nominator.others(preemptor, snapshot)
        its_filtering = filtering_of()
        another, its_dry_run = kept(its_filtering)
        expected = reported(another, its_filtering, preemptor, snapshot, nominated)

        assert reported(plugin, filtering, preemptor, snapshot, nominated) == expected
        alone += its_dry_run.tried
    assert dry_run.tried < alone * 0.8


def nominate(nominator: Nominator, preemptor: PodInfo, snapshot: Snapshot, random: Random) -> None:
    """Add or remove a nomination at random, sometimes that of the preemptor."""
    soon = pod(f"soon-{random.randrange(4)}", priority=random.choice([4, 5, 9]), cpu="800m")
    chosen = random.choice([soon, soon, preemptor])
    nominator.add(chosen, random.choice(["", snapshot.name_of(random.randrange(snapshot.n_nodes))]))


def test_results_of_nodes_with_nominated_pods_are_shared_until_a_nomination_changes() -> None:
    nodes = [node(f"n{row}", cpu="2") for row in range(3)]
    table = Cluster(
        nodes, {each.name: [pod(f"v-{each.name}", cpu="2", node=each.name)] for each in nodes}
    ).table()
    table.watch_kind(BUDGETS)
    filtering, nominator = framework_of(made(NodeResourcesFit)).filtering, Nominator()
    plugin, dry_run = kept(filtering)
    urgent = [pod(f"p{number}", cpu="2", priority=5) for number in range(7)]

    def tried(each: PodInfo) -> tuple[list[int], int]:
        before, snapshot = dry_run.tried, table.snapshot()
        victims, _ = reported(plugin, filtering, each, snapshot, nominator.others(each, snapshot))
        return sorted(victims), dry_run.tried - before

    nominator.add(urgent[0], "n0")
    assert [tried(each) for each in urgent[1:4]] == [([1, 2], 3), ([1, 2], 3), ([1, 2], 0)]
    nominator.add(urgent[1], "n1")
    assert tried(urgent[4]) == ([2], 1)
    assert tried(urgent[1]) == ([1, 2], 1), "its own nomination does not count"
    nominator.delete(urgent[0].uid)
    assert [tried(each) for each in urgent[4:6]] == [([0, 2], 2), ([0, 2], 0)]
    nominator.delete(urgent[1].uid)
    assert tried(urgent[6]) == ([0, 1, 2], 1)


def test_reports_about_equal_pods_share_the_names_of_victims() -> None:
    there = {"n0": [pod("v0", cpu="1", node="n0"), pod("v1", cpu="1", node="n0")]}
    table = Cluster([node("n0", cpu="2")], there).table()
    table.watch_kind(BUDGETS)
    filtering, snapshot = framework_of(made(NodeResourcesFit)).filtering, table.snapshot()
    plugin, _ = kept(filtering)
    urgent = [pod(f"p{number}", cpu="2", priority=5) for number in range(3)]
    _, one, other = [report_of(plugin, filtering, each, snapshot, {}).named for each in urgent]
    assert one == {0: (("default/v0", "default/v1"), 0)}
    assert one[0] is other[0]


def test_the_message_has_the_refusals_that_are_known_from_equal_pods() -> None:
    nodes = [node("n0", cpu="2"), node("n1", cpu="1")]
    table = Cluster(nodes, {"n0": [pod("v0", cpu="2", node="n0", priority=9)]}).table()
    table.watch_kind(BUDGETS)
    filtering = framework_of(made(NodeResourcesFit)).filtering
    plugin, _ = kept(filtering)
    snapshot, found = table.snapshot(), []
    for number in range(3):
        state, diagnosis, urgent = AttemptState(), Diagnosis.blank(2), pod(f"p{number}", cpu="2", priority=5)
        filtering.run_pre_filter(state, urgent, snapshot, diagnosis)
        filtering.passing(state, urgent, snapshot, diagnosis, rows=snapshot.all_rows, nominated={})
        result = asyncio.run(plugin.post_filter(state, urgent, snapshot, diagnosis))
        found.append(result.status)
    assert "1 No preemption victims found for incoming pod" in found[0].message
    assert found[1:] == found[:1] * 2


class Failing(NodeFilter):
    """A filter whose result depends on the node alone; it fails as scripted."""

    def signature(self, pod: PodInfo) -> tuple[()]:
        return ()


def test_the_failure_of_a_plugin_at_a_node_is_not_shared() -> None:
    failing: set[str] = set()

    def judge(_state: Any, _pod: Any, there: Any) -> None:
        if there.name in failing:
            raise RuntimeError("once")

    nodes = [node(f"n{row}", cpu="2") for row in range(2)]
    victims = {f"n{row}": [pod(f"v{row}", cpu="2", node=f"n{row}")] for row in range(2)}
    table = Cluster(nodes, victims).table()
    table.watch_kind(BUDGETS)
    snapshot = table.snapshot()
    filtering = framework_of(made(NodeResourcesFit), Failing("Failing", judge)).filtering
    plugin, dry_run = kept(filtering)
    found = []
    for number in range(4):
        failing = {"n0"} if number == 1 else set()
        victims_of, _ = reported(plugin, filtering, pod(f"p{number}", cpu="2", priority=5), snapshot, {})
        found.append((sorted(victims_of), dry_run.tried))

    # Results are shared from the second pod of a kind on. It fails, the third tries both nodes again, the fourth none.
    assert found == [([0, 1], 2), ([], 4), ([0, 1], 6), ([0, 1], 6)]
