"""Cached results over long random event sequences: the default profile against plugins without signatures.

Nodes and pods come, go and change. Ever again one pod of each of a dozen Deployments is decided by a profile that has
lived through it all on the daemon's cache, and by one that keeps nothing on columns made anew; all that could be said of
the two decisions must be the same.

    python -m tests.reference.cached_verdicts SEED STEPS
"""

from __future__ import annotations

import sys
from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any

from scheduler.configuration.load import parse
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.daemon.app.needs import needs_of, trimmed
from scheduler.engine.cycle.explanation import explain
from scheduler.engine.cycle.scheduling import schedule_pod
from scheduler.engine.runtime.registry import Registry
from scheduler.engine.state.cache import Cache
from scheduler.engine.state.nominator import Nominator
from scheduler.snapshot import ClusterTable
from tests.support.builders import node, pod
from tests.support.offline_capabilities import frameworks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scheduler.engine.cycle.attempt import Decision
    from scheduler.engine.runtime.framework import Framework
    from scheduler.framework import Plugin
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

PROFILE = '{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}'
MOST_NODES = 24
MOST_PODS = 60

ZONE = "topology.kubernetes.io/zone"
_DURING = "DuringSchedulingIgnoredDuringExecution"
_SSD = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
_WEB = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": ZONE}


def _container(cpu: str, image: str = "a:1", port: int = 0) -> list[dict[str, Any]]:
    ports = [{"hostPort": port, "containerPort": 1}] if port else []
    return [{"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}, "ports": ports}]


KINDS: Mapping[str, Mapping[str, Any]] = {
    "small": {"cpu": "100m", "memory": "64Mi"},
    "large": {"cpu": "3", "memory": "3Gi"},
    "lasting": {"cpu": "1", "tolerations": [{"operator": "Exists"}]},
    "tolerant": {"cpu": "1", "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}]},
    "urgent": {"cpu": "2", "priority": 100},
    "in-a-zone": {"cpu": "200m", "nodeSelector": {ZONE: "b"}},
    "on-ssd": {
        "cpu": "500m",
        "affinity": {"nodeAffinity": {f"required{_DURING}": {"nodeSelectorTerms": [_SSD]}}},
    },
    "rather-on-ssd": {
        "cpu": "100m",
        "memory": "64Mi",
        "affinity": {"nodeAffinity": {f"preferred{_DURING}": [{"weight": 7, "preference": _SSD}]}},
    },
    "with-port": {"containers": _container("100m", port=80)},
    "with-image": {"containers": _container("100m", "big:1"), "priority": 10},
    "with-gpu": {"cpu": "100m", "requests": {"example.com/gpu": "1"}},
    "spread": {
        "labels": {"app": "web"},
        "cpu": "100m",
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", **_WEB}
        ],
    },
    "apart": {"cpu": "100m", "affinity": {"podAntiAffinity": {f"required{_DURING}": [_WEB]}}},
    "rather-near": {
        "labels": {"app": "db"},
        "cpu": "100m",
        "memory": "64Mi",
        "affinity": {"podAffinity": {f"preferred{_DURING}": [{"weight": 9, "podAffinityTerm": _WEB}]}},
    },
    "rather-apart": {
        "labels": {"app": "web"},
        "cpu": "100m",
        "affinity": {"podAntiAffinity": {f"preferred{_DURING}": [{"weight": 40, "podAffinityTerm": _WEB}]}},
    },
    "named": {
        "affinity": {
            "nodeAffinity": {
                f"required{_DURING}": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
                    ]
                }
            }
        }
    },
}
"""Deployment -> the fields of its pods."""


def long_lived() -> Framework:
    """Return the default profile."""
    return _framework(IN_TREE)


def forgetful() -> Framework:
    """Return the default profile of plugins that promise nothing, so that nothing they say is kept."""
    promise_nothing = {"signature": lambda _self, _pod: None}
    return _framework({name: type(name, (plugin,), promise_nothing) for name, plugin in IN_TREE.items()})


def _framework(plugins: Mapping[str, type[Plugin]]) -> Framework:
    (framework,) = frameworks(parse(PROFILE), Registry(plugins)).values()
    return framework


