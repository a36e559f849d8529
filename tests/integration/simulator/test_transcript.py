"""The simulated API server answers as a real kube-apiserver 1.36 did.

Each file of `TRANSCRIPTS` holds requests that were sent one after another to a fresh kube-apiserver (no controllers,
no kubelet), with its answers; `${id.a.b}` in a request stands for that place in the answer `id`.
"""

from __future__ import annotations

import json
import re
from itertools import zip_longest
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from scheduler.tools.simulator.server import ApiServer
from tests.support.virtual_time import LoopClock

TRANSCRIPTS = {"": 144, "_storage": 185, "_pods": 69}  # the end of a file's name -> its requests
TOKEN = "t"

MADE_UP = {"uid", "resourceVersion", "continue"}
TIMES = {
    "creationTimestamp",
    "deletionTimestamp",
    "lastPhaseTransitionTime",
    "lastTransitionTime",
    "time",
    "timeAdded",
}
GENERATED = re.compile(r"gen-[a-z0-9]{5}")

PROSE = {"s033", "s041", "s055", "s076", "s077", "s085", "s093", "s137"} | {
    *("v027", "v029", "v062", "v063", "v065", "v067", "v074", "v086", "v099"),
    *("v118", "v122", "v127", "v133", "v143", "v144", "p032", "p033", "p036", "p039"),
}
"""Answers whose texts carry uids, versions, or a JSON parser's or Go differ's own words."""

BUILD = {"s000", "s001"}
"""What says how the recorded server was built and where it listened."""

DISCOVERY = {
    "s002": "groups",
    "s003": "resources",
    "s004": "resources",
    "s007": "resources",
    "v008": "resources",
}
"""Lists of everything there is: a part of it is served here, and that part is described alike."""

GATED = {"groupVersion": "scheduling.k8s.io/v1alpha2", "version": "v1alpha2"}
"""Served here, and by the recorded server not: its feature gates were those it has by itself."""


