"""A plugin file that never returns for one pod, in a daemon process with its real event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.configuration.test_reload_processes import end, running, serving
from tests.support.builders import pod_object
from tests.support.processes import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)

CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {resourceNamespace: default}
attemptBudget: 100ms
profiles:
- schedulerName: custom-scheduler
  plugins: {multiPoint: {enabled: [{name: endless.py}]}}
"""

ENDLESS = """\
from scheduler.framework import FilterPlugin


class Endless(FilterPlugin):
    name = "Endless"
    api_version = 1

    def filter_node(self, state, pod, node):
        while pod.labels.get("evil"):
            pass
"""

MESSAGE = (
    'running "Endless" filter plugin: over budget: stopped: more than 0.1s had passed'
    "; quarantined for 60s after 1 attempt over budget"
)


async def test_a_pod_that_hangs_a_plugin_is_quarantined_also_by_the_next_leader(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    config = tmp_path / "config.yaml"
    config.write_text(CONFIGURATION)

    async with serving(tmp_path) as (kubeconfig, it):

        def condition() -> dict[str, Any]:
            conditions = it.store.get("pods", "evil", "default")["status"].get("conditions") or [{}]
            found: dict[str, Any] = conditions[0]
            return found

        it.store.create("pods", pod_object("evil", cpu="10m", labels={"evil": "yes"}))
        async with running(kubeconfig, tmp_path / "log", "--config", str(config)) as run:
            await until(lambda: it.notes("FailedScheduling"))
            assert it.notes("FailedScheduling") == [MESSAGE]
            await until(lambda: condition().get("message") == MESSAGE)
            assert condition()["reason"] == "SchedulerError"
            for number in range(20):
                assert await it.place(f"good-{number}")
            counted = (
                'custom_scheduler_attempts_over_budget_total{plugin="Endless",profile="custom-scheduler"} 1.0'
            )
            assert counted in await run.page("/metrics")
            assert await end(run) == 0

        async with running(kubeconfig, tmp_path / "log", "--config", str(config)):
            assert await it.place("after")
            await asyncio.sleep(0.5)
            assert len(it.notes("FailedScheduling")) == 1, "it was tried again at once"

            found = it.store.get("pods", "evil", "default")
            metadata = {**found["metadata"], "labels": {"evil": ""}}
            it.store.update("pods", {**found, "metadata": metadata})
            await until(lambda: it.node_of("evil"))
