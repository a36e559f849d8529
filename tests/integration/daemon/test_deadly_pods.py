"""A pod whose attempt ends the process is quarantined at the next start, and others are placed; real processes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.integration.configuration.test_reload_processes import end, running, serving
from tests.support.builders import pod_object

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.configuration.test_reload_processes import Server

pytestmark = pytest.mark.run(by=asyncio.run)

CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
- schedulerName: custom-scheduler
  plugins: {filter: {enabled: [{name: deadly.py}]}}
"""
PLUGIN = """\
import os, signal
from scheduler.framework import FilterPlugin

class Deadly(FilterPlugin):
    name = "Deadly"
    api_version = 1

    def filter_node(self, state, pod, node):
        if pod.name == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
"""
TOLD = "the scheduler ended in the middle of an attempt at this pod; quarantined for 60s after 1 attempt over budget"


def told(it: Server) -> str:
    """What the condition of the deadly pod says."""
    conditions = it.store.get("pods", "deadly", "default")["status"].get("conditions", ())
    return next((each["message"] for each in conditions if each["type"] == "PodScheduled"), "")


async def test_a_pod_that_crashes_the_process_is_quarantined_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "deadly.py").write_text(PLUGIN)
    flags = ("--config", str(tmp_path / "config.yaml"), "--last-good-config")
    mine, another = (*flags, str(tmp_path / "kept.json")), (*flags, str(tmp_path / "another.json"))

    async with serving(tmp_path) as (kubeconfig, it):
        async with running(kubeconfig, tmp_path / "log", *mine) as run:
            assert await it.place("before")
            it.store.create("pods", pod_object("deadly"))
            async with asyncio.timeout(30):
                assert await run.process.wait() == -9
        async with running(kubeconfig, tmp_path / "log", *mine) as run:
            assert await it.place("after")
            assert told(it) == TOLD
            assert run.said("The previous process ended during an attempt")
            assert await end(run) == 0
        async with running(kubeconfig, tmp_path / "log", *another) as run:
            assert await it.place("led-by-another")
            assert await end(run) == 0


LEASE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {resourceNamespace: default, leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 500ms}
profiles:
- schedulerName: custom-scheduler
  plugins: {filter: {enabled: [{name: holding.py}]}}
"""
HOLDING = """\
import time
from collections import deque
from itertools import repeat
from scheduler.framework import FilterPlugin

def seconds_of_a_million():
    began = time.thread_time()  # which other processes do not lengthen
    deque(repeat(None, 10**6), maxlen=0)
    return time.thread_time() - began

FOUR_SECONDS = int(10**6 * 4 / min(seconds_of_a_million() for _ in range(10)))

class Holding(FilterPlugin):
    name = "Holding"
    api_version = 1

    def filter_node(self, state, pod, node):
        if pod.name == "deadly":
            deque(repeat(None, FOUR_SECONDS), maxlen=0)  # one call of C, which nothing interrupts
"""


async def test_a_pod_whose_attempt_loses_the_lease_is_quarantined_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(LEASE)
    (tmp_path / "holding.py").write_text(HOLDING)
    flags = ("--config", str(tmp_path / "config.yaml"), "--last-good-config", str(tmp_path / "kept.json"))

    async with serving(tmp_path) as (kubeconfig, it):
        it.store.create("pods", pod_object("deadly"))
        async with running(kubeconfig, tmp_path / "log", *flags) as run:
            async with asyncio.timeout(60):
                assert await run.process.wait() == 1
            assert run.said("The lease was lost while an attempt held the loop")
        async with running(kubeconfig, tmp_path / "log", *flags) as run:
            assert await it.place("after")
            assert told(it) == TOLD
            assert await end(run) == 0
