"""Requests of a real kube-scheduler 1.36.2: this extender decodes them, and this scheduler sends the same bytes.

Recorded with an extender whose nodeCacheCapable was true (`names`) and false (`nodes`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scheduler.extensions import extender_serving_wire, extender_wire
from scheduler.extensions.extender_serving_wire import BindingRequest, RequestError
from scheduler.extensions.extender_wire import MetaVictims
from scheduler.objects.decode import decode_node, decode_pod

RECORDED = Path(__file__).parent / "recorded"
VICTIMS = {
    "node-0001": "247a8333-f7b0-47d2-8da8-056c3d15eef7",
    "node-0002": "101fbccc-ded7-43e8-b421-eaeb534097ca",
}


def recorded(name: str) -> bytes:
    return (RECORDED / f"{name}.json").read_bytes()


def parts(name: str) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(recorded(name), type=dict[str, msgspec.Raw])


def same(said: bytes, name: str) -> None:
    """Compare with kube-scheduler's request, including the order of fields."""
    assert json.dumps(json.loads(said)) == json.dumps(json.loads(recorded(name)))


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
def test_a_request_with_node_names_is_decoded(verb: str) -> None:
    request = extender_serving_wire.nodes_request(recorded(f"names.{verb}"))

    assert request.node_names == ("node-0001", "node-0002")
    assert (request.pod.key, request.pod.scheduler_name) == ("default/low-1", "default-scheduler")
    assert request.pod.resources.taken["cpu"] == 3000


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
def test_a_request_with_whole_nodes_is_refused_with_the_setting_to_change(verb: str) -> None:
    with pytest.raises(RequestError, match="set nodeCacheCapable: true"):
        extender_serving_wire.nodes_request(recorded(f"nodes.{verb}"))


def test_a_request_with_victims_by_uid_is_decoded() -> None:
    request = extender_serving_wire.preemption_request(recorded("names.preempt"))

    assert (request.pod.key, request.pod.priority) == ("default/urgent", 1000)
    assert request.victims == {name: MetaVictims((uid,), 0) for name, uid in VICTIMS.items()}


def test_a_request_with_whole_victims_is_decoded() -> None:
    request = extender_serving_wire.preemption_request(recorded("nodes.preempt"))

    whole = json.loads(recorded("nodes.preempt"))["NodeNameToVictims"]
    assert request.victims == {
        name: MetaVictims(tuple(pod["metadata"]["uid"] for pod in victims["Pods"]), 0)
        for name, victims in whole.items()
    }
    assert all(meta.uids for meta in request.victims.values())


def test_a_request_to_bind_is_decoded() -> None:
    uid = "d3fbf47a-7e5b-4e7f-9ca5-499d004ae545"
    assert extender_serving_wire.binding_request(recorded("bind")) == BindingRequest(
        "default", "web-1", uid, "node-0002"
    )


@pytest.mark.parametrize("name", ["names.filter", "names.prioritize", "nodes.filter", "nodes.prioritize"])
def test_our_request_about_nodes_equals_the_recorded_one(name: str) -> None:
    said = json.loads(recorded(name))
    pod = decode_pod(bytes(parts(name)["Pod"]))
    items: list[Any] = (said["Nodes"] or {}).get("items", [])
    items = items or [{"metadata": {"name": node}} for node in said["NodeNames"]]
    nodes = [decode_node(msgspec.json.encode(node)) for node in items]

    same(extender_wire.arguments(pod, nodes, names_only=said["Nodes"] is None), name)


@pytest.mark.parametrize("name", ["names.preempt", "nodes.preempt"])
def test_our_request_about_victims_equals_the_recorded_one(name: str) -> None:
    said = json.loads(recorded(name))
    pod = decode_pod(bytes(parts(name)["Pod"]))
    whole = said["NodeNameToVictims"] or {
        node: {"Pods": [{"metadata": {"name": "v", "namespace": "d", "uid": uid}}]}
        for node, uid in VICTIMS.items()
    }
    victims = {
        node: ([decode_pod(msgspec.json.encode(each)) for each in of_node["Pods"]], 0)
        for node, of_node in whole.items()
    }

    same(extender_wire.preemption_arguments(pod, victims, names_only=said["NodeNameToVictims"] is None), name)


def test_our_request_to_bind_equals_the_recorded_one() -> None:
    metadata = {"name": "web-1", "namespace": "default", "uid": "d3fbf47a-7e5b-4e7f-9ca5-499d004ae545"}
    pod = decode_pod(msgspec.json.encode({"metadata": metadata}))

    same(extender_wire.binding_arguments(pod, "node-0002"), "bind")
