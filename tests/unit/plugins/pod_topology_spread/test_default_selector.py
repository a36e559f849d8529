from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from plugins.pod_topology_spread.constraints import ConstraintReader
from plugins.pod_topology_spread.default_selector import (
    KINDS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    STATEFUL_SETS,
    DefaultSelectors,
)
from plugins.pod_topology_spread.plugin import PodTopologySpread
from scheduler.framework import SKIP, CycleState, NeedsTime
from scheduler.loop_work import run_to_end
from scheduler.objects.decode import decode_pod
from scheduler.objects.v1 import TopologySpreadConstraint
from scheduler.snapshot import ClusterTable
from scheduler.testing.fakes import FakeTimeSlice
from tests.support.builders import node, pod_object
from tests.support.counted_labels import lines_run
from tests.unit.plugins.plugin_calls import made

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

WEB = {"app": "web", "tier": "front"}


@pytest.fixture
def table() -> ClusterTable:
    table = ClusterTable()
    for kind in KINDS:
        table.watch_kind(kind)
    return table


@pytest.fixture
def selectors(table: ClusterTable) -> DefaultSelectors:
    selectors = DefaultSelectors()
    selectors.look_at(table.snapshot())
    return selectors


def pod(*owners: dict[str, Any], labels: dict[str, str] | None = None) -> PodInfo:
    written = pod_object("web-1", namespace="shop", labels=WEB if labels is None else labels)
    written["metadata"]["ownerReferences"] = list(owners)
    return decode_pod(msgspec.json.encode(written))


def owner(kind: str, api_version: str = "apps/v1", *, controller: bool = True) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": "owner", "uid": "u", "controller": controller}


def service(selector: Any) -> dict[str, Any]:
    return {"kind": "Service", "spec": {"selector": selector}}


def found(selectors: DefaultSelectors, each: PodInfo) -> dict[str, tuple[str, set[str]]]:
    """Key -> operator and values of the rule of the pod."""
    return {
        requirement.key: (requirement.operator.value, set(requirement.values))
        for requirement in selectors.of(each).requirements
    }


def test_all_services_that_select_a_pod_are_combined(table: ClusterTable, selectors: DefaultSelectors):
    table.watch_kind(SERVICES).update(
        {
            "shop/by-app": service({"app": "web"}),
            "shop/by-tier": service({"tier": "front"}),
            "shop/of-others": service({"app": "web", "tier": "back", "zone": "a"}),
            "bank/elsewhere": service({"app": "web", "zone": "a"}),
        }
    )

    assert found(selectors, pod()) == {"app": ("In", {"web"}), "tier": ("In", {"front"})}
    assert found(selectors, pod(labels={"app": "db"})) == {}


@pytest.mark.parametrize("selector", [None, {}], ids=["no selector", "an empty one"])
def test_a_service_without_a_selector_selects_nothing(
    table: ClusterTable, selectors: DefaultSelectors, selector: Any
):
    table.watch_kind(SERVICES)["shop/headless"] = service(selector)

    assert found(selectors, pod()) == {}


def test_services_are_updated_by_the_watch(table: ClusterTable, selectors: DefaultSelectors):
    services = table.watch_kind(SERVICES)
    each = pod()
    seen = []
    for selector in ({"app": "web"}, {"tier": "front"}, {"app": "db"}):
        services["shop/web"] = service(selector)
        seen.append(sorted(found(selectors, each)))
    del services["shop/web"]
    seen.append(sorted(found(selectors, each)))

    assert seen == [["app"], ["tier"], [], []]


