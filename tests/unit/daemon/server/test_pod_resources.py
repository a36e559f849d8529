"""/metrics/resources, line by line."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.daemon.server.http_server import pod_resources_text
from scheduler.objects.decode import decode_pod
from scheduler.objects.pod import trim_bound_pod
from scheduler.objects.resources import PodRules
from tests.support.builders import pod
from tests.unit.daemon.metrics.exposition import families


def shown(*pods: Any) -> dict[str, float]:
    found = families("".join(pod_resources_text(pods)))
    return {series: number for family in found.values() for series, number in family.series.items()}


def test_a_pod_is_shown_with_all_its_requests() -> None:
    assert shown(
        pod("web", namespace="shop", cpu="1500m", memory="1Gi", node="n1", priority=7, scheduler_name="other")
    ) == {
        'kube_pod_resource_request{namespace="shop",node="n1",pod="web",priority="7",resource="cpu",'
        'scheduler="other",unit="cores"}': 1.5,
        'kube_pod_resource_request{namespace="shop",node="n1",pod="web",priority="7",resource="memory",'
        'scheduler="other",unit="bytes"}': 2**30,
    }


def test_a_pending_pod_has_an_empty_node() -> None:
    (series,) = shown(pod("web", cpu="1"))

    assert 'node=""' in series


@pytest.mark.parametrize(
    ("resource", "unit"),
    [
        ("cpu", "cores"),
        ("memory", "bytes"),
        ("ephemeral-storage", "bytes"),
        ("storage", "bytes"),
        ("hugepages-2Mi", "bytes"),
        ("attachable-volumes-csi", "integer"),
        ("nvidia.com/gpu", ""),
    ],
)
def test_resources_have_the_units_of_kubernetes(resource: str, unit: str) -> None:
    (series,) = shown(pod("web", requests={resource: "4"}))

    assert f'resource="{resource}",scheduler="custom-scheduler",unit="{unit}"' in series


@pytest.mark.parametrize(
    ("amount", "number"),
    [("100m", 0.1), ("1", 1.0), ("1n", 1e-9), ("1.5Gi", 1.5 * 2**30), ("1e3", 1000.0), ("12E", 12e18)],
)
def test_amounts_are_floats(amount: str, number: float) -> None:
    assert list(shown(pod("web", requests={"example.com/x": amount})).values()) == [number]


def test_zero_amounts_are_not_shown() -> None:
    assert shown(pod("web", cpu="0")) == {}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_holds_nothing(phase: str) -> None:
    assert shown(pod("web", cpu="1", node="n1", status={"phase": phase})) == {}


@pytest.mark.parametrize("rules", [PodRules(), PodRules(as_a_whole=True), PodRules(pod_level=False)])
def test_requests_are_those_of_the_spec_in_all_versions(rules: PodRules) -> None:
    """kube-scheduler computes them without the statuses of a resize, and always with the requests of the pod as a whole.

    Source:
        kube-scheduler v1.34, v1.36 and v1.37, metrics/resources/resources.go, podRequestsAndLimitsByLifecycle.
    """
    larger = [{"name": "main", "resources": {"requests": {"cpu": "4"}}, "allocatedResources": {"cpu": "4"}}]
    resized = pod("web", cpu="1", node="n1", status={"containerStatuses": larger})
    whole = pod("db", cpu="1", node="n1", resources={"requests": {"cpu": "3"}})

    assert list(shown(resized.under(rules), whole.under(rules)).values()) == [1.0, 3.0]


def test_limits_are_shown_beside_requests() -> None:
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1k"}}}
    found = shown(pod("web", containers=[container]))

    assert [(series.partition("{")[0], number) for series, number in found.items()] == [
        ("kube_pod_resource_request", 1.0),
        ("kube_pod_resource_limit", 2.0),
        ("kube_pod_resource_limit", 1000.0),
    ]


def test_an_invalid_limit_affects_that_limit_only() -> None:
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "much"}}}
    found = shown(pod("odd", containers=[container]), pod("web", cpu="1"))

    assert len(found) == 2


def test_many_pods_are_sent_in_pieces_and_replicas_are_distinct() -> None:
    replicas = [
        trim_bound_pod(decode_pod(pod(f"web-{number}", cpu="1", node="n1").raw or b""))
        for number in range(250)
    ]
    others = [trim_bound_pod(pod("db", cpu="3", node="n1"))]

    pieces = list(pod_resources_text([*replicas, *others]))
    found = shown(*replicas, *others)

    assert len(pieces) == 2 * (1 + 3)
    assert len(found) == 251
    assert sum(found.values()) == 253


def test_names_cannot_break_out_of_their_quotes() -> None:
    (series,) = shown(pod("web", cpu="1", scheduler_name='a"b\\c\nd'))

    assert 'scheduler="a\\"b\\\\c\\nd"' in series
