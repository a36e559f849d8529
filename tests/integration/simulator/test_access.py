from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import aiohttp
import pytest

from scheduler.tools.simulator.server import ApiServer
from tests.integration.simulator.simulator_client import PODS, pod, serving
from tests.support.virtual_time import LoopClock, run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("path", "authorization", "status"),
    [
        pytest.param(PODS, "Bearer secret", 200, id="the token"),
        pytest.param(PODS, "bearer secret", 200, id="the scheme in small letters"),
        pytest.param(PODS, "Bearer wrong", 401, id="another token"),
        pytest.param(PODS, "Basic secret", 401, id="another scheme"),
        pytest.param(PODS, "", 403, id="nothing"),
        pytest.param("/api", "", 403, id="nothing for discovery"),
        pytest.param("/readyz", "", 200, id="health is for all"),
        pytest.param("/version", "", 200, id="the version is for all"),
        pytest.param("/readyz", "Bearer wrong", 401, id="another token even for health"),
    ],
)
def test_the_token_decides_about_access(tmp_path: Path, path: str, authorization: str, status: int):
    async def ask() -> int:
        async with serving(tmp_path, token="secret") as (_, client):
            headers = {"Authorization": authorization} if authorization else {}
            return (await client.ask("GET", path, **headers))[0]

    assert run(ask()) == status


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "/api/v1/nodes", 'nodes is forbidden: User "system:anonymous" cannot list resource "nodes" in API group "" at the cluster scope'),
        ("POST", f"{PODS}/a/binding", 'pods "a" is forbidden: User "system:anonymous" cannot create resource "pods/binding" in API group "" in the namespace "default"'),
        ("DELETE", "/apis/apps/v1/namespaces/x/deployments", 'deployments.apps is forbidden: User "system:anonymous" cannot deletecollection resource "deployments" in API group "apps" in the namespace "x"'),
        ("GET", "/apis", 'forbidden: User "system:anonymous" cannot get path "/apis"'),
    ],
)  # fmt: skip
def test_a_refusal_names_the_missing_permission(tmp_path: Path, method: str, path: str, message: str):
    async def ask() -> str:
        async with serving(tmp_path, token="secret") as (_, client):
            return str((await client.ask(method, path))[1]["message"])

    assert run(ask()) == message


async def test_a_kubeconfig_connects_to_the_server_and_is_private(tmp_path: Path):
    async with ApiServer(clock=LoopClock(), token="secret", user="me") as server:
        path = server.write_kubeconfig(tmp_path / "config")
        config = json.loads(path.read_text())
        url = config["clusters"][0]["cluster"]["server"]
        headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{url}{PODS}", headers=headers) as response,
        ):
            assert response.status == 200

        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert config["current-context"] == config["contexts"][0]["name"]


async def test_a_server_can_be_restarted_with_its_previous_state(tmp_path: Path):
    server = ApiServer(clock=LoopClock(), socket_path=tmp_path / "socket")
    server.store.create("pods", pod("a"))
    for _ in range(2):
        async with (
            server,
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(tmp_path / "socket"))) as session,
            session.get(f"http://localhost{PODS}") as response,
        ):
            assert len((await response.json())["items"]) == 1
    assert not (tmp_path / "socket").exists()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nope", 404),
        ("GET", "/apis/nope.example.com/v1", 404),
        ("GET", "/apis/apps/v1/nope", 404),
        ("GET", "/api/v1/pods/a", 404),
        ("GET", f"{PODS}/a/nope", 404),
        ("POST", "/api/v1/pods", 405),
        ("PUT", PODS, 405),
        ("POST", f"{PODS}/a", 405),
        ("DELETE", f"{PODS}/a/status", 405),
        ("GET", f"{PODS}/a/binding", 405),
        ("DELETE", "/api/v1/namespaces", 405),
        ("POST", "/version", 405),
    ],
)  # fmt: skip
def test_a_path_or_method_that_is_not_served_is_refused(tmp_path: Path, method: str, path: str, status: int):
    async def ask() -> int:
        async with serving(tmp_path) as (_, client):
            return (await client.ask(method, path, {} if method in {"POST", "PUT"} else None))[0]

    assert run(ask()) == status


async def test_times_are_those_of_the_injected_clock(tmp_path: Path):
    async with (
        serving(tmp_path) as (_, client),
        client.session.post(f"http://localhost{PODS}", json=pod("a")) as response,
    ):
        assert (await response.json())["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
        assert response.headers["Date"] == "Thu, 01 Jan 2026 00:00:00 GMT"


async def test_unknown_fields_cause_a_warning_or_a_refusal(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        wrong = {**pod("a"), "speck": 1}
        status, refused = await client.ask("POST", f"{PODS}?fieldValidation=Strict", wrong)
        async with client.session.post(f"http://localhost{PODS}", json=wrong) as response:
            warning = response.headers["Warning"]

        assert (status, refused["reason"]) == (400, "BadRequest")
        assert warning == '299 - "unknown field \\"speck\\""'
        assert "speck" not in server.store.get("pods", "a")


async def test_a_body_in_yaml_is_decoded(tmp_path: Path):
    async with serving(tmp_path) as (_, client):
        body = "metadata: {name: c}\ndata: {a: b}\n"
        async with client.session.post(
            "http://localhost/api/v1/namespaces/default/configmaps",
            data=body,
            headers={"Content-Type": "application/yaml"},
        ) as response:
            assert response.status == 201


async def test_an_error_of_the_server_itself_is_an_internal_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with serving(tmp_path) as (server, client):
        server._registry.kinds.named("pods").strategy.default = None

        status, answer = await client.ask("POST", PODS, pod("a"))

        assert (status, answer["reason"]) == (500, "InternalError")
        assert "Request failed" in caplog.text
