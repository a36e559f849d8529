"""The verdict of the API server on planned pods in a dry run."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from scheduler.errors import ApiError
from scheduler.kube.http.request import Request, Response
from scheduler.tools.whatif.admission import admit
from scheduler.tools.whatif.start_preview import Planned


class Server:
    """Adds a request for cpu to every pod, or rejects it."""

    def __init__(self, refusal: str = "") -> None:
        self._refusal = refusal
        self.asked: list[Request] = []

    async def send(self, request: Request) -> Response:
        self.asked.append(request)
        if self._refusal:
            raise ApiError(403, "Forbidden", f"{request}: 403: {self._refusal}")
        pod = json.loads(request.body or b"")
        pod["spec"] |= {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], "priority": 5}
        return Response(201, json.dumps(pod).encode())


def set_of(*hostnames: str) -> Planned:
    pods: list[dict[str, Any]] = [
        {"metadata": {"name": name, "uid": name}, "spec": {"hostname": name, "priority": 0, "containers": []}}
        for name in hostnames
    ]
    return Planned("StatefulSet", "shop", "web", pods)


def admitted(server: Server, planned: Planned, *, knows_all: bool = True) -> str:
    connection: Any = server
    return asyncio.run(admit(connection, planned, knows_all=knows_all))


def test_one_pod_is_admitted_and_its_replicas_are_derived_from_it() -> None:
    server, planned = Server(), set_of("web-0", "web-1")

    assert admitted(server, planned) == ""

    (request,) = server.asked
    assert (request.method, request.path, request.params) == (
        "POST",
        "/api/v1/namespaces/shop/pods",
        {"dryRun": "All"},
    )
    assert "priority" not in json.loads(request.body or b"")["spec"]
    assert [pod["spec"]["hostname"] for pod in planned.pods] == ["web-0", "web-1"]
    assert [pod["spec"]["priority"] for pod in planned.pods] == [5, 5]
    assert [pod["spec"]["containers"][0]["resources"]["requests"] for pod in planned.pods] == [
        {"cpu": "1"}
    ] * 2
    assert [pod["metadata"]["uid"] for pod in planned.pods] == ["web-0", "web-1"]


@pytest.mark.parametrize(
    ("refusal", "knows_all", "believed"),
    [
        pytest.param("exceeded quota: q", True, True, id="a quota"),
        pytest.param("no PriorityClass with name x", False, False, id="an object of the file is missing"),
        pytest.param(
            'User "ann" cannot create resource "pods" in', True, False, id="the user may not send it"
        ),
    ],
)
def test_a_refusal_counts_only_if_the_server_knows_all_objects(
    refusal: str, knows_all: bool, believed: bool
) -> None:
    planned = set_of("web-0")

    said = admitted(Server(refusal), planned, knows_all=knows_all)

    assert (said, planned.problem, len(planned.pods)) == (("", refusal, 0) if believed else (refusal, "", 1))


def test_an_empty_set_of_pods_needs_no_request() -> None:
    server = Server()

    assert (admitted(server, set_of()), server.asked) == ("", [])
