"""Health endpoints: the texts are those of a real kube-scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.daemon.server.one_request import ask, some_pages

if TYPE_CHECKING:
    from scheduler.daemon.server.http_server import Application


def well() -> str:
    return ""


def stopping() -> str:
    return "process is shutting down"


def pages() -> Application:
    return some_pages(
        health={"leaderElection": well},
        ready={"leaderElection": well, "shutdown": stopping, "sched-handler-sync": well},
    )


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        pytest.param("/healthz", 200, "ok", id="all is well"),
        pytest.param("/livez", 200, "ok", id="without checks"),
        pytest.param("/livez?verbose", 200, "[+]ping ok\nlivez check passed\n", id="without checks, verbose"),
        pytest.param(
            "/healthz?verbose", 200, "[+]leaderElection ok\nhealthz check passed\n", id="every check by name"
        ),
        pytest.param("/livez/ping", 200, "ok", id="one check"),
        pytest.param("/readyz/leaderElection", 200, "ok", id="one of several"),
        pytest.param(
            "/readyz/shutdown",
            500,
            "internal server error: process is shutting down\n",
            id="a failing check has its reason",
        ),
        pytest.param(
            "/readyz",
            500,
            "[+]leaderElection ok\n[-]shutdown failed: reason withheld\n[+]sched-handler-sync ok\n"
            "readyz check failed\n",
            id="a failure is always verbose and withholds the reason",
        ),
        pytest.param("/readyz?exclude=shutdown", 200, "ok", id="a failing check is excluded"),
        pytest.param(
            "/readyz?verbose&exclude=shutdown&exclude=leaderElection",
            200,
            "[+]leaderElection excluded: ok\n[+]shutdown excluded: ok\n[+]sched-handler-sync ok\n"
            "readyz check passed\n",
            id="several are excluded",
        ),
        pytest.param(
            "/livez?verbose&exclude=pong",
            200,
            '[+]ping ok\nwarn: some health checks cannot be excluded: no matches for "pong"\nlivez check passed\n',
            id="a check that is not there is excluded",
        ),
        pytest.param("/livez/shutdown", 404, "404 page not found\n", id="a check of another page"),
    ],
)
def test_health_pages_equal_those_of_kube_scheduler(path: str, status: int, text: str) -> None:
    answer = ask(pages(), path)

    assert (answer.status, answer.text) == (status, text)


def test_health_pages_are_plain_text_that_is_not_cached() -> None:
    headers = ask(pages(), "/healthz").headers

    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-cache, private"


def test_healthz_has_the_checks_of_livez_unless_it_has_its_own() -> None:
    assert (
        ask(some_pages(live={"loop": well}), "/healthz?verbose").text == "[+]loop ok\nhealthz check passed\n"
    )
