"""The functions that a guest can call, and their results."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scheduler.extensions.wasm.guest import GuestError
from scheduler.framework import CycleState, Status
from scheduler.framework.diagnosis import Diagnosis, Outcomes
from scheduler.objects.protobuf import encode, encode_list
from tests.support.builders import node, node_object, pod, pod_object
from tests.support.clusters import cluster
from tests.support.guests import KeptEvents, NoWaitingPods, guest, wat

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

NODES = [
    node("n0", images=[{"names": ["a:1", "b:1"], "sizeBytes": 7}]),
    node("n1", images=[{"names": ["a:1"], "sizeBytes": 9}]),
]
SNAPSHOT = cluster(*NODES).snapshot()
POD = pod("web", cpu="1")


def saying(read: str) -> bytes:
    """A guest that rejects with a function's result as the reason."""
    return wat(
        f"""(func (export "filter") (result i32)
          (call $reason (i32.const 4096) {read})
          (i32.const 2))""",
        data="n1",
    )


def heard(content: bytes, **options: Any) -> str:
    plugin = guest(content, **options)
    status: Status = plugin.filter_node(CycleState(), POD, SNAPSHOT.node_info(1))
    return status.message


def read_by(function: str) -> str:
    return f"(call {function} (i32.const 4096) (i32.const 65536))"


NAMED = "(call {} (i32.const 16) (i32.const 2) (i32.const 4096) (i32.const 65536))"


def text_of(content: bytes) -> str:
    return content.decode(errors="replace")


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        pytest.param(read_by("$node_name"), "n1", id="the node"),
        pytest.param(read_by("$pod"), text_of(encode("v1", "Pod", POD.object)), id="the pod"),
        pytest.param(
            NAMED.format("$node"), text_of(encode("v1", "Node", NODES[1].object)), id="a node by name"
        ),
        pytest.param(
            read_by("$node_list"),
            text_of(encode_list(encode("v1", "Node", each.object) for each in NODES)),
            id="all nodes",
        ),
        pytest.param(NAMED.format("$images"), '{"a:1":{"Size":7,"NumNodes":2}}', id="the images of a node"),
        pytest.param(read_by("$filtered"), "[]", id="no filtered nodes yet"),
        pytest.param(read_by("$statuses"), "{}", id="no statuses yet"),
        pytest.param(read_by("$scores"), "{}", id="no scores yet"),
        pytest.param(read_by("$config"), '{"reverse": true}', id="the configuration"),
    ],
)
def test_a_guest_reads_the_requested_objects(read: str, expected: str) -> None:
    assert heard(saying(read), guest_config='{"reverse": true}') == expected


def test_a_node_that_does_not_exist_is_empty_and_has_null_images() -> None:
    unknown = "(call {} (i32.const 200) (i32.const 2) (i32.const 4096) (i32.const 65536))"

    assert heard(saying(unknown.format("$node"))) == "rejected by the guest guest without a reason"
    assert heard(saying(unknown.format("$images"))) == "null"


def test_a_buffer_that_is_too_small_is_unchanged_and_the_length_is_returned() -> None:
    asked = wat(
        """(func (export "filter") (result i32) (local $n i32)
          (i32.store8 (i32.const 4096) (i32.const 46))
          (local.set $n (call $node_name (i32.const 4096) (i32.const 1)))
          (call $reason (i32.const 4096) (i32.const 1))
          (local.get $n))"""
    )

    assert heard(asked) == "."  # and the length, 2, is the code of Unschedulable


def test_a_changed_node_is_encoded_again() -> None:
    plugin = guest(saying(NAMED.format("$node")))
    before = cluster(node("n1", labels={"a": "1"})).snapshot()
    after = cluster(node("n1", labels={"a": "2"})).snapshot()

    reported = [plugin.filter_node(CycleState(), POD, each.node_info(0)).message for each in (before, after)]

    assert reported[0] != reported[1]
    assert reported[1] == text_of(encode("v1", "Node", after.nodes[0].object))


