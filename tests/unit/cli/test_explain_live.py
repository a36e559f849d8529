"""The error about a daemon that cannot be reached does not contain the secrets of its URL."""

from __future__ import annotations

import traceback

import pytest

from scheduler.cli.explain_live import ask
from scheduler.daemon.app.leader import NoLeaderError


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        pytest.param("http://user:s3cret%20word@127.0.0.1:1", "Connection refused", id="nobody listens"),
        pytest.param("http://me:s3cret@127.0.0.1:no", "its host or port cannot be part", id="no URL"),
    ],
)
def test_a_server_that_does_not_answer_is_named_without_its_password(server: str, problem: str) -> None:
    with pytest.raises(NoLeaderError, match=rf"^http://xxxxx@127\.0\.0\.1:\w+.*: {problem}") as told:
        ask(server, "default/web", None, token_file=None, skip_tls_verify=False)
    assert "s3cret" not in "".join(traceback.format_exception(told.value))
