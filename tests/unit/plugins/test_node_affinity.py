from __future__ import annotations

from typing import Any

import pytest

from plugins.node_affinity import NodeAffinity, NodeAffinityArgs
from scheduler.framework import SKIP, ActionType, Code, CycleState, EventResource, NeedsTime, PreFilterResult
from scheduler.objects.selectors import Requirement
from scheduler.testing.fakes import FakeTimeSlice
from tests.support.builders import node, pod
from tests.support.clusters import cluster
from tests.unit.plugins.plugin_calls import faults, made, reasons, requeues, scores

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
POD_REASON = ("node(s) didn't match Pod's node affinity/selector",)
NODES = cluster(
    node("a", labels={"zone": "1", "disk": "ssd"}),
    node("b", labels={"zone": "2"}),
    node("c", labels={"disk": "hdd"}),
)


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def labels(*expressions: dict[str, Any]) -> dict[str, Any]:
    return {"matchExpressions": list(expressions)}


def names(*values: str, operator: str = "In") -> dict[str, Any]:
    return {"matchFields": [expression("metadata.name", operator, value) for value in values]}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {REQUIRED: {"nodeSelectorTerms": list(terms)}}


def preferred(*terms: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    return {PREFERRED: [{"weight": weight, "preference": term} for weight, term in terms]}


def asking(*affinities: dict[str, Any], **selector: str) -> Any:
    merged: dict[str, Any] = {}
    for each in affinities:
        merged.update(each)
    return pod("p", nodeSelector=selector, affinity={"nodeAffinity": merged})


def affinity(**args: Any) -> NodeAffinity:
    return made(NodeAffinity, **args)


def pre_filter(each: Any, **args: Any) -> Any:
    return affinity(**args).pre_filter(CycleState(), each, NODES.snapshot())


def test_pods_without_requirements_are_skipped():
    assert pre_filter(pod("p")) is SKIP
    assert pre_filter(asking(preferred((1, labels(expression("zone", "Exists")))))) is SKIP


@pytest.mark.parametrize(
    ("each", "refused"),
    [
        pytest.param(asking(zone="1"), {"b", "c"}, id="a selector"),
        pytest.param(asking(zone="1", disk="hdd"), {"a", "b", "c"}, id="a selector of two labels"),
        pytest.param(asking(required(labels(expression("zone", "In", "1", "2")))), {"c"}, id="one term"),
        pytest.param(
            asking(required(labels(expression("zone", "Exists"), expression("disk", "Exists")))),
            {"b", "c"},
            id="all expressions of a term",
        ),
        pytest.param(
            asking(required(labels(expression("zone", "In", "1")), labels(expression("disk", "In", "hdd")))),
            {"b"},
            id="any term",
        ),
        pytest.param(asking(required(labels(expression("zone", "Gt", "1")))), {"a", "c"}, id="a number"),
        pytest.param(
            asking(required(labels(expression("zone", "Exists"))), disk="ssd"), {"b", "c"}, id="both"
        ),
        pytest.param(asking(required()), {"a", "b", "c"}, id="no terms"),
        pytest.param(asking(required({})), {"a", "b", "c"}, id="an empty term"),
        pytest.param(asking(required(names("a", operator="NotIn"))), {"a"}, id="not that name"),
        pytest.param(
            asking(required(labels(expression("zone", "Gt", "x")), labels(expression("zone", "In", "2")))),
            {"a", "c"},
            id="a faulty term beside a good one",
        ),
    ],
)
def test_nodes_outside_the_affinity_are_rejected(each: Any, refused: set[str]):
    assert reasons(affinity(), each, NODES) == dict.fromkeys(refused, POD_REASON)


def test_added_affinity_is_the_first_reason_and_applies_to_every_pod():
    plugin = affinity(addedAffinity=required(labels(expression("disk", "Exists"))))

    assert reasons(plugin, pod("p"), NODES) == {
        "b": ("node(s) didn't match scheduler-enforced node affinity",)
    }
    assert reasons(plugin, asking(zone="1"), NODES) == {
        "b": ("node(s) didn't match scheduler-enforced node affinity",),
        "c": POD_REASON,
    }


@pytest.mark.parametrize(
    ("each", "narrowed"),
    [
        pytest.param(asking(required(names("a"))), {"a"}, id="one name"),
        pytest.param(asking(required(names("a"), names("nowhere"))), {"a", "nowhere"}, id="a name per term"),
        pytest.param(asking(required(names("a", "a"))), {"a"}, id="the same name twice in a term"),
        pytest.param(
            asking(required({**names("a"), **labels(expression("x", "Exists"))})), {"a"}, id="and labels"
        ),
        pytest.param(
            asking(required(names("a"), labels(expression("x", "Exists")))), None, id="a term without"
        ),
        pytest.param(asking(required(names("a", operator="NotIn"))), None, id="not a name"),
        pytest.param(asking(zone="1"), None, id="no affinity"),
        pytest.param(asking(required()), None, id="no terms"),
    ],
)
def test_terms_that_all_name_nodes_narrow_the_search(each: Any, narrowed: set[str] | None):
    assert pre_filter(each) == (None if narrowed is None else PreFilterResult(frozenset(narrowed)))


def test_terms_that_name_no_possible_node_reject_the_pod():
    status = pre_filter(asking(required(names("a", "b"))))

    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.message == "pod affinity terms conflict"


def test_a_node_gets_the_weights_of_its_matching_terms():
    each = asking(
        preferred(
            (30, labels(expression("zone", "Exists"))),
            (10, labels(expression("disk", "In", "ssd"))),
            (0, labels(expression("disk", "Exists"))),
            (50, {}),
        )
    )

    assert scores(affinity(), each, NODES) == {"a": 100, "b": 75, "c": 0}


def test_added_preferences_count_for_every_pod():
    plugin = affinity(addedAffinity=preferred((5, labels(expression("disk", "Exists")))))

    assert scores(plugin, pod("p"), NODES) == {"a": 100, "b": 0, "c": 100}


def test_pods_without_preferences_are_not_scored():
    assert scores(affinity(), asking(zone="1"), NODES) is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param(
            "x",
            "[1].matchExpressions[0].values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
            id="no number",
        ),
        pytest.param(
            "-5",
            '[1].matchExpressions[0].values[0][zone]: Invalid value: "-5": a valid label must be an empty string or consist '
            "of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
            "(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
            "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            id="negative number",
        ),
    ],
)
def test_an_invalid_preference_fails_the_attempt_with_its_place(value: str, message: str):
    each = asking(
        preferred((1, labels(expression("zone", "Exists"))), (1, labels(expression("zone", "Lt", value))))
    )
    snapshot = NODES.snapshot()

    status = affinity().pre_score(CycleState(), each, snapshot, snapshot.all_rows)

    assert status.code is Code.ERROR
    assert status.message == message