@pytest.mark.parametrize(
    ("kind", "reference", "written", "expected"),
    [
        pytest.param(
            REPLICATION_CONTROLLERS,
            owner("ReplicationController", "v1"),
            {"tier": "back", "app": "web"},
            {"app": ("In", {"web"}), "tier": ("In", {"back"})},
            id="a ReplicationController's labels replace those of services",
        ),
        pytest.param(
            REPLICA_SETS,
            owner("ReplicaSet"),
            {"matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]},
            {"tier": ("In", {"front"}), "old": ("DoesNotExist", set())},
            id="a ReplicaSet's requirements are added",
        ),
        pytest.param(
            STATEFUL_SETS,
            owner("StatefulSet"),
            {"matchLabels": {"app": "web"}},
            {"tier": ("In", {"front"}), "app": ("In", {"web"})},
            id="a StatefulSet's too",
        ),
        pytest.param(
            REPLICA_SETS,
            owner("ReplicaSet"),
            {},
            {"tier": ("In", {"front"})},
            id="an empty selector adds nothing",
        ),
        pytest.param(
            REPLICA_SETS, owner("ReplicaSet"), None, {"tier": ("In", {"front"})}, id="nor does a missing one"
        ),
        pytest.param(
            REPLICA_SETS,
            owner("ReplicaSet", "apps/v1beta1"),
            {"matchLabels": {"app": "web"}},
            {"tier": ("In", {"front"})},
            id="another api version is ignored",
        ),
        pytest.param(
            REPLICA_SETS,
            owner("ReplicaSet", controller=False),
            {"matchLabels": {"app": "web"}},
            {"tier": ("In", {"front"})},
            id="an owner that is no controller does not count",
        ),
    ],
)
def test_the_controller_of_a_pod_is_combined_with_its_services(
    table: ClusterTable, selectors: DefaultSelectors, kind: str, reference: Any, written: Any, expected: Any
):
    table.watch_kind(SERVICES)["shop/web"] = service({"tier": "front"})
    table.watch_kind(kind)["shop/owner"] = {"spec": {"selector": written}}

    assert found(selectors, pod(reference)) == expected


def test_a_controller_is_updated_by_the_watch(table: ClusterTable, selectors: DefaultSelectors):
    each, store = pod(owner("ReplicaSet")), table.watch_kind(REPLICA_SETS)
    seen = []
    for key in ("app", "tier"):
        store["shop/owner"] = {"spec": {"selector": {"matchLabels": {key: WEB[key]}}}}
        seen.append(sorted(found(selectors, each)))
    del store["shop/owner"]
    seen.append(sorted(found(selectors, each)))

    assert seen == [["app"], ["tier"], []]


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"spec": None},
        {"spec": {"selector": ["app"]}},
        {"spec": {"selector": {"app": 1, "matchLabels": {"app": 1}}}},
        {"spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "Like"}]}}},
    ],
    ids=["nothing", "no spec", "a list", "a number", "an unknown operator"],
)
def test_undecodable_objects_select_nothing(table: ClusterTable, selectors: DefaultSelectors, broken: Any):
    for kind in KINDS:
        table.watch_kind(kind)["shop/owner"] = broken
    table.watch_kind(SERVICES)["shop/web"] = service({"app": "web"})

    for kind, api_version in (("ReplicaSet", "apps/v1"), ("ReplicationController", "v1")):
        assert found(selectors, pod(owner(kind, api_version))) == {"app": ("In", {"web"})}


def test_kinds_that_are_not_watched_have_no_objects():
    selectors = DefaultSelectors()
    selectors.look_at(ClusterTable().snapshot())

    assert found(selectors, pod(owner("ReplicaSet"))) == {}


def test_another_cluster_has_its_own_selectors(table: ClusterTable, selectors: DefaultSelectors):
    other = ClusterTable()
    for each, label in ((table, "app"), (other, "tier")):
        each.watch_kind(SERVICES)["shop/web"] = service({label: WEB[label]})

    assert sorted(found(selectors, pod())) == ["app"]
    selectors.look_at(other.snapshot())
    assert sorted(found(selectors, pod())) == ["tier"]


def test_services_with_many_labels_are_read_in_steps_and_may_change_between_them(
    table: ClusterTable, selectors: DefaultSelectors
):
    services = table.watch_kind(SERVICES)
    labels = {f"key-{number}": "v" for number in range(20_000)}
    services.update({f"shop/{number}": service({**labels, "app": f"{number}"}) for number in range(5)})
    services["shop/web"] = service({"app": "web"})
    unread, steps = selectors.unread(pod()), 0
    assert unread is not None
    for _ in unread:
        steps += 1
        services.pop("shop/web", None)
        services["shop/tier"] = service({"tier": "front"})

    assert steps == 5
    assert found(selectors, pod()) == {"tier": ("In", {"front"})}
    assert selectors.unread(pod()) is None


