"""An invalid plugin class is rejected with all its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler.engine.runtime.plugin_classes import CAPABILITIES, check_plugin, constructor_wants
from scheduler.errors import PluginLoadError
from scheduler.framework import (
    BindPlugin,
    FilterPlugin,
    Needs,
    PermitPlugin,
    Plugin,
    PluginArgs,
    PostFilterPlugin,
    PreFilterPlugin,
    ReservePlugin,
    ScorePlugin,
    Status,
)
from scheduler.framework.capabilities import HttpGet, PodBinder

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.framework import Sleep


class Whole(FilterPlugin):
    name = "Whole"
    api_version = 1

    def filter_node(self, state: Any, pod: Any, node: Any) -> Status | None:
        return None


def filter_plugin(**members: Any) -> type[Plugin]:
    """A filter plugin that is valid except for the given members."""
    return type("Mine", (Whole,), {"name": "Mine", **members})


def wants(constructor: Callable[..., None]) -> type[Plugin]:
    return filter_plugin(__init__=constructor)


def faults_of(candidate: type) -> list[str]:
    with pytest.raises(PluginLoadError) as refused:
        check_plugin(candidate, "mine.py")
    head, *faults = refused.value.problem.split("\n  ")
    assert refused.value.where == "mine.py"
    assert head == f"{candidate.__name__} is not a valid plugin:"
    return faults


def test_a_complete_plugin_is_accepted():
    assert check_plugin(Whole, "mine.py") is Whole


@pytest.mark.parametrize(
    "candidate",
    [print, Whole(), int, None, "Whole"],
    ids=["a function", "an instance", "another class", "nothing", "a name"],
)
def test_a_value_that_is_no_plugin_class_is_refused(candidate: object):
    with pytest.raises(PluginLoadError, match=r"is not a subclass of scheduler.framework.Plugin"):
        check_plugin(candidate, "mine.py")


async def _async_filter_node(self: Any, state: Any, pod: Any, node: Any) -> None: ...
def _short_filter_node(self: Any, pod: Any, node: Any) -> None: ...
def _keyword_filter_node(self: Any, state: Any, pod: Any, *, node: Any) -> None: ...
def _plain_refresh(self: Any) -> None: ...
def _plain_version() -> int: ...  # type: ignore[empty-body]
def _positional(self: Any, binder: PodBinder) -> None: ...
def _unknown(self: Any, *, clock: int) -> None: ...
def _anything(self: Any, **wishes: Any) -> None: ...
def _unresolved(self: Any, *, binder: Nowhere) -> None: ...  # noqa: F821
def _broken(self: Any, *, binder: PodBinder.missing) -> None: ...


@pytest.mark.parametrize(
    ("candidate", "fault"),
    [
        pytest.param(filter_plugin(name=""), 'name: a string such as "LicenceAware" is expected, write name = "Mine" in the class', id="no name"),
        pytest.param(filter_plugin(name=7), "name: a string such as", id="a name that is no text"),
        pytest.param(
            filter_plugin(api_version=2),
            "api_version: this scheduler has 1, the plugin uses 2",
            id="written for another version",
        ),
        pytest.param(filter_plugin(api_version=0), "api_version: set the version of the contract that the plugin uses: api_version = 1", id="no version"),
        pytest.param(filter_plugin(Args=dict), "Args: a subclass of scheduler.framework.PluginArgs", id="foreign Args"),
        pytest.param(filter_plugin(Args=PluginArgs()), "Args: a subclass of", id="Args that are no class"),
        pytest.param(filter_plugin(reads_pods="no"), "reads_pods: True or False is expected, was 'no'", id="reads_pods"),
        pytest.param(filter_plugin(reads_only_nodes=1), "reads_only_nodes: True or False is expected, was 1", id="reads_only_nodes"),
        pytest.param(filter_plugin(reads_only_nodes=True), "reads_only_nodes: such a plugin reads no pods, add reads_pods = False", id="reads_only_nodes and reads_pods"),
        pytest.param(filter_plugin(checks_free_capacity="yes"), "checks_free_capacity: True or False is expected, was 'yes'", id="checks_free_capacity"),
        pytest.param(filter_plugin(needs={"v1/services"}), "needs: scheduler.framework.Needs is expected", id="needs"),
        pytest.param(filter_plugin(needs=Needs(kinds={"configmaps"})), "needs: a kind is version/plural or group/version/plural, was 'configmaps'", id="a kind without a version"),
        pytest.param(filter_plugin(needs=Needs(kinds={"apps/deployments"})), "needs: a kind is version/plural or", id="a group without a version"),
        pytest.param(filter_plugin(needs=Needs(rights={"get"})), "needs: a right is a verb, a space and a kind with an optional /subresource, was 'get'", id="a verb alone"),
        pytest.param(filter_plugin(reason_codes=["NoSeat"]), "reason_codes: a mapping from codes to their meanings is expected, was ['NoSeat']", id="reason codes without meanings"),
        pytest.param(filter_plugin(reason_codes={"no seat": "x"}), "reason_codes: a code is in CamelCase and has at most 63 characters, was 'no seat'", id="a malformed reason code"),
        pytest.param(filter_plugin(reason_codes={"NoSeat": ""}), "reason_codes: the meaning of NoSeat is a text, was ''", id="a reason code without a meaning"),
        pytest.param(filter_plugin(refresh_seconds="5"), "refresh_seconds: a positive number", id="refresh_seconds of text"),
        pytest.param(filter_plugin(refresh_seconds=0), "refresh_seconds: a positive number", id="no refresh_seconds"),
        pytest.param(filter_plugin(filter_node=_async_filter_node), "filter_node: a plain def is expected", id="async in the cycle"),
        pytest.param(filter_plugin(signature=type), "signature: a method is expected, was <class 'type'>", id="a signature that is no method"),
        pytest.param(filter_plugin(refresh=_plain_refresh), "refresh: async def is expected", id="def where async is due"),
        pytest.param(
            filter_plugin(filter_node=_short_filter_node),
            "filter_node: takes (self: 'Any', pod: 'Any', node: 'Any') -> 'None', is called with (self, state, pod, node)",
            id="too few arguments",
        ),
        pytest.param(filter_plugin(filter_node=_keyword_filter_node), "filter_node: takes", id="a keyword-only argument"),
        pytest.param(filter_plugin(why=()), "why: a method is expected, was ()", id="why that is no method"),
        pytest.param(filter_plugin(events=()), "events: a method is expected, was ()", id="a method that is none"),
        pytest.param(filter_plugin(why_nodes=_short_filter_node), "why_nodes: takes (self: 'Any', pod: 'Any', node: 'Any') -> 'None', is called with (self, pod, snapshot, rows)", id="why_nodes"),
        pytest.param(filter_plugin(quota_usages=()), "quota_usages: a method is expected, was ()", id="quota_usages"),
        pytest.param(filter_plugin(version=_plain_version), "version: takes () -> 'int', is called with (self)", id="version without self"),
        pytest.param(filter_plugin(signatures=_plain_refresh), "signatures: the contract has no such member; did you mean signature?", id="a misspelled function"),
        pytest.param(filter_plugin(read_pods=False), "read_pods: the contract has no such member; did you mean reads_pods?", id="a misspelled attribute"),
        pytest.param(filter_plugin(args=PluginArgs), "args: the contract has no such member; did you mean Args?", id="another case"),
        pytest.param(wants(_positional), "__init__: binder: arguments are keyword-only, put a * before it", id="positional"),
        pytest.param(wants(_unknown), "__init__: clock: annotate it with one of the capabilities ApiGet, ApiWrite, AssumedPods, Background, Clock", id="no capability"),
        pytest.param(wants(_anything), "__init__: **wishes: 'Any': name each argument", id="any keyword"),
        pytest.param(wants(_unresolved), "__init__: an annotation cannot be resolved: name 'Nowhere'", id="unknown name"),
        pytest.param(wants(_broken), "__init__: an annotation cannot be resolved: ", id="unknown attribute"),
    ],
)  # fmt: skip
def test_each_error_has_its_line(candidate: type[Plugin], fault: str):
    faults = faults_of(candidate)

    assert len(faults) == 1
    assert faults[0].startswith(fault)


def test_members_of_a_plugins_own_are_accepted():
    own = filter_plugin(events_of_nodes=(), versioned=True, _signatures=(), score_nodes=_plain_refresh)

    assert check_plugin(own, "mine.py") is own


def test_a_misspelled_function_of_an_extension_point_is_named():
    class Near(Whole, PreFilterPlugin, PostFilterPlugin):
        name = "Near"

        def pre_filter(self, state: Any, pod: Any, snapshot: Any) -> None: ...
        def post_filter(self, state: Any, pod: Any, snapshot: Any, diagnosis: Any) -> Any: ...
        def add_pod(self, state: Any, pod: Any, added: Any, snapshot: Any) -> None: ...
        def remedy(self, pod: Any) -> None: ...

    assert faults_of(Near) == [
        "remedy: takes (self, pod: 'Any') -> 'None', is called with (self, state, pod, snapshot, diagnosis)",
        "add_pod: the contract has no such member; did you mean add_pods?",
    ]


class NoFilter(FilterPlugin):
    name = "Mine"


class NoScore(ScorePlugin):
    name = "Mine"


class NoPoint(Plugin):
    name = "Mine"


class HalfReserve(ReservePlugin):
    name = "Mine"

    def reserve(self, state: Any, pod: Any, node_name: Any) -> None: ...


class PlainBind(BindPlugin):
    name = "Mine"

    def bind(self, state: Any, pod: Any, node_name: Any) -> None: ...  # type: ignore[override]


@pytest.mark.parametrize(
    ("candidate", "fault"),
    [
        pytest.param(NoFilter, "a FilterPlugin overrides filter or filter_node", id="filter"),
        pytest.param(NoScore, "a ScorePlugin overrides score or score_node", id="score"),
        pytest.param(
            NoPoint, "the plugin implements no extension point; inherit FilterPlugin,", id="none at all"
        ),
        pytest.param(HalfReserve, "unreserve: not implemented", id="abstract"),
        pytest.param(PlainBind, "bind: async def is expected", id="bind without async"),
    ],
)
def test_a_point_without_its_method_has_its_line(candidate: type[Plugin], fault: str):
    assert any(found.startswith(fault) for found in faults_of(candidate))


def test_all_errors_come_at_once_in_a_constant_order():
    class Mine(ReservePlugin, PreFilterPlugin, BindPlugin, FilterPlugin, PermitPlugin):
        api_version = 9
        refresh_seconds = -1

        def __init__(self, clock: int) -> None: ...

        def permit(self) -> None: ...  # type: ignore[override]
        def bind(self) -> None: ...  # type: ignore[override]
        def reserve(self) -> None: ...  # type: ignore[override]
        def filter(self, pod: Any) -> None: ...  # type: ignore[override]

        async def signature(self, pod: Any) -> None: ...  # type: ignore[override]

    names = [fault.partition(":")[0] for fault in faults_of(Mine)]

    assert names == [
        "name",
        "api_version",
        "refresh_seconds",
        "pre_filter",
        "unreserve",
        "filter",
        "reserve",
        "permit",
        "bind",
        "signature",
        "__init__",
    ]


def test_arguments_may_have_other_names_and_extra_defaults():
    class Mine(FilterPlugin):
        name = "Mine"
        api_version = 1

        def filter_node(self, _state: Any, p: Any, n: Any, extra: int = 0) -> None: ...  # type: ignore[override]

        @staticmethod
        def signature(pod: Any) -> str:  # type: ignore[override]
            return str(pod.namespace)

        @classmethod
        def version(cls) -> int:
            return 1

    assert check_plugin(Mine, "mine.py") is Mine


def test_constructor_annotations_may_use_imports_for_types_only():
    def constructor(
        self: Any, *, args: PluginArgs, binder: PodBinder, sleep: Sleep, depth: int = 3
    ) -> None: ...

    assert constructor_wants(wants(constructor)) == {
        "args": None,
        "binder": PodBinder,
        "sleep": CAPABILITIES["Sleep"],
    }


def test_a_plugin_without_a_constructor_needs_no_capability():
    assert constructor_wants(Whole) == {}


def test_every_protocol_of_the_contract_is_a_capability():
    assert {
        "PodBinder",
        "Sleep",
        "KeyedLock",
        "TimeSlice",
        "WaitForEvent",
        "ApiGet",
        "ApiWrite",
        "AssumedPods",
        "Background",
        "PluginMetrics",
        "Clock",
        "ClusterObjects",
        "HttpGet",
        "SlicedWork",
        "StatusWrite",
        "NominatedPods",
        "PodEvents",
        "PodActivator",
        "PodGroupMembers",
        "PodGroupObjects",
        "QueuedPods",
        "WaitingPods",
        "PreemptionDryRun",
        "Preemptions",
        "VictimReview",
        "Features",
    } == set(CAPABILITIES)
    assert CAPABILITIES["HttpGet"] is HttpGet


def test_a_method_with_a_similar_name_is_named_beside_the_missing_one():
    class Near(FilterPlugin):
        name = "Near"

        def filter_nodes(self, state: Any, pod: Any, node: Any) -> None: ...

    assert (
        "a FilterPlugin overrides filter or filter_node; it has filter_nodes, which is not called: did you mean filter_node?"
        in faults_of(Near)
    )
