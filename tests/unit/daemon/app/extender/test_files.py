"""Files of the extender: a directory of certificates is complete or has none, and a token file is followed."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from scheduler.daemon.app.extender.certificates import client_authority_in, kept_in
from scheduler.daemon.app.extender.pages import following_token, token_in
from scheduler.daemon.server.extender import Callers
from scheduler.errors import ConfigurationError
from tests.support.full_disks import no_room

if TYPE_CHECKING:
    from pathlib import Path


def test_a_full_file_system_leaves_no_partial_certificate(tmp_path: Path) -> None:
    with no_room():
        for make in (lambda: kept_in(tmp_path, "localhost"), lambda: client_authority_in(tmp_path)):
            with pytest.raises(
                ConfigurationError, match=r"a certificate cannot be kept in .*: File too large"
            ):
                make()
    assert list(tmp_path.iterdir()) == []

    assert kept_in(tmp_path, "localhost").authority.startswith(b"-----BEGIN CERTIFICATE-----")
    assert client_authority_in(tmp_path).exists()


async def test_a_token_file_is_read_again_after_a_valid_change(tmp_path: Path) -> None:
    """Clients with the new token are accepted, and clients with the old one are not."""
    path = tmp_path / "token"
    path.write_text("first")
    callers = Callers(token=token_in(path))
    async with following_token(callers, path):
        (tmp_path / "away").write_text("first")
        path.unlink()
        os.mkfifo(path)
        await asyncio.sleep(15.0)
        assert callers.token == b"first"
        (tmp_path / "away").replace(path)
        for text, expected in (("second\n", b"second"), ("", b"second"), ("third", b"third")):
            path.write_text(text)
            await asyncio.sleep(15.0)
            assert callers.token == expected
    path.write_text("fourth")
    await asyncio.sleep(15.0)
    assert callers.token == b"third"
