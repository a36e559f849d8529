"""All endpoints except health."""

from __future__ import annotations

import base64
import json
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from scheduler.configuration.load import default, parse
from scheduler.daemon.metrics import Metrics
from scheduler.http_server.messages import Page, ServerResponse
from tests.support.builders import pod
from tests.unit.daemon.metrics.exposition import families
from tests.unit.daemon.server.one_request import ask, some_pages

if TYPE_CHECKING:
    from scheduler.http_server.messages import ServerRequest

EXTENDER = f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: https://one.example
  enableHTTPS: true
  filterVerb: filter
  tlsConfig:
    caData: {base64.b64encode(b"anybody may see it").decode()}
    certData: {base64.b64encode(b"this too").decode()}
    keyData: {base64.b64encode(b"a secret").decode()}
- urlPrefix: http://two.example
  filterVerb: filter
"""


def test_the_root_names_every_page() -> None:
    shown = json.loads(ask(some_pages(configuration=default, pods=tuple), "/").text)

    assert shown == {
        "paths": [
            "/configz",
            "/healthz",
            "/healthz/ping",
            "/livez",
            "/livez/ping",
            "/metrics",
            "/metrics/resources",
            "/readyz",
            "/readyz/ping",
            "/version",
        ]
    }


def test_an_unknown_page_gives_404() -> None:
    answer = ask(some_pages(), "/metric")

    assert (answer.status, answer.text) == (404, "404 page not found\n")


def test_pages_accept_reads_only() -> None:
    assert ask(some_pages(), "/metrics", method="POST").status == 405


def test_metrics_have_the_format_of_prometheus() -> None:
    answer = ask(some_pages(metrics=Metrics().text), "/metrics")

    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert families(answer.text)["scheduler_preemption_attempts_total"].series == {
        "scheduler_preemption_attempts_total": 0
    }


def test_metrics_have_the_openmetrics_format_on_request() -> None:
    answer = ask(
        some_pages(metrics=Metrics().text),
        "/metrics",
        Accept="application/openmetrics-text;version=1.0.0;q=0.8",
    )

    assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.text.endswith("\n# EOF\n")
    assert 'scheduler_pod_scheduling_attempts_bucket{le="1"} 0.0\n' in answer.text


def test_the_active_configuration_is_shown_with_its_defaults() -> None:
    shown = json.loads(ask(some_pages(configuration=default), "/configz").text)["componentconfig"]

    assert shown["apiVersion"] == "kubescheduler.config.k8s.io/v1"
    assert shown["kind"] == "KubeSchedulerConfiguration"
    assert shown["leaderElection"]["leaseDuration"] == "15s"
    assert shown["profiles"][0]["schedulerName"] == "custom-scheduler"


def test_private_keys_of_extenders_are_not_shown() -> None:
    text = ask(some_pages(configuration=lambda: parse(EXTENDER)), "/configz").text

    shown = json.loads(text)["componentconfig"]["extenders"]
    assert shown[0]["tlsConfig"]["keyData"] == "REDACTED"
    assert shown[0]["tlsConfig"]["caData"] == base64.b64encode(b"anybody may see it").decode()
    assert shown[1]["urlPrefix"] == "http://two.example"
    assert base64.b64encode(b"a secret").decode() not in text


def test_the_version_is_shown() -> None:
    shown = json.loads(ask(some_pages(), "/version").text)

    assert shown["gitVersion"] == f"v{version('custom-scheduler')}"
    assert shown["pythonVersion"] == platform.python_version()


def test_resources_of_pods_are_shown_by_the_leader_only() -> None:
    leading = some_pages(pods=lambda: [pod("web", cpu="1")])
    standing_by = some_pages(pods=lambda: [pod("web", cpu="1")], is_leading=lambda: False)

    assert 'resource="cpu",unit="cores"} 1.0\n' in ask(leading, "/metrics/resources").text
    assert ask(standing_by, "/metrics/resources")[:2] == (200, "")


def test_a_head_request_gives_no_body() -> None:
    answer = ask(some_pages(pods=lambda: [pod("web", cpu="1")]), "/metrics/resources", method="HEAD")

    assert (answer.status, answer.text) == (200, "")


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", {"Origin": "https://elsewhere"}, 403),
        ("POST", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("POST", {"Host": "board", "Origin": "http://board"}, 200),
        ("POST", {"Sec-Fetch-Site": "same-origin"}, 200),
        ("POST", {}, 200),
        ("GET", {"Origin": "https://elsewhere", "Sec-Fetch-Site": "cross-site"}, 200),
    ],
)
def test_a_cross_site_request_changes_nothing(method: str, headers: dict[str, str], status: int) -> None:
    done = []

    async def change(request: ServerRequest) -> ServerResponse:
        done.append(request.method)
        return ServerResponse(b"done")

    app = some_pages(more=[Page("/change", change, ("GET", "POST"))])
    assert ask(app, "/change", method, **headers).status == status
    assert done == [method] * (status == 200)
