"""Signatures are kept for classes of pods, so their size does not depend on the size of the pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plugins.node_affinity import NodeAffinity
from plugins.node_ports import NodePorts
from plugins.node_unschedulable import NodeUnschedulable
from plugins.taint_toleration import TaintToleration
from tests.support.builders import pod
from tests.unit.plugins.plugin_calls import DEFAULT_FEATURES, made

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo


def tolerating(name: str, count: int) -> PodInfo:
    return pod(name, tolerations=[{"key": f"t{each}", "operator": "Exists"} for each in range(count)])


def selecting(name: str, count: int) -> PodInfo:
    return pod(name, nodeSelector={f"k{each}": "v" for each in range(count)})


def holding(name: str, count: int) -> PodInfo:
    return pod(name, containers=[{"name": "c", "ports": [{"hostPort": 1 + each} for each in range(count)]}])


@pytest.mark.parametrize(
    ("plugin", "of_size"),
    [
        (NodeUnschedulable(), tolerating),
        (TaintToleration(features=DEFAULT_FEATURES), tolerating),
        (made(NodeAffinity), selecting),
        (NodePorts(), holding),
    ],
)
def test_the_signature_of_a_long_list_is_short_and_differs_for_other_lists(plugin: Any, of_size: Any):
    signature = plugin.signature

    assert len(repr(signature(of_size("a", 2000)))) < 200
    assert signature(of_size("a", 2000)) == signature(of_size("b", 2000))
    assert signature(of_size("a", 2000)) != signature(of_size("a", 2001))
