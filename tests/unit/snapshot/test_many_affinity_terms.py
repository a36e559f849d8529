"""The cost of very many affinity terms of bound pods: the number of matched terms, and of slices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scheduler.objects.decode import decode_pod
from scheduler.objects.pod import trim_bound_pod
from scheduler.objects.pod_affinity import AffinityTerm, LongTerms
from scheduler.snapshot import ClusterTable, TermKind, affinity_index, term_columns
from scheduler.snapshot.term_columns import TermColumns
from tests.support import builders
from tests.unit.snapshot.test_pod_columns import summed, weights_by_hand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scheduler.objects.pod import PodInfo

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
LISTS = {
    TermKind.REQUIRED_AFFINITY: ("podAffinity", REQUIRED),
    TermKind.REQUIRED_ANTI_AFFINITY: ("podAntiAffinity", REQUIRED),
    TermKind.PREFERRED_AFFINITY: ("podAffinity", PREFERRED),
    TermKind.PREFERRED_ANTI_AFFINITY: ("podAntiAffinity", PREFERRED),
}
INNOCENT = ("shop", {"app": "web", "tier": "front"}, {"team": "blue"})
NODES = 5


def requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def selecting(*requirements: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "topologyKey": "host",
        "namespaceSelector": {},
        "labelSelector": {"matchExpressions": list(requirements)},
        **more,
    }


SHAPES: dict[str, Callable[[str], dict[str, Any]]] = {
    "a made-up key that is not there": lambda name: selecting(requirement(name, "DoesNotExist")),
    "another value of a popular key": lambda name: selecting(requirement("app", "NotIn", name)),
    "neither the pod's value nor a made-up one": lambda name: selecting(
        requirement("app", "NotIn", "web", name)
    ),
    "the pod's value or a made-up one": lambda name: selecting(requirement("app", "In", "web", name)),
    "two labels": lambda name: selecting(
        requirement("app", "Exists"), requirement("tier", "In", "front", name)
    ),
    "eight keys that are not there": lambda name: selecting(
        *(requirement(f"{name}-{number}", "DoesNotExist") for number in range(8))
    ),
    "many values": lambda name: selecting(
        requirement("app", "In", "web", *(f"{name}-{number}" for number in range(40)))
    ),
    "many namespaces": lambda name: selecting(
        namespaces=["shop", *(f"{name}-{number}" for number in range(40))], namespaceSelector=None
    ),
    "namespaces that a selector chooses": lambda name: selecting(
        namespaceSelector={"matchExpressions": [requirement("team", "NotIn", name)]}
    ),
    "a topology of its own": lambda name: selecting(topologyKey=name),
}


def bound(name: str, kind: TermKind, terms: Iterable[dict[str, Any]]) -> PodInfo:
    """Return a bound pod with terms of one kind, as stored in the daemon."""
    side, when = LISTS[kind]
    written = list(terms)
    if when == PREFERRED:
        written = [{"weight": 1 + place % 100, "podAffinityTerm": term} for place, term in enumerate(written)]
    made = builders.pod_object(name, namespace="evil", affinity={side: {when: written}})
    return trim_bound_pod(decode_pod(msgspec.json.encode(made)))


def many(name: str, kind: TermKind, shape: Callable[[str], dict[str, Any]], count: int) -> PodInfo:
    return bound(name, kind, [shape(f"{name}-{number}") for number in range(count)])


def nodes(*, in_slices: bool = False) -> ClusterTable:
    table = ClusterTable(in_slices=in_slices)
    for number in range(NODES):
        table.add_node(builders.node(f"node-{number}", labels={"host": f"node-{number}"}))
    return table


class Asked:
    """Counts the terms that are matched separately, and the terms that are read from the pod spec."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.terms = self.read = 0
        matches, read = AffinityTerm.matches, LongTerms.__getitem__

        def counted(term: AffinityTerm, *who: Any) -> bool:
            self.terms += 1
            return matches(term, *who)

        def counted_read(terms: LongTerms, place: Any) -> Any:
            self.read += 1
            return read(terms, place)

        patch.setattr(AffinityTerm, "matches", counted)
        patch.setattr(LongTerms, "__getitem__", counted_read)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


