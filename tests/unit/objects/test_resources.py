"""The names of resources, requests of pods, and allocatable resources of nodes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.errors import ObjectError
from scheduler.objects import resources as pod_requests_module
from scheduler.objects import resources as resources_module
from scheduler.objects.pod import trim_bound_pod
from scheduler.objects.quantity import Quantity
from scheduler.objects.resource_names import (
    is_dra_extended_resource_name,
    is_extended_resource_name,
    is_scalar_resource_name,
)
from scheduler.objects.resources import PodRules, pod_requests, pod_resources
from scheduler.objects.v1 import Container, Pod, PodSpec, ResourceRequirements
from tests.reference import pod_requests as judge
from tests.reference.quantity import MILLI, integer
from tests.support.builders import node, pod
from tests.support.counted_labels import lines_run


@pytest.mark.parametrize(
    ("name", "extended", "scalar"),
    [
        pytest.param("cpu", False, False, id="cpu has a place of its own"),
        pytest.param("memory", False, False, id="so has memory"),
        pytest.param("ephemeral-storage", False, False, id="and ephemeral storage"),
        pytest.param("pods", False, False, id="and the number of pods"),
        pytest.param("nvidia.com/gpu", True, True, id="a vendor's"),
        pytest.param("vendor/Odd_Name.1", True, True, id="a domain of one label"),
        pytest.param("hugepages-2Mi", False, True, id="huge pages"),
        pytest.param("attachable-volumes-aws-ebs", False, True, id="attachable volumes"),
        pytest.param("kubernetes.io/batch-cpu", False, True, id="Kubernetes' domain"),
        pytest.param("scheduling.kubernetes.io/foo", False, True, id="a part of that domain"),
        pytest.param("requests.nvidia.com/gpu", False, False, id="a quota's name"),
        pytest.param("gpu", False, False, id="no domain"),
        pytest.param("a/b/c", False, False, id="two slashes"),
        pytest.param("nvidia.com/", False, False, id="no name"),
        pytest.param("/gpu", False, False, id="an empty domain"),
        pytest.param("Nvidia.com/gpu", False, False, id="a domain in capitals"),
        pytest.param("nvidia..com/gpu", False, False, id="an empty label"),
        pytest.param("nvidia.com/-gpu", False, False, id="a name that starts with a dash"),
        pytest.param("nvidia.com/gpu\n", False, False, id="a line break"),
        pytest.param("nvidia.com/" + "g" * 63, True, True, id="the longest name"),
        pytest.param("nvidia.com/" + "g" * 64, False, False, id="a name too long"),
        pytest.param("n" * 244 + "/gpu", True, True, id="the longest domain"),
        pytest.param("n" * 245 + "/gpu", False, False, id="a domain too long with the quota's prefix"),
    ],
)
def test_a_resource_name_has_its_kind(name: str, extended: bool, scalar: bool):
    assert is_extended_resource_name(name) is extended
    assert is_scalar_resource_name(name) is scalar


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("nvidia.com/gpu", True, id="extended"),
        pytest.param("deviceclass.resource.kubernetes.io/gpu", True, id="a device class"),
        pytest.param("kubernetes.io/gpu", False, id="another native name"),
        pytest.param("cpu", False, id="cpu"),
    ],
)
def test_resource_names_that_devices_may_provide(name: str, expected: bool):
    assert is_dra_extended_resource_name(name) is expected


MEBI = 2**20
DEFAULT_MEMORY = 200 * MEBI


def container(name: str = "main", *, sidecar: bool = False, **requests: str) -> dict[str, Any]:
    asked = {key.replace("_", "-"): text for key, text in requests.items()}
    found: dict[str, Any] = {"name": name, "resources": {"requests": asked}}
    return {**found, "restartPolicy": "Always"} if sidecar else found


def resized(
    name: str = "main", *, allocated: dict[str, str] | None = None, **requests: str
) -> dict[str, Any]:
    """Return the status of a container after an in-place resize."""
    return {"name": name, "resources": {"requests": requests}, "allocatedResources": allocated or {}}


INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
DEFERRED = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}


@pytest.mark.parametrize(
    ("spec", "requests"),
    [
        pytest.param({"containers": [container()]}, {}, id="nothing"),
        pytest.param(
            {"containers": [container(cpu="1", memory="1Gi")]},
            {"cpu": 1000, "memory": 1024 * MEBI},
            id="one container",
        ),
        pytest.param(
            {"containers": [container(cpu="1"), container(cpu="500m", memory="1Mi")]},
            {"cpu": 1500, "memory": MEBI},
            id="containers add up",
        ),
        pytest.param(
            {"containers": [container(cpu="500u"), container(cpu="500u")]},
            {"cpu": 1},
            id="parts of a milli add up before they are rounded",
        ),
        pytest.param(
            {
                "containers": [container(cpu="1", memory="5Mi")],
                "initContainers": [container(cpu="2"), container(memory="3Mi")],
            },
            {"cpu": 2000, "memory": 5 * MEBI},
            id="the largest init container counts where it exceeds the sum",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "initContainers": [container(sidecar=True, cpu="2")]},
            {"cpu": 3000},
            id="a sidecar runs along",
        ),
        pytest.param(
            {
                "containers": [container(cpu="1")],
                "initContainers": [container(sidecar=True, cpu="2"), container(cpu="5")],
            },
            {"cpu": 7000},
            id="a sidecar runs beside later init containers",
        ),
        pytest.param(
            {
                "containers": [container(cpu="1")],
                "initContainers": [container(cpu="5"), container(sidecar=True, cpu="2")],
            },
            {"cpu": 5000},
            id="a sidecar does not run beside earlier init containers",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "overhead": {"cpu": "250m", "memory": "120Mi"}},
            {"cpu": 1250, "memory": 120 * MEBI},
            id="overhead is added",
        ),
        pytest.param(
            {"containers": [container(cpu="3", memory="1Mi")], "resources": {"requests": {"cpu": "2"}}},
            {"cpu": 2000, "memory": MEBI},
            id="the pod's own request takes precedence, resource by resource",
        ),
        pytest.param(
            {
                "containers": [container()],
                "resources": {"requests": {"cpu": "2", "hugepages-2Mi": "4Mi"}},
                "overhead": {"cpu": "1"},
            },
            {"cpu": 3000, "hugepages-2Mi": 4 * MEBI},
            id="overhead is added to the pod's own request",
        ),
        pytest.param(
            {
                "containers": [container(ephemeral_storage="1Mi")],
                "resources": {"requests": {"cpu": "2", "ephemeral-storage": "9Mi"}},
            },
            {"cpu": 2000, "ephemeral-storage": MEBI},
            id="a whole pod requests cpu, memory and huge pages only",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "resources": {"limits": {"cpu": "2"}}},
            {"cpu": 1000},
            id="limits of the pod are no requests",
        ),
        pytest.param(
            {
                "containers": [
                    {"name": "main", "resources": {"requests": {"nvidia.com/gpu": "2", "foo": "1"}}}
                ]
            },
            {"nvidia.com/gpu": 2},
            id="extended resources count, other names do not",
        ),
        pytest.param({"containers": [container(cpu="0", pods="1")]}, {"cpu": 0}, id="pods are no request"),
        pytest.param({"containers": [container(cpu="-1")]}, {"cpu": 0}, id="negative requests count as zero"),
    ],
)
def test_the_requests_of_a_pending_pod(spec: dict[str, Any], requests: dict[str, int]):
    assert pod("p", **spec).resources.requests == requests


@pytest.mark.parametrize(
    ("spec", "status", "taken"),
    [
        pytest.param({"containers": [container(cpu="1")]}, {}, 1000, id="the spec"),
        pytest.param(
            {"containers": [container(cpu="1")]},
            {"containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "3"}}]},
            1000,
            id="an allocation without resources is ignored",
        ),
        pytest.param(
            {"containers": [container(cpu="1")]},
            {"containerStatuses": [resized(cpu="2")]},
            2000,
            id="the actual resources during a decrease",
        ),
        pytest.param(
            {"containers": [container(cpu="1")]},
            {"containerStatuses": [resized(cpu="2", allocated={"cpu": "3"})]},
            3000,
            id="the allocated resources",
        ),
        pytest.param(
            {"containers": [container(cpu="4")]},
            {"containerStatuses": [resized(cpu="2")], "conditions": [DEFERRED]},
            4000,
            id="the requested resources while a resize is deferred",
        ),
        pytest.param(
            {"containers": [container(cpu="4")]},
            {"containerStatuses": [resized(cpu="2", allocated={"cpu": "3"})], "conditions": [INFEASIBLE]},
            3000,
            id="not the requested resources if a resize is infeasible",
        ),
        pytest.param(
            {"containers": [container(cpu="4")]},
            {"containerStatuses": [resized(cpu="2")], "conditions": [DEFERRED, INFEASIBLE]},
            4000,
            id="the first condition decides",
        ),
        pytest.param(
            {"containers": [container(cpu="4")]},
            {"containerStatuses": [resized("other", cpu="9")]},
            4000,
            id="the status of another container is ignored",
        ),
        pytest.param(
            {"containers": [container(cpu="1"), container("other", cpu="2")]},
            {"containerStatuses": [resized(cpu="4"), {"name": "other"}]},
            6000,
            id="a container that has not started counts with its spec",
        ),
        pytest.param(
            {
                "containers": [container(cpu="1")],
                "initContainers": [container("side", sidecar=True, cpu="1")],
            },
            {"initContainerStatuses": [resized("side", cpu="2")]},
            3000,
            id="a sidecar is resized too",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "initContainers": [container("init", cpu="2")]},
            {"initContainerStatuses": [resized("init", cpu="9")]},
            2000,
            id="an init container is not",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "4"}}},
            {"resources": {"requests": {"cpu": "6"}}, "allocatedResources": {"cpu": "5"}},
            6000,
            id="the pod as a whole is resized",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "4"}}},
            {"allocatedResources": {"cpu": "5"}},
            4000,
            id="an allocation of the whole pod without resources is ignored",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "4"}}},
            {"resources": {"requests": {"memory": "1Mi"}}, "conditions": [INFEASIBLE]},
            0,
            id="a resource that the whole pod can never have is zero",
        ),
        pytest.param(
            {"containers": [container(cpu="1")]},
            {"resources": {"requests": {"cpu": "9"}}},
            1000,
            id="the status of the whole pod is ignored without a spec",
        ),
    ],
)
def test_the_requests_of_a_bound_pod(spec: dict[str, Any], status: dict[str, Any], taken: int):
    resources = pod("p", node="n", status=status, **spec).resources
    assert resources.taken["cpu"] == taken
    assert resources.balanced_score["cpu"] == taken
    assert resources.nonzero_milli_cpu == taken


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"containerStatuses": [resized(cpu="2")]}, id="of a container"),
        pytest.param({"resources": {"requests": {"cpu": "2"}}}, id="of the pod as a whole"),
    ],
)
def test_a_resize_changes_neither_the_fit_nor_its_score(status: dict[str, Any]):
    whole = {"requests": {"cpu": "1"}}
    resources = pod("p", node="n", cpu="1", resources=whole, status=status).resources
    assert resources.requests == {"cpu": 1000}
    assert resources.fit_score["cpu"] == 1000


@pytest.mark.parametrize(
    ("spec", "milli_cpu", "memory_bytes"),
    [
        pytest.param({"containers": [container()]}, 100, DEFAULT_MEMORY, id="nothing stated"),
        pytest.param(
            {"containers": [container(), container()]}, 200, 2 * DEFAULT_MEMORY, id="once for each container"
        ),
        pytest.param({"containers": [container(cpu="0", memory="0")]}, 0, 0, id="an explicit zero stays"),
        pytest.param(
            {"containers": [container(cpu="1")]}, 1000, DEFAULT_MEMORY, id="only the missing resource"
        ),
        pytest.param(
            {"containers": [container()], "initContainers": [container(sidecar=True)]},
            200,
            2 * DEFAULT_MEMORY,
            id="sidecars too",
        ),
        pytest.param(
            {"containers": [container()], "overhead": {"cpu": "1"}},
            1100,
            DEFAULT_MEMORY,
            id="beside overhead",
        ),
        pytest.param(
            {"containers": [container()], "resources": {"requests": {"cpu": "2"}}},
            2000,
            DEFAULT_MEMORY,
            id="resources that the whole pod does not set either",
        ),
        pytest.param(
            {
                "containers": [container(memory="1Mi"), container()],
                "resources": {"requests": {"cpu": "2"}},
            },
            2000,
            MEBI,
            id="not where the pod states something and any container does",
        ),
        pytest.param(
            {"containers": [container()], "resources": {"requests": {"cpu": "2", "memory": "1Mi"}}},
            2000,
            MEBI,
            id="not where the pod states both",
        ),
    ],
)
def test_a_container_without_requests_has_a_default_amount(
    spec: dict[str, Any], milli_cpu: int, memory_bytes: int
):
    resources = pod("p", **spec).resources
    assert (resources.nonzero_milli_cpu, resources.nonzero_memory_bytes) == (milli_cpu, memory_bytes)


def test_the_fit_score_ignores_requests_at_pod_level():
    whole = {"requests": {"cpu": "2", "memory": "1Gi"}}
    resources = pod("p", containers=[container(cpu="1")], resources=whole).resources
    assert resources.fit_score["cpu"] == 1000
    assert resources.fit_score["memory"] == DEFAULT_MEMORY
    assert resources.balanced_score["cpu"] == 2000
    assert resources.balanced_score["memory"] == 1024 * MEBI


def test_the_balanced_score_has_no_default_amounts():
    resources = pod("p").resources
    assert resources.balanced_score == {}
    assert "cpu" not in resources.balanced_score
    assert "nvidia.com/gpu" not in resources.fit_score


def test_scores_include_resources_that_are_not_allocatable():
    resources = pod("p", requests={"foo": "3"}).resources
    assert resources.balanced_score["foo"] == 3
    assert resources.fit_score["foo"] == 3
    assert resources.taken == {}


def test_the_maximum_with_a_decimal_stays_a_decimal():
    # 1e19 alone is read as 0; compared with 1Pi, upstream stores it as a decimal, which wraps.
    spec = {"containers": [container(memory="1Pi")], "initContainers": [container(memory="1e19")]}
    assert pod("p", **spec).resources.taken == {"memory": -(2**63)}
    assert pod("p", containers=[container(memory="1e19")]).resources.taken == {"memory": 0}


def test_pods_with_the_same_requests_share_one_result():
    one = pod("a", cpu="1", memory="1Gi").resources
    assert pod("b", cpu="1", memory="1Gi").resources is one
    assert pod("c", cpu="1", memory="2Gi").resources is not one


def test_a_running_pod_shares_the_result_of_the_pending_one():
    statuses = {"containerStatuses": [resized(cpu="1", allocated={"cpu": "1"})]}
    assert pod("a", cpu="1", node="n", status=statuses).resources is pod("a", cpu="1").resources


@pytest.mark.parametrize(
    ("condition", "held"),
    [
        pytest.param(DEFERRED, {"cpu": 1500}, id="deferred"),
        pytest.param(INFEASIBLE, {}, id="infeasible"),
        pytest.param({"type": "Ready", "status": "True"}, {}, id="not pending"),
    ],
)
def test_a_deferred_resize_holds_what_is_not_allocated(condition: dict[str, str], held: dict[str, int]):
    statuses = {
        "containerStatuses": [resized(cpu="500m", allocated={"cpu": "500m"})],
        "conditions": [condition],
    }
    found = pod("a", cpu="2", node="n", status=statuses)

    assert found.held_for_resize == held
    assert trim_bound_pod(found).held_for_resize == held


def test_a_deferred_resize_to_less_holds_nothing():
    statuses = {
        "containerStatuses": [resized(cpu="3", allocated={"cpu": "3"})],
        "conditions": [DEFERRED],
    }
    found = pod("a", cpu="2", node="n", status=statuses)

    assert found.resources.taken == {"cpu": 3000}
    assert found.held_for_resize == {}


def test_a_deferred_resize_of_the_pod_as_a_whole_holds_what_is_not_allocated():
    whole = {"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}}
    status = {**whole, "conditions": [DEFERRED]}
    found = pod("a", node="n", resources={"requests": {"cpu": "4"}}, status=status)

    assert found.held_for_resize == {"cpu": 3000}


def test_only_pods_resized_in_the_same_way_share_one_result():
    def running(condition: dict[str, str]) -> Any:
        statuses = {"containerStatuses": [resized(cpu="1")], "conditions": [condition]}
        return pod("a", cpu="2", node="n", status=statuses).resources

    assert running(DEFERRED) is running(DEFERRED)
    assert running(INFEASIBLE).taken == {"cpu": 1000}
    assert running(DEFERRED).taken == {"cpu": 2000}


@pytest.mark.parametrize(
    ("spec", "status", "path"),
    [
        pytest.param(
            {"containers": [container(), container(cpu="x")]},
            {},
            "spec.containers[1].resources.requests.cpu",
            id="a container",
        ),
        pytest.param(
            {"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "x"}}}]},
            {},
            "spec.containers[0].resources.requests[nvidia.com/gpu]",
            id="a name with a domain",
        ),
        pytest.param(
            {"initContainers": [container(cpu="x")]},
            {},
            "spec.initContainers[0].resources.requests.cpu",
            id="an init container",
        ),
        pytest.param({"overhead": {"cpu": "x"}}, {}, "spec.overhead.cpu", id="overhead"),
        pytest.param(
            {"resources": {"requests": {"cpu": "x"}}}, {}, "spec.resources.requests.cpu", id="the whole pod"
        ),
        pytest.param(
            {},
            {"containerStatuses": [resized(cpu="x")]},
            "status.containerStatuses[0].resources.requests.cpu",
            id="actual resources",
        ),
        pytest.param(
            {},
            {"containerStatuses": [resized(allocated={"cpu": "x"})]},
            "status.containerStatuses[0].allocatedResources.cpu",
            id="the allocated resources",
        ),
        pytest.param(
            {"initContainers": [container("side", sidecar=True)]},
            {"initContainerStatuses": [resized("side", cpu="x")]},
            "status.initContainerStatuses[0].resources.requests.cpu",
            id="a sidecar's status",
        ),
        pytest.param(
            {"resources": {"requests": {"cpu": "1"}}},
            {"resources": {"requests": {"cpu": "x"}}},
            "status.resources.requests.cpu",
            id="actual resources of the whole pod",
        ),
        pytest.param(
            {"resources": {"requests": {"cpu": "1"}}},
            {"resources": {}, "allocatedResources": {"cpu": "x"}},
            "status.allocatedResources.cpu",
            id="allocated resources of the whole pod",
        ),
    ],
)
def test_an_invalid_quantity_of_a_pod_is_named(spec: dict[str, Any], status: dict[str, Any], path: str):
    with pytest.raises(ObjectError, match="'x' is not a quantity") as caught:
        pod("web", namespace="shop", status=status, **spec)
    assert (caught.value.kind, caught.value.key, caught.value.path) == ("Pod", "shop/web", path)


def test_a_bool_in_a_pod_that_was_not_decoded_is_named():
    # 1 equals True as a key of the cache.
    requests = {"cpu": True, "example.com/of-no-other-test": "1"}
    made = Pod(spec=PodSpec(containers=(Container(resources=ResourceRequirements(requests=requests)),)))
    with pytest.raises(ObjectError, match=r"spec\.containers\[0\]\.resources\.requests\.cpu: True is not"):
        pod_resources(made)


def test_a_node_has_the_allocatable_resources_of_scheduling():
    offered = {"nvidia.com/gpu": "2", "hugepages-2Mi": "4Mi", "ephemeral-storage": "1k", "foo": "1"}
    assert node("n", cpu="3900m", memory="1Gi", pods="+110", allocatable=offered).allocatable == {
        "cpu": 3900,
        "memory": 1024 * MEBI,
        "pods": 110,
        "nvidia.com/gpu": 2,
        "hugepages-2Mi": 4 * MEBI,
        "ephemeral-storage": 1000,
    }


def test_an_invalid_quantity_of_a_node_is_named():
    with pytest.raises(ObjectError, match=r"^Node n: status\.allocatable\.memory: '1Zi' is not a quantity"):
        node("n", memory="1Zi")


def test_requests_are_summed_exactly():
    found = pod_requests(pod("p", containers=[container(cpu="500u"), container(cpu="1n")]).pod)
    assert found == {"cpu": Quantity(500001, -9)}


def many(kind: str, cpu: str) -> dict[str, Any]:
    """Return a pod's spec with 1000 containers of a kind."""
    made = [
        container(f"c{number}", sidecar=kind == "sidecars", cpu=cpu, memory="1Mi") for number in range(1000)
    ]
    return {"containers": made} if kind == "containers" else {"initContainers": made}


