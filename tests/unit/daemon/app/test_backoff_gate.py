"""The feature gate SchedulerPopFromBackoffQ reaches the queue."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.configuration.load import parse
from scheduler.daemon.app.assembly import Parts
from scheduler.engine.cycle.observer import NoObserver
from scheduler.testing.fakes import ManualClock


@pytest.mark.parametrize("on", [True, False])
def test_the_gate_decides_whether_pods_in_backoff_are_tried_early(on: bool, monkeypatch: pytest.MonkeyPatch):
    parts = Parts(ManualClock(), NoObserver(), {})
    given: dict[str, Any] = {}
    monkeypatch.setattr(parts.queue, "reload", lambda **settings: given.update(settings))
    text = f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
featureGates: {{SchedulerPopFromBackoffQ: {str(on).lower()}}}
"""

    parts.configure(parse(text).settings)

    assert given["pops_from_backoff"] is on
