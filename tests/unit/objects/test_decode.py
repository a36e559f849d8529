from __future__ import annotations

import gc
import json
from typing import Any, Literal

import msgspec
import pytest

from scheduler.errors import ObjectError
from scheduler.objects import decode
from scheduler.objects import decode as decode_module
from scheduler.objects.decode import decode_node, decode_object, decode_pod, typed_object
from tests.support.builders import node_object, pod_object


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
    with pytest.raises(ObjectError) as caught:
        decode_pod(encoded({"metadata": metadata, "spec": 3}))
    assert caught.value.key == key


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

    with pytest.raises(ObjectError) as caught:
        decode_pod(encoded(found))
    assert caught.value.found == found


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
    return encoded(pod_object(name, affinity=affinity, topologySpreadConstraints=[spread]))


def test_pods_share_equal_large_parts_while_one_of_them_exists():
    one, two = (decode_pod(_with_many_requirements(name)) for name in ("one", "two"))

    assert one.pod.spec.affinity is two.pod.spec.affinity
    (spread,), other = one.pod.spec.topology_spread_constraints, two.pod.spec.topology_spread_constraints
    assert spread is other[0]

    del one, two, spread, other
    gc.collect()
    assert not decode_module._SHARED


def test_pods_do_not_share_large_parts_that_differ():
    one, two = (decode_pod(_with_many_requirements("one", count)) for count in (200, 201))
    assert one.pod.spec.affinity != two.pod.spec.affinity
    assert one.pod.spec.topology_spread_constraints != two.pod.spec.topology_spread_constraints


def test_the_fields_of_a_type_are_looked_up_once_for_all_objects_with_nulls(monkeypatch: pytest.MonkeyPatch):
    """The look-up takes milliseconds, and creates cyclic garbage."""
    found = encoded(merged(pod_object("p"), "spec.nodeSelector", None))
    decode_pod(found)
    monkeypatch.delattr(decode.inspect, "type_info")

    assert decode_pod(found).name == "p"