@pytest.mark.parametrize("kind", TermKind)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(("pods", "terms"), [(60, 15), (4, 300)], ids=["many pods", "many terms each"])
def test_terms_of_other_pods_are_not_evaluated_one_by_one(
    kind: TermKind, shape: Callable[[str], dict[str, Any]], pods: int, terms: int, asked: Asked
):
    table = nodes()
    holders = [many(f"p{number}", kind, shape, terms) for number in range(pods)]
    for number, pod in enumerate(holders):
        table.add_pod(number % NODES, pod)

    asked.terms = asked.read = 0
    found = summed(table.snapshot().affinity_terms(kind).matching(*INNOCENT))

    assert (asked.terms, asked.read) == (0, 0)
    expected = nodes_by_hand(kind, holders)
    assert found == expected


def nodes_by_hand(kind: TermKind, holders: Iterable[PodInfo]) -> dict[tuple[str, int], int]:
    expected: dict[tuple[str, int], int] = {}
    for number, pod in enumerate(holders):
        worth = weights_by_hand(kind, pod, INNOCENT)["host"]
        if worth:
            at = "host", number % NODES
            expected[at] = expected.get(at, 0) + worth
    return expected


def test_terms_that_require_another_label_are_not_evaluated():
    table = nodes()
    for number in range(200):
        term = selecting(requirement("app", "In", f"app-{number}"))
        table.add_pod(0, bound(f"p{number}", TermKind.REQUIRED_ANTI_AFFINITY, [term]))

    columns = table.affinity_terms(TermKind.REQUIRED_ANTI_AFFINITY)._columns

    assert columns.candidates("shop", {"app": "web", "tier": "front"}) == ([], [])
    few, more = columns.candidates("shop", {"app": "app-7"})
    assert (len(few), more) == (1, [])


