"""Building the profiles of a configuration: the plugins, their arguments, and all errors at once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from plugins.default_binder import DefaultBinder
from plugins.registry import IN_TREE
from scheduler.configuration.load import parse
from scheduler.engine.runtime.registry import Registry
from scheduler.errors import ConfigurationError, FieldError
from scheduler.framework import EVERYTHING, EventWithHint, FilterPlugin, PluginArgs, ScorePlugin, Status
from scheduler.framework.capabilities import HttpGet, PodBinder, Sleep
from scheduler.framework.interface import ExtensionPoint
from tests.support.offline_capabilities import OFFLINE, frameworks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from scheduler.engine.runtime.framework import Framework
    from scheduler.framework import Plugin, PodEvents


class FakeBinder:
    async def bind(self, pod: Any, node_name: str) -> None: ...


BINDER = FakeBinder()
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def built(
    profiles: str,
    *,
    plugins: Iterable[type[Plugin]] = (),
    capabilities: Mapping[type, object] | None = None,
    folder: Path | None = None,
) -> dict[str, Framework]:
    registry = Registry({**IN_TREE, **{plugin.__name__: plugin for plugin in plugins}})
    given = {**OFFLINE, PodBinder: BINDER, **(capabilities or {})}
    return frameworks(parse(HEAD + profiles, "my.yaml", folder), registry, given)


def enabling(*names: str, config: str = "") -> str:
    plugins = "".join(f"\n      - name: {name}" for name in names)
    return f"profiles:\n- plugins:\n    multiPoint:\n      enabled:{plugins}\n{config}"


def faults(profiles: str, *plugins: type[Plugin], **more: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        built(profiles, plugins=plugins, **more)
    assert refused.value.source == "my.yaml"
    return [str(error) for error in refused.value.errors]


def only(frameworks: Mapping[str, Framework], name: str) -> Any:
    [framework] = frameworks.values()
    return next(plugin for plugin in framework.plugins.all() if plugin.name == name)


class Licences(FilterPlugin, ScorePlugin):
    name = "LicenceAware"
    api_version = 1

    class Args(PluginArgs, frozen=True, kw_only=True):
        server_name: str = "none"
        seats: int = 0

        def faults(self) -> Iterable[FieldError]:
            if self.seats < 0:
                yield FieldError("seats", f"must not be negative, was {self.seats}")

    def __init__(self, *, args: Args, sleep: Sleep, patience: int = 3) -> None:
        self.args, self.sleep, self.patience = args, sleep, patience

    def filter_node(self, state: Any, pod: Any, node: Any) -> Status | None:
        return None

    def score_node(self, state: Any, pod: Any, node: Any) -> int:
        return 0


class Bare(FilterPlugin):
    name = "Bare"
    api_version = 1

    def filter_node(self, state: Any, pod: Any, node: Any) -> Status | None:
        return None


class FakeSleep:
    async def sleep(self, seconds: float) -> None: ...


SLEEP = {Sleep: FakeSleep()}


def test_the_default_profile_runs_the_available_plugins_in_the_order_of_upstream():
    [framework] = built("").values()

    at_filter = [plugin.name for plugin in framework.plugins.at[ExtensionPoint.FILTER]]
    assert framework.profile == "custom-scheduler"
    assert at_filter[:5] == ["NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts"]
    assert framework.plugins.weights["TaintToleration"] == 3
    assert only({"": framework}, "DefaultBinder")._binder is BINDER


def test_missing_upstream_plugins_are_left_out_with_one_warning(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        registry = Registry({name: IN_TREE[name] for name in ("PrioritySort", "DefaultBinder")})
        two = parse(f"{HEAD}profiles:\n- schedulerName: a\n- schedulerName: b\n")
        built = frameworks(two, registry)

    [record] = caplog.records
    assert record.getMessage() == "Plugins of kube-scheduler that this scheduler does not have are left out"
    assert "NodeResourcesFit" in vars(record)["plugins"]
    assert [len(framework.plugins.all()) for framework in built.values()] == [2, 2]


def test_a_plugin_is_one_instance_at_all_its_points_and_another_in_each_profile():
    profiles = "profiles:" + "".join(
        f"""
