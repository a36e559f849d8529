"""The use of queues over time: averages with a half-life, and the weights and shares that follow from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plugins.quotas.fair_queues import FairQueuesArgs
from plugins.quotas.history import HistoryArgs, UsageHistory, weights_after_use
from plugins.quotas.ledger import FairShares
from plugins.quotas.queue_statuses import status_of_report
from plugins.quotas.queues import Queue, Tree
from scheduler.loop_work import run_to_end
from scheduler.objects.wording import Duration
from scheduler.testing.fakes import ManualClock
from tests.unit.plugins.quotas.test_fair_queues import TWO, World, incoming, running

if TYPE_CHECKING:
    from collections.abc import Mapping

DAY = 86_400.0
WHOLE = np.array([12_000])


def tree(*names: str, **weights: int) -> Tree:
    given = dict.fromkeys(names, 1) | weights
    return Tree(Queue(name, weight=weight, namespaces=(name,)) for name, weight in given.items())


class Use:
    """Queues that use parts of one cluster, and the history of that."""

    def __init__(self, its: Tree, **args: Any) -> None:
        self.tree, self.clock = its, ManualClock()
        self.history = UsageHistory(HistoryArgs(**args), self.clock)

    def note(self, *cpu: int, objects: Mapping[str, Any] | None = None) -> list[float]:
        """Use amounts of milliCPU from now on; return the averages that count."""
        self.history.follow(self.tree, np.array(cpu).reshape(-1, 1), WHOLE, objects or {})
        return [round(each, 3) for each in self.history.averages_of(self.tree).tolist()]

    def after(self, seconds: float, *cpu: int) -> list[float]:
        self.clock.advance(seconds)
        return self.note(*cpu)


def test_the_average_halves_its_distance_to_the_present_use_in_each_half_life():
    use = Use(tree("a", "b"))
    assert use.note(12_000, 0) == [0, 0]

    assert use.after(DAY, 12_000, 0) == [0.5, 0]
    assert use.after(DAY, 0, 6_000) == [0.75, 0]
    assert use.after(DAY, 0, 0) == [0.375, 0.25]


def test_what_a_queue_used_in_between_counts():
    use = Use(tree("a"))
    use.note(12_000)
    for _ in range(24):
        use.after(DAY / 48, 0)
        use.after(DAY / 48, 12_000)

    assert use.after(0, 0) == [pytest.approx(0.25, abs=0.01)]


def test_the_averages_count_anew_at_most_256_times_in_a_half_life():
    use = Use(tree("a"))
    use.note(12_000)
    before = use.history.version
    for _ in range(256 * 4):
        use.after(DAY / 256 / 4, 12_000)

    assert 200 <= use.history.version - before <= 257


def test_an_average_that_stays_the_same_counts_no_anew():
    use = Use(tree("a", "b"))
    use.note(0, 6_000)
    for _ in range(20):
        use.after(DAY, 0, 6_000)
    before, at = use.history.version, use.history.status_of(use.tree, 0)
    use.after(DAY, 0, 6_000)

    assert use.history.version == before
    assert use.history.status_of(use.tree, 0) == at


def test_a_queue_keeps_its_average_when_other_queues_change():
    use = Use(tree("a", "b"))
    use.note(12_000, 0)
    use.after(DAY, 12_000, 0)
    use.tree = tree("b", "c", a=5)

    assert dict(zip("abc", use.note(0, 0, 0), strict=True)) == {"a": 0.5, "b": 0, "c": 0}
    use.tree = tree("b")
    use.note(0)
    use.tree = tree("a", "b")
    assert use.note(0, 0) == [0, 0], "a deleted queue is forgotten"


def status(average: object, time: object) -> dict[str, Any]:
    return {"a": {"status": {"averageShare": average, "averageShareTime": time}}}


@pytest.mark.parametrize(
    ("objects", "average"),
    [
        pytest.param({}, 0, id="no object"),
        pytest.param({"a": {"status": None}}, 0, id="no status"),
        pytest.param(status("40.00%", "{now}"), 0.4, id="just written"),
        pytest.param(status("40.00%", "{yesterday}"), 0.7, id="a half-life ago"),
        pytest.param(status("40.00%", "{tomorrow}"), 0.4, id="written by a clock that is ahead"),
        pytest.param(status("lots", "{now}"), 0, id="no number"),
        pytest.param(status("nan%", "{now}"), 0, id="not a number"),
        pytest.param(status("140%", "{now}"), 0, id="more than the cluster"),
        pytest.param(status("40%", "today"), 0, id="no time"),
        pytest.param(status(["40%"], 5), 0, id="other types"),
    ],
)
def test_the_average_of_a_status_continues_with_the_present_use(objects: dict[str, Any], average: float):
    use = Use(tree("a"))
    use.clock.advance(DAY)
    times = {
        name: use_time(use, shift) for name, shift in (("now", 0), ("yesterday", -DAY), ("tomorrow", DAY))
    }
    its = (objects.get("a") or {}).get("status") or {}
    if isinstance(its.get("averageShareTime"), str):
        its = {**its, "averageShareTime": its["averageShareTime"].format(**times)}
        objects = {"a": {"status": its}}

    assert use.note(12_000, objects=objects) == [average]


def use_time(use: Use, shift: float) -> str:
    clock = ManualClock(use.clock.now + shift)
    return clock.utc_now().isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("weights", "averages", "strength", "expected"),
    [
        pytest.param([1, 1], [0, 0], 1, [0.5, 0.5], id="no use"),
        pytest.param([1, 3], [0.1, 0.3], 1, [0.25, 0.75], id="each used its part"),
        pytest.param([1, 1], [0.5, 0], 1, [0.25, 0.75], id="one used it alone"),
        pytest.param([1, 1], [0.5, 0], 0, [0.5, 0.5], id="without strength"),
        pytest.param([1, 1], [1, 0], 1, [0.025, 1], id="a twentieth is left"),
        pytest.param([1, 1], [0.02, 0], 1, [0.49, 0.51], id="little was used"),
    ],
)
def test_a_queue_that_used_more_than_its_part_has_a_smaller_weight(
    weights: list[float], averages: list[float], strength: float, expected: list[float]
):
    found = weights_after_use(np.array(weights, dtype=float), np.array(averages, dtype=float), 1.0, strength)

    assert found.tolist() == pytest.approx(expected)


def test_the_fair_shares_of_two_queues_approach_their_parts():
    its = tree("a", "b")
    use = Use(its)
    use.note(12_000, 0)
    use.after(DAY, 12_000, 0)
    shares, wanted = FairShares(its, ("cpu",), use.history), np.array([[12_000], [12_000]])
    found = {}
    for hour in range(49):
        if hour in {0, 6, 12, 24, 48}:
            deserved = shares.deserved(wanted, WHOLE, WHOLE)
            found[hour] = [int(each) / 1000 for each in deserved[:, 0]]
        for _ in range(60):
            now = shares.deserved(wanted, WHOLE, WHOLE)[:, 0].tolist()
            use.note(*now)
            use.after(60, *now)

    documented = {0: [3, 9], 6: [3.9, 8.1], 12: [4.5, 7.5], 24: [5.2, 6.8], 48: [5.8, 6.2]}
    assert found == {hour: pytest.approx(each, abs=0.06) for hour, each in documented.items()}


def test_siblings_below_a_queue_are_compared_with_each_other():
    its = Tree(
        [
            Queue("top"),
            Queue("a", "top", namespaces=("a",)),
            Queue("b", "top", namespaces=("b",)),
            Queue("other", namespaces=("other",)),
        ]
    )
    names = [queue.name for queue in its.queues]
    use = Use(its)
    used = {"top": 6_000, "a": 6_000, "b": 0, "other": 6_000}
    use.note(*(used[name] for name in names))
    use.after(3 * DAY, *(used[name] for name in names))
    wanted = np.array([[12_000] for _ in names])
    found = FairShares(its, ("cpu",), use.history).deserved(wanted, WHOLE, WHOLE)[:, 0]
    by_name = dict(zip(names, found.tolist(), strict=True))

    assert by_name["top"] == by_name["other"] == 6_000
    assert by_name["a"] < 1_500
    assert by_name["b"] > 4_500


def test_min_and_demand_come_before_the_history():
    its = Tree([Queue("a", min={"cpu": 5_000}, namespaces=("a",)), Queue("b", namespaces=("b",))])
    use = Use(its)
    use.note(12_000, 0)
    use.after(10 * DAY, 12_000, 0)
    shares = FairShares(its, ("cpu",), use.history)

    both = np.array([[12_000], [12_000]])
    assert shares.deserved(both, WHOLE, WHOLE)[:, 0].tolist() == [5_000, 7_000]
    alone = np.array([[12_000], [0]])
    assert shares.deserved(alone, WHOLE, WHOLE)[:, 0].tolist() == [12_000, 0]


def test_the_plugin_counts_use_and_reports_it():
    world = World(TWO, running("a", 12), history=HistoryArgs())
    world.refresh()
    world.fakes.clock.advance(DAY)
    world.refresh()
    world.wait(incoming("b", "12", name="waits"))

    found = run_to_end(world.plugin.report())
    assert found["a"].average_share == pytest.approx(0.5)
    assert (found["a"].fair_share, found["b"].fair_share) == ({"cpu": 3000}, {"cpu": 9000})
    fields = status_of_report(found["a"], {}).fields
    assert fields["averageShare"] == "50.00%"
    assert fields["averageShareTime"] == world.fakes.clock.utc_now().strftime("%Y-%m-%dT%H:%M:%SZ")
    (a, _) = run_to_end(world.plugin.quota_usages([world.plugin], []))
    assert a.average_share == pytest.approx(0.5)
    assert world.plugin.why(incoming("a"), world.cache.snapshot(), None)[:2] == [
        "queue a has 12 of its fair 3 cpu, the pod requests 1",
        "queue a had 50.0% of the cluster on average, which counts in its share",
    ]


def test_a_chosen_node_counts_from_its_reservation_on():
    world = World(TWO, history=HistoryArgs())
    world.refresh()
    placed = incoming("a", "12")
    world.cache.assume(placed, "n")
    world.plugin.reserve(None, placed, "n")  # type: ignore[arg-type]  # the state is not read
    world.fakes.clock.advance(DAY)
    world.refresh()

    assert run_to_end(world.plugin.report())["a"].average_share == pytest.approx(0.5)


def test_without_a_history_nothing_is_reported():
    world = World(TWO, running("a", 12))
    world.refresh()
    world.fakes.clock.advance(DAY)
    world.refresh()

    found = run_to_end(world.plugin.report())["a"]
    assert found.average_share is None
    assert "averageShare" not in status_of_report(found, {}).fields


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        pytest.param(HistoryArgs(half_life=Duration.parse("10s")), "history.halfLife: at least 1m0s is expected, was 10s", id="half-life"),
        pytest.param(HistoryArgs(strength=11), "history.strength: 0 to 10 is expected, was 11", id="too strong"),
        pytest.param(HistoryArgs(strength=-1), "history.strength: 0 to 10 is expected, was -1", id="negative"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused_with_their_path(args: HistoryArgs, expected: str):
    assert [str(fault) for fault in FairQueuesArgs(history=args).faults()] == [expected]


def test_the_half_life_is_a_day_by_default():
    assert HistoryArgs().half_life == Duration.parse("24h")
