"""Daemons of tests run with the rights that `check --rbac` prints: a call beyond them fails the test, an idle grant the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.configuration.feature_gates import parse_gates
from scheduler.daemon.app.rights import Right, rights_of_needs
from scheduler.framework import FilterPlugin, Needs
from scheduler.kube.http.request import Request
from scheduler.tools.simulator.faults import streamed_lists
from tests.support import daemon_accounts as granted
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.manifests import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins:
    multiPoint:
      enabled:
      - {name: CapacityScheduling}
      - {name: Coscheduling}
      - {name: FairQueues}
      - {name: NodePreference}
      - {name: NodeResourceTopologyMatch}
      disabled: [{name: PrioritySort}]
    filter: {enabled: [{name: NeedsConfigMaps}]}
"""


class NeedsConfigMaps(FilterPlugin):
    """Watches a kind that no other plugin does."""

    name = "NeedsConfigMaps"
    api_version = 1
    needs = Needs(kinds=frozenset({"v1/configmaps"}))

    def filter_node(self, state: Any, pod: Any, node: Any) -> None:
        return None


PLUGINS = {"NeedsConfigMaps": NeedsConfigMaps}


async def test_without_streamed_lists_every_kind_is_listed_with_its_right(tmp_path: Path) -> None:
    for version, gates in (("1.35", ""), ("1.37", "CompositePodGroup=true")):  # the kinds of groups differ
        folder = tmp_path / version
        folder.mkdir()
        given = parse_gates(gates)
        async with cluster(folder, version=version, feature_gates=given) as it:
            it.server.faults.refuse(400, streamed_lists)
            configuration = (
                f"{CONFIGURATION}emulatedVersion: '{version}'\nfeatureGates: {json.dumps(given)}\n"
            )
            async with it.daemon(configuration, plugins=PLUGINS) as daemon:
                await it.until(lambda: daemon.has_synced)
                it.add_nodes(node_object("n1"))
                it.add_pods(pod_object("web"))
                await it.until(lambda: it.node_of("web"))
                needs = daemon.generations.active.needs

    listed = {str(right) for right in rights_of_needs(needs) if right.verb == "list"}
    assert len(listed) > 10
    assert listed <= granted.USED


async def test_a_call_that_was_not_granted_fails_the_test(tmp_path: Path) -> None:
    async def ask_for_secrets() -> None:
        async with cluster(tmp_path) as it, it.daemon() as daemon:
            with pytest.raises(Exception, match="secrets is forbidden"):
                await daemon.connection.send(Request("GET", "/api/v1/secrets"))

    with pytest.raises(AssertionError, match=r"called without a right that `check --rbac` prints: .*secrets"):
        await ask_for_secrets()


def test_an_unused_grant_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = str(Right("deletecollection", "", "pods"))
    monkeypatch.setattr(granted, "GRANTED", {idle, "get pods"})
    monkeypatch.setattr(granted, "USED", {"get pods"})
    assert granted.unused() == [idle]

    monkeypatch.setattr(granted, "UNREACHABLE", {idle: "for a reason"})
    assert granted.unused() == []


PROJECT = {
    "pytest.ini": "[pytest]\ntestpaths = here\naddopts = --import-mode=importlib\n",
    "here/conftest.py": "from tests.conftest import *\n",
    "here/test_it.py": "from tests.support import daemon_accounts as granted\n\n\ndef test_it():\n    granted.GRANTED.add('get idle')\n",
}


@pytest.mark.parametrize(
    ("words", "status"),
    [
        pytest.param([], 1, id="all tests"),
        pytest.param(["-k", "it"], 0, id="some"),
        pytest.param(["here"], 0, id="named"),
    ],
)
def test_an_idle_grant_fails_a_whole_run_only(tmp_path: Path, words: list[str], status: int) -> None:
    for name, text in PROJECT.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=tmp_path, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == status, done.stdout + done.stderr
    assert ("no test needs it: get idle" in done.stdout) == bool(status)
