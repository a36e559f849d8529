"""Discovery: the versions in which a server serves a kind, with and without aggregated discovery."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scheduler.errors import ApiError
from scheduler.kube.client.discovery import ServedVersions, read_server_version, served_versions
from scheduler.kube.client.resources import PODS, Resource
from scheduler.kube.http.request import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.kube.http.request import Request

THINGS = Resource("example.com", "v1", "things", "Thing", namespaced=True, versions=("v2", "v1", "v1beta1"))


class Server:
    """Answers from documents: path -> document; a status instead of a document is a refusal."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self.documents = dict(documents)
        self.asked: list[str] = []

    async def send(self, request: Request) -> Response:
        self.asked.append(request.path)
        found = self.documents.get(request.path, 404)
        if isinstance(found, int):
            raise ApiError(found, "Refused", f"{request}: refused")
        return Response(200, found if isinstance(found, bytes) else msgspec.json.encode(found))


def aggregated(**versions: tuple[str, ...]) -> dict[str, Any]:
    """Return the answer of a server with aggregated discovery: version -> plurals."""
    served = [
        {"version": version, "resources": [{"resource": plural, "verbs": ["list"]} for plural in plurals]}
        for version, plurals in versions.items()
    ]
    others = {"metadata": {"name": "other.com"}, "versions": [{"version": "v2", "resources": served}]}
    group = {"metadata": {"name": "example.com"}, "versions": served}
    return {"/apis": {"kind": "APIGroupDiscoveryList", "items": [others, group]}}


def by_group(**versions: tuple[str, ...]) -> dict[str, Any]:
    """Return the answers of a server without aggregated discovery: version -> plurals."""
    listed = [{"groupVersion": f"example.com/{version}", "version": version} for version in versions]
    return {
        "/apis": {"kind": "APIGroupList", "groups": [{"name": "example.com", "versions": listed}]},
        "/apis/example.com": {"kind": "APIGroup", "name": "example.com", "versions": listed},
        **{
            f"/apis/example.com/{version}": {"resources": [{"name": plural} for plural in plurals]}
            for version, plurals in versions.items()
        },
    }


CASES = [
    pytest.param({"v1": ("things",), "v1beta1": ("things",)}, {"v1", "v1beta1"}, "v1", id="two versions"),
    pytest.param({"v1": ("things",), "v2": ("others",)}, {"v1"}, "v1", id="a version with other kinds"),
    pytest.param({"v3": ("things",)}, set(), "v1", id="a version that the scheduler does not know"),
    pytest.param({"v1": ("things",), "v2": ("things",)}, {"v1", "v2"}, "v2", id="the best version"),
    pytest.param({"v1": ("things/status",)}, set(), "v1", id="a subresource alone"),
    pytest.param({}, set(), "v1", id="no version"),
]


@pytest.mark.parametrize("answers", [aggregated, by_group])
@pytest.mark.parametrize(("served", "expected", "best"), CASES)
async def test_a_kind_is_found_in_the_versions_that_both_know(
    answers: Any, served: dict[str, tuple[str, ...]], expected: set[str], best: str
):
    server = Server(answers(**served))

    assert await served_versions(server.send, THINGS) == expected
    assert (await ServedVersions(server.send).find(THINGS)).api_version == f"example.com/{best}"


async def test_a_group_that_the_server_does_not_have_is_no_error():
    server = Server({"/apis": {"kind": "APIGroupList", "groups": []}})

    assert await served_versions(server.send, THINGS) == frozenset()


async def test_an_absent_kind_is_asked_for_again_after_five_minutes_or_for_another_server():
    server = Server(aggregated())
    versions = ServedVersions(server.send)
    for _ in range(3):
        await versions.find(THINGS)
    assert len(server.asked) == 1

    await asyncio.sleep(300.0)
    await versions.find(THINGS)
    versions.forget()
    await versions.find(THINGS)
    assert len(server.asked) == 3


async def test_a_kind_that_was_served_is_asked_for_each_time():
    server = Server(aggregated(v2=("things",)))
    versions = ServedVersions(server.send)
    await versions.find(THINGS)
    server.documents = aggregated(v1=("things",))

    assert (await versions.find(THINGS)).version == "v1"
    assert versions.of(THINGS).version == "v1"
    assert versions.of(PODS) is PODS


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"major": 1}'])
async def test_an_answer_that_is_no_document_is_an_error_of_the_server(body: bytes):
    server = Server({"/version": body, "/apis": b"no JSON"})

    with pytest.raises(ApiError, match="unreadable answer"):
        await read_server_version(server.send)
    with pytest.raises(ApiError, match="unreadable answer"):
        await served_versions(server.send, THINGS)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_client_that_may_not_ask_reads_the_usual_version(status: int):
    assert await ServedVersions(Server({"/apis": status}).send).find(THINGS) is THINGS


async def test_a_server_that_does_not_answer_is_an_error():
    with pytest.raises(ApiError):
        await ServedVersions(Server({"/apis": 503}).send).find(THINGS)
