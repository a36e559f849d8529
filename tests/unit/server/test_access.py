"""Who may read a page, asked of an API server that knows two users."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from scheduler.client.connection import ApiConnection
from scheduler.client.http.endpoint import Endpoint
from scheduler.server.access import Access
from scheduler.server.http_server import serving
from tests.unit.server.asking import some_pages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

USERS = {
    "of-prometheus": {
        "username": "system:serviceaccount:monitoring:prometheus",
        "uid": "1",
        "groups": ["system:serviceaccounts"],
        "extra": {"authentication.kubernetes.io/node-name": ["n1"]},
    },
    "of-nobody-much": {"username": "nobody-much"},
    "of-an-admin": {"username": "admin", "groups": ["system:masters"]},
}
ALLOWED = {("system:serviceaccount:monitoring:prometheus", "get", "/metrics")}

METRICS = "/metrics"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Reviewer:
    """An API server that answers reviews.

    Attributes:
        asked: path, body.
        broken: path -> the status it answers with instead.
        garbled: whether its answers are of another kind.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.broken: dict[str, int] = {}
        self.garbled = False

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append((request.path, body))
        if request.path in self.broken:
            return web.json_response({"message": "broken"}, status=self.broken[request.path])
        if self.garbled:
            return web.json_response({"status": "what?"}, status=201)
        spec = body["spec"]
        if request.path == TOKEN_REVIEWS:
            user = USERS.get(spec["token"])
            status = {"authenticated": True, "user": user} if user else {"error": "unknown token"}
        else:
            rule = (
                spec["user"],
                spec["nonResourceAttributes"]["verb"],
                spec["nonResourceAttributes"]["path"],
            )
            status = {"allowed": rule in ALLOWED}
        return web.json_response({**body, "status": status}, status=201)

    def times(self, path: str) -> int:
        return sum(asked == path for asked, _ in self.asked)


class Scene:
    """A guarded server, who it asks, and the time."""

    def __init__(self, reviewer: Reviewer, port: int) -> None:
        self.reviewer = reviewer
        self.now = 0.0
        self._port = port

    async def status_of(self, path: str, authorization: str = "") -> int:
        return (await self.ask(path, authorization))[0]

    async def ask(self, path: str, authorization: str = "") -> tuple[int, str]:
        headers = {"Authorization": authorization} if authorization else {}
        url = f"http://127.0.0.1:{self._port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
            return response.status, await response.text()


@asynccontextmanager
async def scene(folder: Path, **options: Any) -> AsyncIterator[Scene]:
    reviewer = Reviewer()
    app = web.Application()
    app.router.add_post("/{tail:.*}", reviewer.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.UnixSite(runner, str(folder / "api")).start()
    made: list[Scene] = []

    def now() -> float:
        return made[0].now

    try:
        async with ApiConnection(Endpoint("http://localhost", unix_socket=folder / "api")) as connection:
            guarded = some_pages(access=Access(connection, clock=now, **options))
            async with serving(guarded, "127.0.0.1", 0) as port:
                made.append(Scene(reviewer, port))
                yield made[0]
    finally:
        await runner.cleanup()


def run(folder: Path, story: Callable[[Scene], Any], **options: Any) -> None:
    async def scenario() -> None:
        async with scene(folder, **options) as it:
            await story(it)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("path", "authorization", "status"),
    [
        pytest.param("/healthz", "", 200, id="health is for everybody"),
        pytest.param("/livez", "Bearer wrong", 200, id="whatever they say"),
        pytest.param("/livez/ping", "", 403, id="single checks are not"),
        pytest.param(METRICS, "", 403, id="metrics are not for everybody"),
        pytest.param(METRICS, "Basic b2YtcHJvbWV0aGV1cw==", 403, id="only bearer tokens name somebody"),
        pytest.param(METRICS, "Bearer", 403, id="an empty token names nobody"),
        pytest.param(METRICS, "Bearer wrong", 401, id="a token of nobody"),
        pytest.param(METRICS, "Bearer of-nobody-much", 403, id="somebody who may not"),
        pytest.param(METRICS, "Bearer of-prometheus", 200, id="somebody who may"),
        pytest.param(METRICS, "bearer  of-prometheus", 200, id="however it is written"),
        pytest.param("/version", "Bearer of-prometheus", 403, id="may read one page and not another"),
        pytest.param("/version", "Bearer of-an-admin", 200, id="an administrator reads everything"),
        pytest.param("/nothing", "", 403, id="what is not there is not shown either"),
        pytest.param("/nothing", "Bearer of-an-admin", 404, id="but to those who may know"),
    ],
)
def test_pages_are_for_those_whom_the_api_server_allows(
    tmp_path: Path, path: str, authorization: str, status: int
) -> None:
    async def story(it: Scene) -> None:
        assert await it.status_of(path, authorization) == status

    run(tmp_path, story)


