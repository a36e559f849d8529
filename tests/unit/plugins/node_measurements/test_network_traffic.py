"""NetworkTraffic: its queries, the responses, and the scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plugins.node_measurements.network_traffic import NetworkTraffic, NetworkTrafficArgs
from scheduler.configuration.load import load
from scheduler.configuration.profile_plugins import decode_args, find_args
from scheduler.errors import ConfigurationError
from scheduler.framework import CycleState
from tests.support import virtual_time
from tests.support.builders import node, pod
from tests.support.clusters import Cluster, cluster
from tests.support.manual_clock import ManualClock
from tests.support.measurement_servers import FakePrometheus, vector
from tests.unit.plugins.plugin_calls import scores

CONFIG = Path(__file__).parents[4] / "config"
WEB = pod("web", cpu="1")


def args(**given: Any) -> NetworkTrafficArgs:
    return decode_args(NetworkTrafficArgs, given, plugin="NetworkTraffic", path="args")


def faults(**given: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as raised:
        args(**given)
    return [str(fault) for fault in raised.value.errors]


class Fixture:
    """A plugin that has queried once, and a cluster."""

    def __init__(self, series: dict[str, object] | None, *names: str, **given: Any) -> None:
        self.clock, self.web = ManualClock(), FakePrometheus(series)
        self.plugin = NetworkTraffic(args=args(**given), web=self.web, clock=self.clock)
        self.cluster: Cluster = cluster(*(node(name) for name in names or series or ()))

    def refresh(self) -> None:
        virtual_time.run(self.plugin.refresh())

    def scores(self) -> dict[str, int] | None:
        return scores(self.plugin, WEB, self.cluster)

    def place(self, node_name: str) -> CycleState:
        state = CycleState()
        self.plugin.reserve(state, WEB, node_name)
        return state


def refreshed(series: dict[str, object], *names: str, **given: Any) -> Fixture:
    fixture = Fixture(series, *names, **given)
    fixture.refresh()
    return fixture


def test_a_score_is_100_minus_the_share_of_the_highest_traffic() -> None:
    assert refreshed({"a": 1000, "b": 250, "c": 0}).scores() == {"a": 0, "b": 75, "c": 100}


def test_traffic_on_nodes_that_are_not_feasible_does_not_count() -> None:
    fixture = refreshed({"a": 1_000_000, "b": 100, "c": 50})
    snapshot, state = fixture.cluster.snapshot(), CycleState()
    rows = np.array([1, 2], dtype=np.intp)

    raw = fixture.plugin.score(state, WEB, snapshot, rows)
    assert fixture.plugin.normalize(state, WEB, raw, rows)[rows].tolist() == [0, 50]


def test_all_nodes_are_equal_without_any_traffic() -> None:
    assert refreshed({"a": 0, "b": 0}).scores() == {"a": 100, "b": 100}


def test_a_query_may_return_fractions_of_one() -> None:
    assert refreshed({"a": 0.4, "b": 0.1}).scores() == {"a": 0, "b": 75}


def test_numbers_of_any_size_give_scores() -> None:
    assert refreshed({"a": 1e300, "b": -5, "c": 1}).scores() == {"a": 0, "b": 100, "c": 100}


@pytest.mark.parametrize("number", ["NaN", "+Inf", "-Inf", "many"])
def test_a_node_with_an_invalid_number_counts_as_the_mean_of_the_others(number: str) -> None:
    fixture = refreshed({"a": 100, "b": 0, "c": number})

    assert fixture.scores() == {"a": 0, "b": 100, "c": 50}
    assert fixture.plugin.nodes_without_data(fixture.cluster.snapshot()) == 1


def test_all_nodes_are_equal_before_the_first_data_and_after_the_last_expire() -> None:
    fixture = Fixture({"a": 100, "b": 0}, refreshPeriod="10s")
    assert fixture.scores() == {"a": 100, "b": 100}
    assert fixture.plugin.nodes_without_data(fixture.cluster.snapshot()) == 2
    fixture.refresh()

    fixture.clock.advance(30.0)
    assert fixture.scores() == {"a": 0, "b": 100}
    fixture.clock.advance(1.0)
    assert fixture.scores() == {"a": 100, "b": 100}
    assert fixture.plugin.nodes_without_data(fixture.cluster.snapshot()) == 2


def test_a_failed_refresh_keeps_the_last_data_until_they_are_stale() -> None:
    fixture = refreshed({"a": 100, "b": 0})
    fixture.web.series = None
    fixture.clock.advance(15.0)

    with pytest.raises(OSError, match="nobody is there"):
        fixture.refresh()

    assert fixture.scores() == {"a": 0, "b": 100}


def test_a_burst_spreads_by_the_expected_load_of_its_pods() -> None:
    fixture = refreshed({"a": 300, "b": 0, "c": 150}, trafficPerPod=100)
    chosen = []
    for _ in range(6):
        found = fixture.scores()
        assert found is not None
        chosen.append(max(found, key=lambda name: found[name]))
        fixture.place(chosen[-1])

    assert sorted(chosen) == ["a", "b", "b", "b", "c", "c"]


def test_by_default_a_pod_is_expected_to_add_the_mean_of_running_pods() -> None:
    fixture = refreshed({"a": 300, "b": 100})
    fixture.cluster = cluster(
        node("a"), node("b"), pods=[pod(f"p{n}", node="a" if n % 2 else "b") for n in range(4)]
    )
    assert fixture.scores() == {"a": 0, "b": 67}
    fixture.place("b")

    assert fixture.scores() == {"a": 0, "b": 34}  # 200 of 300


def test_an_undone_choice_does_not_count_and_a_second_undo_is_accepted() -> None:
    fixture = refreshed({"a": 200, "b": 0}, trafficPerPod=100)
    state = fixture.place("b")
    assert fixture.scores() == {"a": 0, "b": 50}

    fixture.plugin.unreserve(state, WEB, "b")
    fixture.plugin.unreserve(state, WEB, "b")
    fixture.plugin.unreserve(CycleState(), WEB, "b")

    assert fixture.scores() == {"a": 0, "b": 100}


def test_one_query_fetches_all_nodes_and_scores_send_none() -> None:
    fixture = Fixture(
        {"a": 1, "b": 2}, ip="prometheus:9090/base/", deviceName='e"th\\0', timeRange=90, instanceLabel="node"
    )
    fixture.web.label = "node"
    fixture.refresh()
    fixture.scores()

    device = '{device="e\\"th\\\\0"}[90s]'
    received, sent = (f"rate(node_network_{way}_bytes_total{device})" for way in ("receive", "transmit"))
    assert fixture.web.asked == [f"sum by (node) ({received} + {sent})"]
    (url, _), *_ = fixture.web.calls
    assert url.startswith("http://prometheus:9090/base/api/v1/query?query=")


def test_the_label_of_the_node_is_configurable() -> None:
    fixture = Fixture({"a": 10, "b": 0}, instanceLabel="node")
    fixture.web.label = "node"
    fixture.refresh()

    assert fixture.scores() == {"a": 0, "b": 100}


def test_every_query_has_the_tls_settings_and_the_token() -> None:
    fixture = refreshed(
        {"a": 1}, ip="https://p", tls={"caFile": "/ca.crt"}, bearerTokenFile="/token", refreshPeriod="4s"
    )

    (_, options), *_ = fixture.web.calls
    assert options == {
        "timeout_seconds": 4.0,
        "ca_file": "/ca.crt",
        "insecure": False,
        "bearer_token_file": "/token",
    }


def test_each_plugin_has_its_own_refresh_period() -> None:
    assert Fixture({}, refreshPeriod="7s").plugin.refresh_seconds == 7.0
    assert Fixture({}).plugin.refresh_seconds == 15.0


@pytest.mark.parametrize(
    ("written", "promql"), [(180, "180s"), ("3m", "180s"), ("1m30s", "90s"), ("1.5s", "1500ms"), (5.0, "5s")]
)
def test_a_time_range_is_seconds_or_a_duration(written: object, promql: str) -> None:
    query = "x[$range]"

    assert args(timeRange=written, query=query).promql == f"x[{promql}]"


def test_other_dollar_signs_stay_in_a_query() -> None:
    query = 'label_replace(x{d="$device"}, "node", "$1", "instance", "(.*)") $instance'

    assert args(query=query, deviceName="$range").promql == (
        'label_replace(x{d="$range"}, "node", "$1", "instance", "(.*)") instance'
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(b"<html>", "not the answer to an instant query", id="no JSON"),
        pytest.param(b'{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}', "not the answer to an instant query", id="a scalar"),
        pytest.param(vector([]), "no series at all for ", id="no series"),
        pytest.param(vector([({"job": "x"}, 1)]), "no number with the label instance", id="no label"),
        pytest.param(vector([({"instance": "a"}, "NaN")]), "no number with the label instance", id="no number"),
    ],
)  # fmt: skip
def test_a_response_without_usable_data_is_a_failure(body: bytes, expected: str) -> None:
    fixture = refreshed({"a": 100, "b": 0})
    fixture.web.body = body

    with pytest.raises(OSError, match=f"^http://localhost:9090: {expected}"):
        fixture.refresh()

    assert fixture.scores() == {"a": 0, "b": 100}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"ip": ""}, "args.ip: must be a URL as in http://10.0.0.1:9090, was ''", id="no URL"),
        pytest.param({"ip": "ftp://x"}, "args.ip: must be a URL as in http://10.0.0.1:9090, was 'ftp://x'", id="another scheme"),
        pytest.param({"ip": "http://me:secret@x"}, "args.ip: must be a URL without a password; use bearerTokenFile", id="a password"),
        pytest.param({"ip": "x:99999"}, "args.ip: must be a URL (Port out of range 0-65535)", id="no port"),
        pytest.param({"ip": "x?a=b"}, "args.ip: must be a URL without ? and #", id="a query"),
        pytest.param({"timeRange": "soon"}, 'args.timeRange: must be a duration as in 15s or 1m30s, was "soon"', id="no time"),
        pytest.param({"timeRange": 0}, "args.timeRange: must be at least 1ms, was 0s", id="no time at all"),
        pytest.param({"deviceName": ""}, "args.deviceName: must not be empty when the query has $device", id="no device"),
        pytest.param({"query": " "}, "args.query: must not be empty", id="no query"),
        pytest.param({"instanceLabel": "a-b"}, "args.instanceLabel: must be the name of a label, was 'a-b'", id="no label"),
        pytest.param({"instanceIs": "Name"}, 'args.instanceIs: must be one of "Any", "InternalIP", "NodeName", was "Name"', id="no kind of instance"),
        pytest.param({"tls": {"insecure": True, "caFile": "x"}}, "args.tls.caFile: must not be given when tls.insecure is true", id="two answers on trust"),
        pytest.param({"refreshPeriod": "500ms"}, "args.refreshPeriod: must be at least 1s, was 500ms", id="too often"),
        pytest.param({"settleTime": "-1s"}, "args.settleTime: must not be negative, was -1s", id="a negative time"),
        pytest.param({"trafficPerPod": -1}, "args.trafficPerPod: must be at least 0, was -1.0", id="negative traffic"),
        pytest.param({"deviceNames": "x"}, "args.deviceNames: ", id="an unknown argument"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_reported_with_their_paths(given: dict[str, Any], expected: str) -> None:
    (fault,) = faults(**given)

    assert fault.startswith(expected)
    assert "secret" not in fault or "password" in fault


@pytest.mark.parametrize(
    ("file", "plugin"), [("network-traffic.yaml", "NetworkTraffic"), ("node-load.yaml", "NodeLoad")]
)
def test_the_shipped_profile_loads_and_scores_with_the_plugin(file: str, plugin: str) -> None:
    from plugins.registry import IN_TREE

    configuration = load(CONFIG / file)
    (profile,) = configuration.settings.profiles
    found, path = find_args(profile, plugin, "profiles[0]")

    decode_args(IN_TREE[plugin].Args, found, plugin=plugin, path=path)
    (enabled,) = [each for each in profile.plugins.multi_point.enabled if each.name == plugin]
    assert enabled.weight == 5


def test_neither_plugin_is_in_the_default_profile() -> None:
    from scheduler.configuration.defaults import enabled_names
    from scheduler.configuration.load import default

    (profile,) = default().settings.profiles
    assert not {"NetworkTraffic", "NodeLoad"} & set(enabled_names(profile.plugins))
