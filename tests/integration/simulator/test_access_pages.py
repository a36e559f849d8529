"""A daemon's pages over HTTPS, its clients and itself known to an API server with RBAC: real time, real sockets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.daemon_pages import pages_of_a_daemon

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)


async def test_metrics_need_a_role_that_permits_them(tmp_path: Path) -> None:
    async with pages_of_a_daemon(tmp_path, readable=("/metrics",)) as it:
        assert await it.status("/metrics", it.reader) == 200
        assert await it.status("/metrics", it.stranger) == 403
        assert await it.status("/metrics") == 403
        assert await it.status("/metrics", "made-up") == 401
        used = it.server.grants.used("system:serviceaccount:kube-system:daemon")
        binding = [grant.role for grant in used if grant.permission.resource == "pods/binding"]
        assert binding == ["ClusterRole/system:kube-scheduler"]
