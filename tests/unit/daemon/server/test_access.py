"""Access to the endpoints, reviewed by an API server that knows two users."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from scheduler.daemon.server.access import Access, _CachedAnswers, _digest
from scheduler.daemon.server.http_server import serving
from scheduler.errors import ApiError
from scheduler.http_server.messages import ReadObject, ServerRequest
from scheduler.kube.client.connection import ApiConnection
from scheduler.kube.http.endpoint import Endpoint
from tests.unit.daemon.server.one_request import some_pages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from scheduler.kube.http.request import Request, Response

pytestmark = pytest.mark.run(by=asyncio.run)

USERS = {
    "of-prometheus": {
        "username": "system:serviceaccount:monitoring:prometheus",
        "uid": "1",
        "groups": ["system:serviceaccounts"],
        # Go's encoding of fields that the authenticator leaves empty.
        "extra": {"authentication.kubernetes.io/node-name": ["n1"], "example.com/scopes": None},
    },
    "of-nobody-much": {"username": "nobody-much"},
    "of-an-admin": {"username": "admin", "groups": ["system:masters"]},
}
ALLOWED = {("system:serviceaccount:monitoring:prometheus", "get", "/metrics")}

OBJECTS = [
    (
        "system:serviceaccount:monitoring:prometheus",
        {"group": "", "resource": "pods", "namespace": "default", "name": "web", "verb": "get"},
    )
]
METRICS = "/metrics"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Reviewer:
    """An API server that answers reviews.

    Attributes:
        asked: path, body.
        broken: path -> status of the response instead; 0 is no response.
        garbled: whether its responses are of another kind.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.broken: dict[str, int] = {}
        self.garbled = False

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append((request.path, body))
        if self.broken.get(request.path) == 0:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if request.path in self.broken:
            return web.json_response({"message": "broken"}, status=self.broken[request.path])
        if self.garbled:
            return web.json_response({"status": "what?"}, status=201)
        spec = body["spec"]
        if request.path == TOKEN_REVIEWS:
            user = USERS.get(spec["token"])
            status = {"authenticated": True, "user": user} if user else {"error": "unknown token"}
        elif "resourceAttributes" in spec:
            status = {"allowed": (spec["user"], spec["resourceAttributes"]) in OBJECTS}
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
    """A guarded server, its API server, and the clock."""

    access: Access
    connection: ApiConnection
    port: int

    def __init__(self, reviewer: Reviewer) -> None:
        self.reviewer = reviewer
        self.now = 0.0

    async def status_of(self, path: str, authorization: str = "") -> int:
        return (await self.ask(path, authorization))[0]

    async def ask(self, path: str, authorization: str = "") -> tuple[int, str]:
        async with self.asking(path, authorization) as response:
            return response.status, await response.text()

    @asynccontextmanager
    async def asking(
        self, path: str, authorization: str = "", method: str = "GET"
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {"Authorization": authorization} if authorization else {}
        url = f"http://127.0.0.1:{self.port}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, headers=headers) as response,
        ):
            yield response


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
            made.append(Scene(reviewer))
            made[0].connection = connection
            access = made[0].access = Access(connection, clock=now, **options)
            async with serving(some_pages(access=access), "127.0.0.1", 0) as port:
                made[0].port = port
                yield made[0]
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("path", "authorization", "status"),
    [
        pytest.param("/healthz", "", 200, id="health is public"),
        pytest.param("/livez", "Bearer wrong", 200, id="health is public with any token"),
        pytest.param("/livez/ping", "", 403, id="single checks are not"),
        pytest.param(METRICS, "", 403, id="metrics are not public"),
        pytest.param(METRICS, "Basic b2YtcHJvbWV0aGV1cw==", 403, id="only bearer tokens are accepted"),
        pytest.param(METRICS, "Bearer", 403, id="an empty token is no token"),
        pytest.param(METRICS, "Bearer wrong", 401, id="an invalid token"),
        pytest.param(METRICS, "Bearer of-nobody-much", 403, id="a user without the right"),
        pytest.param(METRICS, "Bearer of-prometheus", 200, id="a user with the right"),
        pytest.param(METRICS, "bearer  of-prometheus", 200, id="however it is written"),
        pytest.param("/version", "Bearer of-prometheus", 403, id="may read one page and not another"),
        pytest.param("/version", "Bearer of-an-admin", 200, id="an administrator reads everything"),
        pytest.param("/statusz", "", 403, id="the status is not public"),
        pytest.param("/flagz", "Bearer of-prometheus", 403, id="nor are its flags"),
        pytest.param("/nothing", "", 403, id="a missing page is not public"),
        pytest.param("/nothing", "Bearer of-an-admin", 404, id="a missing page for an administrator"),
    ],
)
async def test_pages_need_the_permission_of_the_api_server(
    tmp_path: Path, path: str, authorization: str, status: int
) -> None:
    async with scene(tmp_path) as it:
        assert await it.status_of(path, authorization) == status


