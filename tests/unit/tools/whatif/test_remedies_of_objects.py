"""Remedies for volumes, devices, quotas, queues and priorities: each was evaluated, and the verdict names it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.configuration.load import default, parse
from scheduler.daemon.app.assembly import Parts
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.engine.cycle.observer import NoObserver
from scheduler.testing import devices
from scheduler.testing.devices import (
    allocation,
    claims_of,
    device_class,
    exactly,
    resource_claim,
    resource_slice,
)
from scheduler.testing.samples import (
    DRIVER,
    claim,
    csi_driver,
    csi_node,
    mounted,
    only_on,
    storage_capacity,
    storage_class,
    volume,
)
from scheduler.tools.whatif import cluster_file
from scheduler.tools.whatif.evaluation import evaluate_each, pods_to_evaluate
from scheduler.tools.whatif.offline import OfflineScheduler
from tests.support.builders import node_object, pod_object
from tests.support.manual_clock import ManualClock

if TYPE_CHECKING:
    from scheduler.configuration.load import Configuration

NAME = "default-scheduler"
ZONE = "topology.kubernetes.io/zone"
MEMORY = f'device.capacity["{devices.DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'


def node(name: str, zone: str, **fields: Any) -> dict[str, Any]:
    return node_object(name, labels={ZONE: zone}, **fields)


def pod(name: str = "web", **fields: Any) -> dict[str, Any]:
    return pod_object(name, scheduler_name=NAME, **fields)


def explained(
    *objects: dict[str, Any], configuration: Configuration | None = None, key: str = "default/web"
) -> dict[str, Any]:
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode()
    cluster = cluster_file.parse(document, "cluster")
    parts = Parts(ManualClock(), NoObserver(), IN_TREE)  # no search is over because the machine is busy
    scheduler = OfflineScheduler(cluster, configuration or default(NAME), parts=parts)
    pods = [each for each in pods_to_evaluate(scheduler, cluster.pods) if each.key == key]
    (judged,) = evaluate_each(scheduler, pods)
    return judged.explanation


def changes(explanation: dict[str, Any]) -> list[str]:
    """Return the remedies with one change, which the verdict names too."""
    found = [each["changes"][0] for each in explanation["remedies"] if len(each["changes"]) == 1]
    assert all(each in explanation["verdict"] for each in found)
    return found


def with_plugin(name: str, plugin: str) -> Configuration:
    return parse(
        f"""
        apiVersion: kubescheduler.config.k8s.io/v1
        kind: KubeSchedulerConfiguration
        profiles:
        - schedulerName: {name}
          plugins:
            multiPoint:
              enabled: [{{name: {plugin}}}]
            postFilter:
              disabled: [{{name: DefaultPreemption}}]
        """
    )


BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
IN_B = volume("pv", nodeAffinity=only_on(ZONE, "b"))
LOCAL = storage_class("local", provisioner="kubernetes.io/no-provisioner")


def bound(name: str = "data", volume_name: str = "pv", **more: Any) -> dict[str, Any]:
    return claim(name, volume_name, annotations=BOUND, **more)


VOLUMES = {
    "bound in another zone": (
        [node("a1", "a"), IN_B, bound(), pod(volumes=mounted("data"))],
        f"claim data were bound to a volume that a1 reaches (now pv, for nodes with {ZONE} in (b))",
    ),
    "in another zone by its label": (
        [node("a1", "a"), volume("pv", labels={ZONE: "b"}), bound(), pod(volumes=mounted("data"))],
        f"claim data were bound to a volume of {ZONE}=a (now pv, of b)",
    ),
    "no such claim": (
        [node("a1", "a"), pod(volumes=mounted("data"))],
        "a PersistentVolumeClaim data existed in namespace default",
    ),
    "no such class": (
        [node("a1", "a"), claim("data", class_name="fast"), pod(volumes=mounted("data"))],
        'a StorageClass "fast" existed, or a volume existed for claim data (a ReadWriteOnce volume of 1Gi or more)',
    ),
    "no matching volume": (
        [node("a1", "a"), LOCAL, claim("data", class_name="local"), pod(volumes=mounted("data"))],
        'a volume of class "local" existed for claim data that a1 reaches (a ReadWriteOnce volume of 1Gi or more)',
    ),
    "class for other nodes": (
        [
            node("a1", "a"),
            storage_class("fast", topologies=[{ZONE: ["b"]}]),
            claim("data", class_name="fast"),
            pod(volumes=mounted("data")),
        ],
        'class "fast" of claim data provisioned volumes for a1 (its allowedTopologies do not match)',
    ),
    "no free storage": (
        [
            node("a1", "a"),
            storage_class("fast"),
            csi_driver(),
            storage_capacity("a", "fast", "500Mi", labels={ZONE: "a"}),
            claim("data", class_name="fast"),
            pod(volumes=mounted("data")),
        ],
        '1Gi of class "fast" were free for a1 (in a CSIStorageCapacity), for claim data',
    ),
    "ReadWriteOncePod": (
        [
            node("a1", "a"),
            volume("pv"),
            bound(modes=["ReadWriteOncePod"]),
            pod("holder", node="a1", volumes=mounted("data")),
            pod(volumes=mounted("data")),
        ],
        "pod default/holder ended, so that its ReadWriteOncePod claim is free",
    ),
    "volume limit": (
        [
            node("a1", "a"),
            csi_node("a1", {DRIVER: 1}),
            volume("pv"),
            volume("other"),
            bound(),
            bound("theirs", "other"),
            pod("holder", node="a1", volumes=mounted("theirs")),
            pod(volumes=mounted("data")),
        ],
        f"driver {DRIVER} could attach 1 more on a1 (now 1 of at most 1 are attached)",
    ),
}


@pytest.mark.parametrize(("objects", "change"), VOLUMES.values(), ids=VOLUMES)
def test_a_volume_that_keeps_a_pod_from_all_nodes_has_a_remedy(
    objects: list[dict[str, Any]], change: str
) -> None:
    assert change in changes(explained(*objects))


def test_a_remedy_of_a_claim_is_not_proposed_if_the_pod_would_not_fit_then() -> None:
    small = node("a1", "a", cpu="1")

    explanation = explained(small, IN_B, bound(), pod(cpu="2", volumes=mounted("data")))

    assert changes(explanation) == []
    assert [len(each["changes"]) for each in explanation["remedies"]] == [2]


def test_one_more_node_in_the_zone_of_its_volume_is_a_remedy() -> None:
    full = pod("full", node="b1", cpu="4")

    explanation = explained(node("b1", "b"), full, IN_B, bound(), pod(cpu="2", volumes=mounted("data")))

    assert "one node like b1 were added in zone b" in changes(explanation)


GPUS = [node("a1", "a"), device_class("gpu"), resource_slice("a1", 3)]
MIXED = [{"name": f"gpu-{number}", "capacity": {"memory": {"value": "10Gi"}}} for number in range(2)]
DEVICES = {
    "fewer devices": (
        [
            *GPUS,
            resource_claim("c", exactly("gpu", 5, device_class="gpu")),
            pod(resourceClaims=claims_of("c")),
        ],
        "request gpu of claim c were for 3 devices or fewer (now 5)",
    ),
    "a selector": (
        [
            node("a1", "a"),
            device_class("gpu"),
            resource_slice("a1", MIXED),
            resource_claim(
                "c", exactly("gpu", device_class="gpu", selectors=[{"cel": {"expression": MEMORY}}])
            ),
            pod(resourceClaims=claims_of("c")),
        ],
        f"request gpu of claim c did not have the selector {MEMORY}",
    ),
    "a class": (
        [*GPUS, resource_claim("c", exactly("gpu", device_class="tpu")), pod(resourceClaims=claims_of("c"))],
        "the DeviceClass tpu existed",
    ),
    "devices in use": (
        [
            node("a1", "a"),
            device_class("gpu"),
            resource_slice("a1", 1),
            resource_claim(
                "taken", exactly("gpu", device_class="gpu"), allocated=allocation("gpu-0", pool="a1")
            ),
            resource_claim("c", exactly("gpu", device_class="gpu")),
            pod(resourceClaims=claims_of("c")),
        ],
        "1 more device of class gpu were free on a1, for c",
    ),
    "devices on another node": (
        [
            node("a1", "a"),
            node("b1", "b", unschedulable=True),
            device_class("gpu"),
            resource_slice("b1", 1),
            resource_claim("c", exactly("gpu", device_class="gpu"), allocated=allocation("gpu-0", node="b1")),
            pod(resourceClaims=claims_of("c")),
        ],
        "claim c had its devices on a1 (now on nodes with metadata.name in (b1))",
    ),
}


@pytest.mark.parametrize(("objects", "change"), DEVICES.values(), ids=DEVICES)
def test_a_claim_without_devices_has_a_remedy(objects: list[dict[str, Any]], change: str) -> None:
    assert change in changes(explained(*objects))


def elastic_quota(namespace: str, least: str, most: str) -> dict[str, Any]:
    plenty = {"memory": "1Ti", "ephemeral-storage": "1Ti"}
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "q", "namespace": namespace, "creationTimestamp": "2026-03-01T08:00:00Z"},
        "spec": {"min": {"cpu": least, **plenty}, "max": {"cpu": most, **plenty}},
    }


def queue(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "custom-scheduler.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


RUNNING = [pod("small", node="a1", cpu="1"), pod("large", node="a1", cpu="2")]


@pytest.mark.parametrize(
    ("plugin", "limit", "expected"),
    [
        pytest.param(
            "CapacityScheduling",
            elastic_quota("default", "8", "4"),
            ["max.cpu of ElasticQuota default/q were 6 or more (now 4)", "pod default/large of namespace default ended"],
            id="over its quota",
        ),
        pytest.param(
            "CapacityScheduling",
            elastic_quota("default", "4", "9"),
            ["min.cpu of all ElasticQuotas together were 6 or more (now 4)", "pod default/large of namespaces with an ElasticQuota ended"],
            id="over all quotas",
        ),
        pytest.param(
            "FairQueues",
            queue("team", namespaces=["default"], max={"cpu": "4"}),
            ["max.cpu of queue team were 6 or more (now 4)", "pod default/large of queue team ended"],
            id="over the max of its queue",
        ),
    ],
)  # fmt: skip
def test_a_pod_over_a_quota_fits_with_a_higher_limit_or_after_the_fewest_pods(
    plugin: str, limit: dict[str, Any], expected: list[str]
) -> None:
    objects = (node("a1", "a", cpu="16"), limit, *RUNNING, pod(cpu="3"))

    assert changes(explained(*objects, configuration=with_plugin(NAME, plugin))) == expected


def test_a_higher_max_is_not_proposed_if_the_fair_share_is_too_small_for_the_pod() -> None:
    others = [pod(f"other-{n}", namespace="other", node="a1", cpu="4") for n in range(2)]
    explanation = explained(
        node("a1", "a", cpu="12"),
        queue("team", namespaces=["default"], max={"cpu": "3"}),
        queue("rich", namespaces=["other"], min={"cpu": "8"}),
        *others,
        *RUNNING,
        pod(cpu="2"),
        configuration=with_plugin(NAME, "FairQueues"),
    )

    assert not [each for each in changes(explanation) if each.startswith("max.")]


HIGH = [pod("low", node="a1", cpu="3", priority=10), pod("high", node="a1", cpu="1", priority=50)]


def test_a_pod_that_may_preempt_fits_with_the_lowest_sufficient_priority() -> None:
    explanation = explained(node("a1", "a"), *HIGH, pod(cpu="2"))

    assert "its priority were 11 or more (now 0), since it would preempt default/low on a1" in changes(
        explanation
    )


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"preemptionPolicy": "Never"}, id="preemptionPolicy Never"),
        pytest.param({"cpu": "9"}, id="it fits nowhere"),
        pytest.param({"priority": 20}, id="it preempts already"),
    ],
)
def test_no_priority_is_proposed_for_a_pod_that_gains_nothing_by_it(fields: dict[str, Any]) -> None:
    explanation = explained(node("a1", "a"), *HIGH, pod(**{"cpu": "2", **fields}))

    assert "priority" not in explanation["verdict"]


def test_a_claim_that_is_written_by_hand_gets_the_defaults_of_the_api_server() -> None:
    claim_ = resource_claim("c", {"name": "gpu", "exactly": {"deviceClassName": "gpu"}})

    assert explained(*GPUS, claim_, pod(resourceClaims=claims_of("c")))["result"] == "schedulable"
