"""Requeueing by classes and keys finds the same pods as a check of every pod; in-tree plugins declare what they read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.configuration.load import default
from scheduler.daemon.app.assembly import Parts
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.engine.cycle.observer import NoObserver
from scheduler.engine.queue import Place
from scheduler.engine.queue.hints import RequeueStrategy
from scheduler.framework.events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    node_changes,
    pod_changes,
)
from scheduler.objects.decode import decode_pod
from tests.support.builders import node, pod
from tests.support.manual_clock import ManualClock

FEW = st.sampled_from(["a", "b"])
NAMES = st.sampled_from(["x", "y", "z"])
LABELS = st.dictionaries(NAMES, FEW, max_size=3)
EXPRESSIONS = st.lists(
    st.one_of(
        st.builds(
            lambda key, operator, values: {"key": key, "operator": operator, "values": sorted(values)},
            NAMES,
            st.sampled_from(["In", "NotIn"]),
            st.sets(FEW, min_size=1),
        ),
        st.builds(
            lambda key, operator: {"key": key, "operator": operator},
            NAMES,
            st.sampled_from(["Exists", "DoesNotExist"]),
        ),
    ),
    max_size=2,
)
SELECTORS = st.one_of(
    st.none(),
    st.builds(lambda labels, more: {"matchLabels": labels, "matchExpressions": more}, LABELS, EXPRESSIONS),
)
POD_TERMS = st.lists(
    st.builds(
        lambda selector, key, spaces: {
            "labelSelector": selector,
            "topologyKey": key,
            **({"namespaces": ["n1"]} if spaces else {}),
        },
        SELECTORS,
        NAMES,
        st.booleans(),
    ),
    max_size=2,
)
NODE_TERMS = st.lists(
    st.builds(
        lambda expressions, name: {
            "matchExpressions": expressions,
            **(
                {"matchFields": [{"key": "metadata.name", "operator": name[0], "values": [name[1]]}]}
                if name
                else {}
            ),
        },
        EXPRESSIONS,
        st.one_of(st.none(), st.tuples(st.sampled_from(["In", "NotIn"]), st.sampled_from(["n0", "n1"]))),
    ),
    min_size=1,
    max_size=2,
)
SPREADS = st.lists(
    st.builds(
        lambda key, selector, keys, action: {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": action,
            "labelSelector": selector,
            **({"matchLabelKeys": keys} if selector else {}),
        },
        NAMES,
        SELECTORS,
        st.lists(NAMES, max_size=1),
        st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
    ),
    max_size=2,
)


def required(terms: Any) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms}


@st.composite
def pods(draw: st.DrawFn, name: str, *, on: str = "") -> Any:
    affinity: dict[str, Any] = {
        "podAffinity": required(draw(POD_TERMS)),
        "podAntiAffinity": required(draw(POD_TERMS)),
    }
    if draw(st.booleans()):
        affinity["nodeAffinity"] = required({"nodeSelectorTerms": draw(NODE_TERMS)})
    port = draw(st.sampled_from([0, 80, 81]))
    container = {
        "name": "main",
        "image": "i",
        "resources": {
            "requests": draw(st.sampled_from([{}, {"cpu": "1"}, {"cpu": "2", "example.com/x": "1"}]))
        },
        "ports": [{"containerPort": 1, "hostPort": port}] if port else [],
    }
    return pod(
        name,
        namespace=draw(st.sampled_from(["n1", "n1", "n1", "n2"])),
        node=on,
        uid=name,
        labels=draw(LABELS),
        containers=[container],
        affinity=affinity,
        node_selector=draw(st.dictionaries(NAMES, FEW, max_size=1)),
        topology_spread_constraints=draw(SPREADS),
        tolerations=draw(st.sampled_from([[], [{"key": "t", "operator": "Exists"}]])),
    )


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Any:
    return node(
        name,
        labels=draw(LABELS),
        cpu=draw(st.sampled_from(["1", "4"])),
        taints=draw(st.sampled_from([[], ["t=1:NoSchedule"]])),
        unschedulable=draw(st.booleans()),
        allocatable=draw(st.sampled_from([{}, {"example.com/x": "1"}])),
    )


@st.composite
def node_events(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(["n0", "n1"]))
    old, new = draw(nodes(name)), draw(nodes(name))
    changes = [(each, old, new) for each in node_changes(old, new)]
    return draw(st.sampled_from([(NODE_ADD, None, new), (NODE_DELETE, old, None), *changes]))


@st.composite
def pod_events(draw: st.DrawFn) -> Any:
    old, new = draw(pods("other", on="n0")), draw(pods("other", on="n0"))
    changes = [(each, old, new) for each in pod_changes(old, new)]
    return draw(st.sampled_from([(ASSIGNED_POD_ADD, None, new), (ASSIGNED_POD_DELETE, old, None), *changes]))


def profile() -> Parts:
    parts = Parts(ManualClock(1000.0), NoObserver(), IN_TREE)
    parts.activate(parts.build(default()))
    return parts


PARTS = profile()
EVENTS = {
    "InterPodAffinity": st.one_of(pod_events(), pod_events(), node_events()),
    "NodeAffinity": node_events(),
    "NodePorts": pod_events(),
    "NodeResourcesFit": st.one_of(pod_events(), node_events()),
    "PodTopologySpread": st.one_of(pod_events(), node_events()),
    "TaintToleration": node_events(),
}


def is_waiting(parts: Parts, uid: str) -> bool:
    return parts.queue.place_of(uid) is Place.UNSCHEDULABLE


@pytest.mark.parametrize("plugin", EVENTS)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(data=st.data(), waiting=st.lists(pods("waiting"), min_size=2, max_size=4))
def test_an_event_requeues_the_same_pods_as_hints_for_every_pod(
    plugin: str, data: st.DataObject, waiting: Any
) -> None:
    happened = data.draw(st.lists(EVENTS[plugin], min_size=3, max_size=6))
    for event, old, new in happened:
        parts = Parts(ManualClock(1000.0), NoObserver(), IN_TREE)
        parts.profiles.swap(PARTS.profiles.frameworks)
        queue, uids = parts.queue, [f"w{number}" for number in range(len(waiting))]
        for uid, each in zip(uids, waiting, strict=True):
            queue.add(renamed(each, uid))
            queued = queue.pop()
            assert queued is not None
            queue.add_unschedulable(queued, unschedulable_plugins=[plugin])
        asked = [(uid, queue.get(uid)) for uid in uids]
        helped = {
            uid
            for uid, queued in asked
            if queued and queue._hints.strategy(queued, event, old, new) is not RequeueStrategy.SKIP
        }

        queue.move_all(event, old, new)

        queue.check()
        assert {uid for uid in uids if not is_waiting(parts, uid)} == helped


def renamed(written: Any, uid: str) -> Any:
    fields = dict(written.object)
    fields["metadata"] = {**fields["metadata"], "uid": uid, "name": uid}

    return decode_pod(msgspec.json.encode(fields))


@pytest.mark.parametrize(
    ("selector", "woken"),
    [
        pytest.param({"matchLabels": {"x": "a"}}, {"kept-away"}, id="a value"),
        pytest.param(
            {"matchExpressions": [{"key": "x", "operator": "Exists"}]}, {"kept-away"}, id="any value"
        ),
        pytest.param(
            {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]},
            {"other"},
            id="without the label",
        ),
    ],
)
def test_a_deleted_pod_requeues_those_that_it_rejected(selector: Any, woken: set[str]) -> None:
    parts = Parts(ManualClock(1000.0), NoObserver(), IN_TREE)
    parts.profiles.swap(PARTS.profiles.frameworks)
    labels = {"kept-away": {"x": "a"}, "other": {"y": "b"}}
    for name, own in labels.items():
        parts.queue.add(pod(name, namespace="n1", labels=own, uid=name))
        queued = parts.queue.pop()
        assert queued is not None
        parts.queue.add_unschedulable(queued, unschedulable_plugins=["InterPodAffinity"])
    apart = required([{"labelSelector": selector, "topologyKey": "zone"}])
    left = pod("left", namespace="n1", node="n0", affinity={"podAntiAffinity": apart})

    parts.queue.move_all(ASSIGNED_POD_DELETE, left, None)

    assert {name for name in labels if not is_waiting(parts, name)} == woken