def test_the_services_of_a_pod_with_many_labels_are_merged_in_steps_and_kept(
    table: ClusterTable, selectors: DefaultSelectors
):
    services = table.watch_kind(SERVICES)
    labels = {f"key-{number}": "v" for number in range(2000)}
    services.update({f"shop/{number}": service({**labels, f"key-{number}": "v"}) for number in range(20)})
    services["shop/other"] = service({**labels, "app": "web"})
    large = pod(labels=labels)
    run_to_end(selectors.unread(pod()))

    assert sum(1 for _ in selectors.unread(large)) == 22
    assert selectors.unread(large) is None
    assert selectors.of(large) is selectors.of(large)
    assert found(selectors, large).keys() == labels.keys()
    again = selectors.unread(pod(labels={**labels, "app": "web"}))
    assert next(again) is None
    del services["shop/19"]
    services["shop/other"] = service({"app": "web"})
    run_to_end(selectors.unread(pod()))
    run_to_end(again)
    assert selectors.unread(pod(labels={**labels, "app": "web"})) is not None
    assert found(selectors, pod(labels={**labels, "app": "web"})).keys() == {*labels, "app"}
    late, relabelled = pod(labels={**labels, "app": "web"}), selectors.unread(pod())
    assert relabelled is None
    last = selectors.unread(late)
    for _ in range(21):
        next(last)
    services["shop/other"] = service({"app": "other"})
    run_to_end(selectors.unread(pod()))
    run_to_end(last)
    assert selectors.unread(late) is not None
    services.clear()
    assert found(selectors, large) == {}


def test_a_large_selector_of_a_controller_is_read_in_steps_once_for_each_version(
    table: ClusterTable, selectors: DefaultSelectors
) -> None:
    def controller(value: str) -> dict[str, Any]:
        lacks = [{"key": f"k{number}-{'x' * 50}", "operator": "DoesNotExist"} for number in range(20_000)]
        return {"spec": {"selector": {"matchLabels": {"app": value}, "matchExpressions": lacks}}}

    replicas, each = table.watch_kind(REPLICA_SETS), pod(owner("ReplicaSet"))
    for value in ("web", "other"):
        replicas["shop/owner"] = controller(value)
        unread = selectors.unread(each)
        assert unread is not None
        assert len(list(unread)) > 10
        assert selectors.unread(each) is None
        rule = selectors.of(each)
        assert rule.labels == (("app", value),)
        assert rule.count == 20_001
        assert lines_run(lambda: selectors.of(each)) < 100
        assert selectors.of(each) is rule

    reader, defaults = (
        ConstraintReader(merges_keys=True),
        (TopologySpreadConstraint(1, "zone", "ScheduleAnyway"),),
    )
    read = reader.defaults(defaults, rule, each, "ScheduleAnyway")
    assert reader.defaults(defaults, rule, each, "ScheduleAnyway") is read
    assert reader.defaults(defaults, rule, each, "DoNotSchedule") == ()


def test_services_that_are_merged_while_others_are_unread_are_merged_again(
    table: ClusterTable, selectors: DefaultSelectors
):
    labels = {f"key-{number}": "v" for number in range(2000)}
    less = {f"key-{number}": "v" for number in range(1999)}
    table.watch_kind(SERVICES).update({f"shop/{number}": service(less) for number in range(19)})
    table.watch_kind(SERVICES)["shop/last"] = service(labels)
    large, reading = pod(labels=labels), selectors.unread(pod())
    next(reading)
    run_to_end(selectors._services["shop"]._merge(large.labels))

    run_to_end(reading)

    assert found(selectors, large).keys() == labels.keys()


def test_an_attempt_waits_until_services_with_many_labels_are_read(table: ClusterTable):
    table.add_node(node("a"))
    labels = {f"key-{number}": "v" for number in range(20_000)}
    table.watch_kind(SERVICES)["shop/large"] = service(labels)
    slice_ = FakeTimeSlice()
    slice_.slice_seconds, slice_.each_reading = 1.0, 1.0
    plugin, snapshot = made(PodTopologySpread, time_slice=slice_), table.snapshot()

    with pytest.raises(NeedsTime) as needed:
        plugin.pre_score(CycleState(), pod(), snapshot, snapshot.all_rows)
    run_to_end(needed.value.steps)

    assert plugin.pre_score(CycleState(), pod(), snapshot, snapshot.all_rows) is SKIP