@pytest.mark.parametrize("kind", ["containers", "init containers", "sidecars"])
def test_a_container_costs_few_lines(kind: str):
    made = pod("p", **many(kind, "1m")).pod
    resources_module._KNOWN.clear()
    assert lines_run(lambda: pod_resources(made)) < 90 * 1000  # its two quantities are parsed once


def test_requests_are_the_same_in_integers_and_in_quantities(monkeypatch: pytest.MonkeyPatch):
    found = pod("p", **many("sidecars", "3m")).resources
    monkeypatch.setattr(pod_requests_module, "as_integers", lambda _: None)
    resources_module._KNOWN.clear()
    assert pod("p", **many("sidecars", "3m")).resources == found


QUANTITIES = st.sampled_from(["0", "1", "100m", "1500u", "1.5Gi", "64Mi", "3k", "0.1n", "2e3", "5Ti"])
NAMES = st.sampled_from(["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu"])
LISTS = st.dictionaries(NAMES, QUANTITIES, max_size=3)
CONTAINERS = st.builds(lambda requests: {"name": "c", "resources": {"requests": requests}}, LISTS)
INIT_CONTAINERS = st.builds(
    lambda found, sidecar: {**found, "restartPolicy": "Always"} if sidecar else found,
    CONTAINERS,
    st.booleans(),
)


