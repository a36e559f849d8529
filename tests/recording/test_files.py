"""Files of recordings: complete, truncated, foreign, newer, and within their limit."""

from __future__ import annotations

import errno
import os
from random import Random
from typing import TYPE_CHECKING

import pytest

from scheduler.daemon.recording import RecordingLimits
from scheduler.daemon.recording.recording import RecordingWriter
from scheduler.daemon.recording.recording_files import FileReader, FileWriter, Header, Note, RecordingError
from scheduler.tools.whatif.replay.script import stretches
from tests.support.builders import pod
from tests.support.full_disks import no_room
from tests.support.manual_clock import ManualClock

if TYPE_CHECKING:
    from pathlib import Path


def header(number: int = 1) -> Header:
    return Header(by="test", run="run", number=number, base=0.0, wall=1e9, seed=1)


def written(path: Path, *batches: bytes) -> Path:
    file = FileWriter(path, header())
    for batch in batches:
        file.put(batch)
    file.close()
    return path


def noise(number: int) -> str:
    return Random(number).randbytes(400).hex()


def read(path: Path) -> tuple[list[object], bool]:
    reader = FileReader(path)
    return [note for batch in reader.batches() for note in batch], reader.is_torn


def test_the_written_values_are_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.rec", b"\x92\x01\x02", b"\x91\x03")
    assert read(path) == ([1, 2, 3], False)


@pytest.mark.parametrize("cut", range(1, 60), ids=lambda cut: f"{cut} bytes are missing")
def test_a_truncated_file_is_read_up_to_the_last_whole_record(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path / "a.rec", b"\x92\x01\x02", b"\x91\x03")
    data = path.read_bytes()
    begin = data.index(b"\n") + 1
    path.write_bytes(data[: max(begin, len(data) - cut)])
    notes, is_torn = read(path)
    assert is_torn
    assert notes == [1, 2, 3][: len(notes)]


def test_a_file_of_a_killed_process_has_all_flushed_records(tmp_path: Path) -> None:
    file = FileWriter(tmp_path / "a.rec", header())
    file.put(b"\x92\x01\x02")
    assert read(file.path) == ([1, 2], True)
    file.close()


def test_garbage_in_the_middle_ends_a_file(tmp_path: Path) -> None:
    path = written(tmp_path / "a.rec", b"\x92\x01\x02")
    data = bytearray(path.read_bytes())
    data[data.index(b"\n") + 6 :] = b"\xff" * 40
    path.write_bytes(data)
    assert read(path)[1]


@pytest.mark.parametrize(
    "batch", [b"\x91\xa1\xaa", b"\x91" * 100_000 + b"\x01"], ids=["no text", "nested too deeply"]
)
def test_a_damaged_batch_ends_a_file(tmp_path: Path, batch: bytes) -> None:
    path = written(tmp_path / "a.rec", b"\x92\x01\x02", batch, b"\x91\x03")
    assert read(path) == ([1, 2], True)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "not a recording of custom-scheduler"),
        (b"PK\x03\x04", "not a recording of custom-scheduler"),
        (b'{"kind":"List"}\n', "not a recording of custom-scheduler"),
        (b"[" * 5000 + b"\n", "not a recording of custom-scheduler"),
        (
            b'{"format":"custom-scheduler recording","version":3,"by":"9.9.9"}\n',
            "written by 9.9.9 in version 3 of the format; this version reads up to 2: read it with a custom-scheduler at least as new",
        ),
        (
            b'{"format":"custom-scheduler recording","version":1,"by":"0.1"}\n',
            "header: Object missing required field",
        ),
    ],
    ids=["empty", "an archive", "other JSON", "deep JSON", "newer", "incomplete"],
)
def test_an_unreadable_file_is_refused_by_name(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "a.rec"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=r"a\.rec: ") as refused:
        FileReader(path)
    assert expected in str(refused.value)


def test_a_fifo_among_recordings_is_refused_without_a_wait(tmp_path: Path) -> None:
    path = tmp_path / "run.recording"
    os.mkfifo(path)
    with pytest.raises(OSError, match="is a FIFO, a regular file is expected"):
        FileReader(path)


def test_a_folder_without_recordings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="there is no recording"):
        stretches(tmp_path)


