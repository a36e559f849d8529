"""The events that a registration includes."""

from __future__ import annotations

import pytest

from scheduler.framework import ActionType, ClusterEvent, EventResource

NODE, POD, ANY = EventResource.NODE, EventResource.POD, EventResource.WILDCARD
ASSIGNED, UNSCHEDULABLE = EventResource.ASSIGNED_POD, EventResource.UNSCHEDULABLE_POD
ADD, DELETE, UPDATE, ALL = ActionType.ADD, ActionType.DELETE, ActionType.UPDATE, ActionType.ALL
LABEL, TAINT = ActionType.UPDATE_NODE_LABEL, ActionType.UPDATE_NODE_TAINT


@pytest.mark.parametrize(
    ("registered", "happened", "heard"),
    [
        pytest.param((NODE, ADD), (NODE, ADD), True, id="the same"),
        pytest.param((NODE, ADD | LABEL), (NODE, LABEL), True, id="one of several actions"),
        pytest.param((NODE, LABEL), (NODE, TAINT), False, id="another kind of update"),
        pytest.param((NODE, LABEL), (NODE, LABEL | TAINT), False, id="two updates at once, of which one"),
        pytest.param((NODE, LABEL), (NODE, UPDATE), False, id="a general update, one kind registered"),
        pytest.param((NODE, UPDATE), (NODE, UPDATE), True, id="a general update, all registered"),
        pytest.param((NODE, UPDATE), (NODE, LABEL), True, id="one update, all registered"),
        pytest.param((NODE, ADD), (POD, ADD), False, id="another kind of object"),
        pytest.param((POD, DELETE), (ASSIGNED, DELETE), True, id="a pod on a node, of all pods"),
        pytest.param((POD, DELETE), (UNSCHEDULABLE, DELETE), True, id="a pending pod, of all pods"),
        pytest.param((ASSIGNED, DELETE), (POD, DELETE), False, id="all pods, of those on nodes"),
        pytest.param((ANY, ALL), (NODE, ADD), True, id="everything registered"),
        pytest.param((ANY, ALL), (ANY, ALL), True, id="everything registered, everything happened"),
        pytest.param((ANY, ADD), (NODE, ADD), True, id="an action on any kind"),
        pytest.param((ANY, ADD), (NODE, DELETE), False, id="another action on any kind"),
        pytest.param((NODE, ADD), (ANY, ALL), False, id="everything happened, one registered"),
    ],
)
def test_a_plugin_gets_the_events_that_it_registered_for(
    registered: tuple[EventResource, ActionType], happened: tuple[EventResource, ActionType], heard: bool
):
    assert ClusterEvent(*registered).covers(ClusterEvent(*happened)) is heard


@pytest.mark.parametrize(
    ("event", "label"),
    [
        (ClusterEvent(NODE, ADD), "NodeAdd"),
        (ClusterEvent(NODE, TAINT), "NodeUpdateNodeTaint"),
        (ClusterEvent(ASSIGNED, DELETE), "AssignedPodDelete"),
        (ClusterEvent(ANY, ALL, "UnschedulableTimeout"), "UnschedulableTimeout"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_events_have_the_labels_of_the_metrics(event: ClusterEvent, label: str):
    assert event.label == label
