"""What-if requests: where pods would go, at whose cost, and with fewer or more nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scheduler.testing.devices import allocation, claims_of, device_class, resource_claim, resource_slice
from scheduler.tools.whatif.service.evaluation import evaluate, smallest
from scheduler.tools.whatif.service.limits import memory_left
from scheduler.tools.whatif.service.openapi import description
from scheduler.tools.whatif.service.wire import Answer, WhatIf, WhatIfError, read_request
from tests.support.builders import node_object, pod_object
from tests.support.manifests import MANIFESTS, ROOT
from tests.unit.tools.whatif.clusters import profile_with, scheduler_of
from tests.unit.tools.whatif.test_group_evaluation import gang

Object = dict[str, Any]


def asked(*cluster: Object, config: str = "", **request: Any) -> Answer:
    """Answer a request, as its client reads it."""
    answer = evaluate(scheduler_of(*cluster, config=config), read_request(json.dumps(request).encode(), {}))
    return msgspec.json.decode(msgspec.json.encode(answer), type=Answer)


def faults(*cluster: Object, **request: Any) -> dict[str, str]:
    with pytest.raises(WhatIfError) as refused:
        asked(*cluster, **request)
    return {fault.path: fault.problem for fault in refused.value.faults}


def new(name: str, cpu: str = "1", **more: Any) -> Object:
    """A pod that does not exist yet."""
    pod = pod_object(name, cpu=cpu, **more)
    del pod["metadata"]["uid"]
    return pod


def owned(name: str, node: str, kind: str = "ReplicaSet", **more: Any) -> Object:
    pod = pod_object(name, node=node, **more)
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "web", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    return pod


N1, N2 = node_object("n1", cpu="4"), node_object("n2", cpu="2")


# Pods.


def test_pods_use_the_capacity_of_the_pods_after_them() -> None:
    answer = asked(N1, N2, objects=[new("a", "3"), new("b", "2"), new("c", "2")])

    assert (answer.pods, answer.starting) == (3, 2)
    assert [(each.name, each.nodes) for each in answer.workloads] == [
        ("a", {"n1": 1}),
        ("b", {"n2": 1}),
        ("c", {}),
    ]


def test_a_pending_pod_has_reason_codes_and_what_would_have_to_change() -> None:
    answer = asked(N1, N2, objects=[new("big", "9")])

    (big,) = answer.workloads
    (result,) = big.results
    assert result.node is None
    assert result.causes == [
        {"code": "InsufficientCPU", "plugin": "NodeResourcesFit", "nodes": 2},
        {"code": "PreemptionNotHelpful", "plugin": "DefaultPreemption", "nodes": 2},
    ]
    assert big.first_waiting is not None
    assert "nodes" not in big.first_waiting
    assert big.first_waiting["remedies"][0]["changes"] == ["its cpu request were 4 or less (now 9)"]
    assert answer.verdict.startswith(
        "0 of 1 pod would start now. Pod default/big does not fit on any of 2 nodes."
    )


def test_victims_have_their_preemptor_and_their_protections() -> None:
    low = pod_object("low", cpu="3", node="n1", priority=-1)
    answer = asked(N1, low, objects=[new("high", "2", priority=5)])

    (victim,) = answer.workloads[0].victims
    assert (victim.pod, victim.node, victim.priority, victim.preemptor) == (
        "default/low",
        "n1",
        -1,
        "default/high",
    )
    assert answer.workloads[0].results[0].victims == ["default/low"]
    assert "1 pod would be evicted: default/low." in answer.verdict


def budget(app: str, allowed: int) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default", "uid": app},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed},
    }


def test_a_violated_disruption_budget_is_counted() -> None:
    low = pod_object("low", cpu="3", node="n1", labels={"app": "low"})
    answer = asked(N1, low, budget("low", 0), objects=[new("high", "2", priority=5)])

    assert answer.workloads[0].results[0].pdb_violations == 1


def test_replicas_are_copies_of_a_pod() -> None:
    answer = asked(N1, N2, objects=[new("web")], replicas=8)

    (web,) = answer.workloads
    assert (web.pods, web.starting, web.nodes) == (8, 6, {"n1": 4, "n2": 2})
    assert [(each.pods, each.message[:32]) for each in web.waiting] == [
        (2, "0/2 nodes are available: 2 Insuf")
    ]


DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": new("x", "2")["spec"]},
    },
}


def test_objects_that_create_pods_are_expanded() -> None:
    answer = asked(N1, N2, objects=[DEPLOYMENT], namespace="shop")

    (web,) = answer.workloads
    assert (web.kind, web.namespace, web.pods, web.starting) == ("Deployment", "shop", 3, 3)


def test_objects_of_the_request_affect_its_pods_as_in_admission() -> None:
    defaults = [{"type": "Container", "defaultRequest": {"cpu": "3"}}]
    limits = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "defaults"},
        "spec": {"limits": defaults},
    }
    pod = new("web")
    pod["spec"]["containers"] = [{"name": "main", "image": "nginx"}]

    assert asked(N1, N2, objects=[pod, limits], replicas=3).starting == 1


def test_pods_of_a_daemon_set_are_on_the_nodes_that_stay() -> None:
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": new("x")["spec"]},
        },
    }
    (agent,) = asked(N1, N2, objects=[daemon_set], remove={"nodes": ["n1"]}).workloads

    assert (agent.pods, agent.nodes) == (1, {"n2": 1})


def test_a_priority_class_of_the_request_gives_the_priority() -> None:
    pod = new("high", "2", priorityClassName="urgent")
    del pod["spec"]["priority"]
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 7,
    }
    low = pod_object("low", cpu="3", node="n1")

    assert asked(N1, low, objects=[pod, urgent]).starting == 1
    (without,) = asked(N1, low, objects=[pod]).workloads
    assert without.problem == "PriorityClass urgent is not known: add it to the objects, or set spec.priority"


def test_pending_pods_of_the_cluster_are_evaluated_by_name_or_all_together() -> None:
    cluster = (N1, pod_object("a", cpu="3"), pod_object("b", cpu="3", priority=1))

    assert asked(*cluster, pods=["default/a"]).starting == 1
    both = asked(*cluster, pending=True)
    assert {each.name: each.starting for each in both.workloads} == {"b": 1, "a": 0}


def group_of_three() -> list[Object]:
    pods = [new(f"train-{number}", "2", scheduler_name="custom-scheduler") for number in range(3)]
    for pod in pods:
        pod["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    return pods


@pytest.mark.parametrize(("cpu", "starting"), [("4", 0), ("6", 3)])
def test_a_group_that_does_not_exist_yet_starts_as_a_whole_or_not_at_all(cpu: str, starting: int) -> None:
    answer = asked(node_object("n", cpu=cpu), objects=[gang("train", 3), *group_of_three()])

    assert answer.starting == starting
    (group,) = answer.groups
    assert group["group"] == "default/train"
    assert group["verdict"].startswith(
        "Group default/train " + ("fits" if starting else "does not fit: 2 of 3")
    )


def test_a_group_of_the_cluster_is_evaluated_by_name() -> None:
    pods = group_of_three()
    for pod in pods:
        pod["metadata"]["uid"] = pod["metadata"]["name"]
    answer = asked(node_object("n", cpu="6"), gang("train", 3), *pods, group="default/train")

    assert (answer.pods, answer.starting) == (3, 3)


# Nodes.


def test_the_pods_of_removed_nodes_are_placed_elsewhere_or_pending() -> None:
    cluster = (
        N1,
        N2,
        owned("web-1", "n2", cpu="1"),
        owned("web-2", "n1", cpu="3"),
        owned("agent", "n1", "DaemonSet"),
        pod_object("alone", node="n1"),
        owned("other", "n1", scheduler_name="default-scheduler"),
    )
    answer = asked(*cluster, remove={"nodes": ["n1"]})

    removed = answer.removed
    assert removed is not None
    assert (removed.nodes, removed.pods, removed.ended) == (["n1"], 1, ["default/alone"])
    assert (removed.daemon_set_pods, removed.not_evaluated) == (1, ["default/other"])
    (web,) = answer.workloads
    assert (web.kind, web.name, web.pods, web.starting) == ("ReplicaSet", "web", 1, 0)
    assert answer.verdict.startswith(
        "Without n1, 1 pod would be created again. 1 pod without a controller would be lost"
    )


def test_a_drain_names_the_pods_whose_eviction_a_budget_refuses() -> None:
    web, db = {"labels": {"app": "web"}}, {"labels": {"app": "db"}}
    answer = asked(
        N1,
        N2,
        owned("web-1", "n1", **web),
        owned("web-2", "n1", **web),
        owned("web-3", "n2", **web),
        owned("agent", "n1", "DaemonSet", **db),
        pod_object("db", node="n1", **db),
        budget("web", 1),
        budget("db", 0),
        remove={"nodes": ["n1"]},
    )

    removed = answer.removed
    assert removed is not None
    assert removed.refused is not None
    refused = {each.pod: (each.node, each.budgets, each.why) for each in removed.refused}
    assert refused == {
        "default/web-2": ("n1", ["web"], "has a PodDisruptionBudget (web) that allows 1 eviction now"),
        "default/db": ("n1", ["db"], "has a PodDisruptionBudget (db) that allows 0 evictions now"),
    }
    assert "refuse the eviction of 2 pods now: default/" in answer.verdict


def test_budgets_that_no_plugin_reads_are_not_known() -> None:
    config = profile_with().replace("enabled:", "disabled:\n      - name: DefaultPreemption")
    answer = asked(N1, N2, owned("web", "n1"), config=config, remove={"nodes": ["n1"]})

    assert answer.removed is not None
    assert answer.removed.refused is None


def test_removed_nodes_are_found_by_their_labels() -> None:
    old = node_object("old", labels={"pool": "old"})
    answer = asked(old, N2, owned("web", "old", cpu="1"), remove={"labels": {"pool": "old"}})

    assert answer.removed is not None
    assert answer.removed.nodes == ["old"]
    assert answer.workloads[0].nodes == {"n2": 1}


def test_the_smallest_number_of_nodes_that_places_all_pods_is_found() -> None:
    answer = asked(N2, objects=[new("web")], replicas=7, add={"count": 5, "like": "n2"})

    assert answer.added is not None
    assert (answer.added.like, answer.added.helps, answer.added.needed) == ("n2", 3, 3)
    assert answer.starting == 7
    assert answer.verdict == "7 of 7 pods would start now. That takes 3 nodes like n2 more."


def test_nodes_that_do_not_help_are_not_counted() -> None:
    objects = [new("big", "9"), new("small", "2")]
    answer = asked(
        N2, pod_object("there", cpu="2", node="n2"), objects=objects, add={"count": 5, "like": "n2"}
    )

    assert answer.added is not None
    assert (answer.added.helps, answer.added.needed, answer.starting) == (1, None, 1)
    assert "Only 1 node like n2 of 5 more would help." in answer.verdict


def test_added_nodes_have_the_pods_of_daemon_sets() -> None:
    cluster = (N2, owned("agent", "n2", "DaemonSet", cpu="1"))
    answer = asked(*cluster, objects=[new("web")], replicas=3, add={"count": 4, "like": "n2"})

    assert answer.added is not None
    assert answer.added.needed == 2


def test_nodes_are_added_from_a_pool_or_a_template() -> None:
    large = node_object("large", cpu="16", labels={"pool": "large"})
    full = pod_object("full", cpu="16", node="large")
    pool = asked(large, full, objects=[new("big", "9")], add={"count": 3, "labels": {"pool": "large"}})
    template = {"status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}}}
    made = asked(N2, objects=[new("big", "9")], add={"count": 3, "template": template})

    assert pool.added is not None
    assert (pool.added.like, pool.added.needed) == ("large", 1)
    assert made.added is not None
    assert (made.added.like, made.added.needed) == ("template", 1)
    assert made.workloads[0].nodes == {"template-copy-0": 1}


def test_a_removed_pool_can_be_replaced_by_copies_of_its_own_nodes() -> None:
    answer = asked(N2, owned("web", "n2", cpu="2"), remove={"nodes": ["n2"]}, add={"count": 2, "like": "n2"})

    assert answer.added is not None
    assert (answer.added.needed, answer.workloads[0].nodes) == (1, {"n2-copy-0": 1})


def owner_of_claim(claim: Object, pod: Object) -> Object:
    """A claim that is allocated on n1 and used by a pod only."""
    claim["status"] = {
        "allocation": allocation("gpu-0", node="n1"),
        "reservedFor": [{"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}],
    }
    return claim


def test_added_nodes_have_the_devices_of_the_node_that_they_are_copies_of() -> None:
    user = pod_object("user", node="n1", resourceClaims=claims_of("taken"))
    objects = [resource_claim("free"), new("web", resourceClaims=claims_of("free"))]
    cluster = (N1, device_class(), resource_slice("n1"), owner_of_claim(resource_claim("taken"), user), user)

    assert asked(*cluster, objects=objects).starting == 0
    answer = asked(*cluster, objects=objects, add={"count": 2, "like": "n1"})
    assert answer.added is not None
    assert (answer.added.needed, answer.workloads[0].nodes) == (1, {"n1-copy-0": 1})


def test_the_devices_of_removed_pods_are_free_again() -> None:
    user = owned("user", "n1", resourceClaims=claims_of("taken"))
    claim = owner_of_claim(resource_claim("taken"), user)
    answer = asked(
        N1,
        N2,
        device_class(),
        resource_slice("n1"),
        resource_slice("n2"),
        claim,
        user,
        remove={"nodes": ["n1"]},
    )

    assert answer.workloads[0].nodes == {"n2": 1}


@pytest.mark.parametrize("enough", range(8))
def test_the_smallest_sufficient_number_is_found(enough: int) -> None:
    tried = []

    def is_enough(count: int) -> bool:
        tried.append(count)
        return count >= enough

    assert smallest(7, is_enough) == enough
    assert len(tried) <= 3


def test_trials_leave_the_cluster_as_it_was() -> None:
    cluster = (N2, pod_object("low", cpu="1", node="n2", priority=-1))
    scheduler = scheduler_of(*cluster)
    request = WhatIf(objects=[new("high", "2", priority=5), new("more", "2", priority=5)])
    first = evaluate(scheduler, request)
    again = asked(
        *cluster, objects=request.objects, add={"count": 1, "template": {"status": {"allocatable": {}}}}
    )

    scheduler.cache.check()
    assert [each.nodes for each in first.workloads] == [each.nodes for each in again.workloads]
    assert [each.victims for each in first.workloads] == [each.victims for each in again.workloads]


# Requests.


def test_a_body_without_kind_is_a_request_and_any_other_one_has_objects() -> None:
    pod = json.dumps(new("web")).encode()
    yaml = b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\n"

    assert read_request(b'{"pods": ["default/web"]}', {}).pods == ["default/web"]
    assert [obj["kind"] for obj in read_request(pod, {}).objects] == ["Pod"]
    given = read_request(yaml, {"namespace": ["shop"], "replicas": ["3"]})
    assert ([obj["metadata"]["name"] for obj in given.objects], given.namespace, given.replicas) == (
        ["a", "b"],
        "shop",
        3,
    )


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        pytest.param(
            {}, {"": "one of objects, workloads, pods, group, pending and remove is needed"}, id="nothing"
        ),
        pytest.param({"podz": []}, {"": "Object contains unknown field `podz`"}, id="an unknown field"),
        pytest.param(
            {"pending": True, "add": {"count": 0, "like": "n1"}},
            {"add.count": "Expected `int` >= 1"},
            id="no node more",
        ),
        pytest.param(
            {"pending": True, "add": {"count": 1}},
            {"add": "exactly one of like, labels and template is needed"},
            id="nodes like none",
        ),
        pytest.param({"remove": {}}, {"remove": "one of nodes and labels is needed"}, id="no node less"),
        pytest.param(
            {"remove": {"nodes": ["gone"]}}, {"remove.nodes[0]": "there is no node gone"}, id="no such node"
        ),
        pytest.param(
            {"pending": True, "add": {"count": 1, "like": "gone"}},
            {"add.like": "there is no node gone"},
            id="a copy of no node",
        ),
        pytest.param(
            {"pods": ["default/gone"]},
            {"pods[0]": "default/gone is no pending pod of custom-scheduler"},
            id="no such pod",
        ),
        pytest.param(
            {"group": "default/gone"}, {"group": "default/gone has no pending pods"}, id="no such group"
        ),
        pytest.param(
            {"objects": [new("a"), new("a")]},
            {"objects[1]": "pod default/a is in the request twice"},
            id="a pod twice",
        ),
        pytest.param(
            {"objects": [pod_object("there", node="n1")]},
            {"objects[0]": "pod default/there exists: name it in pods"},
            id="a pod of the cluster",
        ),
        pytest.param(
            {"objects": [new("a", scheduler_name="custom-schedular")]},
            {
                "": "pod default/a has schedulerName custom-schedular, which this scheduler does not serve, "
                'did you mean "custom-scheduler"?'
            },
            id="another scheduler",
        ),
        pytest.param(
            {"objects": [{"kind": "Pod"}]},
            {"objects[0]": "apiVersion, metadata.name: must be a string that is not empty"},
            id="an object without a name",
        ),
        pytest.param(
            {"objects": [{**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "replicas": "3"}}]},
            {"objects[0].spec.replicas": "Expected `int | null`, got `str`"},
            id="a wrong number of pods",
        ),
        pytest.param(
            {"objects": [{**DEPLOYMENT, "spec": {"template": {"spec": {"containers": [{"resources": 1}]}}}}]},
            {"objects[0].spec.template.spec.containers[0].resources": "expected `object`, got `int`"},
            id="a wrong field of a template",
        ),
        pytest.param(
            {"objects": [{**DEPLOYMENT, "spec": {}}]},
            {"objects[0].spec": "has no template with a list of containers"},
            id="a controller without a template",
        ),
        pytest.param(
            {"objects": [{**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "replicas": 10**9}}]},
            {"objects[0]": "at most 5000 pods are evaluated, there are 1000000000"},
            id="too many pods of a controller",
        ),
        pytest.param(
            {"objects": [N1]}, {"objects[0]": "is a Node: nodes are added by add.template"}, id="a node"
        ),
    ],
)
def test_an_invalid_request_is_refused_with_the_name_of_the_field(
    request_: Object, expected: dict[str, str]
) -> None:
    assert faults(N1, pod_object("there", node="n1"), **request_) == expected


def test_the_number_of_pods_is_limited() -> None:
    assert faults(N1, objects=[new("a"), new("b")], replicas=2501) == {
        "": "at most 5000 pods are evaluated, there are 5002"
    }


def test_quotas_count_for_pods_that_do_not_exist_yet() -> None:
    quota = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "q", "namespace": "default", "uid": "q"},
        "spec": {"max": {"cpu": "2"}, "min": {"cpu": "2"}},
    }
    answer = asked(N1, quota, config=profile_with("CapacityScheduling"), objects=[new("web")], replicas=3)

    assert answer.starting == 2
    assert answer.workloads[0].results[2].causes[0]["code"] == "QuotaMaxExceeded"


# The description.


def test_the_published_description_is_that_of_the_code() -> None:
    published = json.loads((ROOT / "docs" / "whatif.openapi.json").read_text())

    assert published == json.loads(msgspec.json.encode(description())), "run `make openapi`"


def test_the_description_has_every_field_of_requests_and_answers() -> None:
    schemas = description()["components"]["schemas"]

    for kind in (WhatIf, Answer):
        assert schemas[kind.__name__]["properties"].keys() == set(kind.__struct_encode_fields__)


def test_the_example_request_is_valid() -> None:
    request = read_request((MANIFESTS / "examples" / "whatif" / "replace-a-pool.json").read_bytes(), {})

    assert (request.remove is not None, request.add is not None) == (True, True)


# Memory.


@pytest.mark.parametrize(
    ("most", "left"), [pytest.param("1000\n", 900, id="a limit"), pytest.param("max\n", None, id="no limit")]
)
def test_the_memory_left_is_that_of_the_container(tmp_path: Path, most: str, left: int | None) -> None:
    (tmp_path / "memory.max").write_text(most)
    (tmp_path / "memory.stat").write_text("anon 100\nfile 700\n")

    assert memory_left(tmp_path) == left
    assert memory_left(tmp_path / "gone") is None


WITH_DELAY = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  pluginConfig:
  - name: DefaultPreemption
    args: {protection: {delay: 2m}}
"""