- schedulerName: {name}
  plugins: {{multiPoint: {{enabled: [{{name: Licences}}]}}}}
"""
        for name in ("a", "b")
    )
    a, b = built(profiles, plugins=[Licences], capabilities=SLEEP).values()

    in_a, in_b = (
        {id(p) for at in (each.plugins.at.values()) for p in at if p.name == "LicenceAware"}
        for each in (a, b)
    )
    assert len(in_a) == len(in_b) == 1
    assert in_a != in_b


@pytest.mark.parametrize("name", ["Licences", "LicenceAware"], ids=["by reference", "by its own name"])
def test_arguments_are_found_by_the_reference_or_by_the_name_of_the_plugin(name: str):
    config = f"  pluginConfig:\n  - name: {name}\n    args: {{serverName: lic1, seats: 7}}\n"
    plugin = only(
        built(enabling("Licences", config=config), plugins=[Licences], capabilities=SLEEP), "LicenceAware"
    )

    assert (plugin.args.server_name, plugin.args.seats) == ("lic1", 7)
    assert plugin.sleep is SLEEP[Sleep]
    assert plugin.patience == 3


def test_weights_are_found_by_the_name_of_the_plugin():
    score = "profiles:\n- plugins:\n    score:\n      enabled:\n      - {name: Licences, weight: 5}\n"
    [framework] = built(score, plugins=[Licences], capabilities=SLEEP).values()

    assert framework.plugins.weights["LicenceAware"] == 5
    assert "LicenceAware" not in [p.name for p in framework.plugins.at[ExtensionPoint.FILTER]]


def test_a_plugin_file_is_found_relative_to_the_configuration(tmp_path: Path):
    (tmp_path / "mine.py").write_text(
        """
from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.framework import FilterPlugin

if TYPE_CHECKING:
    from scheduler.framework import PodBinder


class Mine(FilterPlugin):
    name = "Mine"
    api_version = 1

    def __init__(self, *, binder: PodBinder) -> None:
        self.binder = binder

    def filter_node(self, state, pod, node):
        return None
