from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.configuration.load import default, load, parse
from scheduler.configuration.profile_plugins import expand
from scheduler.configuration.types import API_VERSION, KIND
from scheduler.configuration.write import to_yaml
from scheduler.configuration.yaml_text import read, write
from scheduler.errors import ConfigurationError
from scheduler.framework.interface import ExtensionPoint
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.offline import OfflineScheduler
from tests.unit.configuration.documents import HEAD, outcome, parsed
from tests.unit.configuration.plugin_points import POINTS

CONFIG = Path(__file__).parents[3] / "config"
FILES = sorted(CONFIG.glob("*.yaml"))

EVERYTHING = """
parallelism: 4
leaderElection: {leaderElect: false, leaseDuration: 1m, resourceName: other}
clientConnection: {kubeconfig: ~, qps: 50, burst: 100}
enableProfiling: false
percentageOfNodesToScore: 0
podInitialBackoffSeconds: 2
profiles:
- schedulerName: default-scheduler
  percentageOfNodesToScore: 60
  plugins:
    multiPoint:
      enabled: [{name: NodeAffinity}, {name: gpu.py, weight: 3}]
      disabled: [{name: ImageLocality}]
    filter: {disabled: [{name: NodePorts}]}
    score: {disabled: [{name: "*"}], enabled: [{name: NodeResourcesFit, weight: 5}]}
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: RequestedToCapacityRatio
        resources: [{name: nvidia.com/gpu}]
        requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}
  - name: gpu.py
    args: {"1e3": "yes", "multi line": "a\\nb\\n", none: null, deep: [[1.5], {}]}
- schedulerName: second
extenders:
- urlPrefix: http://gpu:8888/
  prioritizeVerb: score
  weight: 2
  httpTimeout: 100ms
  tlsConfig: {certData: Y2VydA==, keyData: a2V5}
  managedResources: [{name: example.com/gpu}]
delayCacheUntilActive: true
"""


@pytest.mark.parametrize("body", ["", EVERYTHING], ids=["the defaults", "everything"])
def test_a_written_configuration_loads_unchanged(body: str) -> None:
    configuration = parsed(body)
    written = to_yaml(configuration)
    assert parse(written) == configuration
    assert to_yaml(parse(written)) == written


def test_the_effective_configuration_is_written() -> None:
    written = read(to_yaml(parsed(EVERYTHING))).value
    assert written["apiVersion"] == API_VERSION
    assert written["kind"] == KIND
    assert written["leaderElection"]["leaseDuration"] == "1m0s"
    assert written["leaderElection"]["renewDeadline"] == "10s"
    assert written["podMaxBackoffSeconds"] == 10
    profile = written["profiles"][0]
    assert profile["plugins"]["multiPoint"]["enabled"][5] == {"name": "NodeAffinity"}
    assert profile["plugins"]["filter"] == {"disabled": [{"name": "NodePorts"}]}
    assert "preFilter" not in profile["plugins"]
    strategy = profile["pluginConfig"][0]["args"]["scoringStrategy"]
    assert strategy["resources"] == [{"name": "nvidia.com/gpu", "weight": 1}]
    assert written["extenders"][0]["tlsConfig"]["keyData"] == "a2V5"


def test_the_shipped_default_file_contains_exactly_the_defaults() -> None:
    shipped = read((CONFIG / "default.yaml").read_text()).value
    # Written again, so that the order of the fields counts too.
    assert write(shipped) == to_yaml(default())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_shipped_file_loads_without_a_note_and_runs(path: Path) -> None:
    configuration = load(path)
    assert configuration.notes == ()
    assert OfflineScheduler(ClusterFile(), configuration, refresh=False).frameworks


def test_bin_packing_scores_the_fullest_node_best() -> None:
    (profile,) = load(CONFIG / "bin-packing.yaml").settings.profiles
    weights = dict(expand(profile, POINTS)[ExtensionPoint.SCORE])
    assert weights["NodeResourcesFit"] > max(
        weight for name, weight in weights.items() if name != "NodeResourcesFit"
    )
    args = {config.name: config.args for config in profile.plugin_config}
    assert args["NodeResourcesFit"]["scoringStrategy"]["type"] == "MostAllocated"


