"""A configuration file that is followed goes on being followed, whatever is written into it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from scheduler.app.config_file import POLL_SECONDS, ConfigFile, lease_of
from scheduler.configuration.load import default
from tests.virtually import virtually

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.app.reloader import Offer

NEWEST = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
PLUGIN = f'{NEWEST}profiles: [{{plugins: {{filter: {{enabled: [{{name: "a\\0.py"}}]}}}}}}]\n'
POLICY = """\
apiVersion: kubescheduler.config.k8s.io/v1alpha1
kind: KubeSchedulerConfiguration
algorithmSource: {policy: {file: {path: "a\\0"}}}
"""


@pytest.mark.parametrize(
    "text", [PLUGIN, POLICY, "a: [", "\0"], ids=["plugin", "policy", "syntax", "no text"]
)
def test_no_name_of_a_file_ends_the_following(tmp_path: Path, text: str) -> None:
    @virtually
    async def scenario() -> None:
        path = tmp_path / "config.yaml"
        path.write_text(NEWEST)
        file = ConfigFile(path)
        file.load()
        offers: list[Offer] = []
        about = lease_of(default().settings.leader_election)
        following = asyncio.create_task(file.follow(offers.append, about))
        for content in (text, NEWEST):
            path.write_text(content)
            await asyncio.sleep(3 * POLL_SECONDS)
        following.cancel()

        assert len(offers) == 2
        assert offers[1].read().settings == default().settings

    scenario()
