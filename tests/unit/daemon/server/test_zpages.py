"""/statusz and /flagz: in the formats of kube-scheduler."""

from __future__ import annotations

import json
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import pytest
import yaml

from scheduler.daemon.server.zpages import Process
from tests.unit.daemon.server.one_request import Answer, ask, some_pages

BEGAN = datetime(2026, 11, 2, 3, 4, 5, tzinfo=UTC).timestamp()
PROCESS = Process(
    "custom-scheduler", {"v": "2", "config": "", "leader-elect": "true"}, lambda: BEGAN, lambda: "1.36"
)
STATUSZ, FLAGZ = "/statusz", "/flagz"
WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for "
    "debugging purposes only."
)


def asked(path: str, accept: str = "", **options: Any) -> Answer:
    return ask(some_pages(process=PROCESS, **options), path, Accept=accept)


def structured(kind: str, media_type: str = "application/json", of: str = "v1beta1") -> str:
    return f"{media_type};v={of};g=config.k8s.io;as={kind}"


def test_flags_are_listed_by_name() -> None:
    answer = asked(FLAGZ)

    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.text == f"\ncustom-scheduler flagz\n{WARNING}\nconfig=\nleader-elect=true\nv=2\n"


def test_the_status_shows_the_process_its_start_and_the_other_pages() -> None:
    title, warning, _, started, up, *rest = (
        asked(STATUSZ, configuration=lambda: None).text.strip().split("\n")
    )

    assert (title, warning) == ("custom-scheduler statusz", WARNING)
    assert started == "Started: Mon Nov  2 03:04:05 UTC 2026"
    assert up.startswith("Up: ")
    assert rest == [
        f"Python version: {platform.python_version()}",
        f"Binary version: {version('custom-scheduler')}",
        "Emulation version: 1.36",
        "Paths: /configz /flagz /healthz /livez /metrics /readyz /version",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        pytest.param(59, "0 hr 00 min 59 sec", id="seconds"),
        pytest.param(3600 * 100 + 61, "100 hr 01 min 01 sec", id="days"),
        pytest.param(-5, "0 hr 00 min 00 sec", id="a clock that was set back"),
    ],
)
def test_the_uptime_is_shown_in_hours(seconds: int, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.daemon.server.zpages.time.time", lambda: BEGAN + seconds + 0.5)

    assert f"\nUp: {text}\n" in asked(STATUSZ).text


@pytest.mark.parametrize("of", ["v1beta1", "v1alpha1"])
@pytest.mark.parametrize(
    ("media_type", "read"),
    [
        pytest.param("application/json", json.loads, id="JSON"),
        pytest.param("application/yaml", yaml.safe_load, id="YAML"),
    ],
)
def test_a_version_is_returned_if_it_is_requested(media_type: str, read: Any, of: str) -> None:
    flags = asked(FLAGZ, structured("Flagz", media_type, of))
    assert flags.headers["Content-Type"] == f"{media_type};g=config.k8s.io;v={of};as=Flagz"
    assert read(flags.text) == {
        "kind": "Flagz",
        "apiVersion": f"config.k8s.io/{of}",
        "metadata": {"name": "custom-scheduler"},
        "flags": PROCESS.flags,
    }

    status = asked(STATUSZ, structured("Statusz", media_type, of))
    reported = read(status.text)
    assert reported.pop("uptimeSeconds") >= 0
    assert reported == {
        "kind": "Statusz",
        "apiVersion": f"config.k8s.io/{of}",
        "metadata": {"name": "custom-scheduler"},
        "startTime": "2026-11-02T03:04:05Z",
        "goVersion": "",
        "pythonVersion": platform.python_version(),
        "binaryVersion": version("custom-scheduler"),
        "emulationVersion": "1.36",
        "paths": ["/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/version"],
    }


def test_the_deprecated_version_gives_a_warning() -> None:
    assert asked(STATUSZ, structured("Statusz", of="v1alpha1")).headers["Warning"] == (
        '299 - "This version of the statusz endpoint is deprecated. Please use a newer version."'
    )
    assert "Warning" not in asked(STATUSZ, structured("Statusz")).headers


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        pytest.param("*/*", "text/plain", id="anything"),
        pytest.param("*", "text/plain", id="anything, as some write it"),
        pytest.param("text/*", "text/plain", id="any text"),
        pytest.param("text/html, */*;q=0.8", "text/plain", id="a browser"),
        pytest.param("application/json, text/plain", "text/plain", id="JSON of no version, or text"),
        pytest.param(
            f"{structured('Statusz', of='foo')},*/*", "text/plain", id="an unknown version, or anything"
        ),
        pytest.param(f"*/*, {structured('Statusz')}", "application/json", id="anything, but named first"),
        pytest.param(f"{structured('Statusz')};q=0.5, text/plain", "text/plain", id="the most wanted"),
        pytest.param(f"{structured('Statusz')};q=high", "application/json", id="a quality that is none"),
        pytest.param(structured("Statusz", "application/*"), "application/json", id="JSON before YAML"),
    ],
)
def test_the_format_is_the_best_of_the_accepted_ones(accept: str, media_type: str) -> None:
    answer = asked(STATUSZ, accept)

    assert (answer.status, answer.headers["Content-Type"].partition(";")[0]) == (200, media_type)


@pytest.mark.parametrize(
    "accept",
    [
        pytest.param("application/xml", id="another type"),
        pytest.param("application/json", id="JSON of no version"),
        pytest.param("application/json;v=v1beta1;g=config.k8s.io", id="JSON of no kind"),
        pytest.param(structured("Flagz"), id="another page's kind"),
        pytest.param(structured("Statusz", "application/cbor"), id="CBOR, whose feature is off by default"),
        pytest.param(structured("Statusz", "text/plain"), id="text of a version"),
        pytest.param(structured("Statusz") + ";stream=watch", id="a stream"),
        pytest.param("gibberish", id="no type at all"),
    ],
)
def test_an_unknown_format_is_refused_with_the_message_of_kubernetes(accept: str) -> None:
    answer = asked(STATUSZ, accept)

    assert (answer.status, json.loads(answer.text)) == (
        406,
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "only the following media types are accepted: application/json, application/yaml, text/plain",
            "reason": "NotAcceptable",
            "code": 406,
        },
    )


def test_without_a_process_these_pages_do_not_exist() -> None:
    assert ask(some_pages(), STATUSZ).status == 404


def test_the_root_names_both_pages() -> None:
    assert {STATUSZ, FLAGZ} <= set(json.loads(asked("/").text)["paths"])
