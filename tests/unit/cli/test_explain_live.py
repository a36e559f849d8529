"""The error about a daemon that cannot be reached does not contain the secrets of its URL."""

from __future__ import annotations

import socket
import ssl
import threading
import traceback

import pytest

from scheduler.cli.explain_live import ask
from scheduler.daemon.app.leader import NoLeaderError
from scheduler.kube.certificates import issue
from scheduler.kube.tls import load_key_pair


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        pytest.param("http://user:s3cret%20word@127.0.0.1:1", "Connection refused", id="no listener"),
        pytest.param("http://me:s3cret@127.0.0.1:no", "its host or port cannot be part", id="no URL"),
    ],
)
def test_a_server_that_does_not_answer_is_named_without_its_password(server: str, problem: str) -> None:
    with pytest.raises(NoLeaderError, match=rf"^http://xxxxx@127\.0\.0\.1:\w+.*: {problem}") as reported:
        ask(server, "default/web", None, token_file=None, skip_tls_verify=False)
    assert "s3cret" not in "".join(traceback.format_exception(reported.value))


def test_a_certificate_is_verified_unless_a_flag_disables_it() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_key_pair(context, issue("daemon", addresses=["127.0.0.1"]).serving)

    def serve(listener: socket.socket) -> None:
        for _ in range(2):
            accepted, _ = listener.accept()
            try:
                with context.wrap_socket(accepted, server_side=True) as connection:
                    connection.recv(65536)
                    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{"a":1}')
            except ssl.SSLError:
                continue

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve, args=(listener,))
        serving.start()
        server = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(NoLeaderError, match="certificate is not trusted"):
            ask(server, "default/web", None, token_file=None, skip_tls_verify=False)
        assert ask(server, "default/web", None, token_file=None, skip_tls_verify=True) == {"a": 1}
        serving.join()
