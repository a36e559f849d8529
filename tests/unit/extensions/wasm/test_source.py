"""Sources of guests: files and web servers, including ones with invalid responses or none."""

from __future__ import annotations

import socket
import threading
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from scheduler.extensions.wasm import guest_source
from scheduler.extensions.wasm.guest_source import read_guest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"


@contextmanager
def answering(*answers: bytes, silent: bool = False) -> Iterator[str]:
    """Serve one response for each connection, for any request; a silent server leaves the last one open."""
    done = threading.Event()

    def serve(listener: socket.socket) -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer.replace(b"HERE", base.encode()))
                if silent and answer is answers[-1]:
                    done.wait()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield f"{base}/guest.wasm"
        finally:
            done.set()
            thread.join()


def refused(url: str, folder: Path | None = None) -> str:
    with pytest.raises(OSError, match=r".") as told:
        read_guest(url, folder)
    return str(told.value)


def test_an_answer_of_unknown_length_is_read_to_its_end() -> None:
    with answering(OK + b"\r\nbytes") as url:
        assert read_guest(url, None) == b"bytes"


def test_a_chunked_answer_is_put_together() -> None:
    with answering(OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nbyt\r\n2\r\nes\r\n0\r\n\r\n") as url:
        assert read_guest(url, None) == b"bytes"


def test_a_redirect_is_followed() -> None:
    away = b"HTTP/1.1 302 Found\r\nLocation: HERE/other\r\nConnection: close\r\n\r\n"

    with answering(away, OK + b"Content-Length: 5\r\n\r\nbytes") as url:
        assert read_guest(url, None) == b"bytes"


def test_a_redirect_to_a_file_is_not_followed() -> None:
    with answering(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/hostname\r\n\r\n") as url:
        assert refused(url) == "received 302 status code"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param(
            OK + b"Content-Length: 50\r\n\r\nbytes", "the answer ends 45 bytes too early", id="cut short"
        ),
        pytest.param(
            OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\nbyt",
            "no answer of HTTP: IncompleteRead",
            id="cut in a chunk",
        ),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", "received 204 status code", id="nothing"),
        pytest.param(b"HTTP/1.1 500 Oh\r\n\r\n", "received 500 status code", id="a fault of the server"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", "no answer of HTTP: BadStatusLine", id="another protocol"),
    ],
)
def test_an_odd_answer_is_told(answer: bytes, told: str) -> None:
    with answering(answer) as url:
        assert refused(url).startswith(told)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/guest.wasm?token=s3cret and more",
        "http://user:s3cret%20word@127.0.0.1/guest.wasm",
        "http://127.0.0.1:s3cret/guest.wasm",
    ],
)
def test_a_url_that_cannot_be_asked_for_is_told_without_its_secrets(url: str) -> None:
    with pytest.raises(ValueError, match=r"^its host, port or path cannot be part of a URL$") as told:
        read_guest(url, None)
    assert "s3cret" not in "".join(traceback.format_exception(told.value))


def test_https_needs_a_certificate() -> None:
    with answering(OK) as url:
        assert "SSL" in refused(url.replace("http:", "https:"))


def test_a_server_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_source, "_TIMEOUT_SECONDS", 0.1)

    with answering(OK + b"Content-Length: 5\r\n\r\nby", silent=True) as url:
        assert refused(url) == "timed out"


def test_a_server_that_goes_on_for_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_source, "_TOTAL_SECONDS", 0.0)

    with answering(OK + b"Content-Length: 5\r\n\r\nbytes") as url:
        assert refused(url) == "not read within 0 seconds"


def test_what_is_too_large_is_refused_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_source, "MOST_BYTES", 4)
    (tmp_path / "four.wasm").write_bytes(b"four")
    (tmp_path / "five.wasm").write_bytes(b"fives")

    assert read_guest("four.wasm", tmp_path) == b"four"
    assert "has more than 4 bytes" in refused("five.wasm", tmp_path)
    with answering(OK + b"Content-Length: 5\r\n\r\nbytes") as url:
        assert refused(url) == "more than 4 bytes"
