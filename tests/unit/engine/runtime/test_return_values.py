"""Exceptions and invalid return values of plugins, at all points, become an ERROR that names plugin and point."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from scheduler.engine.cycle.scheduling import run_now
from scheduler.engine.runtime.budget import PluginEndError
from scheduler.engine.runtime.calls import PluginError
from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.framework import (
    SKIP,
    SUCCESS,
    Code,
    Diagnosis,
    Outcome,
    Outcomes,
    PostFilterResult,
    PreFilterResult,
    QueuedPodInfo,
    Status,
    Wait,
)
from scheduler.framework.diagnosis import PASS
from tests.support import scripted_plugins as puppets
from tests.support.builders import pod
from tests.support.scripted_plugins import Puppet, framework_of
from tests.support.snapshots import snapshot_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.engine.runtime.framework import Framework

    Run = Callable[[Framework], Any]

SNAPSHOT = snapshot_of("n0", "n1")
POD = pod("web")
STATE = AttemptState()
REFUSED = Status.unschedulable("no")


def filtering(framework: Framework) -> Status:
    try:
        framework.filtering.find_feasible(
            AttemptState(), POD, SNAPSHOT, Diagnosis.blank(2), rows=SNAPSHOT.all_rows, nominated={}
        )
    except PluginError as error:
        return error.status
    return SUCCESS


def scoring(framework: Framework) -> Status:
    try:
        framework.scoring.run(AttemptState(), POD, SNAPSHOT, SNAPSHOT.all_rows)
    except PluginError as error:
        return error.status
    return SUCCESS


def pre_scoring(framework: Framework) -> Status:
    scorer = puppets.Score(answer=np.zeros(2, dtype=np.int64))
    return scoring(framework_of(*framework.plugins.all(), scorer))


def adding(framework: Framework) -> Status:
    try:
        framework.filtering.run_add_pods(AttemptState(), POD, [(0, pod("other"))], SNAPSHOT)
        framework.filtering.run_remove_pods(AttemptState(), POD, [(0, pod("other"))], SNAPSHOT)
    except PluginError as error:
        return error.status
    return SUCCESS


POINTS: dict[str, tuple[type[Puppet], str, Run]] = {
    "pre_enqueue": (puppets.Gate, "PreEnqueue", lambda it: it.run_pre_enqueue(POD)),
    "pre_filter": (
        puppets.PreFilter,
        "PreFilter",
        lambda it: it.filtering.run_pre_filter(AttemptState(), POD, SNAPSHOT, Diagnosis.blank(2)),
    ),
    "add_pods": (puppets.PreFilter, "PreFilterExtensionAddPod", adding),
    "remove_pods": (puppets.PreFilter, "PreFilterExtensionRemovePod", adding),
    "filter": (puppets.Filter, "Filter", filtering),
    "filter_node": (puppets.NodeFilter, "Filter", filtering),
    "post_filter": (
        puppets.PostFilter,
        "PostFilter",
        lambda it: run_now(it.filtering.run_post_filter(STATE, POD, SNAPSHOT, Diagnosis.blank(2))).status,
    ),
    "pre_score": (puppets.PreScore, "PreScore", pre_scoring),
    "score": (puppets.Score, "Score", scoring),
    "score_node": (puppets.NodeScore, "Score", scoring),
    "reserve": (puppets.Reserve, "Reserve", lambda it: it.run_reserve(STATE, POD, "n0")),
    "permit": (puppets.Permit, "Permit", lambda it: it.run_permit(STATE, POD, "n0")),
    "pre_bind_pre_flight": (
        puppets.PreBind,
        "PreBindPreFlight",
        lambda it: it.run_pre_bind_pre_flights(STATE, POD, "n0"),
    ),
    "pre_bind": (
        puppets.PreBind,
        "PreBind",
        lambda it: asyncio.run(it.run_pre_bind(STATE, POD, "n0", {"Mine"})),
    ),
    "bind": (puppets.Bind, "Bind", lambda it: asyncio.run(it.run_bind(STATE, POD, "n0"))),
}
"""Method -> plugin, its point's name, how the profile runs it."""

RUNNING = {
    "PreFilterExtensionAddPod": 'running AddPod on PreFilter plugin "Mine"',
    "PreFilterExtensionRemovePod": 'running RemovePod on PreFilter plugin "Mine"',
    "Filter": 'running "Mine" filter plugin',
    "Score": 'running Score plugins: plugin "Mine" failed with',
    "PreBindPreFlight": 'running PreBindPreFlight "Mine"',
}
"""The beginnings of messages that kube-scheduler's framework.go writes in their own way."""


def run(method: str, answer: Any) -> tuple[Any, str]:
    """Run a profile whose plugin Mine returns one value; return the result and the expected prefix of errors."""
    kind, point, it = POINTS[method]
    running = RUNNING.get(point, f'running {point} plugin "Mine"')
    return it(framework_of(kind("Mine", **{method: answer}))), running


