"""The daemon searches nodes in turn where the configuration lets it stop early."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from pathlib import Path

WITHOUT_SCORERS = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    preScore: {disabled: [{name: "*"}]}
    score: {disabled: [{name: "*"}]}
"""


async def test_pods_of_a_profile_without_scorers_go_to_one_node_after_another(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.add_nodes(*(node_object(f"n{number}") for number in range(5)))
        it.add_pods(*(pod_object(f"web-{number}") for number in range(5)))
        async with it.daemon(WITHOUT_SCORERS):
            await it.until(lambda: all(it.node_of(f"web-{number}") for number in range(5)))

        assert {it.node_of(f"web-{number}") for number in range(5)} == {f"n{n}" for n in range(5)}
