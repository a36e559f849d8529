"""The files of the scheduler: its configuration, and the volume it writes to."""

from __future__ import annotations

import asyncio
import os
import shutil
from typing import TYPE_CHECKING

from tests.hostile.scenario import scenario

if TYPE_CHECKING:
    from pathlib import Path

    from tests.hostile.stage import Stage

_GIB = 2**30
_REJECTED = frozenset({"Configuration rejected; the one before stays active"})


async def _replaced(it: Stage, path: Path) -> None:
    """The configuration replaced by another kind of file, and put back."""
    config = it.scheduler.config_path
    before = config.read_bytes()
    await asyncio.to_thread(path.replace, config)
    try:
        await it.until(lambda: _REJECTED & set(it.errors()), 6)  # it is looked at every two seconds
        await it.innocents()
        await it.pause(10)
    finally:
        config.unlink()
        config.write_bytes(before)


@scenario(starts=False, is_ours=True, logged=_REJECTED)
async def pipe(it: Stage) -> None:
    """The configuration file is replaced by a pipe that nobody writes to"""
    await it.start(fresh=True, flags=("--follow-config",))
    path = it.folder / "pipe"
    os.mkfifo(path)
    await _replaced(it, path)


@scenario(starts=False, is_ours=True, logged=_REJECTED)
async def sparse_file(it: Stage) -> None:
    """The configuration file is replaced by a sparse file of 1 GB"""
    await it.start(fresh=True, flags=("--follow-config",))
    path = it.folder / "sparse"
    with path.open("wb") as file:
        file.truncate(it.n(_GIB, least=_GIB // 8))
    await _replaced(it, path)


_FILL = """\
mount -t tmpfs -o size=128k tmpfs {folder} || exit 99
head -c 1000000 /dev/zero > {folder}/full 2>/dev/null
exec "$@"
"""


@scenario(starts=False, is_ours=True)
async def full_volume(it: Stage) -> None:
    """The temporary volume of the pod is full when the scheduler starts"""
    if shutil.which("unshare") is None:
        raise LookupError("unshare is not there, which mounts a small volume")
    folder = it.folder / "volume"
    folder.mkdir()
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    script = _FILL.format(folder=folder)
    await it.start(
        fresh=True,
        prefix=("unshare", *user, "--mount", "--", "sh", "-c", script, "sh"),
        flags=("--last-good-config", str(folder / "last-good.json")),
    )
    await it.innocents()