def test_a_file_that_could_not_be_started_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    tape = RecordingWriter(RecordingLimits(tmp_path), header())
    monkeypatch.setattr(FileWriter, "_write", fails)
    tape.begin_file([(Note.STATE, 1, "")])
    tape.close()
    assert [path.name for path in tmp_path.iterdir()] == ["run-0001.rec"]


def test_an_empty_file_is_skipped(tmp_path: Path) -> None:
    written(tmp_path / "1.rec", b"\x92\x01\x02")
    (tmp_path / "2.rec").touch()
    assert [[file.path.name for file in each.files] for each in stretches(tmp_path)] == [["1.rec"]]


def test_files_of_a_run_without_a_gap_are_one_sequence(tmp_path: Path) -> None:
    for number in (1, 2, 4):
        FileWriter(tmp_path / f"{number}.rec", header(number)).close()
    assert [[file.header.number for file in each.files] for each in stretches(tmp_path)] == [[1, 2], [4]]


def test_the_oldest_files_are_removed(tmp_path: Path) -> None:
    tape = RecordingWriter(RecordingLimits(tmp_path, max_bytes=3 * 2**20), header())
    for number in range(60):
        for _ in range(100):
            tape.put((Note.TOLD, number, "v1/pods", 0, "a/b", pod("b", labels={"noise": noise(number)})))
            tape.put((Note.ASKED, number, noise(number)))
        tape.begin_file([(Note.STATE, number, noise(number))])
    tape.put((Note.ASKED, 1, "the last"))
    tape.close()
    assert sum(path.stat().st_size for path in tmp_path.glob("*.rec")) <= 3 * 2**20
    last = stretches(tmp_path)[-1]
    assert list(last.notes())[-1] == [Note.ASKED, 1, "the last"]
    assert tape.lost == 0


def test_files_that_are_too_old_are_removed(tmp_path: Path) -> None:
    old = written(tmp_path / "old.rec")
    os.utime(old, (1, 1))
    tape = RecordingWriter(RecordingLimits(tmp_path, max_seconds=3600.0), header())
    tape.begin_file([(Note.STATE, 1, "")])
    tape.close()
    assert not old.exists()


def test_a_full_file_requests_the_next_one(tmp_path: Path) -> None:
    tape = RecordingWriter(RecordingLimits(tmp_path, max_bytes=2**20), header())
    for number in range(1500):
        tape.put((Note.ASKED, number, noise(number)))
    tape.close()
    assert tape.wants_state


def test_lost_records_are_counted_and_request_another_file(tmp_path: Path) -> None:
    clock = ManualClock(100.0)
    tape = RecordingWriter(RecordingLimits(tmp_path / "room"), header(), clock.monotonic)
    for path in (tmp_path / "room").iterdir():
        path.unlink()
    (tmp_path / "room").rmdir()
    tape.begin_file([(Note.STATE, 1, "")])
    tape.put((Note.ASKED, 1, "lost"))
    tape.close()
    assert tape.lost == 2
    assert not tape.wants_state  # the state is not due earlier
    clock.advance(10.0)
    assert tape.wants_state


def test_a_full_file_system_loses_records_and_leaves_no_partial_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tape = RecordingWriter(RecordingLimits(tmp_path), header())
    with no_room():
        tape.begin_file([(Note.STATE, 1, "")])
        for number in range(3):
            tape.put((Note.ASKED, number, "lost"))
            tape.begin_file([(Note.STATE, number, "")])
        tape.close()
    assert [path.name for path in tmp_path.iterdir()] == ["run-0001.rec"]
    assert tape.lost == 7
    (record,) = caplog.records
    assert "File too large" in vars(record)["why"]


def test_a_file_whose_beginning_does_not_fit_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    tape = RecordingWriter(RecordingLimits(tmp_path), header())
    monkeypatch.setattr(FileWriter, "put", fails)
    tape.begin_file([(Note.STATE, 1, "")])
    tape.close()
    assert [path.name for path in tmp_path.iterdir()] == ["run-0001.rec"]


def test_a_run_is_named_after_its_beginning() -> None:
    fresh = Header.fresh(ManualClock(5.0), Random(1))
    assert fresh.number == 1
    assert fresh.base == 5.0
    assert fresh.run.endswith("-" + fresh.run[-8:])
