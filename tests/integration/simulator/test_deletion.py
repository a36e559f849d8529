"""Deletions over HTTP with options in the body."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.simulator.simulator_client import PODS, pod, serving

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("query", "body"),
    [
        pytest.param("", {"dryRun": ["All"]}, id="in the body, as by kubectl"),
        pytest.param("?dryRun=All", None, id="in the query"),
    ],
)
async def test_a_dry_run_of_a_deletion_deletes_nothing(
    tmp_path: Path, query: str, body: dict[str, object] | None
):
    async with serving(tmp_path) as (server, client):
        await client.ask("POST", PODS, pod("p"))
        version = server.store.version
        code, _ = await client.ask("DELETE", f"{PODS}/p{query}", body)

        assert (code, server.store.version) == (200, version)
