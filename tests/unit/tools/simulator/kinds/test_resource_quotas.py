"""ResourceQuotas refuse pods that exceed them, and their status shows what pods use."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.kinds.resource_quotas import usage
from tests.support.errors import raises
from tests.unit.tools.simulator.a_store import AStore, pod


def store_with(**hard: str) -> AStore:
    store = AStore()
    spec: dict[str, Any] = {"hard": {name.replace("_", "."): amount for name, amount in hard.items()}}
    store.create("resourcequotas", {"metadata": {"name": "q", "namespace": "default"}, "spec": spec})
    return store


def sized(name: str, cpu: str) -> dict[str, Any]:
    made = pod(name)
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return made


def test_a_pod_beyond_the_number_of_pods_is_refused() -> None:
    store = store_with(pods="1")
    store.create("pods", pod("first"))

    with raises(
        StatusError,
        message='pods "second" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1',
    ):
        store.create("pods", pod("second"))


def test_requests_are_summed_and_pods_that_have_ended_do_not_count() -> None:
    store = store_with(requests_cpu="2")
    store.create("pods", sized("first", "1500m"))

    with pytest.raises(StatusError, match="exceeded quota: q, requested: requests"):
        store.create("pods", sized("second", "1"))
    store.patch("pods", "first", {"status": {"phase": "Succeeded"}}, subresource="status")
    store.create("pods", sized("second", "1"))

    (quota,) = store.list("resourcequotas")
    assert usage(quota, store.list("pods")) == {"requests.cpu": "1"}


def test_a_pod_without_a_request_that_a_quota_has_is_refused() -> None:
    with pytest.raises(StatusError, match="failed quota: q: must specify requests"):
        store_with(requests_cpu="2").create("pods", pod("p"))


def test_a_quota_of_another_namespace_or_with_scopes_refuses_nothing() -> None:
    store = store_with(pods="1")
    (quota,) = store.list("resourcequotas")
    store.update("resourcequotas", quota | {"spec": quota["spec"] | {"scopes": ["BestEffort"]}})

    for number in range(2):
        store.create("pods", pod(f"p{number}"))
