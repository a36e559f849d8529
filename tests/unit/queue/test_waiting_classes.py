"""Waking by classes and keys must find whom asking about every pod would find; the in-tree plugins say what they read."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.app.assembly import Parts
from scheduler.app.in_tree import IN_TREE
from scheduler.configuration.load import default
from scheduler.cycle.observer import NoObserver
from scheduler.framework.changes import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    node_changes,
    pod_changes,
)
from scheduler.objects.decode import decode_pod
from scheduler.queue import Place
from scheduler.queue.hints import Strategy
from tests.builders import node, pod
from tests.manual_clock import ManualClock
from tests.offline_capabilities import OFFLINE

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
        namespace=draw(st.sampled_from(["n1", "n2"])),
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
def nodes(draw: st.DrawFn) -> Any:
    return node(
        draw(st.sampled_from(["n0", "n1"])),
        labels=draw(LABELS),
        cpu=draw(st.sampled_from(["1", "4"])),
        taints=draw(st.sampled_from([[], ["t=1:NoSchedule"]])),
        unschedulable=draw(st.booleans()),
        allocatable=draw(st.sampled_from([{}, {"example.com/x": "1"}])),
    )


@st.composite
def events(draw: st.DrawFn) -> Any:
    kind = draw(st.sampled_from(["node", "pod"]))
    if kind == "node":
        old, new = draw(nodes()), draw(nodes())
        return draw(
            st.sampled_from(
                [(NODE_ADD, None, new), (NODE_DELETE, old, None)]
                + [(each, old, new) for each in node_changes(old, new)]
            )
        )
    old, new = draw(pods("other", on="n0")), draw(pods("other", on="n0"))
    return draw(
        st.sampled_from(
            [(ASSIGNED_POD_ADD, None, new), (ASSIGNED_POD_DELETE, old, None)]
            + [(each, old, new) for each in pod_changes(old, new)]
        )
    )


def profile() -> Parts:
    parts = Parts(ManualClock(1000.0), NoObserver(), IN_TREE)
    parts.profiles.swap(parts.build_frameworks(default(), lambda _: OFFLINE))
    return parts


PARTS = profile()
REJECTORS = st.sets(
    st.sampled_from(sorted(PARTS.profiles.events("custom-scheduler"))), min_size=1, max_size=2
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    waiting=st.lists(
        st.tuples(st.integers(0, 3).flatmap(lambda n: pods(f"w{n}")), REJECTORS), min_size=1, max_size=5
    ),
    happened=st.lists(events(), min_size=1, max_size=4),
)
def test_an_event_wakes_whom_asking_about_every_pod_would_wake(waiting: Any, happened: Any) -> None:
    parts = Parts(ManualClock(1000.0), NoObserver(), IN_TREE)
    parts.profiles.swap(PARTS.profiles.frameworks)
    queue = parts.queue
    for number, (each, rejectors) in enumerate(waiting):
        own = pod_of(each, f"{each.uid}-{number}")
        queue.add(own)
        queued = queue.pop()
        assert queued is not None
        queue.add_unschedulable(queued, unschedulable_plugins=rejectors)
    for event, old, new in happened:
        helped = {
            queued.pod.uid
            for queued in queue.pods()
            if queue.place_of(queued.pod.uid) is Place.UNSCHEDULABLE
            and queue._hints.strategy(queued, event, old, new) is not Strategy.SKIP
        }
        before = {
            each.pod.uid for each in queue.pods() if queue.place_of(each.pod.uid) is Place.UNSCHEDULABLE
        }
        queue.move_all(event, old, new)
        queue.check()
        after = {each.pod.uid for each in queue.pods() if queue.place_of(each.pod.uid) is Place.UNSCHEDULABLE}
        assert before - after == helped


def pod_of(written: Any, uid: str) -> Any:
    fields = dict(written.object)
    fields["metadata"] = {**fields["metadata"], "uid": uid, "name": uid}

    return decode_pod(msgspec.json.encode(fields))
