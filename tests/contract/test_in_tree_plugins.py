"""Every in-tree plugin keeps the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugins.registry import IN_TREE
from scheduler.engine.cycle.preemption import ExtenderReview, NoPreemptions
from scheduler.engine.cycle.shared import Profiles
from scheduler.engine.runtime.dry_run import DryRun
from scheduler.engine.state.nominator import Nominator
from scheduler.framework import FilterPlugin, Plugin, PreEnqueuePlugin, ScorePlugin
from scheduler.framework.sliced_work import WithoutSlices
from scheduler.testing.contract import CHECKS, subject
from tests.support import virtual_time
from tests.support.builders import pod
from tests.support.manual_clock import ManualClock
from tests.support.measurement_servers import FakeMetricsApi, FakePrometheus

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.objects.pod import PodInfo
    from scheduler.testing.contract import PluginSubject


class NowhereBinder:
    async def bind(self, pod: PodInfo, node_name: str) -> None:
        raise AssertionError(f"nothing is bound here, was {pod} to {node_name}")


CAPABILITIES = {
    "binder": NowhereBinder(),
    "dry_run": DryRun(),
    "nominated": Nominator(),
    "preemptions": NoPreemptions(),
    "review": ExtenderReview(Profiles()),
    "work": WithoutSlices(),
    "web": FakePrometheus({f"node-{number}": 100 * number for number in range(20)}),
    "api": FakeMetricsApi({"node-1": {"cpu": "1500m", "memory": "3Gi"}}),
    "clock": ManualClock(),
}

_DEFERRED = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]}
RESIZES = [
    pod("deferred", node="node-1", cpu="1", status=_DEFERRED),
    pod("deferred-too", node="node-1", cpu="1", status=_DEFERRED),
    pod("deferred-for-long", node="node-2", cpu="500", status=_DEFERRED),
]


def own_pods(plugin: type[Plugin]) -> list[PodInfo]:
    return RESIZES if plugin.evaluates_resizes else []


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("plugin", IN_TREE.values(), ids=lambda plugin: plugin.name)
def test_contract(plugin: type[Plugin], check: Callable[[PluginSubject], None]):
    check(subject(plugin, pods=own_pods(plugin), **CAPABILITIES))


REFRESHED = [plugin for plugin in IN_TREE.values() if plugin.refresh is not Plugin.refresh]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("plugin", REFRESHED, ids=lambda plugin: plugin.name)
def test_contract_with_background_data(plugin: type[Plugin], check: Callable[[PluginSubject], None]):
    each = subject(plugin, **CAPABILITIES)
    virtual_time.run(each.plugin.refresh())
    assert each.plugin.nodes_without_data(each.snapshot) != each.snapshot.n_nodes
    check(each)


@pytest.mark.parametrize(
    "point", [FilterPlugin, ScorePlugin, PreEnqueuePlugin], ids=lambda point: point.__name__
)
def test_the_sweep_finds_plugins_of_each_extension_point(point: type[Plugin]):
    assert any(issubclass(plugin, point) for plugin in IN_TREE.values())


def test_the_sweep_has_checks_and_plugins():
    assert len(CHECKS) >= 15
    assert len(IN_TREE) >= 11


@pytest.mark.parametrize(("name", "plugin"), IN_TREE.items(), ids=list(IN_TREE))
def test_plugins_are_registered_by_their_names(name: str, plugin: type[Plugin]):
    assert plugin.name == name


@pytest.mark.parametrize(
    "name", [name for name, plugin in IN_TREE.items() if issubclass(plugin, FilterPlugin)]
)
def test_the_samples_make_each_filter_reject_some_nodes_and_pass_some(name: str):
    from scheduler.testing.contract import verdict

    each = subject(IN_TREE[name], pods=own_pods(IN_TREE[name]))
    codes = {
        outcome.code.value
        for pod in each.pods
        for outcome in verdict(each.plugin, pod, each.snapshot).outcomes
    }

    assert "Success" in codes
    assert len(codes) > 1