_PLUGIN_NAMES = st.sampled_from(["NodeName", "NodeAffinity", "PodTopologySpread", "gpu.py:Gpu", "./é.py"])
_ENABLED = st.lists(
    st.fixed_dictionaries({"name": _PLUGIN_NAMES}, optional={"weight": st.integers(0, 2**31 - 1)}),
    unique_by=lambda plugin: plugin["name"],
)
_DISABLED = st.lists(
    st.fixed_dictionaries({"name": _PLUGIN_NAMES | st.just("*")}), unique_by=lambda plugin: plugin["name"]
)
_VALID_SET = st.fixed_dictionaries({}, optional={"enabled": _ENABLED, "disabled": _DISABLED})
_VALID_PROFILE = st.fixed_dictionaries(
    {"schedulerName": st.sampled_from(["a", "b", "default-scheduler"])},
    optional={
        "percentageOfNodesToScore": st.integers(0, 100),
        "plugins": st.fixed_dictionaries({}, optional={"multiPoint": _VALID_SET, "score": _VALID_SET}),
        "pluginConfig": st.lists(
            st.fixed_dictionaries(
                {"name": _PLUGIN_NAMES},
                optional={
                    "args": st.dictionaries(st.sampled_from(["x", "1e3", ""]), st.floats(-1, 1) | st.none())
                },
            ),
            unique_by=lambda config: config["name"],
        ),
    },
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "enableProfiling": st.booleans(),
            "clientConnection": st.fixed_dictionaries(
                {}, optional={"qps": st.floats(-1, 1e6), "burst": st.integers(0, 9)}
            ),
            "leaderElection": st.fixed_dictionaries(
                {}, optional={"retryPeriod": st.sampled_from(["0s", "1500ms"])}
            ),
            "profiles": st.lists(_VALID_PROFILE, unique_by=lambda profile: profile["schedulerName"]),
        },
    )
)
def test_every_valid_configuration_loads_and_is_written_back(fields: dict[str, Any]) -> None:
    configuration = parse(write({"apiVersion": API_VERSION, "kind": KIND, **fields}))
    assert parse(to_yaml(configuration)) == configuration


# Values of all types, in the fields of a configuration and elsewhere.
_NAMES = st.sampled_from(
    ["", "a", "*", "NodeName", "1s", "0s", "http://a", "leases", "example.com/a", "EBSLimits", "\x00", "é"]
)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 101),
    st.sampled_from([2**31, 2**63, -(2**63), 0.5, 1e30]),
    _NAMES,
)
_KEYS = st.sampled_from(["name", "weight", "enabled", "disabled", "args", "score", "kind", "x", "a.b", ""])
_ODD = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=5,
)


def _some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Generate any of the fields, each valid or invalid; sometimes an invalid mapping."""
    return st.fixed_dictionaries({}, optional={name: value | _ODD for name, value in fields.items()}) | _ODD


_PLUGINS = st.lists(_some(name=_NAMES, weight=st.integers(-1, 3)), max_size=3)
_PLUGIN_SET = _some(enabled=_PLUGINS, disabled=_PLUGINS)
_PROFILE = _some(
    schedulerName=_NAMES,
    percentageOfNodesToScore=st.integers(0, 100),
    plugins=_some(multiPoint=_PLUGIN_SET, score=_PLUGIN_SET, queueSort=_PLUGIN_SET),
    pluginConfig=st.lists(
        _some(
            name=st.sampled_from(
                ["NodeResourcesFit", "PodTopologySpread", "NodeResourcesBalancedAllocation", "Gpu"]
            ),
            args=_some(scoringStrategy=_ODD, resources=_ODD, defaultingType=_ODD, kind=_ODD),
        ),
        max_size=2,
    ),
)
_EXTENDER = _some(
    urlPrefix=_NAMES,
    weight=st.integers(),
    tlsConfig=_some(certData=_NAMES, insecure=st.booleans(), caFile=_NAMES),
    httpTimeout=_NAMES,
    managedResources=st.lists(_some(name=_NAMES), max_size=2),
)
_CONFIGURATION = _some(
    parallelism=st.integers(),
    leaderElection=_some(
        leaseDuration=_NAMES, retryPeriod=_NAMES, resourceLock=_NAMES, leaderElect=st.booleans()
    ),
    clientConnection=_some(qps=_ODD, burst=_ODD, contentType=_NAMES),
    podInitialBackoffSeconds=st.integers(),
    podMaxBackoffSeconds=st.integers(),
    profiles=st.lists(_PROFILE, max_size=2),
    extenders=st.lists(_EXTENDER, max_size=2),
)


@given(_CONFIGURATION)
def test_any_values_load_and_are_written_back_or_are_refused_with_reasons(value: Any) -> None:
    fields = value if isinstance(value, dict) else {"profiles": value}
    result = outcome(write({"apiVersion": API_VERSION, "kind": KIND, **fields}))
    if isinstance(result, ConfigurationError):
        assert result.errors
    else:
        assert parse(to_yaml(result)) == result


@given(st.text(alphabet="ab:-[]{}&*!|>'\"%@#?,\n\t \\~<=.019\0é\ufeff\u2028", max_size=40))
def test_any_text_loads_or_is_refused_with_reasons(text: str) -> None:
    for whole in (text, HEAD + text):
        result = outcome(whole)
        assert result.errors if isinstance(result, ConfigurationError) else result == default()
