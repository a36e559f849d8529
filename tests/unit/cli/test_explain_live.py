"""The error about a daemon that cannot be reached does not contain the secrets of its URL."""

from __future__ import annotations

import traceback

import pytest

from scheduler.cli.explain_live import AskingError, ask


@pytest.mark.parametrize("server", ["http://user:s3cret%20word@127.0.0.1:1", "http://me:s3cret@127.0.0.1:no"])
def test_a_server_whose_url_cannot_be_asked_for_is_told_without_its_password(server: str) -> None:
    with pytest.raises(
        AskingError, match=r"^--server: http://xxxxx@127\.0\.0\.1:\w+: its host or port"
    ) as told:
        ask(server, "default/web", token_file=None, skip_tls_verify=False)
    assert "s3cret" not in "".join(traceback.format_exception(told.value))
