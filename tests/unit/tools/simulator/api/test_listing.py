from __future__ import annotations

from typing import Any

import pytest

from scheduler.tools.simulator.api.lists_and_watches import check_list_options, list_page
from scheduler.tools.simulator.apimachinery.selectors import selector_of
from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.support.errors import raises
from tests.unit.tools.simulator.a_store import AStore, node


def a_store_with_nodes(count: int) -> AStore:
    store = AStore()
    for place in range(count):
        store.create("nodes", node(f"n{place}"))
    return store


def page(store: AStore, fields: str = "", **query: str) -> tuple[list[str], dict]:
    kind = store.registry.kinds.named("nodes")
    found = list_page(store.registry, kind, selector_of(kind, fields=fields), query)
    return [entry.name for entry in found.entries], found.metadata


def test_a_list_is_split_into_consistent_pages():
    store = a_store_with_nodes(5)
    names: list[str] = []
    query: dict[str, str] = {}
    left = []
    while True:
        found, metadata = page(store, limit="2", **query)
        names += found
        left.append(metadata.get("remainingItemCount", 0))
        if "continue" not in metadata:
            break
        query = {"continue": metadata["continue"]}

    assert names == ["n0", "n1", "n2", "n3", "n4"]
    assert left == [3, 1, 0]


def test_later_pages_have_the_version_of_the_first():
    store = a_store_with_nodes(3)
    _, first = page(store, limit="1")
    store.delete("nodes", "n2")
    store.create("nodes", node("n1b"))

    names, second = page(store, limit="10", **{"continue": first["continue"]})

    assert names == ["n1", "n2"]
    assert second["resourceVersion"] == first["resourceVersion"]


def test_a_page_of_a_compacted_version_is_expired_and_has_a_new_token():
    store = a_store_with_nodes(3)
    _, first = page(store, limit="1")
    store.create("nodes", node("n4"))
    store.registry.storage(store.registry.kinds.named("nodes")).compact()

    with pytest.raises(StatusError) as caught:
        page(store, limit="1", **{"continue": first["continue"]})

    assert (caught.value.code, caught.value.reason) == (410, "Expired")
    names, _ = page(store, limit="10", **{"continue": caught.value.continue_token})
    assert names == ["n1", "n2", "n4"]


def test_the_remaining_count_is_omitted_for_selections():
    _, metadata = page(a_store_with_nodes(3), fields="metadata.name!=n0", limit="1")

    assert "remainingItemCount" not in metadata
    assert "continue" in metadata


def test_an_exact_version_is_listed_unchanged():
    store = a_store_with_nodes(2)
    version = str(store.version)
    store.delete("nodes", "n0")

    assert page(store, resourceVersion=version, resourceVersionMatch="Exact")[0] == ["n0", "n1"]
    assert page(store, resourceVersion=version, resourceVersionMatch="NotOlderThan")[0] == ["n1"]


@pytest.mark.parametrize(
    "query", [{"continue": "garbage"}, {"continue": "e30"}, {"limit": "many"}, {"continue": "eyJ2IjoxfQ"}]
)
def test_an_invalid_token_or_limit_is_a_bad_request(query: Any):
    with raises(StatusError, code=400, reason="BadRequest"):
        page(a_store_with_nodes(1), **query)


def test_an_invalid_version_gives_the_error_of_upstream():
    with raises(StatusError, code=500):
        page(a_store_with_nodes(1), resourceVersion="abc")


@pytest.mark.parametrize(
    "query",
    [
        pytest.param({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, id="exactly any"),
        pytest.param({"resourceVersionMatch": "Exact"}, id="a match for nothing"),
        pytest.param({"resourceVersionMatch": "Somehow", "resourceVersion": "5"}, id="no such match"),
        pytest.param(
            {"resourceVersionMatch": "Exact", "resourceVersion": "5", "continue": "x"},
            id="a match and a token",
        ),
        pytest.param({"sendInitialEvents": "true"}, id="initial events of a list"),
    ],
)
def test_conflicting_parameters_are_invalid(query: Any):
    with raises(StatusError, code=422, reason="Invalid"):
        check_list_options(query)


def test_an_unknown_match_is_reported_with_the_supported_ones():
    with raises(
        StatusError,
        message='ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Unsupported value: "Somehow": supported values: '
        '"Exact", "NotOlderThan", ""',
    ):
        check_list_options({"resourceVersionMatch": "Somehow", "resourceVersion": "5"})