def test_pre_score_gets_the_names_of_the_feasible_nodes() -> None:
    plugin = guest(
        wat(
            '(func (export "score") (result i64) (i64.const 0))'
            """
        (func (export "prescore") (result i32)
          (call $reason (i32.const 4096) (call $filtered (i32.const 4096) (i32.const 999)))
          (i32.const 2))"""
        )
    )

    assert plugin.pre_score(CycleState(), POD, SNAPSHOT, SNAPSHOT.all_rows[1:]).message == '["n1"]'


def test_post_filter_gets_the_reasons_of_rejected_nodes() -> None:
    plugin = guest(
        wat(
            """(func (export "filter") (result i32) (i32.const 0))
            (func (export "postfilter") (result i64)
              (call $reason (i32.const 4096) (call $statuses (i32.const 4096) (i32.const 999)))
              (call $nominate (i32.const 16) (i32.const 2))
              (i64.const 0x100000002))""",
            data="n1",
        )
    )
    diagnosis = Diagnosis.blank(2)
    refused = Outcomes.reject(SNAPSHOT.all_rows == 1, "no", resolvable=False)
    diagnosis.reject("x", refused.table, refused.index, SNAPSHOT.all_rows)

    result = plugin.post_filter(CycleState(), POD, SNAPSHOT, diagnosis)

    assert result.status.message == '{"n1":3}'
    assert result.nominated_node_name == "n1"


def test_add_pod_gets_the_added_pod() -> None:
    coming = pod("coming", node="n1")
    plugin = guest(
        wat(
            """(func (export "filter") (result i32) (i32.const 0))
            (func (export "addpod") (result i32)
              (call $reason (i32.const 4096) (call $target_pod (i32.const 4096) (i32.const 9999)))
              (i32.const 1))"""
        )
    )
    assert plugin.needs.bound_pod_objects

    with pytest.raises(GuestError) as reported:
        plugin.add_pods(CycleState(), POD, [(1, _whole(coming))], SNAPSHOT)

    assert text_of(encode("v1", "Pod", coming.object)) in str(reported.value)


def _whole(it: PodInfo) -> PodInfo:
    assert it.object
    return it


def test_log_lines_below_the_severity_are_dropped_in_both_functions(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="scheduler.extensions.wasm.host")
    content = wat(
        """(func (export "filter") (result i32)
          (call $log (i32.const 0) (i32.const 16) (i32.const 5))
          (call $logs (i32.const 0) (i32.const 16) (i32.const 5) (i32.const 22) (i32.const 8))
          (call $log (i32.const 2) (i32.const 16) (i32.const 6))
          (call $logs (i32.const 2) (i32.const 16) (i32.const 5) (i32.const 22) (i32.const 8))
          (i32.const 0))""",
        data="hello\\nkey\\0val\\0",
    )

    heard(content, log_severity=2)

    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "Guest: hello"),
        ("ERROR", "Guest: hello"),
    ]
    assert caplog.records[1].__dict__["guest_fields"] == {"key": "val"}


def test_a_key_without_a_value_is_logged_with_none(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="scheduler.extensions.wasm.host")
    logs = "(call $logs (i32.const 0) (i32.const 16) (i32.const 5) (i32.const 22) (i32.const 4))"

    heard(wat(f'(func (export "filter") (result i32) {logs} (i32.const 0))', data="hello\\nkey\\0val\\0"))

    assert caplog.records[0].__dict__["guest_fields"] == {"key": ""}


def test_a_guest_can_read_the_severity() -> None:
    content = wat('(func (export "filter") (result i32) (call $severity))')

    assert guest(content, log_severity=3).filter_node(CycleState(), POD, SNAPSHOT.node_info(0)).message


def test_a_guest_has_its_command_line() -> None:
    content = wat(
        """(func (export "filter") (result i32)
          (drop (call $args_sizes (i32.const 1000) (i32.const 1004)))
          (i32.load (i32.const 1000)))"""
    )
    plugin = guest(content, argv=("test", "filter"))

    assert plugin.filter_node(CycleState(), POD, SNAPSHOT.node_info(0)).is_rejected  # 2 is Unschedulable


EVENT = {
    "RegardingReference": {"Kind": "Pod", "Name": "web", "Namespace": "default", "UID": POD.uid},
    "RelatedReference": {},
    "Eventtype": "Warning",
    "Reason": "Odd",
    "Action": "Looking",
    "Note": "an odd pod",
}