def test_invalid_arguments_are_reported_with_their_paths():
    added = {
        **required(labels(expression("zone", "Exists")), labels(expression("zone", "In"))),
        **preferred((1, names("a", operator="Gt")), (0, labels(expression("", "")))),
    }

    assert faults(NodeAffinityArgs, addedAffinity=added) == [
        f"addedAffinity.{REQUIRED}.nodeSelectorTerms[1].matchExpressions[0].values: In needs a value",
        f"addedAffinity.{PREFERRED}[0].matchFields[0].operator: must be one of In, NotIn, was 'Gt'",
    ]
    assert faults(NodeAffinityArgs, addedAffinity=None) == faults(NodeAffinityArgs) == []


@pytest.mark.parametrize(
    ("old", "new", "helps"),
    [
        pytest.param(None, node("n", labels={"zone": "1"}), True, id="a new node"),
        pytest.param(None, node("n", labels={"zone": "2"}), False, id="a new node outside the affinity"),
        pytest.param(node("n"), node("n", labels={"zone": "1"}), True, id="a new label"),
        pytest.param(node("n", labels={"zone": "1"}), node("n"), False, id="the label went"),
        pytest.param(
            node("n", labels={"zone": "1"}),
            node("n", labels={"zone": "1", "x": ""}),
            False,
            id="another label",
        ),
    ],
)
def test_nodes_that_match_now_requeue_a_pod(old: Any, new: Any, helps: bool):
    assert requeues(affinity(), EventResource.NODE, asking(zone="1"), old, new) is helps


