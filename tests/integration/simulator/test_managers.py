"""The field managers that the simulated API server records for objects with applied fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.simulator.simulator_client import PODS, pod, serving

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("query", "user_agent", "manager"),
    [
        pytest.param(
            "?fieldManager=me", "kueue/v0.14.0 (linux/amd64) ff69552", "me", id="named in the request"
        ),
        pytest.param("", "kueue/v0.14.0 (linux/amd64) ff69552", "kueue", id="the client's name"),
        pytest.param("", "ku\teue", "kueue", id="no version, and an unprintable character"),
        pytest.param("", "x" * 200, "x" * 128, id="a long name"),
        pytest.param("", "", "unknown", id="no name"),
    ],
)
async def test_a_write_belongs_to_its_field_manager_or_else_to_its_client(
    tmp_path: Path, query: str, user_agent: str, manager: str
) -> None:
    async with serving(tmp_path) as (server, client):
        server.store.create("pods", pod("a"))
        applied = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"x": "1"}}}
        apply = {"Content-Type": "application/apply-patch+yaml"}
        await client.ask("PATCH", f"{PODS}/a?fieldManager=applier", applied, **apply)

        headers = {"Content-Type": "application/merge-patch+json", "User-Agent": user_agent}
        patch = {"metadata": {"labels": {"y": "2"}}}
        _, written = await client.ask("PATCH", f"{PODS}/a{query}", patch, **headers)

        assert manager in [each["manager"] for each in written["metadata"]["managedFields"]]