@pytest.mark.parametrize("method", POINTS)
def test_an_exception_is_an_error_with_plugin_point_and_logged_traceback(
    method: str, caplog: pytest.LogCaptureFixture
):
    raised = KeyError("licence")
    status, running = run(method, raised)

    assert status.code is Code.ERROR
    assert status.message == f"{running}: KeyError: 'licence'"
    assert status.plugin == "Mine"
    assert status.error is raised
    [record] = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "Plugin failed")
    assert record.exc_info is not None
    assert record.exc_info[1] is raised
    assert vars(record)["extension_point"] == POINTS[method][1]
    assert vars(record).get("node") == ("n0" if method.endswith("_node") else None)


ODD: dict[str, list[Any]] = {
    "pre_enqueue": [False, "no", SKIP, Status(Code.WAIT, ("later",))],
    "pre_filter": [True, {"n0"}, PreFilterResult(["n0"]), PreFilterResult(frozenset({7})), Status(Code.WAIT, ("x",))],  # type: ignore[arg-type]
    "add_pods": [True, REFUSED],
    "remove_pods": [True, REFUSED],
    "filter": [None, REFUSED, np.zeros(2, dtype=np.uint16)],
    "filter_node": [False, "no"],
    "post_filter": [None, REFUSED, PostFilterResult(None), PostFilterResult(REFUSED, 7)],  # type: ignore[arg-type]
    "pre_score": [True, REFUSED, Status(Code.PENDING, ("x",))],
    "score": [None, [1, 2], np.zeros(2)],
    "score_node": [None, 1.5, "9", 1 << 63],
    "reserve": [True, SKIP, Status(Code.WAIT, ("x",))],
    "permit": [5, Wait("5"), Wait(math.nan), SKIP, Status(Code.WAIT, ("x",))],  # type: ignore[arg-type]
    "pre_bind_pre_flight": [True, REFUSED],
    "pre_bind": [True, SKIP],
    "bind": [True, Status(Code.WAIT, ("x",))],
}  # fmt: skip
"""Method -> answers that the contract does not have there."""


@pytest.mark.parametrize(
    ("method", "answer"),
    [pytest.param(m, a, id=f"{m} {a}") for m, answers in ODD.items() for a in answers],
)
def test_a_malformed_result_is_a_logged_error_that_names_plugin_and_point(
    method: str, answer: Any, caplog: pytest.LogCaptureFixture
):
    status, running = run(method, answer)

    assert status.code is Code.ERROR
    assert status.message.startswith(running)
    assert status.plugin == "Mine"
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert vars(record)["plugin"] == "Mine"


SAYS_STATUS = sorted(ODD.keys() - {"filter", "score", "score_node", "post_filter", "filter_node"})


@pytest.mark.parametrize("method", SAYS_STATUS)
def test_an_error_returned_by_a_plugin_names_plugin_and_point(method: str):
    status, running = run(method, Status.failed("licence server is down"))

    assert (status.code, status.plugin) == (Code.ERROR, "Mine")
    assert status.message == f"{running}: licence server is down"


@pytest.mark.parametrize(
    "method", sorted({*SAYS_STATUS} - {"add_pods", "remove_pods", "pre_score", "pre_bind_pre_flight"})
)
def test_a_rejection_belongs_to_its_plugin_for_any_given_name(method: str):  # fmt: skip
    status, _ = run(method, Status(Code.UNSCHEDULABLE, ("no",), plugin="Other"))

    assert status == Status(Code.UNSCHEDULABLE, ("no",), "Mine")


@pytest.mark.parametrize("method", SAYS_STATUS)
def test_reasons_given_as_one_string_are_not_split(method: str):
    status, running = run(method, Status(Code.UNSCHEDULABLE, "no"))  # type: ignore[arg-type]

    assert status.code is Code.ERROR
    assert status.message.startswith(f"{running}: unexpected return value Status(")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(Outcomes.all_pass(1), "Outcomes.index is uint16 (2,), was uint16 (1,)", id="too short"),
        pytest.param(Outcomes.all_pass(3), "Outcomes.index is uint16 (2,), was uint16 (3,)", id="too long"),
        pytest.param(Outcomes(np.zeros((2, 1), np.uint16), (PASS,)), "was uint16 (2, 1)", id="another shape"),
        pytest.param(Outcomes(np.zeros(2, np.int64), (PASS,)), "was int64 (2,)", id="another dtype"),  # type: ignore[arg-type]
        pytest.param(Outcomes([0, 0], (PASS,)), "was list", id="no array"),  # type: ignore[arg-type]
        pytest.param(
            Outcomes(np.array([0, 1], np.uint16), (PASS,)),
            "Outcomes.index points to 1, the table has 1 entries",
            id="past the table",
        ),
        pytest.param(lambda *_: Outcomes(np.zeros(2, np.uint16), ()), "the first outcome of a table is PASS", id="no table"),
    ],
)  # fmt: skip
def test_outcomes_of_another_type_are_refused_with_the_expected_one(answer: Any, expected: str):
    status, _ = run("filter", answer)

    assert status.message.startswith('running "Mine" filter plugin: ')
    assert expected in status.message