def comparable(value: Any, key: str = "") -> Any:
    """Blank out what no two servers have in common."""
    if isinstance(value, dict):
        return {name: comparable(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [comparable(item, key) for item in value]
    if value and (key in TIMES or key in MADE_UP):
        return f"<{key}>"
    return GENERATED.sub("gen-xxxxx", value) if isinstance(value, str) else value


def differences(expected: Any, found: Any, path: str = "") -> list[str]:
    if isinstance(expected, dict) and isinstance(found, dict):
        names = sorted({*expected, *found})
        return [
            line
            for name in names
            for line in differences(expected.get(name), found.get(name), f"{path}.{name}")
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = zip(expected, found, strict=True)
        return [line for place, pair in enumerate(pairs) for line in differences(*pair, f"{path}[{place}]")]
    return [] if expected == found else [f"{path}: expected {expected!r}, found {found!r}"]


def filled_in(text: str, answers: dict[str, Any]) -> str:
    def place(match: re.Match[str]) -> str:
        name, *steps = match[1].split(".")
        found = answers[name]
        for step in steps:
            found = found[step]
        return str(found)

    return re.sub(r"\$\{([^}]*)\}", place, text)


def without_prose(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_prose(item) for name, item in value.items() if name != "message"}
    return [without_prose(item) for item in value] if isinstance(value, list) else value


def described(value: dict[str, Any]) -> dict[str, Any]:
    return {name: value[name] for name in ("kind", "versions", "major", "minor") if name in value}


def in_common(expected: Any, found: Any, field: str) -> tuple[Any, Any]:
    """Cut two lists of discovery down to what is served here, in one order."""
    names = {item["name"] for item in found[field]}
    kept = [item for item in expected[field] if item["name"] in names]
    ours = sorted((without_gated(item) for item in found[field]), key=lambda item: str(item["name"]))
    return expected | {field: sorted(kept, key=lambda item: str(item["name"]))}, found | {field: ours}


def without_gated(item: dict[str, Any]) -> dict[str, Any]:
    """Leave out of a group of discovery the version that the recorded server did not serve."""
    if item["name"] != "scheduling.k8s.io":
        return item
    return item | {"versions": [version for version in item["versions"] if version != GATED]}


def compared(step: str, recorded: Any, body: Any) -> tuple[Any, Any]:
    """Return what must be equal of a recorded answer and ours."""
    expected, found = comparable(recorded), comparable(body)
    if step in BUILD:
        expected, found = described(expected), described(found)
    if step in DISCOVERY:
        expected, found = in_common(expected, found, DISCOVERY[step])
    if step in PROSE:
        expected, found = without_prose(expected), without_prose(found)
    for status in (expected, found):
        if isinstance(status, dict) and len((status.get("details") or {}).get("causes", ())) > 1:
            sort_causes(status)
    for table in (expected, found):
        if isinstance(table, dict) and table.get("kind") == "Table":
            blank_table(table)
    return expected, found


def sort_causes(status: dict[str, Any]) -> None:
    """Put the faults of an object in one order: what comes out of maps is in none."""
    status["details"]["causes"].sort(key=lambda cause: [cause["field"], cause.get("message", "")])
    status["message"] = "<all of the causes>"


def blank_table(table: dict[str, Any]) -> None:
    """Forget of a table how long the recording took, and the ends of its long descriptions."""
    for column in table["columnDefinitions"]:
        column["description"] = " ".join(column["description"].split())[:40]
    names = [column["name"] for column in table["columnDefinitions"]]
    for row in table["rows"] or []:
        row["cells"] = [
            "<age>" if name in {"Age", "Created At", None} else cell
            for name, cell in zip_longest(names, row["cells"])
        ]


async def ask(
    session: aiohttp.ClientSession, request: dict[str, Any], answers: dict[str, Any]
) -> tuple[int, Any, Any]:
    """Send one request of the transcript; returns status, headers and body."""
    body = request.get("body")
    headers = {"Accept": "application/json", "Authorization": f"Bearer {TOKEN}"}
    if body is not None:
        headers["Content-Type"] = "application/json"
        body = filled_in(body if isinstance(body, str) else json.dumps(body), answers)
    headers.update(request.get("headers") or {})
    if not headers["Authorization"]:
        del headers["Authorization"]
    url = URL(f"http://localhost{filled_in(request['path'], answers)}", encoded=True)
    async with session.request(
        request["method"], url, data=body, headers=headers, skip_auto_headers=["Content-Type"]
    ) as response:
        text = await response.text()
        if "watch=1" in request["path"] and response.status == 200:
            return response.status, response.headers, [json.loads(line) for line in text.splitlines()]
        is_json = response.content_type == "application/json"
        return response.status, response.headers, json.loads(text) if is_json else text


@pytest.mark.parametrize("which", TRANSCRIPTS, ids=lambda which: which.strip("_") or "all_kinds")
async def test_every_recorded_request_gets_its_recorded_response(tmp_path: Path, which: str):
    transcript = Path(__file__).with_name(f"simulator_transcript{which}.jsonl")
    steps = [json.loads(line) for line in transcript.read_text().splitlines()]
    answers: dict[str, Any] = {}
    wrong: list[str] = []
    socket = str(tmp_path / "socket")
    async with (
        ApiServer(clock=LoopClock(), socket_path=socket, token=TOKEN, rbac=True) as server,
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(socket)) as session,
    ):
        for step in steps:
            status, headers, body = await ask(session, step["request"], answers)
            answers[step["id"]] = body
            recorded = step["response"]
            expected, found = compared(step["id"], recorded["body"], body)
            faults = differences(expected, found)
            if status != recorded["status"]:
                faults.insert(0, f"status: expected {recorded['status']}, found {status}")
            for name in recorded["headers"]:
                faults += differences(recorded["headers"][name], headers.get(name), name)
            if faults:
                wrong.append(
                    "\n  ".join(
                        [f"{step['id']} {step['request']['method']} {step['request']['path']}", *faults]
                    )
                )
        assert server.requests.count == len(steps)

    assert len(steps) == TRANSCRIPTS[which]
    assert not wrong, "\n".join(wrong)