def test_a_refusal_is_worded_as_kubernetes_words_it(tmp_path: Path) -> None:
    async def story(it: Scene) -> None:
        _, text = await it.ask(METRICS)
        assert json.loads(text) == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": 'forbidden: User "system:anonymous" cannot get path "/metrics"',
            "reason": "Forbidden",
            "code": 403,
        }

    run(tmp_path, story)


def test_the_reviews_say_everything_that_is_known_of_the_user(tmp_path: Path) -> None:
    async def story(it: Scene) -> None:
        await it.status_of(METRICS, "Bearer of-prometheus")
        user = USERS["of-prometheus"]
        assert it.reviewer.asked == [
            (
                TOKEN_REVIEWS,
                {
                    "apiVersion": "authentication.k8s.io/v1",
                    "kind": "TokenReview",
                    "spec": {"token": "of-prometheus"},
                },
            ),
            (
                ACCESS_REVIEWS,
                {
                    "apiVersion": "authorization.k8s.io/v1",
                    "kind": "SubjectAccessReview",
                    "spec": {
                        "user": user["username"],
                        "uid": "1",
                        "groups": user["groups"],
                        "extra": user["extra"],
                        "nonResourceAttributes": {"path": METRICS, "verb": "get"},
                    },
                },
            ),
        ]

    run(tmp_path, story)


def test_answers_are_remembered_for_ten_seconds(tmp_path: Path) -> None:
    async def story(it: Scene) -> None:
        for it.now in (0.0, 9.9):
            assert await it.status_of(METRICS, "Bearer of-prometheus") == 200
            assert await it.status_of(METRICS, "Bearer wrong") == 401
        assert (it.reviewer.times(TOKEN_REVIEWS), it.reviewer.times(ACCESS_REVIEWS)) == (2, 1)

        it.now = 10.0
        assert await it.status_of(METRICS, "Bearer of-prometheus") == 200
        assert (it.reviewer.times(TOKEN_REVIEWS), it.reviewer.times(ACCESS_REVIEWS)) == (3, 2)

    run(tmp_path, story)


def test_what_one_user_may_is_not_remembered_of_another(tmp_path: Path) -> None:
    async def story(it: Scene) -> None:
        assert await it.status_of(METRICS, "Bearer of-prometheus") == 200
        assert await it.status_of(METRICS, "Bearer of-nobody-much") == 403
        assert await it.status_of(METRICS) == 403
        assert await it.status_of(METRICS, "Bearer of-prometheus") == 200

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("broken", "status"),
    [
        pytest.param(TOKEN_REVIEWS, 401, id="nobody knows whose the token is"),
        pytest.param(ACCESS_REVIEWS, 500, id="nobody knows what its owner may"),
    ],
)
def test_nobody_is_let_in_while_the_api_server_does_not_answer(
    tmp_path: Path, broken: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(it: Scene) -> None:
        it.reviewer.broken[broken] = 403
        assert await it.status_of(METRICS, "Bearer of-prometheus") == status
        assert await it.status_of("/healthz") == 200
        assert "system:auth-delegator" in vars(caplog.records[-1])["fix"]

        it.reviewer.broken.clear()
        assert await it.status_of(METRICS, "Bearer of-prometheus") == 200

    run(tmp_path, story)


def test_an_answer_that_makes_no_sense_lets_nobody_in(tmp_path: Path) -> None:
    async def story(it: Scene) -> None:
        it.reviewer.garbled = True
        assert await it.status_of(METRICS, "Bearer of-prometheus") == 401
        assert await it.status_of(METRICS) == 500

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("always_allowed", "path", "status"),
    [
        pytest.param(["/metrics"], "/metrics", 200, id="a page"),
        pytest.param(["/metrics"], "/healthz", 403, id="instead of those that were open"),
        pytest.param(["/metrics"], "/metrics/resources", 403, id="not what is below it"),
        pytest.param(["/livez/*"], "/livez/ping", 200, id="all below"),
        pytest.param(["/*"], "/version", 200, id="everything"),
        pytest.param([], "/healthz", 403, id="nothing"),
    ],
)
def test_what_everybody_may_read_is_chosen(
    tmp_path: Path, always_allowed: list[str], path: str, status: int
) -> None:
    async def story(it: Scene) -> None:
        assert await it.status_of(path) == status

    run(tmp_path, story, always_allowed=always_allowed)


def test_guesses_do_not_fill_the_memory() -> None:
    access = Access(None)  # type: ignore[arg-type]  # nobody is asked

    for number in range(1100):
        access._users[str(number).encode()] = None

    assert len(access._users._answers) <= 1000