def test_the_victims_are_known_although_a_pod_would_wait_for_the_delay_of_preemption() -> None:
    low = pod_object("low", node="n1", cpu="3")

    answer = asked(N1, low, config=WITH_DELAY, objects=[new("high", "3", priority=10)])

    assert answer.starting == 1
    assert [each.pod for each in answer.workloads[0].victims] == ["default/low"]


@pytest.mark.parametrize(
    ("body", "path", "problem"),
    [
        pytest.param(
            b'{"pods": [%b]}' % (b"9" * 5000), "[...][0]", "Integer value out of range", id="a long number"
        ),
        pytest.param(
            b'{"pods": ["\\ud800 and more text"]}', "", "utf-16 surrogate pair", id="half a character"
        ),
        pytest.param(
            b'{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"priority": %b}}'
            % (b"9" * 5000),
            "[...][...]",
            "Integer value out of range",
            id="a long number of an object",
        ),
    ],
)
def test_a_value_that_cannot_be_represented_is_an_error_of_the_request(
    body: bytes, path: str, problem: str
) -> None:
    with pytest.raises(WhatIfError) as refused:
        read_request(body, {})

    [fault] = refused.value.faults
    assert fault.path == path
    assert problem in fault.problem


# Controllers of planned pods.

AT_MOST_HALF = json.dumps({"sets": [{"name": "all", "maxReplicas": "50%"}]})
PREFERRING = profile_with("NodePreference")


