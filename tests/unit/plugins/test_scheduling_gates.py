from __future__ import annotations

from plugins.scheduling_gates import SchedulingGates
from scheduler.framework import ActionType, Code, EventResource
from tests.support.builders import pod
from tests.unit.plugins.plugin_calls import requeues


def test_a_pod_without_gates_is_admitted():
    assert SchedulingGates().pre_enqueue(pod("p")) is None


def test_a_gated_pod_waits_and_the_message_names_all_gates():
    status = SchedulingGates().pre_enqueue(pod("p", gates=["example.com/a", "example.com/b"]))

    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.message == "waiting for scheduling gates: [example.com/a example.com/b]"


def test_only_the_removal_of_its_own_gates_requeues_a_pod():
    plugin, mine, other = SchedulingGates(), pod("mine", gates=["a"]), pod("other")

    assert requeues(plugin, EventResource.POD, mine, mine, pod("mine"))
    assert not requeues(plugin, EventResource.POD, mine, other, other)
    assert [each.event.action for each in plugin.events()] == [
        ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED
    ]