class Story:
    """One cluster, and two profiles that look at it.

    Attributes:
        decided: how many pods were decided, by outcome.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.cache = Cache()
        self.kept, self.fresh = long_lived(), forgetful()
        self._needs = needs_of([self.kept])
        for kind in self._needs.kinds:
            self.cache.table.watch_kind(kind)
        self._nodes: dict[str, dict[str, Any]] = {}  # name -> fields
        self._pods: dict[str, dict[str, Any]] = {}  # name of a pod on a node -> fields
        self.nominator = Nominator()
        self._serial = 0
        self._happened: deque[str] = deque(maxlen=12)
        self.decided = {"schedulable": 0, "unschedulable": 0, "error": 0}
        for _ in range(8):
            self._add_node()

    def run(self, steps: int) -> None:
        """Let so many steps happen; raises as `step`."""
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        """Let a few things happen, and decide pods of most Deployments.

        Raises:
            AssertionError: the two profiles differ.
        """
        for _ in range(self.random.choice((1, 1, 1, 2, 3, 12))):
            happens = self.random.choices(_HAPPENS, _WEIGHTS)[0]
            happens(self)
        made_anew = self._made_anew()
        kinds = list(KINDS)
        self.random.shuffle(kinds)
        for kind in kinds[self.random.choice((0, 0, 3, 9)) :]:
            self._decide(kind, made_anew)

    # What happens to nodes.

    def _add_node(self) -> None:
        free = [name for name in map("n{}".format, range(MOST_NODES)) if name not in self._nodes]
        if free:
            name = self.random.choice(free)
            self._nodes[name] = {}
            for field in _NODE_FIELDS:
                self._nodes[name][field] = self._some(field)
            self._write_node(name)

    def _add_nodes(self) -> None:
        for _ in range(10):
            self._add_node()

    def _remove_node(self) -> None:
        if self._nodes:
            name = self.random.choice(sorted(self._nodes))
            del self._nodes[name]
            self._note(f"remove node {name}")
            self.cache.remove_node(name)

    def _remove_nodes(self) -> None:
        for _ in range(self.random.randrange(6)):
            self._remove_node()

    def _change_node(self) -> None:
        if self._nodes:
            name = self.random.choice(sorted(self._nodes))
            field = self.random.choice(("taints", "labels", *_NODE_FIELDS))
            self._nodes[name][field] = self._some(field)
            self._write_node(name)

    def _change_nodes(self) -> None:
        field = self.random.choice(list(_NODE_FIELDS))
        value = self._some(field)
        for name in sorted(self._nodes):
            if self.random.random() < 0.7:
                self._nodes[name][field] = value
                self._write_node(name)

    def _heartbeat(self) -> None:
        if self._nodes:
            name = self.random.choice(sorted(self._nodes))
            self._serial += 1
            self._write_node(
                name, heartbeat=f"2026-01-01T00:{self._serial // 60 % 60:02}:{self._serial % 60:02}Z"
            )

    def _write_node(self, name: str, heartbeat: str = "") -> None:
        fields = {**self._nodes[name]}
        is_ready = fields.pop("ready")
        ready = {"type": "Ready", "status": is_ready, "lastHeartbeatTime": heartbeat}
        self._note(f"node {name} {fields} {heartbeat}")
        self.cache.add_node(node(name, **fields, conditions=[ready]))

    def _some(self, field: str) -> Any:
        return self.random.choice(_NODE_FIELDS[field])

    # What happens to pods on nodes.

    def _bind(self) -> None:
        """Put a pod where the scheduler would, or anywhere, as others do."""
        if len(self._pods) >= MOST_PODS:
            self._delete()
        if not self._nodes:
            return
        kind = self.random.choice(list(KINDS))
        pending = self._pod(kind)
        if self.random.random() < 0.7:
            decision = self._judge(self.kept, pending, self.cache.snapshot(), exhaustive=True, avoided={})
            name = decision.node_name
        else:
            name = self.random.choice(sorted(self._nodes))
        if not name:
            return
        self._note(f"bind {pending.name} to {name}")
        self._pods[pending.name] = {**KINDS[kind], "node": name}
        if self.random.random() < 0.6:
            self.cache.assume(pending, name)
        else:
            self._confirm(pending.name)

    def _confirm_all(self) -> None:
        for name in list(self._pods):
            self._confirm(name)

    def _confirm(self, name: str) -> None:
        self.cache.add_pod(trimmed(pod(name, **self._pods[name]), self._needs))

    def _delete(self) -> None:
        if self._pods:
            name = self.random.choice(list(self._pods))
            fields = self._pods.pop(name)
            self._note(f"delete {name} from {fields['node']}")
            self.cache.remove_pod(pod(name).uid)

    def _change_pod(self) -> None:
        if self._pods:
            name = self.random.choice(list(self._pods))
            self._pods[name]["labels"] = self.random.choice(({}, {"app": "web"}, {"app": "db"}))
            self._note(f"label {name} {self._pods[name]['labels']}")
            self._confirm(name)

    def _forget(self) -> None:
        if self._pods:
            name = self.random.choice(list(self._pods))
            if self.cache.forget(pod(name).uid) is not None:
                self._note(f"forget {name}")
                del self._pods[name]

    def _nominate(self) -> None:
        if self._nodes:
            expected = self._pod(self.random.choice(list(KINDS)))
            name = self.random.choice(sorted(self._nodes))
            self._note(f"nominate {expected.name} to {name}")
            self.nominator.add(expected, name)

    def _nominate_elsewhere(self) -> None:
        if self._nodes and (expected := self._some_nominated()):
            name = self.random.choice(sorted(self._nodes))
            self._note(f"nominate {expected.name} to {name} instead")
            self.nominator.add(expected, name)

    def _end_nomination(self) -> None:
        if expected := self._some_nominated():
            self._note(f"end the nomination of {expected.name}")
            self.nominator.delete(expected.uid)

    def _end_nominations(self) -> None:
        self._note("no nominations")
        for expected in list(self.nominator.pods()):
            self.nominator.delete(expected.uid)

    def _some_nominated(self) -> PodInfo | None:
        pods = list(self.nominator.pods())
        return self.random.choice(pods) if pods else None

    # Deciding.

    def _made_anew(self) -> Snapshot:
        """Return the cluster as it is, with the same rows."""
        table = ClusterTable()
        for kind in self._needs.kinds:
            table.watch_kind(kind)
        for row, each in enumerate(self.cache.table.nodes):
            table.add_node(each)
            for placed in self.cache.table.pods_on(row).values():
                table.add_pod(row, placed)
        return table.snapshot()

    def _decide(self, kind: str, made_anew: Snapshot) -> None:
        pending = (self.random.random() < 0.2 and self._some_nominated()) or self._pod(kind)
        snapshot = self.cache.snapshot()
        names = snapshot.names
        share = self.random.choice((0, 0, 0, 0.3))
        avoided = {row: "paused" for row in range(len(names)) if self.random.random() < share}
        exhaustive = self.random.random() < 0.5
        kept = self._judge(self.kept, pending, snapshot, exhaustive=exhaustive, avoided=avoided)
        fresh = self._judge(self.fresh, pending, made_anew, exhaustive=exhaustive, avoided=avoided)
        ours, theirs = _all_of(kept, names), _all_of(fresh, names)
        self.decided[ours["result"]] += 1
        different = {
            part: (ours.get(part), theirs.get(part))
            for part in ours.keys() | theirs.keys()
            if ours.get(part) != theirs.get(part)
        }
        story = "\n".join(self._happened)
        assert not different, f"seed {self.seed}, {pending.name}:\n{story}\n{_shown(different)}"

    def _judge(
        self,
        framework: Framework,
        pending: PodInfo,
        snapshot: Snapshot,
        *,
        exhaustive: bool,
        avoided: Mapping[int, str],
    ) -> Decision:
        return schedule_pod(
            framework,
            pending,
            snapshot,
            nominated=self.nominator.others(pending, snapshot)
            if framework is self.kept
            else self._read_anew(pending, snapshot),
            random=Random(1),
            exhaustive=exhaustive,
            avoided=avoided,
        )

    def _read_anew(self, pending: PodInfo, snapshot: Snapshot) -> Mapping[int, Sequence[PodInfo]]:
        """Return the nominations that concern a pod, read without the columns of the nominator."""
        nominated: dict[int, list[PodInfo]] = {}
        for name in self.nominator.nominated_nodes:
            row = snapshot.row_of(name)
            for other in () if row is None else self.nominator.nominated_pods_for_node(name):
                if other.priority >= pending.priority and other.uid != pending.uid:
                    nominated.setdefault(row, []).append(other)
        return nominated

    def _pod(self, kind: str) -> PodInfo:
        self._serial += 1
        return pod(f"{kind}-{self._serial}", **KINDS[kind])

    def _note(self, happened: str) -> None:
        self._happened.append(happened)


_NODE_FIELDS: Mapping[str, Sequence[Any]] = {
    "cpu": ("2", "4", "8"),
    "memory": ("2Gi", "8Gi"),
    "pods": (2, 5, 110),
    "allocatable": ({}, {"example.com/gpu": "1"}),
    "labels": ({}, {ZONE: "a"}, {ZONE: "b"}, {ZONE: "a", "disk": "ssd"}, {ZONE: "b", "disk": "ssd"}),
    "taints": ((), (), ("spot:NoSchedule",), *[("old:PreferNoSchedule",)] * 2, ("x:NoSchedule", "spot:PreferNoSchedule")),
    "unschedulable": (False, False, False, True),
    "images": ([], [{"names": ["big:1"], "sizeBytes": 700 * 1024**2}]),
    "declaredFeatures": ([], ["A"]),
    "annotations": ({}, {"note": "read by nobody"}),
    "ready": ("True", "True", "False"),
}  # fmt: skip
"""Field of a node -> what it may be."""

_WEIGHTED: Sequence[tuple[Callable[[Story], None], int]] = (
    (Story._add_node, 4),
    (Story._add_nodes, 1),
    (Story._remove_node, 3),
    (Story._remove_nodes, 1),
    (Story._change_node, 12),
    (Story._change_nodes, 2),
    (Story._heartbeat, 5),
    (Story._bind, 30),
    (Story._confirm_all, 3),
    (Story._delete, 14),
    (Story._change_pod, 4),
    (Story._forget, 3),
    (Story._nominate, 12),
    (Story._nominate_elsewhere, 3),
    (Story._end_nomination, 5),
    (Story._end_nominations, 1),
)
_HAPPENS = [happens for happens, _ in _WEIGHTED]
_WEIGHTS = [weight for _, weight in _WEIGHTED]


def _all_of(decision: Decision, names: Sequence[str]) -> dict[str, Any]:
    """Return everything that may be said of a decision."""
    diagnosis, scores = decision.diagnosis, decision.scores
    return {
        **explain(decision, names),
        "chosen": decision.node_name,
        "nominated node": decision.nominated_node_name,
        "diagnosis": diagnosis.message(),
        "unschedulable plugins": diagnosis.unschedulable_plugins,
        "pending plugins": diagnosis.pending_plugins,
        "feasible": diagnosis.feasible.tolist(),
        "ranked": None if scores is None else scores.rows.tolist(),
        "best": None if scores is None else scores.best.tolist(),
        "rankers": None if scores is None else list(scores.by_plugin),
    }


def _shown(different: Mapping[str, tuple[Any, Any]]) -> str:
    lines = []
    for part, (kept, fresh) in different.items():
        if isinstance(kept, dict) and isinstance(fresh, dict):
            lines += [
                f"{part} {key}:\n  kept  {kept.get(key)}\n  fresh {fresh.get(key)}"
                for key in kept.keys() | fresh.keys()
                if kept.get(key) != fresh.get(key)
            ]
        else:
            lines.append(f"{part}:\n  kept  {kept}\n  fresh {fresh}")
    return "\n".join(lines)


def main() -> None:
    """Run one story."""
    seed, steps = (int(number) for number in sys.argv[1:3])
    story = Story(seed)
    for number in range(1, steps + 1):
        story.step()
        if number % 1000 == 0 or number == steps:
            print(number, story.decided, flush=True)  # noqa: T201 - its output


if __name__ == "__main__":
    main()
