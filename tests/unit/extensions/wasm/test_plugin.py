"""A guest at every extension point: the meaning of its numbers, and one instance for the whole attempt at a pod."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from typing import Any

import numpy as np
import pytest

from scheduler.engine.runtime.plugin_classes import check_plugin, points_of
from scheduler.extensions.wasm.guest import EXPORTS, GuestError, compile_guest
from scheduler.extensions.wasm.guest_plugin import (
    DEFAULT_EVENTS,
    cluster_events,
    guest_class,
    high_and_low,
    status_of,
)
from scheduler.framework import (
    SKIP,
    SUCCESS,
    ActionType,
    Code,
    CycleState,
    EventResource,
    PreFilterResult,
    Status,
    Wait,
)
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.interface import ExtensionPoint
from tests.support.builders import node, pod
from tests.support.clusters import cluster
from tests.support.guests import guest, waits, wat

SNAPSHOT = cluster(*(node(f"n{number}") for number in range(3))).snapshot()
POD = pod("web", cpu="1")
EVERY = wat(
    "".join(
        f'(func (export "{name}") {"" if not result else f"(result {result}) ({result}.const 0)"})'
        for name, result in EXPORTS.items()
    )
)
"""Exports that the SDK adds to every guest."""


def returning(export: str, number: int) -> Any:
    return guest(wat(f'(func (export "{export}") (result i32) (i32.const {number}))'))


def test_a_guest_runs_at_the_extension_points_that_it_exports() -> None:
    plugin = guest_class("x", compile_guest(waits(1)))

    assert points_of(plugin) == {
        ExtensionPoint.PRE_FILTER,
        ExtensionPoint.PERMIT,
        ExtensionPoint.RESERVE,
        ExtensionPoint.POST_BIND,
    }


def test_a_guest_that_exports_everything_passes_the_whole_contract() -> None:
    plugin = guest_class("x", compile_guest(EVERY))

    assert check_plugin(plugin, "x") is plugin
    assert points_of(plugin) == set(ExtensionPoint) - {
        ExtensionPoint.PRE_ENQUEUE,
        ExtensionPoint.QUEUE_SORT,
        ExtensionPoint.POD_GROUP_POST_FILTER,
        ExtensionPoint.PLACEMENT_GENERATE,
        ExtensionPoint.PLACEMENT_SCORE,
    }


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (1, Code.ERROR),
        (2, Code.UNSCHEDULABLE),
        (3, Code.UNSCHEDULABLE_AND_UNRESOLVABLE),
        (5, Code.SKIP),
    ],
)
def test_a_status_has_the_code_and_reason_of_the_guest(number: int, code: Code) -> None:
    assert status_of(number, "why", "g") == Status(code, ("why",))


def test_a_success_has_no_reason_despite_a_message() -> None:
    assert status_of(0, "all is well", "g") is SUCCESS


@pytest.mark.parametrize("number", [7, -1, 2**31 - 1])
def test_an_unknown_code_is_an_error(number: int) -> None:
    assert status_of(number, "huh", "g") == Status.failed(f"wasm: unknown status code {number}: huh")


@pytest.mark.parametrize(
    ("result", "halves"), [(100 << 32 | 2, (100, 2)), (-1, (-1, -1)), (-5 << 32, (-5, 0)), (0, (0, 0))]
)
def test_both_halves_of_a_long_result_are_signed(result: int, halves: tuple[int, int]) -> None:
    assert high_and_low(result) == halves


def test_a_guest_without_a_prefilter_reads_nodes_at_later_points() -> None:
    permit = """(func (export "permit") (result i64) (local $n i32)
      (local.set $n (call $node_name (i32.const 1024) (i32.const 1024)))
      (call $node (i32.const 1024) (local.get $n) (i32.const 4096) (i32.const 4096))
      (i64.shl (i64.extend_i32_u (i32.eqz)) (i64.const 32)))"""  # a success if there is a node
    plugin, state = guest(wat(permit)), CycleState()

    assert plugin.pre_filter(state, POD, SNAPSHOT) is SUCCESS

    assert plugin.permit(state, POD, SNAPSHOT.name_of(0)) is SUCCESS
    assert plugin.permit(state, POD, "gone").code is Code.ERROR


@pytest.mark.parametrize(("mode", "name"), [(0, None), (1, "n1")], ids=["left alone", "named"])
def test_post_filter_nominates_a_node_only_with_success(mode: int, name: str | None) -> None:
    content = wat(
        f"""(func (export "filter") (result i32) (i32.const 0))
        (func (export "postfilter") (result i64)
          (call $nominate (i32.const 16) (i32.const 2)) (i64.const {mode << 32}))""",
        data="n1",
    )

    result = guest(content).post_filter(CycleState(), POD, SNAPSHOT, Diagnosis.blank(SNAPSHOT.n_nodes))

    assert (result.status, result.nominated_node_name) == (SUCCESS, name)


def test_a_reason_belongs_to_its_own_call() -> None:
    content = wat(
        """(global $asked (mut i32) (i32.const 0))
        (func (export "filter") (result i32)
          (if (i32.eqz (global.get $asked)) (then (call $reason (i32.const 16) (i32.const 3))))
          (global.set $asked (i32.const 1))
          (i32.const 2))""",
        data="why",
    )
    plugin, state = guest(content), CycleState()

    reported = [plugin.filter_node(state, POD, SNAPSHOT.node_info(row)).reasons for row in (0, 1)]

    assert reported == [("why",), ("rejected by the guest guest without a reason",)]


def test_pre_filter_narrows_to_the_names_it_gives() -> None:
    content = wat(
        """(func (export "prefilter") (result i32)
          (call $node_names (i32.const 16) (i32.const 8)) (i32.const 0))""",
        data="n1\\0n2\\0xx",
    )

    assert guest(content).pre_filter(CycleState(), POD, SNAPSHOT) == PreFilterResult(frozenset({"n1", "n2"}))


@pytest.mark.parametrize(("number", "expected"), [(0, SUCCESS), (5, Code.SKIP), (2, Code.UNSCHEDULABLE)])
def test_pre_filter_continues_skips_or_rejects(number: int, expected: Any) -> None:
    status = returning("prefilter", number).pre_filter(CycleState(), POD, SNAPSHOT)

    assert status is expected or status.code is expected


def test_a_score_with_a_bad_status_is_an_error() -> None:
    plugin = guest(wat('(func (export "score") (result i64) (i64.const 0x500000001))'))

    with pytest.raises(GuestError, match="wasm: score returned Error"):
        plugin.score_node(CycleState(), POD, SNAPSHOT.node_info(0))


def normalizing(answer: str) -> Any:
    written = answer.replace('"', "\\22")
    return guest(
        wat(
            f"""(func (export "score") (result i64) (i64.const 0x700000000))
            (data (i32.const 4096) "{written}")
            (func (export "normalizescore") (result i32)
              (call $normalized (i32.const 4096) (i32.const {len(answer)})) (i32.const 0))"""
        )
    )


def normalized(plugin: Any) -> list[int]:
    state, rows = CycleState(), np.array([0, 2])
    scores = np.zeros(3, dtype=np.int64)
    for row in rows.tolist():
        scores[row] = plugin.score_node(state, POD, SNAPSHOT.node_info(row))
    result: list[int] = plugin.normalize(state, POD, scores, rows).tolist()
    return result


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param('{"n2":100,"n0":1}', [1, 0, 100], id="by name, in any order"),
        pytest.param("{}", [7, 0, 7], id="no events"),
        pytest.param("null", [7, 0, 7], id="null"),
        pytest.param("", [7, 0, 7], id="nothing at all"),
    ],
)
def test_normalized_scores_are_taken_by_name(answer: str, expected: list[int]) -> None:
    assert normalized(normalizing(answer)) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param('{"n0":1}', "each of the 2 nodes of the call, returned 1", id="one node missing"),
        pytest.param('{"n0":1,"n1":2}', "each of the 2 nodes", id="another node"),
        pytest.param('{"n0":1,"n2":"x"}', "returned no map of scores", id="text for a number"),
        pytest.param("{", "returned no map of scores", id="no json"),
    ],
)
def test_malformed_normalized_scores_are_an_error(answer: str, expected: str) -> None:
    with pytest.raises(GuestError, match=expected):
        normalized(normalizing(answer))


def test_permit_waits_for_an_unsigned_number_of_milliseconds() -> None:
    assert guest(waits(1500)).permit(CycleState(), POD, "n0") == Wait(1.5)
    assert guest(waits(2**32 - 1)).permit(CycleState(), POD, "n0") == Wait((2**32 - 1) / 1000)


def test_a_successful_bind_of_a_guest_leaves_the_pod_to_the_next_binder() -> None:
    assert asyncio.run(returning("bind", 0).bind(CycleState(), POD, "n0")) is SKIP
    assert asyncio.run(returning("bind", 2).bind(CycleState(), POD, "n0")).is_rejected


# One instance for one pod.

COUNTS = wat(
    """(global $n (mut i32) (i32.const 0))
    (func $count (export "prefilter") (result i32)
      (global.set $n (i32.add (global.get $n) (i32.const 10))) (i32.const 0))
    (func (export "score") (result i64)
      (global.set $n (i32.add (global.get $n) (i32.const 1)))
      (i64.shl (i64.extend_i32_u (global.get $n)) (i64.const 32)))"""
)
"""Score: how many instances ago, so to speak: ten for every pod this instance has seen, one for every score."""


def score(plugin: Any, state: CycleState) -> int:
    result: int = plugin.score_node(state, POD, SNAPSHOT.node_info(0))
    return result


def test_prefilter_of_a_guest_is_called_first_even_if_not_enabled() -> None:
    assert score(guest(COUNTS), CycleState()) == 11


def test_pods_in_flight_have_an_instance_each() -> None:
    plugin, one, two = guest(COUNTS), CycleState(), CycleState()

    assert [score(plugin, one), score(plugin, two), score(plugin, one)] == [11, 11, 12]


def test_a_clone_of_the_state_uses_the_same_instance() -> None:
    plugin, state = guest(COUNTS), CycleState()
    score(plugin, state)

    assert score(plugin, state.clone()) == 12


def test_an_instance_is_free_again_when_the_state_is_dropped() -> None:
    plugin = guest(COUNTS)
    gc.disable()  # no garbage collection is needed
    try:
        assert [score(plugin, CycleState()) for _ in range(3)] == [11, 22, 33]
    finally:
        gc.enable()


def test_a_burst_of_pods_does_not_keep_instances_forever() -> None:
    plugin = guest(COUNTS)
    burst = [CycleState() for _ in range(20)]
    for state in burst:
        score(plugin, state)
    burst.clear()
    del state

    again = [CycleState() for _ in range(20)]
    assert Counter(score(plugin, state) for state in again) == {22: 16, 11: 4}


def test_an_instance_is_free_again_after_binding_or_unreserve() -> None:
    plugin, bound, undone = guest(COUNTS), CycleState(), CycleState()
    score(plugin, bound)
    asyncio.run(plugin.post_bind(bound, POD, "n0"))
    assert score(plugin, undone) == 22
    plugin.unreserve(undone, POD, "n0")

    assert score(plugin, CycleState()) == 33


def test_retained_states_do_not_keep_instances_forever() -> None:
    plugin = guest(COUNTS)
    held = [CycleState() for _ in range(65)]
    for state in held:
        score(plugin, state)

    with pytest.raises(GuestError, match="or it is over"):
        score(plugin, held[0])
    assert score(plugin, held[1]) == 12


def test_attempts_that_wait_for_their_binding_keep_their_instance() -> None:
    plugin = guest(COUNTS)
    held = [CycleState() for _ in range(70)]
    for state in held:
        score(plugin, state)
        plugin.reserve(state, POD, "n0")

    assert score(plugin, held[0]) == 12


# Events.


def record(resource: int, action: int) -> bytes:
    return resource.to_bytes(4, "little") + action.to_bytes(4, "little")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(record(1, 1), [(EventResource.NODE, ActionType.ADD)], id="a new node"),
        pytest.param(
            record(1, 8 | 16),
            [(EventResource.NODE, ActionType.UPDATE_NODE_LABEL | ActionType.UPDATE_NODE_TAINT)],
            id="labels and taints",
        ),
        pytest.param(record(0, 63), [(EventResource.POD, ActionType.ALL)], id="all of the SDK's"),
        pytest.param(record(0, 60), [(EventResource.POD, ActionType.UPDATE)], id="update of the SDK's"),
        pytest.param(record(1, 64), [(EventResource.NODE, ActionType.UPDATE)], id="a bit of later years"),
        pytest.param(record(10, 63), [(EventResource.WILDCARD, ActionType.ALL)], id="everything"),
        pytest.param(
            record(4, 1) + record(7, 2) + b"tail",
            [(EventResource.CSI_NODE, ActionType.DELETE)],
            id="odd ones",
        ),
    ],
)
def test_registered_events_are_those_of_the_sdk(
    content: bytes, expected: list[tuple[EventResource, ActionType]]
) -> None:
    found = [(each.event.resource, each.event.action) for each in cluster_events(content)]

    assert found == expected


@pytest.mark.parametrize("content", [b"", record(4, 1), record(1, 0)], ids=["none", "deleted", "nothing"])
def test_a_guest_without_registrations_gets_the_default_events_of_upstream(content: bytes) -> None:
    assert cluster_events(content) == DEFAULT_EVENTS


def test_a_guest_registers_when_it_is_built() -> None:
    content = wat(
        """(func (export "filter") (result i32) (i32.const 0))
        (data (i32.const 4096) "\\01\\00\\00\\00\\01\\00\\00\\00")
        (func (export "enqueue") (call $register (i32.const 4096) (i32.const 8)))"""
    )

    [only] = guest(content).events()

    assert (only.event.resource, only.event.action) == (EventResource.NODE, ActionType.ADD)
    assert guest(EVERY).events() == DEFAULT_EVENTS
