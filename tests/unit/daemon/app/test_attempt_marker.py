"""The record of an attempt's pod survives the process, and quarantines the pod if it still waits."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scheduler.daemon.app.attempt_marker import AttemptMarker, MarkedPod, quarantine
from scheduler.engine.queue.quarantine import times_in_condition
from scheduler.errors import ApiError
from scheduler.kube.http.request import Response
from scheduler.objects.decode import decode_pod
from tests.support.builders import CREATED, pod, pod_object
from tests.support.full_disks import no_room
from tests.support.manual_clock import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.kube.http.request import Request

WEB = pod("web")
NOTED = MarkedPod(WEB.uid, "default", "web")


def test_a_note_can_be_read_by_another_process_while_the_file_is_open(tmp_path: Path) -> None:
    note = AttemptMarker(tmp_path / "note")
    assert note.found is None

    note.write(pod("x" * 253, namespace="y" * 63))
    note.write(WEB)
    assert AttemptMarker(tmp_path / "note").found == NOTED

    note.write(None)
    assert AttemptMarker(tmp_path / "note").found is None


FULL = """
import os, sys
from pathlib import Path
from scheduler.daemon.app.attempt_marker import AttemptMarker
from tests.support.builders import pod

path = Path(sys.argv[1])
note = AttemptMarker(path)
os.truncate(path, 0)
note.write(pod("web"))
print(note.is_kept)
"""


def test_a_file_that_lost_its_blocks_does_not_crash_the_process(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path / "note"], stdout=subprocess.PIPE, check=True
    )

    assert ended.stdout == b"True\n"
    assert AttemptMarker(tmp_path / "note").found == NOTED


def test_a_full_file_system_is_reported_once_and_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    note = AttemptMarker(tmp_path / "note")
    with no_room():
        for reported in (WEB, None, WEB):
            note.write(reported)
            assert not note.is_kept
    (record,) = caplog.records
    assert "File too large" in vars(record)["error"]
    assert vars(record)["file"] == str(tmp_path / "note")
    assert AttemptMarker(tmp_path / "note").found is None

    note.write(WEB)
    assert note.is_kept
    assert AttemptMarker(tmp_path / "note").found == NOTED
    note.write(None)
    with no_room():
        note.write(WEB)
    assert len(caplog.records) == 2


def test_the_space_for_a_note_is_allocated_at_the_start(tmp_path: Path) -> None:
    with no_room(), pytest.raises(OSError, match="File too large"):
        AttemptMarker(tmp_path / "note")
    AttemptMarker(tmp_path / "note")

    status = (tmp_path / "note").stat()
    assert (status.st_size, status.st_blocks > 0) == (1024, True)


def test_a_fifo_is_refused_as_the_note_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "note")
    with pytest.raises(OSError, match="is a FIFO"):
        AttemptMarker(tmp_path / "note")


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00", b"\xff" * 5000, b"\x00\x05a/b/c\xff", b"\x00\x03a/b", b"\x00\x04a//b", b"\x00\x09\xff\xfe/b/c/d/e"],
)  # fmt: skip
def test_a_file_without_content_is_no_note(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "note").write_bytes(content)
    found = AttemptMarker(tmp_path / "note").found
    assert found is None or found == MarkedPod("a", "b", "c")


class Server:
    """Has one pod, and records requests."""

    def __init__(self, found: dict[str, Any] | None, refuses: ApiError | None = None) -> None:
        self.found, self.refuses = found, refuses
        self.told: list[Any] = []

    async def send(self, request: Request) -> Response:
        if request.method == "GET":
            if self.found is None:
                raise ApiError(404, "NotFound", "no such pod")
            return Response(200, msgspec.json.encode(self.found))
        if self.refuses is not None:
            raise self.refuses
        assert request.path == "/api/v1/namespaces/default/pods/web/status"
        assert request.body is not None
        self.told.append(msgspec.json.decode(request.body))
        return Response(200, b"{}")


def web(*, uid: str = WEB.uid, **more: Any) -> dict[str, Any]:
    found = pod_object("web", **more)
    found["metadata"]["uid"] = uid
    return found


def told_before(times: int) -> dict[str, Any]:
    message = f"over budget; quarantined for 60s after {times} attempt{'s' * (times > 1)} over budget"
    found = web()
    found["status"] = {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": message}]
    }  # fmt: skip
    return found


@pytest.mark.parametrize(
    ("found", "times", "seconds"),
    [
        pytest.param(web(), 1, 60, id="for the first time"),
        pytest.param(told_before(1), 2, 120, id="once more"),
        pytest.param(told_before(9), 10, 1800, id="again and again"),
    ],
)
def test_the_next_leader_reads_the_quarantine_from_the_condition(
    found: dict[str, Any], times: int, seconds: int
) -> None:
    server = Server(found)
    asyncio.run(quarantine(NOTED, server, ManualClock(1000.0)))

    (patch,) = server.told
    assert patch["metadata"] == {"uid": WEB.uid}
    (condition,) = patch["status"]["conditions"]
    assert f"; quarantined for {seconds}s after {times} attempt" in condition["message"]
    again = web()
    again["status"] = {"conditions": [condition]}
    assert times_in_condition(decode_pod(msgspec.json.encode(again))) == times


@pytest.mark.parametrize(
    ("found", "refuses", "complains"),
    [
        pytest.param(None, None, False, id="deleted"),
        pytest.param(web(uid="another"), None, False, id="another by its name"),
        pytest.param(web(node="n1"), None, False, id="bound after all"),
        pytest.param(
            {**web(), "metadata": {**web()["metadata"], "deletionTimestamp": CREATED, "finalizers": ["x"]}},
            None,
            False,
            id="being deleted",
        ),
        pytest.param(web(), ApiError(409, "Conflict", "another"), False, id="another just now"),
        pytest.param(web(), ApiError(403, "Forbidden", "no"), True, id="refused"),
    ],
)
def test_a_pod_that_no_longer_waits_gets_no_condition(
    found: dict[str, Any] | None,
    refuses: ApiError | None,
    complains: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server(found, refuses)
    asyncio.run(quarantine(NOTED, server, ManualClock(1000.0)))

    assert not server.told
    assert ("not quarantined" in caplog.text) == complains