@settings(derandomize=True, max_examples=300)
@given(
    containers=st.lists(CONTAINERS, min_size=1, max_size=3),
    init_containers=st.lists(INIT_CONTAINERS, max_size=4),
    overhead=LISTS,
)
def test_requests_agree_with_the_definition(
    containers: list[dict[str, Any]], init_containers: list[dict[str, Any]], overhead: dict[str, str]
):
    spec = {"containers": containers, "initContainers": init_containers, "overhead": overhead}
    resources = pod("p", **spec).resources
    for name in ("cpu", "memory", "ephemeral-storage", "nvidia.com/gpu"):
        unit = MILLI if name == "cpu" else 1
        stated = integer(judge.request(spec, name), unit)
        assert resources.requests.get(name, 0) == stated
        assert resources.taken.get(name, 0) == stated
        assert resources.balanced_score.get(name, 0) == stated
    assert resources.nonzero_milli_cpu == integer(judge.request(spec, "cpu", "100m"), MILLI)
    assert resources.nonzero_memory_bytes == integer(judge.request(spec, "memory", "200Mi"))
    assert resources.fit_score["cpu"] == resources.nonzero_milli_cpu
    assert resources.fit_score["memory"] == resources.nonzero_memory_bytes


WHOLE = PodRules(as_a_whole=True)


