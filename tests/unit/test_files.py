"""A regular file is read up to a bound, and other kinds of files are refused at once."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from scheduler import files
from scheduler.files import read_any, read_regular


def test_a_regular_file_is_read_through_links_up_to_the_last_byte(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 1000)
    (tmp_path / "link").symlink_to(tmp_path / "file")

    assert read_regular(tmp_path / "link", 1000) == b"x" * 1000
    with pytest.raises(OSError, match="has more than 999 bytes") as refused:
        read_regular(tmp_path / "link", 999)
    assert refused.value.filename == str(tmp_path / "link")


def test_a_file_that_is_not_regular_is_refused_at_once_with_its_kind(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link to a fifo").symlink_to(tmp_path / "fifo")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for name, reported in (
            ("fifo", "is a FIFO, a regular file is expected"),
            ("link to a fifo", "is a FIFO, a regular file is expected"),
            ("/dev/zero", "is a character device, a regular file is expected"),
            ("/dev/tty", None),  # a device, or none where there is no terminal
            (".", "is a directory, a regular file is expected"),
            ("socket", "is a socket, a regular file is expected"),
            ("circle", "Too many levels of symbolic links"),
            ("missing", "No such file or directory"),
        ):
            with pytest.raises(OSError, match=r".") as refused:
                read_regular(tmp_path / name)
            assert reported in {None, refused.value.strerror}, name


def test_a_fifo_with_a_writer_is_refused_as_well(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    ends = os.open(tmp_path / "fifo", os.O_RDWR)
    os.write(ends, b"something")
    try:
        with pytest.raises(OSError, match="is a FIFO"):
            read_regular(tmp_path / "fifo")
    finally:
        os.close(ends)


def test_a_large_sparse_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40)
    monkeypatch.setattr(files, "_read", None)

    with pytest.raises(OSError, match="has more than 4194304 bytes"):
        read_regular(tmp_path / "sparse")


@pytest.mark.parametrize("read", [read_regular, read_any])
def test_a_file_without_a_size_is_not_read_beyond_the_bound(read: object) -> None:

    of_no_size = Path("/proc/self/maps")  # as all in /proc: 0 bytes, until it is read
    assert callable(read)
    assert len(read(of_no_size)) > 100
    with pytest.raises(OSError, match="has more than 100 bytes"):
        read(of_no_size, 100)


def test_a_command_reads_pipes_up_to_a_bound() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"text")
    os.close(writing)

    assert read_any(Path(f"/dev/fd/{reading}")) == b"text"
    os.close(reading)
    with pytest.raises(OSError, match="has more than 4194304 bytes"):
        read_any(Path("/dev/zero"))
