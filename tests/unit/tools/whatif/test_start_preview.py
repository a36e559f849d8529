"""The pods that planned objects would create, and how many of them would start."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.configuration.manifests import item_of
from scheduler.objects.decode import decode_node
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.planned_pods import Plan, PlanError
from scheduler.tools.whatif.start_preview import Planned, StartOutcome, StartPreview, workload_of
from tests.support.builders import node_object, pod_object
from tests.unit.tools.whatif.clusters import scheduler_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.objects.node import NodeObject
    from scheduler.tools.whatif.offline import OfflineScheduler

Object = dict[str, Any]


def planned(
    *manifests: Object,
    classes: Iterable[Object] = (),
    nodes: Iterable[NodeObject] = (),
    replicas: int | None = None,
) -> tuple[Plan, list[Planned]]:
    plan = Plan("shop", {"priorityclasses": classes}, nodes, replicas)
    made = plan.make(item_of(json.dumps(obj).encode(), "a file") for obj in manifests)
    return plan, [each for _, each in made]


def template(cpu: str = "1", **spec: Any) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    pod = {"schedulerName": "custom-scheduler", "containers": [container], **spec}
    return {"metadata": {"labels": {"app": "web"}}, "spec": pod}


def workload(kind: str, cpu: str = "1", *, pod: Object | None = None, **spec: Any) -> Object:
    group = "batch/v1" if kind == "Job" else "apps/v1" if kind in _APPS else "example.com/v1"
    selector = {} if kind == "Job" else {"selector": {"matchLabels": {"app": "web"}}}
    ends = {"restartPolicy": "Never"} if kind == "Job" else {}
    return {
        "apiVersion": group,
        "kind": kind,
        "metadata": {"name": "web"},
        "spec": {"template": template(cpu, **ends, **(pod or {})), **selector, **spec},
    }


_APPS = {"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"}
CRON = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "web"},
    "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": workload("Job", parallelism=2)["spec"]}},
}
CLAIMED = {
    "volumeClaimTemplates": [
        {
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
    ]
}


@pytest.mark.parametrize(
    ("manifest", "replicas", "count"),
    [
        pytest.param(workload("Deployment", replicas=150), None, 150, id="a Deployment"),
        pytest.param(workload("Deployment", paused=True), None, 1, id="a paused one, as if it went on"),
        pytest.param(workload("ReplicaSet", replicas=2), 5, 5, id="the requested number"),
        pytest.param(workload("StatefulSet", replicas=3, serviceName="s"), None, 3, id="a StatefulSet"),
        pytest.param(workload("Job", parallelism=3, completions=2), None, 2, id="a Job of few completions"),
        pytest.param(workload("Job", suspend=True), 4, 4, id="a suspended Job, as if it began"),
        pytest.param(workload("Job", completions=1), 4, 4, id="more at once than its completions"),
        pytest.param(CRON, None, 2, id="a CronJob, as if its time had come"),
        pytest.param(workload("DaemonSet"), None, 2, id="a DaemonSet, for the nodes there are"),
        pytest.param(workload("Rollout", replicas=3), None, 3, id="any template of pods"),
        pytest.param(pod_object("p", namespace=""), None, 1, id="a pod"),
        pytest.param(pod_object("p", namespace=""), 3, 3, id="copies of a pod"),
    ],
)
def test_pods_are_created_from_any_workload(manifest: Object, replicas: int | None, count: int) -> None:
    nodes = [decode_node(json.dumps(node_object(name)).encode()) for name in ("n1", "n2")]
    _, (made,) = planned(manifest, nodes=nodes, replicas=replicas)

    assert (made.problem, len(made.pods)) == ("", count)
    assert len({pod["metadata"]["uid"] for pod in made.pods}) == count
    assert {pod["metadata"]["namespace"] for pod in made.pods} == {"shop"}


def test_other_objects_in_a_manifest_are_used_in_any_order() -> None:
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 7,
    }
    service = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {}}
    _, (made,) = planned(workload("Deployment", pod={"priorityClassName": "urgent"}), service, urgent)

    assert [pod["spec"]["priority"] for pod in made.pods] == [7]


def test_pods_are_created_with_their_claims() -> None:
    plan, (made,) = planned(workload("StatefulSet", replicas=2, serviceName="s", **CLAIMED))
    claims = [key for kind, key in plan.others if kind == "v1/persistentvolumeclaims"]

    assert sorted(claims) == ["shop/data-web-0", "shop/data-web-1"]
    assert [pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] for pod in made.pods] == [
        "data-web-0",
        "data-web-1",
    ]


def test_pods_have_the_claims_of_their_volumes_and_templates_and_merged_selectors() -> None:
    class_ = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "example.com/disk",
    }
    devices = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
    devices_template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu"},
        "spec": {"spec": devices},
    }
    (claim,) = CLAIMED["volumeClaimTemplates"]
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["pod-template-hash"],
    }
    pod = {
        "volumes": [{"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": claim["spec"]}}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
        "topologySpreadConstraints": [spread],
    }
    plan, (made,) = planned(workload("Deployment", pod=pod), class_, devices_template)

    (web,) = made.pods
    name, labels = web["metadata"]["name"], web["metadata"]["labels"]
    volume = plan.others["v1/persistentvolumeclaims", f"shop/{name}-tmp"]
    assert volume["metadata"]["ownerReferences"][0]["uid"] == web["metadata"]["uid"]
    assert volume["spec"]["storageClassName"] == "fast"
    (status,) = web["status"]["resourceClaimStatuses"]
    assert (
        plan.others["resource.k8s.io/v1/resourceclaims", f"shop/{status['resourceClaimName']}"]["spec"]
        == devices
    )
    assert web["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"] == [
        {"key": "pod-template-hash", "operator": "In", "values": [labels["pod-template-hash"]]}
    ]


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        pytest.param(
            workload("Deployment", pod={"priorityClassName": "gone"}),
            "PriorityClass gone is not known: add it to the objects, or set spec.priority",
            id="without their class",
        ),
        pytest.param(
            workload("Deployment", selector={"matchLabels": {"app": "db"}}),
            "spec.selector does not match the labels of spec.template",
            id="not selected",
        ),
        pytest.param(
            workload("Deployment", replicas=0), "it requests no pods in this cluster", id="none wanted"
        ),
    ],
)
def test_a_workload_without_pods_has_a_reason(manifest: Object, problem: str) -> None:
    _, (made,) = planned(manifest)

    assert (made.pods, made.problem) == ([], problem)


def outcomes(cluster: list[Object], *manifests: Object, classes: Iterable[Object] = ()) -> list[StartOutcome]:
    plan, made = planned(*manifests, classes=classes)
    scheduler = scheduler_of(*cluster)
    others: dict[str, dict[str, bytes]] = {}
    for (kind, key), obj in plan.others.items():
        others.setdefault(kind, {})[key] = json.dumps(obj).encode()
    scheduler.fill(ClusterFile(others=others))
    return started(scheduler, made)


def started(scheduler: OfflineScheduler, made: Iterable[Planned]) -> list[StartOutcome]:
    workloads = [workload_of(each, scheduler.needs.pod_rules) for each in made]
    return StartPreview(scheduler, workloads).start()


def told(outcome: StartOutcome) -> tuple[int, int]:
    return outcome.nodes.total(), outcome.waiting.total()


def test_each_pod_uses_capacity_of_those_after_it() -> None:
    cluster = [node_object("n1", cpu="4"), node_object("n2", cpu="2")]
    web, job = outcomes(cluster, workload("Deployment", replicas=5), workload("Job", parallelism=3))

    assert (told(web), told(job)) == ((5, 0), (1, 2))
    assert web.nodes + job.nodes == {"n1": 4, "n2": 2}
    assert next(iter(job.waiting)).startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert job.first is not None
    assert job.first["nodes"]["n1"]["plugin"] == "NodeResourcesFit"


def test_victims_are_reported_and_gone_for_the_next_pod() -> None:
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
    cluster = [
        node_object("n1", cpu="4"),
        pod_object("low", cpu="3", node="n1"),
        pod_object("high", cpu="1", node="n1", priority=2000),
    ]
    manifest = workload("Deployment", "1500m", replicas=3, pod={"priorityClassName": "urgent"})
    (web,) = outcomes(cluster, manifest, classes=[{**urgent, "value": 1000}])

    assert (told(web), web.victims) == ((2, 1), {"default/low": "n1"})


@pytest.mark.parametrize(("policy", "expected"), [("OrderedReady", (1, 2)), ("Parallel", (2, 1))])
def test_ordered_pods_wait_for_the_previous_one(policy: str, expected: tuple[int, int]) -> None:
    cluster = [node_object("n1", cpu="2"), node_object("n2", cpu="2")]
    claims = {"data-web-1": "gone", "data-web-0": "", "data-web-2": ""}
    there = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "shop", "uid": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": volume, "storageClassName": "later"},
            "status": {"phase": "Bound" if volume else "Pending"},
        }
        for name, volume in claims.items()
    ]
    later = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "later"},
        "provisioner": "example.com/disk",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    _, made = planned(
        workload("StatefulSet", replicas=3, serviceName="s", podManagementPolicy=policy, **CLAIMED)
    )
    scheduler = scheduler_of(*cluster, later, *there)

    (db,) = started(scheduler, made)

    assert told(db) == expected


def test_a_pod_with_a_node_name_needs_no_scheduler() -> None:
    (direct,) = outcomes([node_object("n1", cpu="1")], pod_object("p", namespace="", cpu="9", node="n1"))

    assert (direct.nodes, direct.waiting.total()) == ({"n1": 1}, 0)


def test_pods_with_gates_wait_for_them() -> None:
    (gated,) = outcomes(
        [node_object("n1")], workload("Deployment", replicas=2, pod={"schedulingGates": [{"name": "quota"}]})
    )

    assert gated.waiting == {"waiting for scheduling gates: [quota]": 2}


def test_a_number_that_cannot_be_represented_is_an_error_of_its_object() -> None:
    number = "9" * 5000
    text = f'{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "a"}}, "spec": {{"priority": {number}}}}}'

    with pytest.raises(PlanError) as refused:
        Plan("shop").make([item_of(text.encode(), "a file")])

    [fault] = refused.value.faults
    assert (fault.path, "Integer value out of range" in fault.problem) == ("a file", True)