"""
    )

    assert only(built(enabling("mine.py"), folder=tmp_path), "Mine").binder is BINDER


class Positional(Bare):
    name = "Positional"
    api_version = 1

    def __init__(self, binder: PodBinder) -> None: ...


class HastyRefresh(Bare):
    name = "HastyRefresh"
    api_version = 1

    def __init__(self) -> None:
        self.refresh_seconds = 0


class WantsWeb(Bare):
    name = "WantsWeb"
    api_version = 1

    def __init__(self, *, web: HttpGet, events: PodEvents) -> None: ...


def bare(name: str, **members: Any) -> type[Plugin]:
    return type(name, (Bare,), {"name": name, "api_version": 1, **members})


def raising(error: BaseException) -> Callable[..., None]:
    def fail(_: object) -> None:
        raise error

    return fail


class BareAgain(Bare): ...


class RaisingArgs(Bare):
    name = "RaisingArgs"
    api_version = 1

    class Args(PluginArgs, frozen=True, kw_only=True):
        def faults(self) -> Iterable[FieldError]:
            raise ArithmeticError("who knows")


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        pytest.param([Positional], "profiles[0].plugins: plugin Positional: Positional is not a valid plugin:", id="not whole"),
        pytest.param([HastyRefresh], "plugin HastyRefresh: refresh_seconds: a positive number of seconds or None is expected, was 0", id="refresh_seconds from a constructor"),
        pytest.param([WantsWeb], "plugin WantsWeb: needs HttpGet, which is not available here", id="a capability that is not there"),
        pytest.param([bare("Stillborn", __init__=raising(OSError("no licence server")))], "profiles[0].plugins: plugin Stillborn: cannot be built: OSError: no licence server", id="constructor raises"),
        pytest.param([bare("RaisingEvents", events=raising(RuntimeError("not now")))], "plugin RaisingEvents: events: RuntimeError: not now", id="events raises"),
        pytest.param([bare("ExitingEvents", events=raising(SystemExit(0)))], "plugin ExitingEvents: events: SystemExit: 0", id="events exits"),
        pytest.param([bare("OddEvents", events=lambda _: ["NodeAdd"])], "plugin OddEvents: events: EventWithHint of a ClusterEvent is expected, was 'NodeAdd'", id="events of text"),
        pytest.param([bare("OddEvent", events=lambda _: [EventWithHint("NodeAdd")])], "plugin OddEvent: events: EventWithHint of a ClusterEvent is expected", id="a hint for text"),
        pytest.param([bare("NoEvents", events=lambda _: None)], "plugin NoEvents: events: TypeError", id="no events"),
        pytest.param([bare("TextVersion", version=lambda _: "today")], "plugin TextVersion: version: a whole number is expected, was 'today'", id="version of text"),
        pytest.param([bare("TrueVersion", version=lambda _: True)], "plugin TrueVersion: version: a whole number is expected, was True", id="version of a truth value"),
        pytest.param([bare("EarlyVersion", version=raising(AttributeError("no data yet")))], "plugin EarlyVersion: version: AttributeError: no data yet", id="version raises"),
        pytest.param([Bare, BareAgain], "profiles[0].plugins: Bare and BareAgain are both called 'Bare'", id="two of one name"),
        pytest.param([RaisingArgs], "plugin RaisingArgs: Args: ArithmeticError: who knows", id="arguments whose validation raises"),
    ],
)  # fmt: skip
def test_a_plugin_that_cannot_be_built_is_reported_with_its_path(plugins: list[type[Plugin]], expected: str):
    # A plugin is validated when it is loaded, so an invalid one is loaded from a module.
    references = [
        f"{plugin.__module__}:{plugin.__name__}" if plugin is Positional else plugin.__name__
        for plugin in plugins
    ]

    [fault] = faults(enabling(*references), *plugins)

    assert expected.removeprefix("profiles[0].plugins: plugin Positional: ") in fault
    assert fault.startswith("profiles[0].")


def test_all_errors_of_names_files_and_arguments_come_at_once(tmp_path: Path):
    (tmp_path / "broken.py").write_text("raise RuntimeError('no')")
    config = """
  pluginConfig:
  - name: Licences
    args: {seats: -1}
  - name: NodeAffinity
    args: {addedAfinity: {}}
"""
    found = faults(
        enabling("broken.py", "nowhere.py", "NodeResourceFit", "Licences", config=config),
        Licences,
        folder=tmp_path,
    )

    assert [fault.partition(": ")[0] for fault in found] == [
        "profiles[0].pluginConfig[1].args.addedAfinity",
        "profiles[0].plugins",
        "profiles[0].plugins",
        "profiles[0].plugins",
        "profiles[0].pluginConfig[0].args.seats",
    ]
    assert "did you mean 'NodeResourcesFit'?" in found[3]


def test_errors_of_all_profiles_come_at_once():
    profiles = "profiles:\n" + "".join(
        f"- schedulerName: {name}\n  plugins: {{filter: {{enabled: [{{name: Stillborn}}]}}}}\n"
        for name in ("a", "b")
    )

    found = faults(profiles, bare("Stillborn", __init__=raising(OSError())))

    assert [fault.partition(":")[0] for fault in found] == ["profiles[0].plugins", "profiles[1].plugins"]


def test_a_plugin_at_an_unimplemented_point_is_an_error_of_the_file():
    profiles = "profiles:\n- plugins: {score: {enabled: [{name: Bare}]}}\n"

    assert faults(profiles, Bare) == ['profiles[0].plugins.score: the plugin "Bare" does not implement Score']


def test_events_are_requested_from_every_plugin_that_can_reject_a_pod():
    [framework] = built(enabling("Bare"), plugins=[Bare]).values()

    assert framework.events["Bare"] == EVERYTHING
    assert "DefaultBinder" not in framework.events
    assert DefaultBinder.name in {plugin.name for plugin in framework.plugins.all()}
