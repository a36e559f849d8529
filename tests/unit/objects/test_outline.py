"""The readable parts of a pod that cannot be decoded as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.objects.decode import outline_pod
from tests.support.builders import pod_object


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
