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
    with pytest.raises(OSError, match=r".") as reported:
        read_guest(url, folder)
    return str(reported.value)


def test_a_response_of_unknown_length_is_read_to_its_end() -> None:
    with answering(OK + b"\r\nbytes") as url:
        assert read_guest(url, None) == b"bytes"


def test_a_chunked_response_is_joined() -> None:
    with answering(OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nbyt\r\n2\r\nes\r\n0\r\n\r\n") as url:
        assert read_guest(url, None) == b"bytes"


def test_a_redirect_is_followed() -> None:
    away = b"HTTP/1.1 302 Found\r\nLocation: HERE/other\r\nConnection: close\r\n\r\n"

    with answering(away, OK + b"Content-Length: 5\r\n\r\nbytes") as url:
        assert read_guest(url, None) == b"bytes"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(OK + b"Content-Length: 50\r\n\r\nbytes", "Server disconnected", id="cut short"),
        pytest.param(
            OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\nbyt",
            "Server disconnected",
            id="cut in a chunk",
        ),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", "received 204 status code", id="nothing"),
        pytest.param(b"HTTP/1.1 500 Oh\r\n\r\n", "received 500 status code", id="a fault of the server"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", "unreadable answer", id="another protocol"),
    ],
)
def test_a_malformed_response_is_reported(answer: bytes, expected: str) -> None:
    with answering(answer) as url:
        assert refused(url).removeprefix(f"GET {url}: ").startswith(expected)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        pytest.param(
            "http://127.0.0.1:1/guest.wasm?token=s3cret and more", "Connection refused", id="a query"
        ),
        pytest.param(
            "http://user:s3cret%20word@127.0.0.1:1/guest.wasm", "Connection refused", id="a password"
        ),
        pytest.param(
            "http://user:s3cret@127.0.0.1:x/guest.wasm",
            "its host or port cannot be part of a URL",
            id="no URL",
        ),
    ],
)
def test_an_error_has_no_secrets_of_the_url(url: str, problem: str) -> None:
    with pytest.raises(OSError, match=rf"{problem}$") as reported:
        read_guest(url, None)
    assert "s3cret" not in "".join(traceback.format_exception(reported.value))


def test_https_needs_a_certificate() -> None:
    with answering(OK) as url:
        assert "no TLS" in refused(url.replace("http:", "https:"))


def test_a_silent_server_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_source, "_TOTAL_SECONDS", 0.1)

    with answering(OK + b"Content-Length: 5\r\n\r\nby", silent=True) as url:
        assert refused(url) == f"GET {url}: no answer within 0.1 s"


def test_a_guest_that_is_too_large_is_refused_for_any_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_source, "MOST_BYTES", 100)
    (tmp_path / "small.wasm").write_bytes(b"four")
    (tmp_path / "large.wasm").write_bytes(bytes(101))

    assert read_guest("small.wasm", tmp_path) == b"four"
    assert "has more than 100 bytes" in refused("large.wasm", tmp_path)
    with answering(OK + b"Content-Length: 100\r\n\r\n" + bytes(100)) as url:
        assert refused(url) == f"GET {url}: the response has more than 100 bytes"
