"""The limits of what-if requests."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from scheduler.daemon.app.size import ClusterSize, resources_for

SECONDS: Final = 60.0
"""Of computing or idle time, see `TimeLimit`."""
_CGROUP: Final = Path("/sys/fs/cgroup")


def memory_of_child(nodes: int, pods: int) -> int:
    """Return the memory that a child needs for a cluster, in bytes."""
    return resources_for(ClusterSize(nodes, pods)).request_bytes


def memory_left(cgroup: Path = _CGROUP) -> int | None:
    """Return how many bytes the processes of this container may still use; None if there is no limit, or it is unknown.

    The page cache does not count, because the kernel frees it.
    """
    try:
        most = (cgroup / "memory.max").read_text().strip()
        lines = (cgroup / "memory.stat").read_text().splitlines()
    except OSError:
        return None
    used = next((int(line.split()[1]) for line in lines if line.startswith("anon ")), None)
    return None if most == "max" or used is None else int(most) - used