@pytest.mark.parametrize(("zone", "helps"), [("1", True), ("2", False)], ids=["selected", "not selected"])
def test_a_pod_with_an_invalid_term_is_requeued_by_nodes_of_its_selector(zone: str, helps: bool):
    each = asking(required(labels(expression("pool", "Gt", "x"))), zone="1")
    other = required(labels(expression("pool", "Exists")))

    came = node("n", labels={"zone": zone})
    assert requeues(affinity(), EventResource.NODE, each, None, came) is helps
    assert not requeues(affinity(), EventResource.NODE, asking(other, zone="1"), None, came)


def test_a_node_outside_the_added_affinity_requeues_no_pod():
    plugin = affinity(addedAffinity=required(labels(expression("pool", "Exists"))))

    def after(**node_labels: str) -> bool:
        return requeues(plugin, EventResource.NODE, asking(zone="1"), None, node("n", labels=node_labels))

    assert not after(zone="1")
    assert after(zone="1", pool="x")


def test_it_registers_for_the_events_of_upstream():
    (registered,) = affinity().events()

    assert registered.event.action == ActionType.ADD | ActionType.UPDATE_NODE_LABEL


class TestVeryManyTerms:
    """A tenant may create thousands of terms: they are evaluated in steps, and queueing hints do not read them."""

    many = required(*[labels(expression("zone", "Gt", str(number))) for number in range(5000, 4000, -1)])
    liked = preferred(*[(2, labels(expression("zone", "Gt", str(number)))) for number in range(1000)])

    def impatient(self) -> NodeAffinity:
        limit = FakeTimeSlice()
        limit.slice_seconds, limit.each_reading = 1.0, 1.0
        return NodeAffinity(args=NodeAffinityArgs(), time_slice=limit)

    def test_nodes_are_evaluated_in_steps_and_then_at_once(self):
        plugin, each, snapshot = self.impatient(), asking(self.many, self.liked), NODES.snapshot()
        with pytest.raises(NeedsTime) as needs:
            plugin.filter(CycleState(), each, snapshot, snapshot.all_rows)
        assert sum(1 for _ in needs.value.steps) > 20
        assert not plugin.filter(CycleState(), each, snapshot, snapshot.all_rows).passing.any()

        with pytest.raises(NeedsTime) as needs:
            plugin.pre_score(CycleState(), each, snapshot, snapshot.all_rows)
        assert sum(1 for _ in needs.value.steps) > 20
        state = CycleState()
        assert plugin.pre_score(state, each, snapshot, snapshot.all_rows) is None
        # Zone 1 is above 0, and zone 2 above 0 and 1.
        assert plugin.score(state, each, snapshot, snapshot.all_rows).tolist() == [2, 4, 0]

    def test_preferred_terms_with_an_invalid_one_fail_in_the_end(self):
        wrong = preferred(
            *[(1, labels(expression("zone", "Gt", "1")))] * 1000, (1, labels(expression("zone", "Gt", "x")))
        )
        plugin, snapshot = self.impatient(), NODES.snapshot()
        with pytest.raises(NeedsTime) as needs:
            plugin.pre_score(CycleState(), asking(wrong), snapshot, snapshot.all_rows)
        for _ in needs.value.steps:
            pass

        answer = plugin.pre_score(CycleState(), asking(wrong), snapshot, snapshot.all_rows)

        assert answer is not None
        assert answer.code is Code.ERROR
        assert answer.message.startswith("[1000].matchExpressions[0].values[0]: Invalid value")

    def test_labels_of_a_node_selector_are_read_up_to_the_first_without_a_node(
        self, monkeypatch: pytest.MonkeyPatch
    ):
        read = []
        monkeypatch.setattr(
            "plugins.node_affinity.Requirement", lambda *args: read.append(args[0]) or Requirement(*args)
        )
        selector = {"zone": "1", **{f"none-{number}": "x" for number in range(1000)}}

        assert len(reasons(affinity(), asking(**selector), NODES)) == 3
        assert read == ["zone", "none-0"]

    def test_hints_requeue_the_pod_without_reading_its_terms(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("scheduler.objects.pod.required_node_affinity", None)
        new = node("new", labels={"zone": "1"})
        (event,) = affinity().events()
        each = asking(self.many)

        assert requeues(affinity(), EventResource.NODE, each, None, new)
        assert event.waits_for_keys is not None
        assert event.waits_for_keys(each) is None
