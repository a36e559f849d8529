"""Objects are decoded, and all readable parts of those that cannot be decoded as a whole."""

from __future__ import annotations

import gc
import json
import tracemalloc
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.errors import ObjectError
from scheduler.objects import decode
from scheduler.objects.decode import (
    decode_node,
    decode_object,
    decode_pod,
    elements,
    legible,
    members,
    outline_pod,
    typed_object,
    without_managed_fields,
)
from scheduler.objects.pod import spec_digest, trim_bound_pod
from scheduler.objects.resources import DEFAULT_RULES
from tests.support.builders import node_object, pod_object
from tests.support.errors import raises

if TYPE_CHECKING:
    from collections.abc import Callable


def encoded(found: Any) -> bytes:
    return json.dumps(found).encode()


def merged(found: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return an object with one field set, named by its path."""
    *parents, last = path.split(".")
    place = found
    for parent in parents:
        place = place.setdefault(parent, {})
    place[last] = value
    return found


def test_a_pod_keeps_its_bytes_and_its_fields():
    raw = encoded(pod_object("web", namespace="shop", node="n1", priority=7, labels={"app": "web"}))
    pod = decode_pod(raw)
    assert pod.raw is raw
    assert (pod.key, pod.node_name, pod.priority, pod.labels) == ("shop/web", "n1", 7, {"app": "web"})
    assert pod.object["spec"]["nodeName"] == "n1"


def test_bytes_of_a_pod_on_a_node_are_kept_on_request_only():
    bound, pending = (encoded(pod_object("web", node=node)) for node in ("n1", ""))
    assert decode_pod(bound, keeps_bound_objects=False).raw is None
    assert decode_pod(bound).raw is bound
    assert decode_pod(pending, keeps_bound_objects=False).raw is pending


def test_managed_fields_of_a_pod_are_dropped():
    found = merged(pod_object("web", labels={"managedFields": "a word"}), "spec.odd", {"managedFields": [7]})
    managed = [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}, "time": "2026-05-04T10:11:12Z"}]
    raw = encoded({**found, "metadata": {**found["metadata"], "managedFields": managed}})
    assert decode_pod(raw).object == found
    assert decode_pod(encoded(found)).object == found


def test_a_node_keeps_its_bytes_and_its_fields():
    raw = encoded(node_object("n1", taints=["gpu=yes:NoSchedule"], unschedulable=True, labels={"zone": "a"}))
    node = decode_node(raw)
    assert node.raw is raw
    assert (node.name, node.unschedulable, node.labels["zone"]) == ("n1", True, "a")
    assert [(taint.key, taint.value, taint.effect) for taint in node.taints] == [("gpu", "yes", "NoSchedule")]


def test_a_pod_of_metadata_alone_has_the_defaults_of_the_api():
    pod = decode_pod(b'{"metadata":{"name":"web","namespace":"shop","uid":"1"}}')
    assert pod.priority == 0
    assert pod.scheduler_name == "default-scheduler"
    assert pod.pod.spec.preemption_policy == "PreemptLowerPriority"
    assert pod.pod.spec.termination_grace_period_seconds == 30
    assert pod.node_name == ""


def test_a_node_without_status_has_no_allocatable_resources():
    assert decode_node(b'{"metadata":{"name":"n1"}}').allocatable == {}


def test_unused_fields_are_skipped_with_any_value():
    found = merged(pod_object("web"), "spec.fieldOfALaterVersion", [None, {"odd": [1, None]}])
    found["spec"]["priority"] = None  # so that the slow path is used as well
    assert decode_pod(encoded(found)).name == "web"


@pytest.mark.parametrize(
    "path",
    [
        "metadata.labels",
        "metadata.creationTimestamp",
        "metadata.deletionTimestamp",
        "spec",
        "spec.priority",
        "spec.schedulerName",
        "spec.preemptionPolicy",
        "spec.nodeName",
        "spec.containers",
        "spec.initContainers",
        "spec.overhead",
        "spec.resources",
        "spec.tolerations",
        "status",
        "status.conditions",
        "status.containerStatuses",
    ],
)
def test_null_means_a_missing_field(path: str):
    absent = pod_object("web")
    with_null = merged(pod_object("web"), path, None)
    *parents, last = path.split(".")
    place = absent
    for parent in parents:
        place = place[parent]
    place.pop(last, None)
    assert decode_pod(encoded(with_null)).pod == decode_pod(encoded(absent)).pod


def test_null_in_a_list_or_map_is_a_zero_value_in_its_place():
    found = pod_object("web", labels={"app": None}, tolerations=[None, {"key": "gpu", "value": None}])
    found["spec"]["containers"] = [None, {"name": "c", "resources": {"requests": {"cpu": None}}}]
    pod = decode_pod(encoded(found))
    assert pod.labels == {"app": ""}
    assert [toleration.key for toleration in pod.tolerations] == ["", "gpu"]
    assert [container.name for container in pod.pod.spec.containers] == ["", "c"]
    assert pod.resources.nonzero_milli_cpu == 100  # the zero of one container is explicit


def test_nulls_inside_an_optional_struct_are_missing():
    whole = {"requests": {"cpu": "2"}, "limits": None}
    pod = decode_pod(encoded(pod_object("web", resources=whole)))
    assert pod.resources.requests == {"cpu": 2000}


def test_a_null_in_a_node_is_missing():
    assert decode_node(encoded(merged(node_object("n1"), "spec.taints", None))).taints == ()


@pytest.mark.parametrize(
    ("path", "value", "at", "problem"),
    [
        pytest.param("metadata.name", 3, "metadata.name", "expected `str`, got `int`", id="a name"),
        pytest.param("metadata.labels", {"a": 3}, "metadata.labels[...]", "expected `str`", id="a label"),
        pytest.param("metadata", [], "metadata", "expected `object`, got `array`", id="metadata"),
        pytest.param("spec.priority", "high", "spec.priority", "expected `int`, got `str`", id="a priority"),
        pytest.param("spec.priority", 1.5, "spec.priority", "expected `int`", id="half a priority"),
        pytest.param(
            "spec.containers",
            [{"name": "a"}, {"name": 3}],
            "spec.containers[1].name",
            "expected `str`, got `int`",
            id="a container",
        ),
        pytest.param(
            "spec.containers",
            [{"name": "a", "resources": {"requests": {"cpu": True}}}],
            "spec.containers[0].resources.requests[...]",
            "got `bool`",
            id="a bool for a quantity",
        ),
        pytest.param("spec", "x", "spec", "expected `object`, got `str`", id="the spec"),
    ],
)
@pytest.mark.parametrize("beside_a_null", [False, True], ids=["alone", "beside a null"])
def test_a_field_of_the_wrong_type_is_named(
    path: str, value: Any, at: str, problem: str, beside_a_null: bool
):
    found = merged(pod_object("web", namespace="shop"), path, value)
    if beside_a_null:
        found["status"]["conditions"] = None
    with pytest.raises(ObjectError) as caught:
        decode_pod(encoded(found))
    assert caught.value.kind == "Pod"
    assert caught.value.path == at
    assert problem in caught.value.problem


@pytest.mark.parametrize(
    ("metadata", "key"),
    [
        pytest.param({"name": "web", "namespace": "shop"}, "shop/web", id="both"),
        pytest.param({"name": "web"}, "?/web", id="no namespace"),
        pytest.param({"name": "web", "namespace": 3}, "?/web", id="an odd namespace"),
        pytest.param({"namespace": "shop"}, "?", id="no name"),
        pytest.param({"name": 3}, "?", id="an odd name"),
        pytest.param(None, "?", id="nothing"),
    ],
)
def test_an_error_names_the_pod_if_its_name_can_be_decoded(metadata: Any, key: str):
    with raises(ObjectError, key=key):
        decode_pod(encoded({"metadata": metadata, "spec": 3}))


def test_an_error_names_a_node_without_a_namespace():
    with pytest.raises(ObjectError, match=r"^Node n1: spec: expected `object`, got `int`$"):
        decode_node(encoded({"metadata": {"name": "n1"}, "spec": 3}))


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        pytest.param(b"", "expected JSON, found b''", id="nothing"),
        pytest.param(b'{"metadata":', "expected JSON, found b'{\"metadata\":'", id="cut short"),
        pytest.param(b"{" + b" " * 100 + b"]", "...: JSON is malformed", id="malformed"),
        pytest.param(b'{"metadata":{"name":"\xff"}}', "can't decode byte 0xff", id="not UTF-8"),
        pytest.param(b"[]", "expected a JSON object, found b'[]'", id="an array"),
        pytest.param(b"null", "expected a JSON object, found b'null'", id="null"),
    ],
)
@pytest.mark.parametrize("decode", [decode_pod, decode_node, decode_object])
def test_a_value_that_is_no_json_object_is_refused(decode: Any, raw: bytes, problem: str):
    with pytest.raises(ObjectError) as caught:
        decode(raw)
    assert caught.value.key == "?"
    assert problem in caught.value.problem


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        pytest.param({"uid": "1"}, r"^Pod \?/\?: metadata\.name: expected text, found none$", id="no name"),
        pytest.param(
            {"name": "web", "namespace": "shop"},
            r"^Pod shop/web: metadata\.uid: expected text, found none$",
            id="no uid",
        ),
        pytest.param(
            {"name": "web", "namespace": "shop", "uid": None},
            r"metadata\.uid: expected text",
            id="a null uid",
        ),
    ],
)
def test_a_pod_needs_a_name_and_a_uid(metadata: dict[str, Any], message: str):
    with pytest.raises(ObjectError, match=message):
        decode_pod(encoded({"metadata": metadata}))


def test_a_node_needs_a_name():
    with pytest.raises(ObjectError, match=r"^Node \?: metadata\.name: expected text, found none$"):
        decode_node(b'{"metadata":{}}')


def test_an_invalid_quantity_raises_when_the_object_is_decoded():
    with pytest.raises(ObjectError, match=r"spec\.containers\[0\]\.resources\.requests\.cpu: 'x' is not"):
        decode_pod(encoded(pod_object("web", cpu="x")))
    with pytest.raises(ObjectError, match=r"status\.allocatable\.cpu: 'x' is not a quantity"):
        decode_node(encoded(node_object("n1", cpu="x")))


@pytest.mark.parametrize(
    "fields", [{"cpu": "x"}, {"priority": "high"}], ids=["a bad quantity", "a wrong type"]
)
def test_an_undecodable_pod_is_returned_as_untyped_json(fields: Any):
    found = pod_object("web", **fields)

    with raises(ObjectError, found=found):
        decode_pod(encoded(found))


def test_invalid_json_is_not_returned():
    with pytest.raises(ObjectError) as caught:
        decode_pod(b"{")
    assert caught.value.found is None


def test_any_other_object_is_returned_unchanged():
    assert decode_object(b'{"kind":"Lease","spec":{"a":null}}') == {"kind": "Lease", "spec": {"a": None}}


def test_text_in_an_error_that_resembles_a_path_is_not_taken_for_one():
    class Kind(msgspec.Struct):
        spec: Literal["a"]

    odd = "x - at `$.other` " * 50_000
    with pytest.raises(ObjectError) as reported:
        typed_object({"metadata": {"name": "n"}, "spec": odd}, Kind)
    assert reported.value.path == "spec"
    assert odd in str(reported.value)


def _with_many_requirements(name: str, count: int = 200) -> bytes:
    requirements = [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(count)]
    selector = {"matchExpressions": requirements}
    term = {"labelSelector": selector, "topologyKey": "zone"}
    spread = {"maxSkew": 1, "topologyKey": "zone", "labelSelector": selector}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    monitors = [f"10.0.{number}.1:6789" for number in range(count)]
    volumes = [
        {"name": "home", "rbd": {"image": "home", "monitors": monitors}},
        {"name": "tmp", "emptyDir": {}},
    ]
    return encoded(pod_object(name, affinity=affinity, topologySpreadConstraints=[spread], volumes=volumes))


def test_pods_share_equal_large_parts_while_one_of_them_exists():
    known = set(decode._SHARED)  # pods of other tests may still exist
    one, two = (decode_pod(_with_many_requirements(name)) for name in ("one", "two"))
    assert set(decode._SHARED) > known

    assert one.pod.spec.affinity is two.pod.spec.affinity
    (spread,), other = one.pod.spec.topology_spread_constraints, two.pod.spec.topology_spread_constraints
    assert spread is other[0]
    disk, also = one.pod.spec.volumes[0].rbd, two.pod.spec.volumes[0].rbd
    assert disk is also
    assert disk is not None

    del one, two, spread, other, disk, also
    gc.collect()
    assert set(decode._SHARED) <= known


@pytest.mark.parametrize("values", [20, 200, 20_000])
def test_pods_on_nodes_share_equal_constraints_of_any_size(values: int) -> None:
    requirement = {"key": "a", "operator": "In", "values": [f"value-{each}" for each in range(values)]}
    selector = {"matchExpressions": [requirement]}
    spread = [{"maxSkew": 1, "topologyKey": "zone", "labelSelector": selector}]
    written = [
        encoded(pod_object(name, nodeName="n0", topologySpreadConstraints=spread)) for name in ("a", "b")
    ]
    one, two = (trim_bound_pod(decode_pod(each, keeps_bound_objects=False)) for each in written)

    assert (
        one.pod.spec.topology_spread_constraints[0].label_selector
        is two.pod.spec.topology_spread_constraints[0].label_selector
    )


def test_pods_do_not_share_large_parts_that_differ():
    one, two = (decode_pod(_with_many_requirements("one", count)) for count in (200, 201))
    assert one.pod.spec.affinity != two.pod.spec.affinity
    assert one.pod.spec.topology_spread_constraints != two.pod.spec.topology_spread_constraints
    assert one.pod.spec.volumes != two.pod.spec.volumes


def _with_many_ports(name: str, count: int = 1000) -> bytes:
    ports = [{"containerPort": each, "hostPort": each} for each in range(1, 1 + count)]
    return encoded(pod_object(name, containers=[{"name": "c", "ports": ports}]))


def test_large_pods_share_an_equal_spec_while_one_of_them_exists():
    first, second = decode_pod(_with_many_ports("a")), decode_pod(_with_many_ports("b"))
    spec = first.pod.spec
    del first
    third = decode_pod(_with_many_ports("c"))

    assert second.pod.spec is spec
    assert third.pod.spec is spec

    del second, third
    gc.collect()
    assert not decode._LARGE_PODS


def test_large_pods_with_other_specs_share_nothing_and_have_other_digests():
    one, two = (decode_pod(_with_many_ports("a", count)) for count in (1000, 1001))

    assert one.pod.spec != two.pod.spec
    assert one.spec_digest != two.spec_digest


def test_the_digest_of_a_large_spec_is_computed_once_for_each_version_of_the_pod():
    found = decode_pod(_with_many_ports("a"))

    assert found.__dict__["spec_digest"] == spec_digest(found.pod.spec)
    assert "spec_digest" not in decode_pod(_with_many_ports("a", 1)).__dict__


MANAGED = [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}, "time": "2026-05-04T10:11:12Z"}]


def _with_annotations(name: str, text: str, *, node: str = "", **metadata: Any) -> dict[str, Any]:
    found = pod_object(name, node=node, labels={"app": "web"})
    found["metadata"] |= {"annotations": {"large": text, "small": name}, **metadata}
    return found


def _memory_of(made: Callable[[], object]) -> int:
    tracemalloc.start()
    kept = made()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    return taken


def test_a_large_pod_keeps_its_annotations_once():
    size = 200_000
    lines = [encoded(_with_annotations(f"p{each}", "x" * size, managedFields=MANAGED)) for each in range(10)]

    taken = _memory_of(lambda: [decode_pod(line) for line in lines])

    assert taken < 1.05 * size * len(lines)


def test_a_pod_without_managed_fields_takes_no_more_memory_than_its_bytes_and_its_fields():
    bare = encoded(_with_annotations("web", "x" * 3000))
    line = encoded(_with_annotations("web", "x" * 3000, managedFields=MANAGED))

    taken = _memory_of(lambda: [decode_pod(line) for _ in range(100)])
    of_fields = _memory_of(lambda: [decode_pod(bare) for _ in range(100)])  # these bytes exist already

    assert taken - of_fields < 1.05 * len(bare) * 100


@pytest.mark.parametrize("metadata", [{}, {"managedFields": MANAGED}], ids=["plain", "managed"])
@pytest.mark.parametrize("size", [10, 40_000])
def test_every_version_of_a_pod_has_its_whole_object(size: int, metadata: dict[str, Any]):
    found = _with_annotations("web", '"\\ä\n😀' + "x" * size)
    pod = decode_pod(encoded({**found, "metadata": {**found["metadata"], **metadata}}))

    versions = [pod, pod.placed_on("n1"), pod.with_requests({"cpu": 7}), pod.with_spec(priority=7)]
    versions += [pod.with_claims((), DEFAULT_RULES)]
    for each in versions:
        assert each.raw is not None
        assert json.loads(each.raw) == each.object == found
    assert pod.raw_size == pytest.approx(len(pod.raw or b""), abs=64)


@pytest.mark.parametrize("keeps", [False, True])
def test_a_bound_pod_without_its_annotations_has_its_whole_object_on_request(keeps: bool):
    found = _with_annotations("web", "x" * 40_000, node="n1")

    pod = trim_bound_pod(decode_pod(encoded(found), keeps_bound_objects=keeps), keep_object=keeps)

    assert pod.annotations == {}
    assert (json.loads(pod.raw) if pod.raw else None) == (found if keeps else None)
    assert bool(pod.raw_size) is keeps


def test_the_fields_of_a_type_are_looked_up_once_for_all_objects_with_nulls(monkeypatch: pytest.MonkeyPatch):
    """The look-up takes milliseconds, and creates cyclic garbage."""
    found = encoded(merged(pod_object("p"), "spec.nodeSelector", None))
    decode_pod(found)
    monkeypatch.delattr(decode.inspect, "type_info")

    assert decode_pod(found).name == "p"


def test_its_identity_scheduler_node_phase_and_conditions_are_kept():
    condition = {"type": "PodScheduled", "status": "False", "reason": "R", "message": "M"}
    found = pod_object("web", namespace="shop", node="n1", cpu="odd", status={"conditions": [condition]})
    found["metadata"] |= {"resourceVersion": "7", "generation": 3}

    pod = outline_pod(found)

    assert pod is not None
    assert (pod.key, pod.uid, pod.resource_version) == ("shop/web", "uid-of-shop-web", "7")
    assert (pod.scheduler_name, pod.node_name, pod.is_terminal) == ("custom-scheduler", "n1", False)
    assert pod.pod.metadata.generation == 3
    assert [(each.type, each.message) for each in pod.pod.status.conditions] == [("PodScheduled", "M")]
    assert pod.resources.taken == {}


@pytest.mark.parametrize(
    "metadata",
    [None, [], {}, {"name": "web"}, {"uid": "1"}, {"name": 7, "uid": "1"}],
    ids=["null", "a list", "empty", "no uid", "no name", "a name that is no text"],
)
def test_an_object_without_name_or_uid_has_no_outline(metadata: Any):
    assert outline_pod({"metadata": metadata}) is None


@pytest.mark.parametrize("part", [None, [], "text", {"nodeName": 7, "schedulerName": None, "phase": {}, "conditions": 9}])  # fmt: skip
def test_values_of_a_wrong_type_are_left_out(part: Any):
    pod = outline_pod(
        {"metadata": {"name": "web", "uid": "1", "generation": "x"}, "spec": part, "status": part}
    )

    assert pod is not None
    assert (pod.namespace, pod.node_name, pod.scheduler_name) == ("", "", "default-scheduler")
    assert pod.pod.status.conditions == ()
    assert pod.pod.metadata.generation == 0


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text('a\\"{}[],: é', max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text('a\\"{[,:', max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)
spaces = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")])


def nested(levels: int) -> bytes:
    return b'{"f:a":' * levels + b"{}" + b"}" * levels


def with_field(found: dict[str, Any], place: str, name: str, value: bytes) -> bytes:
    """Return an object with an additional raw field in one of its parts."""
    changed = {**found, place: {**found.get(place, {}), name: "@@"}}
    return json.dumps(changed).encode().replace(b'"@@"', value)


@given(st.dictionaries(st.text(max_size=3), values, max_size=4), spaces, st.booleans())
def test_the_members_of_an_object_equal_those_of_a_decoder(
    found: dict[str, Any], separators: tuple[str, str], ascii_only: bool
):
    raw = json.dumps(found, separators=separators, ensure_ascii=ascii_only).encode()

    assert {name: json.loads(part) for name, part in members(raw).items()} == found
    assert legible(raw) == found


@given(st.lists(values, max_size=4), spaces)
def test_the_elements_of_a_list_equal_those_of_a_decoder(found: list[Any], separators: tuple[str, str]):
    raw = json.dumps(found, separators=separators).encode()

    assert [json.loads(part) for part in elements(raw)] == found


@given(st.binary(max_size=60), st.sampled_from([members, elements, legible, without_managed_fields]))
def test_invalid_json_is_read_partially_or_refused(raw: bytes, read: Any):
    with suppress(ValueError):
        read(raw)


@pytest.mark.parametrize(
    "raw",
    [b"", b"7", b'"{}"', b"{", b'{"a":1', b'{"a":"}', b"[1]", b"{1}", b"{,}", b"[]", b"{]", b"{}x", b"x{}"],
)
def test_only_a_whole_object_has_members(raw: bytes):
    with pytest.raises(ValueError, match="JSON"):
        members(raw)


@pytest.mark.parametrize("levels", [10, 985, 1100, 10_000, 200_000])
@pytest.mark.parametrize(
    ("kind", "decode"),
    [
        (pod_object, lambda raw: decode_pod(raw).object),
        (node_object, lambda raw: decode_node(raw).object),
        (pod_object, decode_object),
    ],
    ids=["Pod", "Node", "another kind"],
)
def test_managed_fields_may_nest_to_any_depth(kind: Any, decode: Any, levels: int):
    found = kind("a", labels={"x": '}{\\"'})
    raw = with_field(found, "metadata", "managedFields", b'[{"fieldsV1":' + nested(levels) + b"}]")

    assert {**(read := decode(raw)), "metadata": {**read["metadata"], "managedFields": 0}} == {
        **found,
        "metadata": {**found["metadata"], "managedFields": 0},
    }


@pytest.mark.parametrize("bad", [b'"\xff"', b'"\\ud800"', b"{]", b"1e", b"[" * 2000 + b"]" * 2000])
def test_managed_fields_may_be_invalid(bad: bytes):
    raw = with_field(pod_object("web"), "metadata", "managedFields", bad)

    assert decode_pod(raw).key == "default/web"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (nested(100_000), "nests too deeply"),
        (b'{"a":1,,}', "expected JSON: "),
        (b'"\xff"', "expected JSON: "),
        (b'"\\ud800"', "expected JSON: "),
    ],
    ids=["deep", "no JSON", "no UTF-8", "half a character"],
)
@pytest.mark.parametrize(
    ("place", "field"), [("metadata", "annotations"), ("spec", "containers"), ("status", "message")]
)
def test_an_undecodable_pod_has_its_name(place: str, field: str, value: bytes, problem: str):
    raw = with_field(pod_object("web", namespace="shop", schedulerName="mine"), place, field, value)

    with pytest.raises(ObjectError) as caught:
        decode_pod(raw)

    assert str(caught.value).startswith(f"Pod shop/web: {problem}")
    assert caught.value.found is not None
    outline = outline_pod(caught.value.found)
    assert outline is not None
    assert (outline.key, outline.scheduler_name) == ("shop/web", "mine")


def test_the_cost_of_an_outline_does_not_depend_on_the_size_of_a_part():
    many = b"{" + b",".join(b'"k%d":1' % number for number in range(100_000)) + b',"bad":"\xff"}'
    raw = with_field(pod_object("web"), "metadata", "annotations", many)

    assert "annotations" not in legible(raw)["metadata"]


def test_an_object_keeps_everything_but_its_managed_fields():
    found = pod_object("web", labels={"managedFields": "é"})
    raw = with_field(found, "metadata", "managedFields", b"[]")

    assert msgspec.json.decode(without_managed_fields(raw)) == found


def test_a_pod_with_a_broken_part_has_its_name():
    raw = json.dumps({**pod_object("web"), "status": "@@"}).encode().replace(b'"@@"', b'{"a":1,,}')

    with raises(ObjectError, key="default/web"):
        decode_pod(raw)
