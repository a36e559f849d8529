"""NodeLoad: the usage of nodes, from either source."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plugins.node_measurements.measurements import NODES_PATH
from plugins.node_measurements.node_load import NodeLoad, NodeLoadArgs
from scheduler.configuration.profile_plugins import decode_args
from scheduler.errors import ConfigurationError
from scheduler.framework import CycleState
from tests.support import virtual_time
from tests.support.builders import node, pod
from tests.support.clusters import Cluster, cluster
from tests.support.manual_clock import ManualClock
from tests.support.measurement_servers import FakeMetricsApi, FakePrometheus
from tests.unit.plugins.plugin_calls import scores

CPU_ONLY = [{"name": "cpu"}]
NODES = cluster(node("a", cpu="4", memory="16Gi"), node("b", cpu="4", memory="16Gi"))
LARGE_AND_SMALL = cluster(node("large", cpu="16", memory="64Gi"), node("small", cpu="4", memory="16Gi"))
TINY = pod("tiny", cpu="0", memory="0")


class Fixture:
    """A plugin with both sources, and a cluster."""

    def __init__(self, usage: dict[str, dict[str, str]] | None, nodes: Cluster = NODES, **given: Any) -> None:
        self.clock, self.web, self.api = ManualClock(), FakePrometheus(), FakeMetricsApi(usage)
        args = decode_args(NodeLoadArgs, given, plugin="NodeLoad", path="args")
        self.plugin = NodeLoad(args=args, web=self.web, api=self.api, clock=self.clock)
        self.cluster = nodes
        if usage is not None:
            self.refresh()

    def refresh(self) -> None:
        virtual_time.run(self.plugin.refresh())

    def scores(self, cpu: str = "0", memory: str = "0") -> dict[str, int] | None:
        return scores(self.plugin, pod("web", cpu=cpu, memory=memory), self.cluster)

    def without_data(self) -> int:
        return self.plugin.nodes_without_data(self.cluster.snapshot())


def test_a_score_is_the_free_share() -> None:
    fixture = Fixture(
        {"a": {"cpu": "1", "memory": "12Gi"}, "b": {"cpu": "2000000000n", "memory": "4194304Ki"}}
    )

    assert fixture.scores() == {"a": 50, "b": 62}
    assert fixture.scores(cpu="1", memory="4Gi") == {"a": 25, "b": 38}
    assert fixture.api.paths == [NODES_PATH]
    assert not fixture.web.asked


def test_weights_apply_to_resources() -> None:
    usage = {"a": {"cpu": "1", "memory": "12Gi"}, "b": {"cpu": "2", "memory": "4Gi"}}
    weights = [{"name": "cpu", "weight": 3}, {"name": "memory", "weight": 1}]

    assert Fixture(usage, resources=weights).scores() == {"a": 62, "b": 56}
    assert Fixture(usage, resources=CPU_ONLY).scores() == {"a": 75, "b": 50}


def test_a_node_without_data_has_the_mean_share_of_the_others_at_any_size() -> None:
    nodes = cluster(*LARGE_AND_SMALL.nodes, node("new", cpu="2", memory="8Gi"))
    usage = {"large": {"cpu": "8", "memory": "16Gi"}, "small": {"cpu": "1", "memory": "12Gi"}}
    fixture = Fixture(usage, nodes)

    assert fixture.scores() == {"large": 62, "small": 50, "new": 56}
    assert fixture.without_data() == 1


@pytest.mark.parametrize("number", ["lots", "-1", ""])
def test_an_invalid_quantity_counts_as_missing(number: str) -> None:
    fixture = Fixture({"a": {"cpu": number}, "b": {"cpu": "2"}}, resources=CPU_ONLY)

    assert fixture.scores() == {"a": 50, "b": 50}
    assert fixture.without_data() == 1


def test_a_resource_without_data_does_not_count() -> None:
    assert Fixture({"a": {"cpu": "1"}, "b": {"cpu": "2"}}).scores() == {"a": 75, "b": 50}


def test_a_full_node_or_one_without_the_resource_has_nothing_free() -> None:
    nodes = cluster(*NODES.nodes, node("none", cpu="0"))
    usage = {"a": {"cpu": "9"}, "b": {"cpu": "0"}, "none": {"cpu": "0"}}

    assert Fixture(usage, nodes, resources=CPU_ONLY).scores() == {"a": 0, "b": 100, "none": 0}


def test_all_nodes_are_equal_before_the_first_data_and_after_the_last_expire() -> None:
    fixture = Fixture(None, refreshPeriod="10s", resources=CPU_ONLY)
    assert fixture.scores() == {"a": 0, "b": 0}
    assert fixture.without_data() == 2
    fixture.api.usage = {"a": {"cpu": "1"}, "b": {"cpu": "2"}}
    fixture.refresh()
    assert fixture.scores() == {"a": 75, "b": 50}

    fixture.clock.advance(31.0)

    assert fixture.scores() == {"a": 0, "b": 0}
    assert fixture.without_data() == 2


def test_a_placement_counts_with_the_requests_of_the_pod_until_it_is_undone() -> None:
    fixture = Fixture({"a": {"cpu": "1"}, "b": {"cpu": "2"}}, resources=CPU_ONLY)
    state, web = CycleState(), pod("web", cpu="2")

    fixture.plugin.reserve(state, web, "a")
    assert fixture.scores() == {"a": 25, "b": 50}
    fixture.plugin.unreserve(state, web, "a")
    fixture.plugin.unreserve(state, web, "a")

    assert fixture.scores() == {"a": 75, "b": 50}


def test_a_pod_without_requests_is_expected_to_use_a_little() -> None:
    fixture = Fixture({"a": {"cpu": "0"}, "b": {"cpu": "0"}}, resources=CPU_ONLY)
    for _ in range(10):
        fixture.plugin.reserve(CycleState(), pod("web"), "a")

    assert fixture.scores() == {"a": 75, "b": 100}


def test_a_placement_fades_as_metrics_begin_to_include_it() -> None:
    fixture = Fixture({"a": {"cpu": "0"}, "b": {"cpu": "0"}}, resources=CPU_ONLY, settleTime="30s")
    fixture.plugin.reserve(CycleState(), pod("web", cpu="4"), "a")
    seen = []
    for _ in range(4):
        fixture.clock.advance(15.0)
        fixture.refresh()
        found = fixture.scores()
        assert found is not None
        seen.append(found["a"])

    assert seen == [0, 50, 100, 100]


def test_prometheus_is_queried_once_per_resource_and_counts_in_cores() -> None:
    fixture = Fixture(None, source="Prometheus", timeRange="2m")
    fixture.web.by_word = {
        "cpu": {"a:9100": "1.5", "b:9100": 3},
        "memory": {"a:9100": 8 * 1024**3, "b:9100": 4 * 1024**3},
    }
    fixture.refresh()

    assert fixture.scores() == {"a": 56, "b": 50}
    assert fixture.web.asked == [
        'sum by (instance) (rate(node_cpu_seconds_total{mode!~"idle|iowait|steal"}[120s]))',
        "max by (instance) (node_memory_MemTotal_bytes - node_memory_MemAvailable_bytes)",
    ]
    assert not fixture.api.paths


def test_a_partial_response_of_prometheus_changes_nothing() -> None:
    fixture = Fixture(None, source="Prometheus")
    fixture.web.by_word = {"cpu": {"a": 1, "b": 3}}

    with pytest.raises(OSError, match="nobody is there"):
        fixture.refresh()

    assert fixture.without_data() == 2


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        pytest.param(None, "503", id="no metrics-server"),
        pytest.param({}, f"{NODES_PATH}: metrics of no node at all", id="no nodes"),
    ],
)
def test_a_response_without_usable_data_is_a_failure(usage: Any, expected: str) -> None:
    fixture = Fixture(None)
    fixture.api.usage = usage

    with pytest.raises(OSError, match=expected):
        fixture.refresh()


def test_a_response_of_another_kind_is_a_failure() -> None:
    fixture = Fixture(None)

    async def other(_path: str, **_: Any) -> bytes:
        return msgspec.json.encode({"kind": "Status"})

    fixture.api.api_get = other  # type: ignore[method-assign]

    with pytest.raises(OSError, match=f"{NODES_PATH}: not a list of node metrics"):
        fixture.refresh()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"source": "metrics"}, 'args.source: must be one of "MetricsAPI", "Prometheus", was "metrics"', id="no source"),
        pytest.param({"resources": [{"name": "disk"}]}, "args.resources[0].name: must be cpu or memory, was 'disk'", id="another resource"),
        pytest.param({"resources": [{"name": "cpu"}, {"name": "cpu"}]}, "args.resources[1].name: 'cpu' was named before", id="twice"),
        pytest.param({"resources": [{"name": "cpu", "weight": 101}]}, "args.resources[0].weight: must be 1 to 100, was 101", id="too heavy"),
        pytest.param({"resources": []}, "args.resources: must name cpu, memory or both", id="none"),
        pytest.param({"cpuQuery": ""}, "args.cpuQuery: must not be empty", id="no query for cpu"),
        pytest.param({"memoryQuery": " "}, "args.memoryQuery: must not be empty", id="no query for memory"),
        pytest.param({"ip": "x y"}, "args.ip: must be a URL", id="no URL"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_reported_with_their_paths(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        decode_args(NodeLoadArgs, given, plugin="NodeLoad", path="args")

    (fault,) = raised.value.errors
    assert str(fault).startswith(expected)