async def test_a_refusal_has_the_message_of_kubernetes(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
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


async def test_the_reviews_contain_all_fields_of_the_user(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
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


async def test_review_results_are_cached_for_ten_seconds(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        for it.now in (0.0, 9.9):
            assert await it.status_of(METRICS, "Bearer of-prometheus") == 200
            assert await it.status_of(METRICS, "Bearer wrong") == 401
        assert (it.reviewer.times(TOKEN_REVIEWS), it.reviewer.times(ACCESS_REVIEWS)) == (2, 1)

        it.now = 10.0
        assert await it.status_of(METRICS, "Bearer of-prometheus") == 200
        assert (it.reviewer.times(TOKEN_REVIEWS), it.reviewer.times(ACCESS_REVIEWS)) == (3, 2)


async def test_the_cached_result_of_one_user_is_not_used_for_another(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        assert await it.status_of(METRICS, "Bearer of-prometheus") == 200
        assert await it.status_of(METRICS, "Bearer of-nobody-much") == 403
        assert await it.status_of(METRICS) == 403
        assert await it.status_of(METRICS, "Bearer of-prometheus") == 200


@pytest.mark.parametrize(
    ("broken", "status"),
    [
        pytest.param(TOKEN_REVIEWS, 401, id="the token review fails"),
        pytest.param(ACCESS_REVIEWS, 500, id="the access review fails"),
    ],
)
async def test_no_request_is_permitted_while_the_api_server_does_not_answer(
    tmp_path: Path, broken: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path) as it:
        it.reviewer.broken[broken] = 403
        assert await it.status_of(METRICS, "Bearer of-prometheus") == status
        assert await it.status_of("/healthz") == 200
        assert "system:auth-delegator" in vars(caplog.records[-1])["fix"]

        it.reviewer.broken.clear()
        assert await it.status_of(METRICS, "Bearer of-prometheus") == 200


HOUR = 3600.0
PROMETHEUS = "Bearer of-prometheus"


@pytest.mark.parametrize("broken", [[TOKEN_REVIEWS], [ACCESS_REVIEWS], [TOKEN_REVIEWS, ACCESS_REVIEWS]])
@pytest.mark.parametrize("status", [0, 403, 429, 503])
async def test_metrics_access_is_cached_for_an_hour_of_api_server_outage(
    tmp_path: Path, broken: list[str], status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path) as it:
        assert await it.status_of(METRICS, PROMETHEUS) == 200
        it.reviewer.broken = dict.fromkeys(broken, status)
        for it.now in (10.0, 1000.0, HOUR - 1):
            assert await it.status_of(METRICS, PROMETHEUS) == 200
            assert vars(caplog.records[-1])["last_word_holds_for"] == USERS["of-prometheus"]["username"]
        assert len(it.reviewer.asked) > 6, "it is asked all the same"

        it.now = HOUR
        assert await it.status_of(METRICS, PROMETHEUS) in {401, 500}
        it.reviewer.broken.clear()
        assert await it.status_of(METRICS, PROMETHEUS) == 200


async def test_a_cached_result_is_only_for_metrics_and_for_its_user(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        assert await it.status_of(METRICS, PROMETHEUS) == 200
        assert await it.status_of("/version", "Bearer of-an-admin") == 200
        assert await it.status_of(METRICS, "Bearer of-nobody-much") == 403
        it.now = 100.0
        it.reviewer.broken = {TOKEN_REVIEWS: 503, ACCESS_REVIEWS: 503}
        assert await it.status_of("/version", "Bearer of-an-admin") == 401, "of another page nothing holds"
        assert await it.status_of(METRICS, "Bearer of-an-admin") == 200, "an administrator reads everything"
        assert await it.status_of(METRICS, "Bearer of-nobody-much") == 500, "he was never allowed"
        assert await it.status_of(METRICS, "Bearer another") == 401
        assert await it.status_of(METRICS) == 500
        async with it.asking(METRICS, PROMETHEUS, method="POST") as response:
            assert response.status == 500, "reading was allowed, and nothing else"


@pytest.mark.parametrize(
    ("revoked", "refused", "later"),
    [pytest.param("token", 401, 401, id="a token"), pytest.param("right", 403, 500, id="the right to read")],
)
async def test_revoked_access_does_not_return_in_an_outage(
    tmp_path: Path, revoked: str, refused: int, later: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(tmp_path) as it:
        assert await it.status_of(METRICS, PROMETHEUS) == 200
        it.now = 10.0
        if revoked == "token":
            monkeypatch.delitem(USERS, "of-prometheus")
        else:
            monkeypatch.setattr(f"{__name__}.ALLOWED", set())
        assert await it.status_of(METRICS, PROMETHEUS) == refused
        it.now = 20.0
        it.reviewer.broken = {TOKEN_REVIEWS: 503, ACCESS_REVIEWS: 503}
        assert await it.status_of(METRICS, PROMETHEUS) == later


async def test_a_scraper_gets_a_response_in_time_from_a_silent_server(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        assert await it.status_of(METRICS, PROMETHEUS) == 200
        patience: list[float] = []
        send = it.connection.send

        async def noted(request: Request) -> Response:
            patience.append(request.timeout_seconds)
            return await send(request)

        it.connection.send = noted  # type: ignore[method-assign, assignment]
        it.now = 10.0
        assert await it.status_of(METRICS, PROMETHEUS) == 200
        assert await it.status_of("/version", PROMETHEUS) == 403
        assert await it.status_of(METRICS) == 403
        assert patience == [2.0, 2.0, 10.0, 10.0]


async def test_a_malformed_review_permits_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.reviewer.garbled = True
        assert await it.status_of(METRICS, "Bearer of-prometheus") == 401
        assert await it.status_of(METRICS) == 500


@pytest.mark.parametrize(
    ("always_allowed", "path", "status"),
    [
        pytest.param(["/metrics"], "/metrics", 200, id="a page"),
        pytest.param(["/metrics"], "/healthz", 403, id="instead of those that were open"),
        pytest.param(["/metrics"], "/metrics/resources", 403, id="not a page below it"),
        pytest.param(["/livez/*"], "/livez/ping", 200, id="all below"),
        pytest.param(["/*"], "/version", 200, id="everything"),
        pytest.param([], "/healthz", 403, id="nothing"),
    ],
)
async def test_public_pages_are_configurable(
    tmp_path: Path, always_allowed: list[str], path: str, status: int
) -> None:
    async with scene(tmp_path, always_allowed=always_allowed) as it:
        assert await it.status_of(path) == status


async def test_unknown_tokens_are_reviewed_at_a_bounded_rate_and_others_get_429(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path) as it:
        said = [await it.status_of(METRICS, f"Bearer {number}") for number in range(50)]
        assert said == [401] * 10 + [429] * 40
        assert it.reviewer.times(TOKEN_REVIEWS) == 10
        assert [record.message for record in caplog.records] == [
            "Too many requests of unknown clients; some must try again later"
        ]

        for second in range(1, 11):
            it.now = float(second)
            for number in range(50):
                await it.status_of(METRICS, f"Bearer {second}-{number}")
        assert it.reviewer.times(TOKEN_REVIEWS) == 10 + 10 * 5
        reported = [record for record in caplog.records if record.name == "scheduler.daemon.server.access"]
        assert len(reported) == 1


async def test_a_client_over_the_limit_gets_retry_after(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        for number in range(10):
            await it.status_of(METRICS, f"Bearer {number}")
        async with it.asking(METRICS, "Bearer another") as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "1")
            reported = await response.json()
        assert (reported["kind"], reported["reason"], reported["details"]) == (
            "Status",
            "TooManyRequests",
            {"retryAfterSeconds": 1},
        )


@pytest.mark.parametrize(
    "guess",
    [
        pytest.param((METRICS, "Bearer {}"), id="tokens"),
        pytest.param(("/{}", ""), id="paths"),
        pytest.param(("/{}", "Bearer of-nobody-much"), id="paths of a user without rights"),
    ],
)
async def test_a_known_client_is_answered_during_any_guesses(tmp_path: Path, guess: tuple[str, str]) -> None:
    async with scene(tmp_path) as it:
        assert await it.status_of(METRICS, "Bearer of-prometheus") == 200
        path, authorization = guess
        for it.now in (1.0, 20.0, 3000.0):
            before = len(it.reviewer.asked)
            for number in range(100):
                of_now = f"{it.now}-{number}"
                await it.status_of(path.format(of_now), authorization.format(of_now))
            assert await it.status_of(METRICS, authorization.format("last")) in {429, 403}
            assert len(it.reviewer.asked) - before <= 21
            assert await it.status_of(METRICS, "Bearer of-prometheus") == 200


async def test_a_known_client_is_not_rate_limited_on_other_pages(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        assert await it.status_of(METRICS, "Bearer of-prometheus") == 200
        said = {
            await it.status_of(f"/debug/explain/shop/{number}", "Bearer of-prometheus")
            for number in range(50)
        }
        assert said == {403}


def test_a_thousand_digests_of_unknown_tokens_are_cached() -> None:
    remembered = _CachedAnswers[bool](lambda: 0.0, 10.0)
    for number in range(1200):
        remembered.put(_digest(f"{number}" + "x" * 10_000), answer=True)

    assert len(remembered._answers) == 1000
    assert {len(key) for key in remembered._answers} == {32}
    assert remembered.get(_digest("1199" + "x" * 10_000))
    assert not remembered.get(_digest("0" + "x" * 10_000))


def test_the_digest_separates_its_texts() -> None:
    assert _digest("a", "bc") != _digest("ab", "c")


def request_of(token: str) -> ServerRequest:
    async def read() -> bytes:
        return b""

    headers = {"authorization": f"Bearer {token}"} if token else {}
    return ServerRequest("GET", METRICS, {}, headers, "10.0.0.1", shows_certificate=False, read=read)


async def test_an_object_may_be_read_with_the_right_of_the_client_only(tmp_path: Path) -> None:
    web_pod, other = ReadObject("", "pods", "default", "web"), ReadObject("", "pods", "default", "other")
    async with scene(tmp_path) as it:
        request = request_of("of-prometheus")
        assert not await request.may_read(web_pod), "before the request is admitted, nothing may be read"
        assert await it.access.refusal(request) is None
        assert await request.may_read(web_pod)
        assert not await request.may_read(other)
        asked = it.reviewer.times(ACCESS_REVIEWS)
        assert await request.may_read(web_pod)
        assert it.reviewer.times(ACCESS_REVIEWS) == asked, "the result is cached"

        admin = request_of("of-an-admin")
        assert await it.access.refusal(admin) is None
        assert await admin.may_read(other)

        it.now += 20
        it.reviewer.broken[ACCESS_REVIEWS] = 500
        with pytest.raises(ApiError):
            await request.may_read(web_pod)
