"""Clusters for tests: nodes with pods on them, and wild ones that no sane person runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from scheduler.objects.v1 import HostPort
from scheduler.snapshot import ClusterTable
from tests.support.builders import node, pod

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot


@dataclass
class Cluster:
    """Nodes, and the pods on each, as plain lists: what a slow reference looks at."""

    nodes: list[NodeObject]
    pods: Mapping[str, list[PodInfo]] = field(default_factory=dict)  # node name -> pods

    def table(self) -> ClusterTable:
        table = ClusterTable()
        for each in self.nodes:
            row = table.add_node(each)
            for placed in self.pods.get(each.name, ()):
                table.add_pod(row, placed)
        return table

    def snapshot(self) -> Snapshot:
        return self.table().snapshot()


def cluster(*nodes: NodeObject, pods: Iterable[PodInfo] = ()) -> Cluster:
    """Return a cluster of nodes and of pods bound to them."""
    placed: dict[str, list[PodInfo]] = {}
    for each in pods:
        placed.setdefault(each.node_name, []).append(each)
    return Cluster(list(nodes), placed)


# Wild ones. Everything has a few sane values, so that rules are met and not only missed.

RESOURCES = ("cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "hugepages-2Mi", "example.com/foo")

quantities = st.one_of(
    st.integers(0, 8).map(str),
    st.integers(0, 4000).map("{}m".format),
    st.integers(0, 8000).map("{}Mi".format),
    st.sampled_from(["0", "0.5", "1e3", "2Gi", "700Mi", "0.0001", "123456789n", "90Ti", "100Ti"]),
    st.sampled_from(["-1", "-500m", "-2Gi", "8E", "7Ei", "9223372036854775807", "-9223372036854775807"]),
)
labels = st.dictionaries(
    st.sampled_from(["zone", "disk", "größe", "n", "example.com/n"]),
    st.sampled_from(["", "a", "b", "ü", "10", "-3", "+7", "007", "99999999999999999999", "1_0", "٣"]),
    max_size=4,
)
_effects = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule", "PreferNoSchedule", "Weird", ""])
_keys = st.sampled_from(["k1", "k2", "ключ", "node.kubernetes.io/unschedulable"])
_values = st.sampled_from(["", "v", "значение"])
taints = st.fixed_dictionaries({"key": _keys, "value": _values, "effect": _effects})
tolerations = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.one_of(_keys, st.just("")),
            "operator": st.sampled_from(["", "Equal", "Exists", "Exists", "Lt", "Gt"]),
            "value": _values,
            "effect": _effects,
        }
    ),
    max_size=3,
)
requests = st.dictionaries(st.sampled_from(RESOURCES), quantities, max_size=4)
_ADDRESSES = ("", "0.0.0.0", "127.0.0.1", "::1")  # noqa: S104 - nothing listens here
ports = st.fixed_dictionaries(
    {
        "hostPort": st.sampled_from([0, 80, 80, 443]),
        "hostIP": st.sampled_from(_ADDRESSES),
        "protocol": st.sampled_from(["", "TCP", "UDP"]),
    }
)
HOST_PORTS = [HostPort(*each) for each in product(_ADDRESSES[1:], ("TCP", "UDP"), (80, 443))]
"""All that `ports` may be."""
IMAGE_NAMES = ("a", "a:latest", "b:1", "r.io:5000/c", "r.io:5000/c:latest", "d@sha256:0")
images = st.fixed_dictionaries(
    {
        "names": st.lists(st.sampled_from(IMAGE_NAMES), max_size=3),
        "sizeBytes": st.sampled_from([0, 1, 10**7, 5 * 10**8, 3 * 10**9, 2**62, -5]),
    }
)
_expressions = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["zone", "disk", "größe", "n", "example.com/n", "not a key!", ""]),
        "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Weird"]),
        "values": st.lists(st.sampled_from(["a", "b", "10", "-4", "007", "", "no value!"]), max_size=2),
    }
)
_fields = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["metadata.name", "metadata.name", "metadata.uid"]),
        "operator": st.sampled_from(["In", "In", "NotIn", "Exists"]),
        "values": st.lists(st.sampled_from(["node-0", "node-1", "node-9", ""]), max_size=2),
    }
)
node_selector_terms = st.fixed_dictionaries(
    {"matchExpressions": st.lists(_expressions, max_size=2), "matchFields": st.lists(_fields, max_size=2)}
)
_label_keys = st.sampled_from(["zone", "disk", "n", "example.com/n", "nobody-has-it"])
_good_expressions = st.one_of(
    st.fixed_dictionaries(
        {
            "key": _label_keys,
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(st.sampled_from(["a", "b", "10", "007", ""]), min_size=1, max_size=4),
        }
    ),
    st.fixed_dictionaries(
        {"key": _label_keys, "operator": st.sampled_from(["Exists", "DoesNotExist"]), "values": st.just([])}
    ),
    st.fixed_dictionaries(
        {
            "key": _label_keys,
            "operator": st.sampled_from(["Gt", "Lt"]),
            "values": st.lists(st.sampled_from(["-4", "3", "8"]), min_size=1, max_size=1),
        }
    ),
)


@st.composite
def _many_node_selector_terms(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw the expressions of long terms once: drawing them for each term took most of the time of a test."""
    expressions = draw(st.lists(_good_expressions, min_size=17, max_size=20))
    few = st.lists(_good_expressions, max_size=2)
    many = st.integers(17, len(expressions)).map(lambda count: expressions[:count])
    fields = st.just([]) | st.lists(_fields, max_size=1)
    term = st.fixed_dictionaries({"matchExpressions": few | many, "matchFields": fields})
    return draw(st.lists(term, min_size=17, max_size=24))


