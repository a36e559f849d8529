"""After a rotation of the token, clients with the new one are accepted, and clients with the old one are not."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from scheduler.daemon.app.extender.pages import following_token, token_in
from scheduler.daemon.server.extender import Callers

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_token_file_is_read_again_after_a_valid_change(tmp_path: Path) -> None:
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