def _recorded(**changes: Any) -> list[tuple[str, ...]]:
    written = msgspec.json.encode({**EVENT, **changes}).decode().replace('"', "\\22")
    length = len(msgspec.json.encode({**EVENT, **changes}))
    kept = KeptEvents()
    content = wat(
        f"""(data (i32.const 8192) "{written}")
        (func (export "filter") (result i32)
          (call $eventf (i32.const 8192) (i32.const {length})) (i32.const 0))"""
    )
    heard(content, events=kept)
    return list(kept.events)


def test_a_guest_writes_events_about_pods() -> None:
    other = {"Kind": "Pod", "Name": "db", "Namespace": "shop", "UID": "7"}

    assert _recorded() == [("default/web", "Warning", "Odd", "Looking", "an odd pod")]
    assert _recorded(RegardingReference=other)[0][0] == "shop/db"


def test_an_event_type_that_the_api_server_would_refuse_becomes_normal() -> None:
    assert _recorded(Eventtype="PreScore")[0][1] == "Normal"


def test_an_event_about_something_else_is_logged_instead(caplog: pytest.LogCaptureFixture) -> None:
    assert _recorded(RegardingReference={"Kind": "Node", "Name": "n1"}) == []
    assert "not about a pod" in caplog.text


def test_an_event_that_is_no_json_fails_the_call() -> None:
    content = wat(
        '(func (export "filter") (result i32) (call $eventf (i32.const 16) (i32.const 3)) (i32.const 0))',
        data="{{{",
    )

    with pytest.raises(GuestError, match="wasm: filter error: eventf: "):
        heard(content)


def rejecting(uid_length: int) -> bytes:
    return wat(
        f"""(func (export "filter") (result i32)
          (call $reject (i32.const 16) (i32.const {uid_length}) (i32.const 4096) (i32.const 8))
          (i32.mul (i32.const 2) (i32.load (i32.const 4096))))""",
        data="uid-1",
    )


def test_a_guest_rejects_a_waiting_pod() -> None:
    waiting = NoWaitingPods(pod("held", uid="uid-1"))

    assert heard(rejecting(5), waiting_pods=waiting)
    assert waiting.rejected == [("uid-1", "guest", "removed")]


def test_a_guest_gets_false_for_a_pod_that_does_not_wait() -> None:
    waiting = NoWaitingPods(pod("held", uid="uid-1"))

    assert not heard(rejecting(4), waiting_pods=waiting)
    assert waiting.rejected == []


def test_a_guest_reads_a_waiting_pod() -> None:
    held = pod("held", uid="uid-1")
    length = len(encode("v1", "Pod", held.object))
    content = wat(
        f"""(func (export "filter") (result i32)
          (call $waiting (i32.const 16) (i32.const 5) (i32.const 4096) (i32.const 9999))
          (call $reason (i32.const 4096) (i32.const {length}))
          (i32.const 2))""",
        data="uid-1",
    )

    assert heard(content, waiting_pods=NoWaitingPods(held)) == text_of(encode("v1", "Pod", held.object))


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("(drop (call $node_name (i32.const -1) (i32.const 64)))", id="a buffer outside"),
        pytest.param("(call $node_names (i32.const 131070) (i32.const 8))", id="a text across the end"),
        pytest.param(
            "(drop (call $node (i32.const 0) (i32.const -1) (i32.const 0) (i32.const 0)))",
            id="a length beyond",
        ),
    ],
)
def test_an_access_beyond_the_memory_fails_the_call(call: str) -> None:
    with pytest.raises(GuestError, match="wasm: filter error: out of memory: "):
        heard(wat(f'(func (export "filter") (result i32) {call} (i32.const 0))'))


def test_a_reason_from_beyond_the_memory_does_not_change_the_status() -> None:
    content = wat(
        """(func (export "filter") (result i32)
          (call $reason (i32.const 131070) (i32.const 8)) (i32.const 3))"""
    )

    assert heard(content) == "BUG: out of memory reading message"


def test_guests_see_the_whole_objects_of_the_builders() -> None:
    assert encode("v1", "Pod", POD.object) == encode("v1", "Pod", pod_object("web", cpu="1"))
    assert encode("v1", "Node", node("n").object) == encode("v1", "Node", node_object("n"))