many_node_selector_terms = _many_node_selector_terms()
"""So many that those alike are merged."""
_preferred = st.fixed_dictionaries(
    {"weight": st.sampled_from([0, 1, 7, 100]), "preference": node_selector_terms}
)
node_affinities = st.fixed_dictionaries(
    {},
    optional={
        "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
            {"nodeSelectorTerms": st.lists(node_selector_terms, max_size=2)}
        ),
        "preferredDuringSchedulingIgnoredDuringExecution": st.lists(_preferred, max_size=3),
    },
)


_disks = st.one_of(
    st.builds(
        lambda name, read_only: {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}},
        st.sampled_from(["d1", "d2"]),
        st.booleans(),
    ),
    st.sampled_from(["d1", "d2"]).map(lambda name: {"awsElasticBlockStore": {"volumeID": name}}),
    st.builds(
        lambda name, read_only: {"iscsi": {"iqn": name, "readOnly": read_only}},
        st.sampled_from(["d1", "d2"]),
        st.booleans(),
    ),
    st.builds(
        lambda monitors, pool, read_only: {
            "rbd": {"monitors": monitors, "pool": pool, "image": "d1", "readOnly": read_only}
        },
        st.lists(st.sampled_from(["m1", "m2"]), max_size=2),
        st.sampled_from(["rbd", "other"]),
        st.booleans(),
    ),
)
CLAIM_NAMES = ("c1", "c2", "pending-v", "on-node-0-0-v")
_sources = st.one_of(
    st.sampled_from(CLAIM_NAMES).map(lambda name: {"persistentVolumeClaim": {"claimName": name}}),
    st.just({"ephemeral": {"volumeClaimTemplate": {}}}),
    st.just({"emptyDir": {}}),
    st.just({"image": {"reference": "a"}}),
    _disks,
)
volumes = st.lists(st.builds(lambda source: {"name": "v", **source}, _sources), max_size=3)

PARTS = ("resources", "taints", "labels", "ports", "images", "features", "volumes")
"""What can be wild; a test that names the ones its rule reads is faster and fails with less noise."""


_pod_capacities = st.sampled_from(["0", "1", "3", "110", "-2"])
_other_capacities = st.dictionaries(st.sampled_from(RESOURCES[2:]), quantities, max_size=3)
_taints_by_most = {most: st.lists(taints, max_size=most) for most in (2, 40)}
_most_taints = st.sampled_from([2, 2, 2, 40])
_lists_of_images = st.lists(images, max_size=3)
_features = st.lists(st.sampled_from(["A", "B"]), unique=True)
_node_selectors = st.one_of(st.just({}), labels)
_mounted_images = st.lists(
    st.sampled_from([{"name": "v"}, {"name": "i", "image": {"reference": "a"}}]), max_size=2
)


def _wild_node(draw: st.DrawFn, name: str, parts: tuple[str, ...]) -> NodeObject:
    """Draw from strategies that exist: a new one costs more than what is drawn from it."""
    wild: dict[str, Any] = {}
    if "resources" in parts:
        wild["cpu"], wild["memory"] = draw(quantities), draw(quantities)
        wild["pods"] = draw(_pod_capacities)
        wild["allocatable"] = draw(_other_capacities)
    if "taints" in parts:
        wild["taints"] = draw(_taints_by_most[draw(_most_taints)])
        wild["unschedulable"] = draw(st.booleans())
    if "labels" in parts:
        wild["labels"] = draw(labels)
    if "images" in parts:
        wild["images"] = draw(_lists_of_images)
    if "features" in parts:
        wild["declaredFeatures"] = draw(_features)
    return node(name, **wild)


@st.composite
def wild_pods(draw: st.DrawFn, *parts: str, name: str = "pending", node: str = "") -> PodInfo:
    return _wild_pod(draw, parts or PARTS, name, node)


def _wild_pod(draw: st.DrawFn, parts: tuple[str, ...], name: str, node: str) -> PodInfo:
    spec: dict[str, Any] = {
        "containers": draw(_containers(parts, 3)),
        "initContainers": draw(_containers(parts, 1)),
    }
    if "taints" in parts:
        spec["tolerations"] = draw(tolerations)
    if "labels" in parts:
        spec["nodeSelector"] = draw(_node_selectors)
        if draw(st.booleans()):
            spec["affinity"] = {"nodeAffinity": draw(node_affinities)}
    if "images" in parts:
        spec["volumes"] = draw(_mounted_images)
    if "volumes" in parts:
        spec["volumes"] = draw(volumes)
    return pod(name, node=node, **spec)


@st.composite
def wild_clusters(draw: st.DrawFn, *parts: str, max_nodes: int = 5) -> Cluster:
    parts = parts or PARTS
    names = [f"node-{number}" for number in range(draw(st.integers(0, max_nodes)))]
    on_nodes = tuple(part for part in parts if part in {"resources", "ports", "volumes"})
    placed = {
        name: [
            _wild_pod(draw, on_nodes, f"on-{name}-{number}", name)
            for number in range(draw(st.integers(0, 2)) if on_nodes else 0)
        ]
        for name in names
    }
    return Cluster([_wild_node(draw, name, parts) for name in names], placed)


@cache
def _containers(parts: tuple[str, ...], most: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    wild: dict[str, st.SearchStrategy[Any]] = {"name": st.just("c")}
    if "resources" in parts:
        wild["resources"] = st.fixed_dictionaries({"requests": requests})
    if "ports" in parts:
        wild["ports"] = st.lists(ports, max_size=2)
        wild["restartPolicy"] = st.sampled_from(["", "", "Always"])
    if "images" in parts:
        wild["image"] = st.sampled_from(IMAGE_NAMES)
    return st.lists(st.fixed_dictionaries(wild), max_size=most)
