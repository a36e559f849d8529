"""VolumeBinding with incremental state against loops without state."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest

from plugins.volume_binding.claims import key_of
from plugins.volume_binding.node_volumes import NodeVolumes
from plugins.volume_binding.plugin import VolumeBinding, VolumeBindingArgs
from plugins.volumes.storage import CLAIMS as CLAIM_KIND
from plugins.volumes.storage import CSI_DRIVERS, CSI_NODES, CSI_STORAGE_CAPACITIES, STORAGE_CLASSES
from plugins.volumes.storage import VOLUMES as VOLUME_KIND
from scheduler.daemon.app.capabilities import TableObjects
from scheduler.engine.runtime.adapters import scores_of
from scheduler.framework import SKIP, CycleState, Status
from scheduler.snapshot import ClusterTable
from scheduler.testing.fakes import FakeFeatures, Fakes
from scheduler.testing.samples import (
    DRIVER,
    claim,
    csi_driver,
    csi_node,
    storage_capacity,
    storage_class,
    volume,
    watch_storage,
)
from tests.reference import volume_binding as loops
from tests.reference.one_node import PASSES, verdicts
from tests.support.builders import node, pod

STEPS = 150

HOST, ZONE, RACK = "kubernetes.io/hostname", loops.ZONE, "rack"
NODES = ("n0", "n1", "n2", "n3", "n4")
CLAIMS = ("c0", "c1", "c2", "c3", "p-v1")
VOLUMES = tuple(f"pv{number}" for number in range(8))
SIZES = ("1Gi", "1Gi", "2Gi", "1500M", "3Gi")
CLASSES: dict[str, dict[str, Any]] = {
    "local": {"provisioner": "kubernetes.io/no-provisioner"},
    "made": {},
    "zonal": {"topologies": [{ZONE: ["a"]}, {ZONE: ["b"], RACK: ["r1", "r2"]}]},
    "early": {"mode": "Immediate"},
    "undecided": {"mode": None},
}


class Story:
    """A cluster to which random things happen, known twice: as the table has it, and as plain dictionaries."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.table = ClusterTable()
        self.objects = loops.Objects()
        self.kinds = {
            CLAIM_KIND: self.objects.claims,
            VOLUME_KIND: self.objects.volumes,
            STORAGE_CLASSES: self.objects.classes,
            CSI_NODES: self.objects.csi_nodes,
            CSI_DRIVERS: self.objects.drivers,
            CSI_STORAGE_CAPACITIES: self.objects.capacities,
        }
        self.at_server: dict[tuple[str, str], dict[str, Any]] = {}  # of what is assumed: as it really is
        self.version = 0
        fakes = Fakes()
        self.scores = seed % 2 == 0
        self.plugin = VolumeBinding(
            args=VolumeBindingArgs(),
            objects=TableObjects(self.table),
            writer=fakes.api,
            happenings=fakes.happenings,
            locks=fakes.keyed_lock,
            clock=fakes.clock,
            time_slice=fakes.time_slice,
            metrics=fakes.metrics,
            features=FakeFeatures("1.37" if self.scores else "1.36"),
        )
        watch_storage(self.table)
        self.under_way: list[CycleState] = []
        for name in NODES[:4]:
            self.put_node(name)
        for name in CLASSES:
            self.put_class(name)
        for name in VOLUMES:
            self.put_volume(name)
        for name in CLAIMS:
            self.put_claim(name)
        for put in (self.put_csi_node, self.put_driver, self.put_capacity, self.put_capacity):
            put()

    def go_on(self) -> None:
        """Let one more thing happen."""
        self.random.choice(
            [
                *[self.put_claim] * 6,
                *[self.put_volume] * 6,
                *[self.put_capacity] * 3,
                *[self.put_node] * 2,
                *[self.remove_object] * 2,
                self.give_up,
                self.remove_node,
                self.put_csi_node,
                self.put_driver,
                self.put_class,
            ]
        )()

    # What there is.

    def put_node(self, name: str | None = None) -> None:
        name = name or self.random.choice(NODES)
        labels = {loops.EBS_ZONE: self.random.choice("ab")} if self.random.random() < 0.5 else {}
        for key, values in ((ZONE, "ab"), (RACK, ("r1", "r2"))):
            if self.random.random() < 0.8:
                labels[key] = self.random.choice(values)
        each = node(name, labels=labels)
        if self.table.row_of(name) is None:
            self.table.add_node(each)
        else:
            self.table.update_node(each)

    def remove_node(self) -> None:
        if self.table.n_nodes > 1:
            self.table.remove_node(self.random.choice(self.table.nodes).name)

    def put(self, kind: str, key: str, obj: dict[str, Any]) -> None:
        """Let the API server show a newer version."""
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.kinds[kind][key] = obj
        self.at_server.pop((kind, key), None)
        self.table.watch_kind(kind)[key] = copy.deepcopy(obj)

    def put_claim(self, name: str | None = None) -> None:
        name = name or self.random.choice(CLAIMS)
        annotations: Any = self.random.choice(
            [
                *[{}] * 8,
                {loops.SELECTED_NODE: self.random.choice(NODES)},
                {loops.BETA_CLASS: "local"},
            ]
        )
        more: dict[str, Any] = self.random.choice(
            [
                *[{}] * 6,
                {"selector": {"matchLabels": {"tier": self.random.choice("xy")}}},
                {"volumeMode": "Block"},
                {"volumeAttributesClassName": "gold"},
            ]
        )
        if self.random.random() < 0.05:
            more = {"selector": {"matchExpressions": [{"key": "tier", "operator": "Near"}]}}
        each = claim(
            name,
            self.random.choice(VOLUMES) if self.random.random() < 0.2 else "",
            class_name=self.random.choice(["local", "local", "made", "zonal", *CLASSES]),
            modes=self.random.choice([["ReadWriteOnce"], ["ReadWriteOnce"], ["ReadWriteMany"]]),
            storage=self.random.choice(SIZES),
            annotations=annotations,
            owner=self.random.choice([None, pod("p")]),
            **more,
        )
        if self.random.random() < 0.05:
            del each["spec"]["resources"]["requests"]["storage"]
        if self.random.random() < 0.03:
            each["status"]["phase"] = "Lost"
        if self.random.random() < 0.03:
            each["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if self.random.random() < 0.05:
            each["metadata"]["annotations"].pop(loops.BIND_COMPLETED, None)
        self.put(CLAIM_KIND, f"default/{name}", each)

    def put_volume(self, name: str | None = None) -> None:
        name = name or self.random.choice(VOLUMES)
        spec: dict[str, Any] = {}
        if affinity := self.affinity():
            spec["nodeAffinity"] = affinity
        if self.random.random() < 0.15:
            uid = self.random.choice(["", "uid-of-claim-c0", "other"])
            spec["claimRef"] = {"namespace": "default", "name": self.random.choice(CLAIMS), "uid": uid}
        if self.random.random() < 0.1:
            spec["volumeMode"] = self.random.choice(["Block", "Filesystem"])
        if self.random.random() < 0.1:
            spec["volumeAttributesClassName"] = "gold"
        if self.random.random() < 0.2:
            id_ = self.random.choice(["vol-1", "vol-1", "aws://bad"])
            spec |= {"csi": None, "awsElasticBlockStore": {"volumeID": id_}}
        each = volume(
            name,
            labels={"tier": self.random.choice("xy")},
            phase=self.random.choice(["Available"] * 6 + ["Released"]),
            capacity={"storage": self.random.choice(SIZES)},
            accessModes=self.random.choice([["ReadWriteOnce"], ["ReadWriteOnce", "ReadWriteMany"]]),
            storageClassName=self.random.choice(["local", "local", "made"]),
            **spec,
        )
        if self.random.random() < 0.05:
            each["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if self.random.random() < 0.05:
            each["metadata"]["annotations"] = {loops.BETA_CLASS: "zonal"}
        self.put(VOLUME_KIND, name, each)

    def affinity(self) -> dict[str, Any] | None:
        def expression(key: str, *values: str, operator: str = "In") -> dict[str, Any]:
            return {"key": key, "operator": operator, "values": [*values]}

        host = expression(HOST, *self.random.sample(NODES, self.random.randint(1, 2)))
        zone = expression(ZONE, self.random.choice("ab"))
        terms: Any = self.random.choice(
            [
                [{"matchExpressions": [host]}],
                [{"matchExpressions": [host]}],
                [{"matchExpressions": [zone]}],
                [{"matchExpressions": [zone, expression(RACK, "r1", "r2")]}],
                [{"matchExpressions": [zone, expression(ZONE, "a", "b")]}],
                [{"matchExpressions": [host]}, {"matchExpressions": [zone]}],
                [{"matchExpressions": [expression(RACK, "r1", operator="NotIn")]}],
                [{"matchExpressions": [{"key": RACK, "operator": "Exists"}]}],
                [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}],
                [{}],
                [],
                None,
            ]
        )
        return None if terms is None else {"required": {"nodeSelectorTerms": terms}}

    def put_class(self, name: str | None = None) -> None:
        name = name or self.random.choice(list(CLASSES))
        self.put(STORAGE_CLASSES, name, storage_class(name, **CLASSES[name]))

    def put_csi_node(self) -> None:
        name = self.random.choice(NODES)
        migrated = self.random.choice([(), (loops.EBS,), ("kubernetes.io/gce-pd", loops.EBS)])
        self.put(CSI_NODES, name, csi_node(name, {}, migrated=migrated))

    def put_driver(self) -> None:
        self.put(
            CSI_DRIVERS, DRIVER, csi_driver(storage_capacity=self.random.choice([True, True, False, None]))
        )

    def put_capacity(self) -> None:
        name, labels = f"room-{self.random.randint(0, 3)}", None
        if self.random.random() < 0.9:
            labels = self.random.choice(
                [{HOST: self.random.choice(NODES)}, {ZONE: "a"}, {ZONE: "b", RACK: "r1"}, {}]
            )
        more = {"maximumVolumeSize": self.random.choice(SIZES)} if self.random.random() < 0.3 else {}
        capacity = self.random.choice([*SIZES, None])
        class_name = self.random.choice(["made", "zonal"])
        each = storage_capacity(name, class_name, capacity, labels=labels, **more)
        self.put(CSI_STORAGE_CAPACITIES, f"kube-system/{name}", each)

    def remove_object(self) -> None:
        there = [(kind, key) for kind, known in self.kinds.items() for key in sorted(known)]
        kind, key = self.random.choice(there)
        del self.kinds[kind][key], self.table.watch_kind(kind)[key]
        self.at_server.pop((kind, key), None)

    # Judging, and what follows from it.

    def a_pod(self) -> Any:
        sources = [
            *({"persistentVolumeClaim": {"claimName": name}} for name in (*CLAIMS, "nowhere")),
            {"ephemeral": {}},
            {"emptyDir": {}},
        ]
        chosen = self.random.choices(sources, k=self.random.choice([0, 1, 1, 2, 2, 3]))
        return pod("p", volumes=[{"name": f"v{number}", **each} for number, each in enumerate(chosen)])

    def compare(self) -> list[Any]:
        """Judge a pod by plugin and loops; return what the loops say."""
        waiting, state, snapshot = self.a_pod(), CycleState(), self.table.snapshot()
        answer = self.plugin.pre_filter(state, waiting, snapshot)
        claims = self.claims_of(waiting)
        if not isinstance(claims, tuple):
            assert isinstance(answer, Status)
            assert answer.message == (claims or "")
            return [claims or answer.code.value]
        found = [loops.judge(*claims, each, self.objects) for each in self.table.nodes]
        outcomes = self.plugin.filter(state, waiting, snapshot, snapshot.all_rows)
        said = [verdict for verdict, _ in found]
        assert [_without_words(each) for each in verdicts(outcomes)] == [
            _without_words(each) for each in said
        ]
        for row, (verdict, expected) in enumerate(found):
            if verdict == PASSES:
                on = state.read("VolumeBinding", NodeVolumes).on(snapshot.name_of(row))
                assert on is not None
                assert [(key_of(claim), name) for claim, name in on.bindings] == expected.bindings
                assert [key_of(claim) for claim in on.provisions] == expected.provisions
        passing = [row for row, verdict in enumerate(said) if verdict == PASSES]
        said += self.compare_scores(waiting, state, passing, found) if passing else []
        if passing and self.random.random() < 0.3:
            row = self.random.choice(passing)
            self.reserve(waiting, state, snapshot.name_of(row), found[row][1])
        return said

    def compare_scores(
        self, waiting: Any, state: CycleState, passing: list[int], found: list[tuple[Any, loops.Found]]
    ) -> list[Any]:
        """Score the nodes that pass by plugin and loop; return the scores."""
        snapshot, rows = self.table.snapshot(), np.array(passing, dtype=np.intp)
        skipped = self.plugin.pre_score(state, waiting, snapshot, rows) is SKIP
        assert skipped is not self.scores
        if skipped:
            return []
        scores = scores_of(self.plugin, state, waiting, snapshot, rows)[rows].tolist()
        assert scores == [loops.score(found[row][1], self.table.nodes[row], self.objects) for row in passing]
        return scores

    def claims_of(self, waiting: Any) -> Any:
        try:
            return loops.claims_of(waiting, self.objects)
        except loops.PreFilterError as ends:
            return str(ends)

    def reserve(self, waiting: Any, state: CycleState, node_name: str, expected: loops.Found) -> None:
        """Assume what was found, and see that everybody sees it."""
        self.plugin.reserve(state, waiting, node_name)
        for key, name in expected.bindings:
            claimed = copy.deepcopy(self.objects.volumes[name])
            bound = self.objects.claims[key]["metadata"]
            before = claimed["spec"].get("claimRef")
            claimed["spec"]["claimRef"] = {
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                **{field: bound[field] for field in ("namespace", "name", "uid", "resourceVersion")},
            }
            annotations = claimed["metadata"].get("annotations", {})
            claimed["metadata"]["annotations"] = annotations
            if before is None:
                annotations["pv.kubernetes.io/bound-by-controller"] = "yes"
            if before is None or before.get("uid") != bound["uid"]:
                self.assume(VOLUME_KIND, name, claimed)
        for key in expected.provisions:
            placed = copy.deepcopy(self.objects.claims[key])
            placed["metadata"]["annotations"][loops.SELECTED_NODE] = node_name
            self.assume(CLAIM_KIND, key, placed)
        self.under_way.append(state)

    def assume(self, kind: str, key: str, obj: dict[str, Any]) -> None:
        self.at_server.setdefault((kind, key), self.kinds[kind][key])
        self.kinds[kind][key] = obj
        assert self.table.watch_kind(kind)[key] == obj

    def give_up(self) -> None:
        """Take back what was assumed for some pod; the last one, since others may build on earlier ones."""
        while self.under_way:
            self.plugin.unreserve(self.under_way.pop(), pod("p"), "n0")
        for (kind, key), obj in self.at_server.items():
            self.kinds[kind][key] = obj
        self.at_server.clear()
        for kind, known in self.kinds.items():
            assert dict(self.table.watch_kind(kind)) == known


def _without_words(verdict: Any) -> Any:
    code, reasons = verdict
    return code, () if code == "Error" and "selector" in reasons[0] else reasons


def tell(seed: int) -> set[Any]:
    """Tell a story, and compare after each step; return everything that was said."""
    story, said = Story(seed), set[Any]()
    for _ in range(STEPS):
        story.go_on()
        for _ in range(3):
            said.update(story.compare())
    story.give_up()
    return said


@pytest.mark.parametrize("seed", range(12))
def test_the_plugin_agrees_with_the_reference_loops(seed: int):
    tell(seed)


def test_the_random_clusters_produce_every_verdict():
    said = set[Any]().union(*map(tell, range(100, 108)))

    assert {PASSES, "Skip", loops.UNBOUND_IMMEDIATE} <= said
    assert len([each for each in said if isinstance(each, int)]) > 5
    reasons = {each[1] for each in said if isinstance(each, tuple)}
    single = (loops.NODE_CONFLICT, loops.BIND_CONFLICT, loops.NOT_ENOUGH_SPACE, loops.PV_NOT_EXIST)
    assert {(reason,) for reason in single} <= reasons
    assert {
        (loops.NODE_CONFLICT, loops.BIND_CONFLICT),
        (loops.NODE_CONFLICT, loops.NOT_ENOUGH_SPACE),
        (loops.BIND_CONFLICT, loops.PV_NOT_EXIST),
    } <= reasons
    assert {each[0] for each in said if isinstance(each, tuple)} >= {"Error"}
    assert said >= {
        'persistentvolumeclaim "nowhere" not found',
        'persistentvolumeclaim "c0" is being deleted',
        'VolumeBindingMode not set for StorageClass "undecided"',
    }