def creating(kind: str, **spec: Any) -> Object:
    """A creator of pods whose pods use at most half of the replicas of the only node set."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": new("any", "100m")["spec"]}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", "annotations": {"custom-scheduler.io/node-preference": AT_MOST_HALF}},
        "spec": {"template": template, **spec},
    }


SELECTOR = {"matchLabels": {"app": "web"}}


@pytest.mark.parametrize(
    "creator",
    [
        creating("Deployment", selector=SELECTOR),
        creating("ReplicaSet", selector=SELECTOR),
        creating("StatefulSet", selector=SELECTOR, podManagementPolicy="Parallel"),
        creating("Job", parallelism=1),
        creating("Job", parallelism=1, manualSelector=True, selector=SELECTOR),
    ],
    ids=["Deployment", "ReplicaSet", "StatefulSet", "Job", "Job with a selector of its own"],
)
def test_the_node_preference_of_a_controller_that_does_not_exist_yet_counts(creator: Object) -> None:
    answer = asked(N1, N2, config=PREFERRING, objects=[creator], replicas=4)

    assert (answer.pods, answer.starting) == (4, 2)


def test_the_node_preference_of_a_cron_job_is_that_of_its_job_template() -> None:
    job = creating("Job", parallelism=4)
    template = {"metadata": {"annotations": job["metadata"]["annotations"]}, "spec": job["spec"]}
    cron_job = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "web"}}

    answer = asked(
        N1,
        N2,
        config=PREFERRING,
        objects=[{**cron_job, "spec": {"schedule": "@hourly", "jobTemplate": template}}],
    )

    assert (answer.pods, answer.starting) == (4, 2)
