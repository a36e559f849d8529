from __future__ import annotations

from typing import Any

import pytest

from plugins.node_declared_features import (
    RESTART_ALL_CONTAINERS,
    USER_NAMESPACES_HOST_NETWORK,
    NodeDeclaredFeatures,
    required_features,
)
from scheduler.framework import SKIP, ActionType, Code, CycleState, EventResource
from scheduler.testing.fakes import FakeFeatures
from tests.support.builders import node, pod
from tests.support.clusters import cluster
from tests.unit.plugins.plugin_calls import made, reasons, requeues

REASON = "node(s) didn't match Pod's required features"
RESTARTING = {"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers"}]}
HOST_NETWORK = {"hostNetwork": True, "hostUsers": False}


@pytest.mark.parametrize(
    ("spec", "required"),
    [
        pytest.param({}, set(), id="an ordinary pod"),
        pytest.param({"containers": [RESTARTING]}, {RESTART_ALL_CONTAINERS}, id="a container restarts all"),
        pytest.param(
            {"initContainers": [RESTARTING]}, {RESTART_ALL_CONTAINERS}, id="an init container does"
        ),
        pytest.param(
            {"containers": [{"name": "c", "restartPolicyRules": [{"action": "Restart"}]}]},
            set(),
            id="a container restarts itself",
        ),
        pytest.param(
            {"containers": [{"name": "c", "restartPolicyRules": [{"action": "Restart"}, *RESTARTING["restartPolicyRules"]]}]},
            {RESTART_ALL_CONTAINERS},
            id="the second rule counts too",
        ),
        pytest.param(HOST_NETWORK, {USER_NAMESPACES_HOST_NETWORK}, id="own users on the host's network"),
        pytest.param({"hostNetwork": True}, set(), id="host network and users"),
        pytest.param({"hostNetwork": True, "hostUsers": None}, set(), id="host network, users unsaid"),
        pytest.param({"hostUsers": False}, set(), id="own users and network"),
        pytest.param(
            {"containers": [RESTARTING], **HOST_NETWORK},
            {RESTART_ALL_CONTAINERS, USER_NAMESPACES_HOST_NETWORK},
            id="both",
        ),
    ],
)  # fmt: skip
def test_the_needs_of_a_pod_follow_from_its_spec(spec: dict[str, Any], required: set[str]):
    assert required_features(pod("p", **spec)) == required


def test_a_pod_without_needs_is_skipped():
    assert made(NodeDeclaredFeatures).pre_filter(CycleState(), pod("p"), cluster().snapshot()) is SKIP


def test_up_to_1_35_user_namespaces_are_unknown_and_the_message_names_the_feature():
    nodes = cluster(node("none"), node("one", declaredFeatures=[RESTART_ALL_CONTAINERS]))
    plugin = NodeDeclaredFeatures(features=FakeFeatures("1.35", NodeDeclaredFeatures=True))
    message = f"node declared features check failed - unsatisfied requirements: {RESTART_ALL_CONTAINERS}"

    assert reasons(plugin, pod("p", containers=[RESTARTING], **HOST_NETWORK), nodes) == {"none": (message,)}
    assert reasons(plugin, pod("p", **HOST_NETWORK), nodes) == {}


def test_nodes_without_a_feature_are_rejected_as_unresolvable():
    nodes = cluster(
        node("none"),
        node("one", declaredFeatures=[RESTART_ALL_CONTAINERS]),
        node("other", declaredFeatures=[USER_NAMESPACES_HOST_NETWORK]),
        node("both", declaredFeatures=[RESTART_ALL_CONTAINERS, USER_NAMESPACES_HOST_NETWORK, "Later"]),
    )
    wanting = pod("p", containers=[RESTARTING], **HOST_NETWORK)
    plugin, state, snapshot = made(NodeDeclaredFeatures), CycleState(), nodes.snapshot()

    assert reasons(plugin, wanting, nodes) == dict.fromkeys(("none", "one", "other"), (REASON,))
    plugin.pre_filter(state, wanting, snapshot)
    outcomes = plugin.filter(state, wanting, snapshot, snapshot.all_rows)
    assert outcomes.of(0) == (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (REASON,))


def test_a_node_needs_only_the_features_of_the_pod():
    nodes = cluster(node("one", declaredFeatures=[RESTART_ALL_CONTAINERS]), node("none"))

    assert reasons(made(NodeDeclaredFeatures), pod("p", containers=[RESTARTING]), nodes) == {
        "none": (REASON,)
    }


@pytest.mark.parametrize(
    ("old", "new", "helps"),
    [
        pytest.param(None, node("n"), True, id="a new node with any features"),
        pytest.param(node("n"), node("n", declaredFeatures=["A"]), True, id="a feature more"),
        pytest.param(node("n", declaredFeatures=["A"]), node("n"), True, id="a feature less"),
        pytest.param(node("n", declaredFeatures=["A"]), node("n", cpu="9", declaredFeatures=["A"]), False, id="the same"),
    ],
)  # fmt: skip
def test_a_change_of_declared_features_requeues_the_pod(old: Any, new: Any, helps: bool):
    assert (
        requeues(made(NodeDeclaredFeatures), EventResource.NODE, pod("p", **HOST_NETWORK), old, new) is helps
    )


@pytest.mark.parametrize(
    ("old", "new", "helps"),
    [
        pytest.param(pod("p", **HOST_NETWORK), pod("p", hostNetwork=True), True, id="it needs less"),
        pytest.param(pod("p"), pod("p", **HOST_NETWORK), True, id="it needs more"),
        pytest.param(pod("p"), pod("p", labels={"a": "b"}), False, id="it needs the same"),
        pytest.param(pod("q", **HOST_NETWORK), pod("q"), False, id="another pod"),
    ],
)
def test_an_update_of_its_own_needs_requeues_the_pod(old: Any, new: Any, helps: bool):
    assert (
        requeues(made(NodeDeclaredFeatures), EventResource.POD, pod("p", **HOST_NETWORK), old, new) is helps
    )


def test_it_registers_for_general_pod_updates():
    found = {each.event.resource: each.event.action for each in made(NodeDeclaredFeatures).events()}

    assert found[EventResource.POD] is ActionType.UPDATE
    assert found[EventResource.NODE] == ActionType.ADD | ActionType.UPDATE_NODE_DECLARED_FEATURE


def test_pods_with_the_same_needs_share_their_results():
    signature = made(NodeDeclaredFeatures).signature

    assert signature(pod("a", **HOST_NETWORK)) == signature(pod("b", cpu="1", **HOST_NETWORK))
    assert signature(pod("a")) != signature(pod("b", containers=[RESTARTING]))