def test_a_filter_may_give_any_results_for_nodes_outside_the_search():
    empty = snapshot_of()
    framework = framework_of(puppets.Filter(answer=Outcomes.all_pass(0)))

    rows = framework.filtering.run_filters(STATE, POD, empty, empty.all_rows, Diagnosis.blank(0))

    assert rows.size == 0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(
            Status(Code.UNSCHEDULABLE), "ValueError: a rejected node needs a reason", id="no reason"
        ),
        pytest.param(SKIP, "ValueError: a node is rejected with Unschedulable or Error, was Skip", id="skip"),
        pytest.param(True, "TypeError: filter_node returns a Status or None, was True", id="a bool"),
    ],
)
def test_a_malformed_result_for_a_node_is_logged_with_the_node(
    answer: Any, expected: str, caplog: pytest.LogCaptureFixture
):
    def at_n1(_state: Any, _pod: Any, node: Any) -> Any:
        return answer if node.name == "n1" else None

    status, running = run("filter_node", at_n1)

    assert status.message == f"{running}: {expected}"
    assert [vars(record)["node"] for record in caplog.records] == ["n1"]


@pytest.mark.parametrize("method", ["filter", "filter_node"])
def test_an_error_at_one_node_is_logged_with_the_node(method: str, caplog: pytest.LogCaptureFixture):
    failed = Outcomes(np.array([0, 1], np.uint16), (PASS, Outcome(Code.ERROR, ("no answer", "twice"))))
    by_node = {"n0": None, "n1": Status(Code.ERROR, ("no answer", "twice"))}
    answers = {"filter": failed, "filter_node": lambda _state, _pod, node: by_node[node.name]}

    status, running = run(method, answers[method])

    assert status.message == f"{running}: no answer, twice"
    assert [vars(record)["node"] for record in caplog.records] == ["n1"]


def test_a_numpy_integer_is_a_score():
    framework = framework_of(puppets.NodeScore("Mine", lambda *_: np.int32(7)))

    assert framework.scoring.run(AttemptState(), POD, SNAPSHOT, SNAPSHOT.all_rows).total.tolist() == [7, 7]


@pytest.mark.parametrize(
    "answer",
    [KeyError("x"), None, [1], ("a",), (math.nan, 1), REFUSED, SUCCESS],
    ids=["raises", "nothing", "a list", "text", "not a number", "a rejection", "a success"],
)
def test_a_pod_whose_sort_key_fails_comes_last(answer: Any):
    queued = QueuedPodInfo(POD, 0.0)
    odd = framework_of(puppets.Sort("Mine", answer)).sort_key(queued)
    usual = framework_of(puppets.Sort("Mine", (5, 1e9))).sort_key(queued)

    assert sorted([odd, usual]) == [usual, odd]


def test_unreserve_and_post_bind_that_raise_are_logged_and_the_others_run(
    caplog: pytest.LogCaptureFixture,
):
    reserves = [puppets.Reserve(name, unreserve=error) for name, error in [("A", None), ("B", KeyError("x")), ("C", None)]]  # fmt: skip
    post_binds = [puppets.PostBind("D", KeyError("y")), puppets.PostBind("E")]
    framework = framework_of(*reserves, *post_binds)

    framework.run_unreserve(STATE, POD, "n0")
    asyncio.run(framework.run_post_bind(STATE, POD, "n0"))

    assert all(plugin.called() for plugin in (*reserves, *post_binds))
    assert [vars(record)["plugin"] for record in caplog.records] == ["B", "D"]


async def test_a_plugin_that_awaits_a_cancelled_task_has_failed():
    async def waits(*_: Any) -> None:
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        await task

    status = await framework_of(puppets.Bind("Mine", waits)).run_bind(STATE, POD, "n0")

    assert status.code is Code.ERROR
    assert "CancelledError" in status.message


async def test_a_refresh_that_awaits_a_cancelled_task_has_failed_and_stops_nothing():
    class Refreshed(puppets.Gate):
        refresh_seconds = 1.0

        async def refresh(self) -> None:
            task = asyncio.ensure_future(asyncio.sleep(60))
            task.cancel()
            await task

    plugin = Refreshed("Mine")
    with pytest.raises(PluginEndError, match=r"^CancelledError"):
        await framework_of(plugin).run_refresh(plugin)


async def test_a_binding_that_is_cancelled_from_outside_ends():
    framework = framework_of(puppets.Bind("Mine", lambda *_: asyncio.sleep(60)))
    task = asyncio.create_task(framework.run_bind(STATE, POD, "n0"))
    await asyncio.sleep(1)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
