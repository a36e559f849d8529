"""Reason codes: of reasons with one of their own, and of plain ones; and what each counts."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from scheduler.engine.runtime.budget import OverBudgetError
from scheduler.errors import ApiError
from scheduler.extensions.extender_wire import ExtenderError
from scheduler.framework import PASS, Code, Diagnosis, Outcome, Reason, Status
from scheduler.framework.reasons import MOST_CHARACTERS, Cause, default_code, is_reason_code

CPU = Reason("Insufficient cpu", "InsufficientCPU")
MEMORY = Reason("Insufficient memory", "InsufficientMemory")


def diagnosis_of(n_nodes: int, *rejections: tuple[str, Code, tuple[str, ...], int]) -> Diagnosis:
    """Return a diagnosis in which each (plugin, code, reasons, number of nodes) rejects the next nodes."""
    diagnosis = Diagnosis.blank(n_nodes)
    rows = np.arange(n_nodes)
    for plugin, code, reasons, number in rejections:
        at_rows = np.zeros(len(rows), dtype=np.uint16)
        at_rows[:number] = 1
        rows = diagnosis.reject(plugin, (PASS, Outcome(code, reasons)), at_rows, rows)
    return diagnosis


def test_a_reason_with_a_code_is_its_text_in_messages_comparisons_and_keys() -> None:
    assert CPU == "Insufficient cpu"
    assert {CPU: 1}["Insufficient cpu"] == 1
    assert Status.unschedulable(CPU, MEMORY).message == "Insufficient cpu, Insufficient memory"
    assert type(Status.unschedulable(CPU).message) is str
    assert type(str(CPU)) is str


def test_a_copied_reason_keeps_its_code() -> None:
    for same in (copy.deepcopy(CPU), copy.copy(CPU)):
        assert (same, same.code) == ("Insufficient cpu", "InsufficientCPU")


@pytest.mark.parametrize(
    "code", ["", "insufficientCPU", "Insufficient CPU", "Insufficient_CPU", "4Cpus", "Ünfit", "A" * 64]
)
def test_a_malformed_code_is_refused(code: str) -> None:
    assert not is_reason_code(code)
    with pytest.raises(ValueError, match="a reason code is in CamelCase and has at most 63 characters, was"):
        Reason("no", code)


@pytest.mark.parametrize(
    ("plugin", "code"),
    [
        ("Licences", "Licences"),
        ("my-plugin_2", "MyPlugin2"),
        ("node.names", "NodeNames"),
        ("4eyes", "Plugin4eyes"),
        ("größe", "GrE"),
        ("---", "Plugin"),
        ("x" * 100, "X" + "x" * 62),
    ],
)
def test_the_default_code_is_the_name_of_the_plugin_in_camel_case(plugin: str, code: str) -> None:
    assert default_code(plugin) == code
    assert is_reason_code(code)
    assert len(code) <= MOST_CHARACTERS


def test_the_causes_of_a_status_are_the_codes_of_its_reasons_each_once() -> None:
    assert Status.unschedulable(CPU, "no licence", CPU, "no seat").by("Mine").causes == (
        Cause("InsufficientCPU", "Mine"),
        Cause("Mine", "Mine"),
    )


def test_a_success_has_no_cause_and_plain_reasons_of_a_rejection_need_a_plugin() -> None:
    assert Status(Code.SUCCESS).causes == ()
    assert Status.unschedulable("0/1 nodes are available").causes == ()
    assert Status.unschedulable(CPU).causes == (Cause("InsufficientCPU", ""),)


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        pytest.param(Status.failed("odd").by("Mine"), Cause("PluginError", "Mine"), id="a plugin"),
        pytest.param(Status.failed("odd"), Cause("SchedulerError", ""), id="the scheduler"),
        pytest.param(Status.failed(CPU).by("Mine"), Cause("InsufficientCPU", "Mine"), id="a code of its own"),
        pytest.param(
            Status.failed("no", ApiError(500, "", "no")).by("Mine"),
            Cause("ApiError", "Mine"),
            id="the server",
        ),
        pytest.param(Status.failed("no", ExtenderError("no")), Cause("ExtenderError", ""), id="an extender"),
        pytest.param(
            Status.failed("slow", OverBudgetError("slow")).by("Mine"),
            Cause("OverBudget", "Mine"),
            id="a long attempt",
        ),
    ],
)
def test_an_error_has_the_code_of_what_failed(status: Status, cause: Cause) -> None:
    assert status.causes == (cause,)


def test_a_diagnosis_counts_the_nodes_of_each_cause_the_most_nodes_first() -> None:
    no = Code.UNSCHEDULABLE
    diagnosis = diagnosis_of(
        9,
        ("Taints", no, ("untolerated",), 1),
        ("Fit", no, (CPU, MEMORY), 2),
        ("Fit", no, (CPU,), 3),
        ("Ports", Code.ERROR, ("broken",), 1),
    )

    assert diagnosis.causes() == (
        Cause("InsufficientCPU", "Fit", 5),
        Cause("InsufficientMemory", "Fit", 2),
        Cause("Taints", "Taints", 1),
    )


def test_two_reasons_of_a_node_with_one_code_count_once() -> None:
    diagnosis = diagnosis_of(2, ("Mine", Code.UNSCHEDULABLE, ("one", "another"), 2))

    assert diagnosis.causes() == (Cause("Mine", "Mine", 2),)


def test_a_rejection_by_prefilter_concerns_the_pod_and_not_its_nodes() -> None:
    diagnosis = Diagnosis.blank(3)
    diagnosis.reject_all(Status.unschedulable(CPU).by("Mine"))

    assert diagnosis.causes() == (Cause("InsufficientCPU", "Mine"),)
    assert [cause.as_json() for cause in diagnosis.causes()] == [
        {"code": "InsufficientCPU", "plugin": "Mine"}
    ]


def test_nodes_outside_of_those_of_prefilter_count_for_each_plugin_that_named_nodes() -> None:
    diagnosis = Diagnosis.blank(3)
    diagnosis.narrow(np.array([True, False, False]), frozenset({"n0"}), ("Affinity", "Queues"))

    assert diagnosis.causes() == (
        Cause("ExcludedByPreFilter", "Affinity", 2),
        Cause("ExcludedByPreFilter", "Queues", 2),
    )
