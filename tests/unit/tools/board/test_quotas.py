"""The use of queues and quotas, from the plugins of all profiles."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from plugins.quotas.fair_queues import FairQueues
from scheduler.configuration.load import parse
from scheduler.tools.board.file import FileBoard
from scheduler.tools.board.quotas import quota_usages
from scheduler.tools.whatif.cluster_file import ClusterFile
from tests.support.builders import node, pod

if TYPE_CHECKING:
    import pytest

    from scheduler.tools.board.subject import Subject

QUEUES = "custom-scheduler.io/v1alpha1/queues"
BOTH = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins: {multiPoint: {enabled: [{name: FairQueues}]}}
- schedulerName: other
"""


def subject() -> Subject:
    queue = {"metadata": {"name": "web"}, "spec": {"namespaces": ["default"], "min": {"cpu": "3"}}}
    cluster = ClusterFile(
        nodes=[node("n1", cpu="4")],
        pods=[
            pod("there", node="n1", cpu="2"),
            pod("waits", cpu="9"),
            pod("of-another-profile", cpu="9", scheduler_name="other"),
        ],
        others={QUEUES: {"web": json.dumps(queue).encode()}},
    )
    return FileBoard(cluster, parse(BOTH), refresh=False).subject


def test_pending_pods_count_in_the_profiles_with_the_plugin() -> None:
    [web] = asyncio.run(quota_usages(subject()))

    assert (web["plugin"], web["kind"], web["key"]) == ("FairQueues", QUEUES, "web")
    assert (web["used"], web["guaranteed"]) == ({"cpu": 2000}, {"cpu": 3000})
    assert (web["pending"], web["waiting"]["cpu"]) == (1, 9000)


def test_a_plugin_that_fails_is_left_out_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(FairQueues, "quota_usages", fails)

    assert asyncio.run(quota_usages(subject())) == []
    assert "Plugin has no quotas" in caplog.text