def test_many_terms_that_each_match_another_label_are_not_matched_separately(asked: Asked):
    table, kind = nodes(), TermKind.REQUIRED_ANTI_AFFINITY
    labels = {f"l{number}": "v" for number in range(100)}
    for number, key in enumerate(labels):
        table.add_pod(
            number % NODES, bound(f"p{number}", kind, [selecting(requirement(key, "In", "v", "w"))])
        )
    asked.terms = 0

    found = summed(table.snapshot().affinity_terms(kind).matching("shop", labels, {}))

    assert found == {("host", row): 100 // NODES for row in range(NODES)}
    assert asked.terms == 0


def test_terms_of_replicas_are_indexed_once(monkeypatch: pytest.MonkeyPatch):
    filed: list[AffinityTerm] = []
    monkeypatch.setattr(
        affinity_index, "conditions", lambda term: filed.append(term) or term_columns.conditions(term)
    )
    table = nodes()
    terms = [SHAPES["a made-up key that is not there"](f"k{number}") for number in range(40)]
    for number in range(50):
        table.add_pod(number % NODES, bound(f"replica-{number}", TermKind.PREFERRED_ANTI_AFFINITY, terms))
    assert len(filed) == 40

    for number in range(49):
        (uid,) = (
            uid for uid, pod in table.pods_on(number % NODES).items() if pod.name == f"replica-{number}"
        )
        table.remove_pod(number % NODES, uid)
    table.remove_node("node-0")
    table.update_node(builders.node("node-2", labels={"host": "elsewhere"}))

    assert len(filed) == 40, "neither pods that go nor rows that move file them again"
    table.remove_pod(table.row_of("node-4") or 0, next(iter(table.pods_on(table.row_of("node-4") or 0))))
    assert len(filed) == 80, "they are taken out with the last"
    assert not list(table.pods_by_terms)


def test_very_many_terms_of_a_pod_are_added_and_removed_in_slices(monkeypatch: pytest.MonkeyPatch):
    filed: list[AffinityTerm] = []
    monkeypatch.setattr(
        affinity_index, "conditions", lambda term: filed.append(term) or term_columns.conditions(term)
    )
    table, kind = nodes(in_slices=True), TermKind.PREFERRED_ANTI_AFFINITY
    shape = SHAPES["a made-up key that is not there"]
    huge, modest = many("huge", kind, shape, 2000), many("modest", kind, shape, 200)

    table.add_pod(0, huge)
    assert (filed, table.is_behind) == ([], True)
    table.add_pod(1, modest)
    assert len(filed) == 200, "others do not wait for it"
    assert [pod.name for pod in table.work()] == ["huge"]
    assert len(filed) == 200 + affinity_index.SLICE_TERMS
    slices = 1
    while table.is_behind:
        assert list(table.work()) == [], "the pod is named once"
        slices += 1
    assert slices == 4
    found = summed(table.snapshot().affinity_terms(kind).matching(*INNOCENT))
    assert found == nodes_by_hand(kind, [huge, modest])

    filed.clear()
    table.remove_pod(0, huge.uid)
    assert filed == []
    assert summed(table.snapshot().affinity_terms(kind).matching(*INNOCENT)) == {
        ("host", 1): weights_by_hand(kind, modest, INNOCENT)["host"]
    }, "what a pod that is gone had counts no more, before it is taken out"
    while table.is_behind:
        assert list(table.work()) == []
    assert [terms for terms, _ in table.pods_by_terms] == [modest.affinity_terms]


@pytest.mark.parametrize("terms", [2, 20], ids=["parsed", "parsed again"])
def test_large_terms_are_indexed_one_by_one_in_slices_and_never_matched_separately(
    terms: int, asked: Asked, monkeypatch: pytest.MonkeyPatch
):
    filed: list[AffinityTerm] = []
    monkeypatch.setattr(
        affinity_index, "conditions", lambda term: filed.append(term) or term_columns.conditions(term)
    )
    table, kind = nodes(in_slices=True), TermKind.REQUIRED_ANTI_AFFINITY
    large = [
        selecting(*(requirement(f"t{number}-{place}", "DoesNotExist") for place in range(9000)))
        for number in range(terms)
    ]
    pod = bound("large", kind, large)

    table.add_pod(0, pod)
    assert (filed, table.is_behind) == ([], True)
    for number in range(terms):
        assert [each.name for each in table.work()] == ([] if number else ["large"])
        assert len(filed) == number + 1
    assert not table.is_behind
    asked.terms = asked.read = 0
    found = summed(table.snapshot().affinity_terms(kind).matching(*INNOCENT))
    assert (asked.terms, asked.read) == (0, 0)
    assert found == nodes_by_hand(kind, [pod])


MANY_LABELS = {f"k{number}": "v" for number in range(1000)}


def of_labels(number: int) -> dict[str, Any]:
    """Return one of several terms; pods with `MANY_LABELS` match the even ones."""
    chosen = [requirement(f"k{place}", "Exists") for place in range(number, number + 200)]
    return selecting(*chosen, requirement("none" if number % 2 == 0 else "k7", "DoesNotExist"))


@pytest.mark.parametrize("kind", TermKind)
def test_terms_that_match_a_pod_with_many_labels_are_found_in_steps(
    kind: TermKind, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(term_columns, "_MOST_UNSORTED", 1)
    monkeypatch.setattr(term_columns, "_MOST_MERGED", 1)  # each term has runs of its own
    table = nodes()
    for number in range(10):
        table.add_pod(number % NODES, bound(f"p{number}", kind, [of_labels(number)]))
    who = "shop", MANY_LABELS, {"team": "blue"}
    terms = table.snapshot().affinity_terms(kind)
    without = summed(terms.matching(*who))
    late = bound("late", kind, [of_labels(20)])
    table.add_pod(3, late)
    expected = summed(terms.matching(*who))
    assert expected != without
    table.remove_pod(3, late.uid)

    steps = terms.prepared(*who)
    for _ in range(4):
        next(steps)
    more = [bound(f"more-{number}", kind, [of_labels(21 + 2 * number)]) for number in range(30)]
    for pod in more:
        table.add_pod(1, pod)
    next(steps)
    for pod in more:
        table.remove_pod(1, pod.uid)
    table.add_pod(3, late)  # so that all terms are matched again
    assert len(list(steps)) >= 11

    def matched_at_once(*_: object) -> None:
        raise AssertionError("the terms were matched before")

    with monkeypatch.context() as patch:
        patch.setattr(TermColumns, "meaning", matched_at_once)
        patch.setattr(AffinityTerm, "matches", matched_at_once)
        assert summed(terms.matching(*who)) == expected
        assert list(terms.prepared(*who)) == []
        for other in (
            ("lab", *who[1:]),
            ("shop", {"k1": "v"} | MANY_LABELS, who[2]),
            (*who[:2], {"team": "red"}),
        ):
            with pytest.raises(AssertionError, match="matched before"):
                summed(terms.matching(*other))
    table.remove_pod(3, late.uid)
    assert summed(terms.matching(*who)) == without


def test_what_is_prepared_follows_the_labels_of_nodes():
    table, kind = nodes(), TermKind.REQUIRED_ANTI_AFFINITY
    table.add_pod(0, bound("p", kind, [{**of_labels(0), "topologyKey": "zone"}]))
    terms, who = table.snapshot().affinity_terms(kind), ("shop", MANY_LABELS, {})
    assert list(terms.prepared(*who))
    assert not summed(terms.matching(*who))

    table.update_node(builders.node("node-1", labels={"zone": "a"}))

    assert summed(terms.matching(*who)) == {("zone", 0): 1}


def test_pods_with_very_many_terms_are_indexed_in_turn():
    table, kind = nodes(in_slices=True), TermKind.PREFERRED_ANTI_AFFINITY
    shape = SHAPES["a made-up key that is not there"]
    modest = many("modest", kind, shape, 300)
    for number in range(3):
        table.add_pod(0, many(f"huge-{number}", kind, shape, 2000))
    table.add_pod(1, modest)

    for _ in range(4):
        table.work()

    found = summed(table.snapshot().affinity_terms(kind).matching(*INNOCENT))
    assert found["host", 1] == weights_by_hand(kind, modest, INNOCENT)["host"]
    assert table.is_behind


def test_pods_that_are_repeatedly_created_and_deleted_leave_nothing_behind():
    table, kind = nodes(in_slices=True), TermKind.REQUIRED_ANTI_AFFINITY
    shapes = list(SHAPES.values())
    for number in range(60):
        pod = many(f"p{number}", kind, shapes[number % len(shapes)], 300)
        table.add_pod(0, pod)
        if number % 3:
            table.work()
        table.remove_pod(0, pod.uid)
        table.work()
    while table.is_behind:
        table.work()

    columns = table.affinity_terms(kind)._columns
    assert columns.size == 0
    assert not columns._places
    assert columns.room < 5000
    assert not list(table.pods_by_terms)
    assert not table.affinity_terms(kind).keys._numbers


def test_a_topology_without_nodes_counts_once_a_node_has_it():
    table, kind = nodes(), TermKind.REQUIRED_ANTI_AFFINITY
    table.add_pod(0, many("p", kind, SHAPES["a topology of its own"], 100))
    assert summed(table.snapshot().affinity_terms(kind).matching(*INNOCENT)) == {}

    table.add_node(builders.node("new", labels={"p-7": "x"}))
    assert summed(table.snapshot().affinity_terms(kind).matching(*INNOCENT)) == {("p-7", 0): 1}

    table.remove_node("new")
    assert summed(table.snapshot().affinity_terms(kind).matching(*INNOCENT)) == {}


def test_new_labels_of_a_namespace_are_used_by_the_next_decision():
    table, kind = nodes(), TermKind.REQUIRED_ANTI_AFFINITY
    terms = [
        selecting(namespaceSelector={"matchLabels": {"team": f"team-{number}"}}) for number in range(100)
    ]
    table.add_pod(0, bound("p", kind, terms))
    in_use = table.snapshot().affinity_terms(kind)

    assert summed(in_use.matching("shop", {}, {"team": "team-3"})) == {("host", 0): 1}
    assert summed(in_use.matching("shop", {}, {"team": "blue"})) == {}
    assert summed(in_use.matching("shop", {}, {"team": "team-99"})) == {("host", 0): 1}


def test_pods_with_the_same_very_many_terms_share_them():
    kind = TermKind.PREFERRED_AFFINITY
    shape = SHAPES["a made-up key that is not there"]
    terms = [shape(f"k{number}") for number in range(100)]
    one, other = (bound(name, kind, terms) for name in ("one", "other"))

    assert one.affinity_terms is other.affinity_terms
    assert one.pod.spec.affinity is not None
    assert other.pod.spec.affinity is not None
    assert one.pod.spec.affinity.pod_affinity is other.pod.spec.affinity.pod_affinity
    assert one.takes_the_same_as(other)
    whole = decode_pod(
        msgspec.json.encode(
            builders.pod_object("one", namespace="evil", affinity=msgspec.to_builtins(one.pod.spec.affinity))
        )
    )
    assert whole.pod.spec.affinity == one.pod.spec.affinity
    assert list(whole.affinity_terms.preferred_affinity) == list(one.affinity_terms.preferred_affinity)
