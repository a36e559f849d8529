"""Recordings as kube-scheduler-simulator's recorder writes them."""

from __future__ import annotations

import gzip
import json
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.tools.whatif.simulation.recorder_file import RecorderFileError, is_recording, read_recording
from scheduler.tools.whatif.simulation.workload import NodeGoes, PodGoes, PodIsAnother
from tests.support.builders import node_object, pod_object

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = "2026-03-01T08:00:00Z", "2026-04-01T10:00:05Z"


def line(second: int, event: str, resource: dict[str, Any]) -> str:
    return json.dumps(
        {
            "time": f"2026-04-01T10:{second // 60:02}:{second % 60:02}.5+00:00",
            "event": event,
            "resource": resource,
        }
    )


def made(obj: dict[str, Any], at: str) -> dict[str, Any]:
    obj["metadata"]["creationTimestamp"] = at
    return obj


def name_only(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}}


def bound(name: str, **fields: Any) -> dict[str, Any]:
    return made(pod_object(name, node="n", **fields), NEW)


LINES = [
    line(0, "Add", made(node_object("n"), OLD)),
    line(0, "Add", made(pod_object("there", node="n"), OLD)),
    line(10, "Add", made(pod_object("a"), NEW)),
    line(12, "Update", bound("a")),
    line(20, "Add", made(pod_object("never", gates=["g"]), NEW)),
    line(25, "Update", made(pod_object("never"), NEW)),
    line(30, "Add", bound("fast")),
    line(40, "Update", bound("a", status={"phase": "Succeeded"})),
    line(50, "Delete", name_only("Pod", "never")),
    line(55, "Delete", name_only("Pod", "there")),
    line(60, "Delete", {**name_only("Node", "n"), "metadata": {"name": "n", "namespace": ""}}),
]


def written(folder: Path, text: str) -> str:
    path = folder / "record.jsonl"
    path.write_text(text)
    return str(path)


def test_pods_arrive_pending_run_for_their_recorded_time_and_end(tmp_path: Path):
    workload = read_recording(written(tmp_path, "\n".join(LINES) + "\n"))

    assert [each.name for each in workload.cluster.nodes] == ["n"]
    assert [(each.name, each.node_name) for each in workload.cluster.pods] == [("there", "n")]
    assert [(each.pod.name, each.pod.node_name, each.at, each.runs) for each in workload.arrivals] == [
        ("a", "", 10.0, 28.0),
        ("never", "", 20.0, inf),
        ("fast", "", 30.0, inf),
    ]
    assert [(type(each), each.at) for each in workload.events] == [
        (PodIsAnother, 25.0),
        (PodGoes, 50.0),
        (PodGoes, 55.0),
        (NodeGoes, 60.0),
    ]


def test_a_directory_of_packed_files_is_one_recording(tmp_path: Path):
    for number, lines in enumerate((LINES[:5], LINES[5:])):
        data = gzip.compress(("\n".join(lines) + "\n").encode())
        (tmp_path / f"record-{number}.jsonl.gz").write_bytes(data)

    assert len(read_recording(str(tmp_path)).arrivals) == 3


def test_a_truncated_end_is_left_out(tmp_path: Path):
    whole = "\n".join(LINES[:4]) + "\n"

    workload = read_recording(written(tmp_path, whole + LINES[4][:40]))

    assert [each.pod.name for each in workload.arrivals] == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(f"{LINES[0]}\n{LINES[1][:50]}\n{LINES[2]}\n", "record.jsonl:2: JSON is malformed", id="torn in the middle"),
        pytest.param(line(0, "Bookmark", name_only("Pod", "p")), ":1: event: must be one of Add, Update, Delete, was 'Bookmark'", id="unknown event"),
        pytest.param(line(0, "Add", {"kind": "Pod"}), ":1: apiVersion, metadata.name: must be a string", id="no object"),
        pytest.param(line(0, "Add", made(pod_object("p", cpu="x"), NEW)), "cpu", id="no quantity"),
        pytest.param(line(0, "Add", made(node_object("n"), "2026-03-01T08:00:00")), ":1: metadata.creationTimestamp: must have a time zone", id="a time of no zone"),
        pytest.param("", "contains no record", id="empty"),
    ],
)  # fmt: skip
def test_an_unreadable_line_is_reported_with_its_number(tmp_path: Path, text: str, message: str):
    with pytest.raises(RecorderFileError) as error:
        read_recording(written(tmp_path, text))

    assert message in str(error.value)


def test_other_files_are_not_recordings(tmp_path: Path):
    assert is_recording(written(tmp_path, LINES[0]))
    assert not is_recording(written(tmp_path, json.dumps(node_object("n"))))
