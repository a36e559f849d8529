"""Reserve, Permit, PreBind, Bind and PostBind: the order of plugin calls, and the combination of their results."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.framework import SKIP, Code, CycleState, Status, Wait
from tests.support.builders import pod
from tests.support.scripted_plugins import Bind, Gate, Permit, PostBind, PreBind, Reserve, framework_of

POD = pod("web")
STATE = CycleState()
REFUSED = Status.unschedulable("no")


def test_the_first_rejecting_plugin_gates_a_pod():
    last = Gate("C")
    framework = framework_of(Gate("A"), Gate("B", REFUSED), last)

    assert framework.run_pre_enqueue(POD) == REFUSED.by("B")
    assert not last.calls
    assert framework_of(Gate("A")).run_pre_enqueue(POD).is_success


def test_reserve_stops_at_the_first_rejection_and_unreserve_runs_all_in_reverse():
    log: list[str] = []

    def writes(text: str, answer: Any = None) -> Any:
        return lambda *_: (log.append(text), answer)[1]

    plugins = [
        Reserve(name, reserve=writes(f"reserve {name}", answer), unreserve=writes(f"unreserve {name}"))
        for name, answer in [("A", None), ("B", REFUSED), ("C", None)]
    ]
    framework = framework_of(*plugins)

    assert framework.run_reserve(STATE, POD, "n0") == REFUSED.by("B")
    framework.run_unreserve(STATE, POD, "n0")
    assert log == ["reserve A", "reserve B", "unreserve C", "unreserve B", "unreserve A"]


def test_all_plugins_reserve_without_a_rejection():
    plugins = [Reserve("A"), Reserve("B", Status(Code.SUCCESS))]

    assert framework_of(*plugins).run_reserve(STATE, POD, "n0").is_success
    assert [plugin.called() for plugin in plugins] == [["reserve"], ["reserve"]]


class ReservesQuota(Reserve):
    def quota_usages(self, plugins: Any, pending: Any) -> Any:
        yield from ()


@pytest.mark.parametrize(("of_quotas", "called"), [(None, "AB"), (True, "B"), (False, "A")])
def test_reserve_of_quotas_is_apart(of_quotas: bool | None, called: str):
    plugins = [Reserve("A"), ReservesQuota("B")]
    framework = framework_of(*plugins)

    framework.run_reserve(STATE, POD, "n0", of_quotas=of_quotas)

    assert "".join(plugin.name for plugin in plugins if plugin.called()) == called


@pytest.mark.parametrize(("of_quotas", "called"), [(False, "AB"), (True, "B")])
def test_unreserve_is_called_only_where_reserve_may_have_been(of_quotas: bool, called: str):
    plugins = [Reserve("A"), ReservesQuota("B")]
    framework = framework_of(*plugins)

    framework.run_unreserve(STATE, POD, "n0", of_quotas=of_quotas)

    assert "".join(plugin.name for plugin in plugins if plugin.called()) == called


def test_permit_collects_the_waiting_plugins_and_their_capped_timeouts():
    framework = framework_of(
        Permit("A", Wait(5)),
        Permit("B"),
        Permit("C", Wait(3600)),
        Permit("D", Wait(-1)),
        Permit("E", Wait(1e400)),
    )

    assert framework.run_permit(STATE, POD, "n0") == {"A": 5, "C": 900, "D": 0, "E": 900}


def test_a_rejection_at_permit_ends_it_despite_earlier_waits():
    last = Permit("C", Wait(5))

    assert framework_of(Permit("A", Wait(5)), Permit("B", REFUSED), last).run_permit(
        STATE, POD, "n0"
    ) == REFUSED.by("B")
    assert not last.calls


def test_permit_without_objections_is_a_success():
    answer = framework_of(Permit("A"), Permit("B", Status(Code.SUCCESS))).run_permit(STATE, POD, "n0")

    assert isinstance(answer, Status)
    assert answer.is_success


def test_pre_flight_selects_the_plugins_that_run():
    plugins = [PreBind("A", pre_bind_pre_flight=SKIP), PreBind("B"), PreBind("C", pre_bind_pre_flight=SKIP)]
    framework = framework_of(*plugins)

    busy = framework.run_pre_bind_pre_flights(STATE, POD, "n0")
    assert busy == {"B"}
    assert isinstance(busy, frozenset)
    assert asyncio.run(framework.run_pre_bind(STATE, POD, "n0", busy)).is_success
    assert [plugin.called() for plugin in plugins] == [
        ["pre_bind_pre_flight"],
        ["pre_bind_pre_flight", "pre_bind"],
        ["pre_bind_pre_flight"],
    ]


def test_pre_bind_stops_at_the_first_failure():
    last = PreBind("C")
    framework = framework_of(PreBind("A"), PreBind("B", REFUSED), last)

    status = asyncio.run(framework.run_pre_bind(STATE, POD, "n0", {"A", "B", "C"}))

    assert status == REFUSED.by("B")
    assert not last.calls


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        pytest.param([SKIP, None], Status(Code.SUCCESS), id="the second takes it"),
        pytest.param([SKIP, REFUSED], REFUSED.by("1"), id="the second refuses it"),
        pytest.param([None, KeyError("asked")], Status(Code.SUCCESS), id="the first takes it"),
        pytest.param(
            [SKIP, SKIP], Status(Code.ERROR, ("no Bind plugin handled the pod",)), id="none takes it"
        ),
        pytest.param([], Status(Code.ERROR, ("no Bind plugin handled the pod",)), id="there is none"),
    ],
)
def test_the_first_bind_plugin_that_does_not_skip_decides(answers: list[Any], status: Status):
    framework = framework_of(*(Bind(str(number), answer) for number, answer in enumerate(answers)))

    assert asyncio.run(framework.run_bind(STATE, POD, "n0")) == status


def test_all_post_bind_plugins_are_called():
    plugins = [PostBind("A"), PostBind("B")]
    asyncio.run(framework_of(*plugins).run_post_bind(STATE, POD, "n0"))

    assert [plugin.calls for plugin in plugins] == [[("post_bind", (STATE, POD, "n0"))]] * 2


def test_events_are_those_of_plugins_that_can_reject():
    framework = framework_of(Gate("A"), Bind("B"), Reserve("C"), Permit("D"), PostBind("E"))

    assert framework.events.keys() == {"A", "C", "D"}