@pytest.mark.parametrize(
    ("spec", "status", "taken"),
    [
        pytest.param(
            # The maximum of each container is 3 + 3; the totals are 4, 4 and 4.
            {"containers": [container("a", cpu="1"), container("b", cpu="3")]},
            {
                "containerStatuses": [
                    resized("a", allocated={"cpu": "3"}, cpu="3"),
                    resized("b", allocated={"cpu": "1"}, cpu="1"),
                ]
            },
            (6000, 4000),
            id="one container grows, another shrinks",
        ),
        pytest.param(
            {"containers": [container("a", cpu="5"), container("b", cpu="1")]},
            {
                "containerStatuses": [
                    resized("a", allocated={"cpu": "2"}, cpu="3"),
                    resized("b", allocated={"cpu": "2"}, cpu="1"),
                ],
                "conditions": [INFEASIBLE],
            },
            (5000, 4000),  # 3 + 2 and the larger of 4 and 4
            id="an infeasible resize",
        ),
        pytest.param(
            {"containers": [container("a", cpu="5"), container("b", cpu="1")]},
            {"containerStatuses": [resized("a", cpu="3")], "conditions": [INFEASIBLE]},
            (4000, 3000),  # a container without a status does not count in an infeasible resize
            id="an infeasible resize without the status of a container",
        ),
        pytest.param(
            {"containers": [container("a", cpu="2")]},
            {"containerStatuses": [resized("a", allocated={"cpu": "3"})]},
            (3000, 3000),  # without actual resources, the allocated ones
            id="no actual resources",
        ),
        pytest.param(
            {"containers": [container("a", cpu="1")], "initContainers": [container("i", cpu="2")]},
            {"initContainerStatuses": [resized("i", allocated={"cpu": "3"}, cpu="4")]},
            (2000, 4000),
            id="an init container that ends",
        ),
        pytest.param(
            {"containers": [container("a", cpu="1")]},
            {"resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "4"}},
            (1000, 4000),
            id="the totals in the status of the pod",
        ),
    ],
)
def test_a_resize_counts_for_each_container_or_for_the_pod(
    spec: dict[str, Any], status: dict[str, Any], taken: tuple[int, int]
):
    made = pod("p", status=status, **spec)

    assert tuple(pod_resources(made.pod, rules).taken["cpu"] for rules in (PodRules(), WHOLE)) == taken
    assert made.under(WHOLE).resources.taken["cpu"] == taken[1]


WHOLE_POD = {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "2"}}}
GROWN = {"resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "4"}}


@pytest.mark.parametrize(
    ("rules", "requests", "taken"),
    [
        pytest.param(PodRules(), 2000, 4000, id="all gates"),
        pytest.param(WHOLE, 2000, 4000, id="1.37"),
        pytest.param(PodRules(pod_level_resizes=False), 2000, 2000, id="no resize of whole pods"),
        pytest.param(PodRules(resizes=False), 2000, 2000, id="no resizes"),
        pytest.param(PodRules(pod_level=False), 1000, 1000, id="no requests of whole pods"),
    ],
)
def test_gates_decide_about_the_requests_of_a_whole_pod(rules: PodRules, requests: int, taken: int):
    found = pod("p", status=GROWN, **WHOLE_POD).under(rules).resources

    assert (found.requests["cpu"], found.taken["cpu"], found.nonzero_milli_cpu) == (requests, taken, taken)


def test_without_resizes_the_status_of_containers_does_not_count():
    made = pod("p", containers=[container(cpu="1")], status={"containerStatuses": [resized(cpu="3")]})

    assert made.resources.taken["cpu"] == 3000
    assert made.under(PodRules(resizes=False)).resources.taken["cpu"] == 1000


def test_rules_do_not_matter_to_a_pod_without_a_resize():
    made = pod("p", containers=[container(cpu="1")], overhead={"cpu": "1"})

    assert made.under(WHOLE) is made


OF_136 = {"resourceClaimName": "one", "containers": ["a", "i"], "resources": {"cpu": "2"}}
MAPPED = {"resourceClaimName": "one", "mapping": [{"name": "cpu", "quantity": "2"}]}


def overhead(*containers: str, **amounts: str) -> dict[str, Any]:
    each = {
        "name": "cpu",
        **{{"pod": "perPod", "each": "perContainer"}[key]: text for key, text in amounts.items()},
    }
    return {"resourceClaimName": "one", "containers": list(containers), "overhead": [each]}


@pytest.mark.parametrize(
    ("claim", "init", "taken"),
    [
        pytest.param(OF_136, [], 3000, id="1.36: once for the claim"),
        pytest.param(OF_136, [container("i", cpu="2")], 4000, id="1.36: besides an init container"),
        pytest.param(MAPPED, [container("i", cpu="2")], 4000, id="a mapping"),
        pytest.param(overhead(pod="500m"), [], 1500, id="an overhead of the pod"),
        pytest.param(overhead("a", each="500m"), [], 1500, id="an overhead of a container"),
        pytest.param(
            overhead("a", "i", each="500m"),
            [container("i", cpu="2")],
            2500,
            id="an overhead of an init container",
        ),
        pytest.param(
            overhead("a", "s", each="500m"),
            [container("s", sidecar=True, cpu="2")],
            4000,
            id="an overhead of a sidecar, which runs along",
        ),
        pytest.param(
            overhead("a", "gone", each="500m"), [], 2000, id="a container that the pod does not have"
        ),
    ],
)
def test_what_devices_take_counts_on_the_node_of_the_pod(claim: dict[str, Any], init: list[Any], taken: int):
    made = pod(
        "p",
        containers=[container("a", cpu="1")],
        initContainers=init,
        status={"nodeAllocatableResourceClaimStatuses": [claim]},
    )

    with_claims = made.under(PodRules(claims=True)).resources

    assert with_claims.taken["cpu"] == taken
    assert with_claims.nonzero_milli_cpu == taken
    assert with_claims.requests == made.resources.requests
    assert made.resources.taken["cpu"] < taken


def test_devices_count_in_the_actual_amounts_of_a_resize_already():
    status = {
        "containerStatuses": [resized("a", allocated={"cpu": "1"}, cpu="3")],
        "nodeAllocatableResourceClaimStatuses": [MAPPED],
    }
    made = pod("p", containers=[container("a", cpu="1")], status=status)

    rules = PodRules(claims=True, as_a_whole=True)

    assert made.under(rules).resources.taken["cpu"] == 3000  # the largest of 1 + 2, 3 and 1 + 2


def test_pods_whose_devices_take_different_amounts_share_no_result():
    amounts = []
    for cpu in ("1", "2"):
        claim = {"resourceClaimName": "one", "containers": ["a"], "resources": {"cpu": cpu}}
        made = pod("p", cpu="1", status={"nodeAllocatableResourceClaimStatuses": [claim]})
        amounts.append(made.under(PodRules(claims=True)).resources.taken["cpu"])

    assert amounts == [2000, 3000]


def test_an_invalid_quantity_of_a_claim_is_named():
    claim = {"resourceClaimName": "one", "resources": {"cpu": "many"}}
    made = pod("p", cpu="1", status={"nodeAllocatableResourceClaimStatuses": [claim]})

    with pytest.raises(ObjectError, match=r"nodeAllocatableResourceClaimStatuses\[0\]\.resources"):
        made.under(PodRules(claims=True))
