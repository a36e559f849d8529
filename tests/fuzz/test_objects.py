from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.objects import protobuf
from tests.fuzz.objects import Scene, try_json, try_protobuf
from tests.support.builders import node_object, pod_object

if TYPE_CHECKING:
    from collections.abc import Callable

_SELECTOR = {
    "matchLabels": {"app": "a"},
    "matchExpressions": [{"key": "x", "operator": "In", "values": ["y"]}],
}
_TERM = {"labelSelector": _SELECTOR, "topologyKey": "topology.kubernetes.io/zone"}
_NODE_TERM = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}
_DURING = "DuringSchedulingIgnoredDuringExecution"

FULL_POD = pod_object(
    "evil",
    labels={"app": "a"},
    priority=3,
    nodeSelector={"kubernetes.io/hostname": "n1"},
    tolerations=[{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}],
    containers=[
        {
            "name": "c",
            "image": "a:1",
            "ports": [{"hostPort": 80, "hostIP": "127.0.0.1", "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "1", "memory": "1Gi", "x.io/y": "2"}, "limits": {"cpu": "2"}},
        }
    ],
    initContainers=[{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1m"}}}],
    overhead={"cpu": "1m"},
    affinity={
        "nodeAffinity": {
            f"required{_DURING}": {"nodeSelectorTerms": [_NODE_TERM]},
            f"preferred{_DURING}": [{"weight": 3, "preference": _NODE_TERM}],
        },
        "podAffinity": {f"preferred{_DURING}": [{"weight": 3, "podAffinityTerm": _TERM}]},
        "podAntiAffinity": {f"required{_DURING}": [_TERM]},
    },
    topologySpreadConstraints=[
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": _SELECTOR,
        }
    ],
    volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "w", "emptyDir": {}}],
)
FULL_NODE = node_object(
    "evil",
    cpu="4",
    labels={"topology.kubernetes.io/zone": "c"},
    taints=["k=v:NoSchedule"],
    images=[{"names": ["a:1"], "sizeBytes": 5}],
)

odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        ["", "0", "-1", "1e9999", "9" * 400, "-", "In", "n1", "Exists", "\ud7ff", "\u0000", "x" * 5000]
    ),
    st.text(max_size=8),
    st.sampled_from([[], {}, [[]], {"": {}}, [None], {"a": None}, [{}] * 50]),
)


def places(found: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values in some JSON."""
    below = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    return [path, *(place for key, value in below for place in places(value, (*path, key)))]


@st.composite
def objects_with_odd_fields(draw: st.DrawFn) -> dict[str, Any]:
    found = copy.deepcopy(draw(st.sampled_from([FULL_POD, FULL_NODE])))
    for _ in range(draw(st.integers(1, 3))):
        *parents, last = draw(st.sampled_from(places(found)[1:]))
        place = found
        for key in parents:
            place = place[key]
        if draw(st.booleans()):
            place[last] = draw(odd_values)
        elif isinstance(place[last], list):
            place[last] = place[last] * draw(st.integers(0, 40))
        elif isinstance(place, dict):
            del place[last]
    return found


@st.composite
def broken(draw: st.DrawFn, raw: bytes) -> bytes:
    """Draw bytes with some of them changed, left out, or doubled."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(raw)))
        end = start + draw(st.integers(0, 4))
        new = draw(st.one_of(st.binary(max_size=4), st.sampled_from([b"{" * 1200, b"[" * 1200, b'"', b"\\"])))
        raw = raw[:start] + new + raw[end:]
    return raw


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


_MANY = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def test_the_fuzzed_objects_are_valid_before_fuzzing(scene: Scene):
    try_json(scene, msgspec.json.encode(FULL_POD))
    try_json(scene, msgspec.json.encode(FULL_NODE))
    try_protobuf(scene, protobuf.encode("v1", "Pod", FULL_POD))


@given(objects_with_odd_fields())
@_MANY
def test_an_object_with_odd_fields_is_decoded_or_refused(scene: Scene, found: dict[str, Any]):
    try_json(scene, msgspec.json.encode(found))


@pytest.mark.parametrize(
    ("attempt", "raw"),
    [
        pytest.param(try_json, msgspec.json.encode(FULL_POD), id="a pod as JSON"),
        pytest.param(try_json, msgspec.json.encode(FULL_NODE), id="a node as JSON"),
        pytest.param(try_protobuf, protobuf.encode("v1", "Pod", FULL_POD), id="a pod as protobuf"),
        pytest.param(try_protobuf, protobuf.encode("v1", "Node", FULL_NODE), id="a node as protobuf"),
    ],
)
@given(data=st.data())
@_MANY
def test_broken_bytes_are_decoded_or_refused(
    scene: Scene, attempt: Callable[[Scene, bytes], None], raw: bytes, data: st.DataObject
):
    attempt(scene, data.draw(broken(raw)))
