"""Work that takes longer than one time slice is done in steps between attempts at other pods."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from plugins.dynamic_resources.pod_devices import PodDevices
from plugins.dynamic_resources.structured.requests import evaluations
from scheduler.framework import Code
from scheduler.framework.sliced_work import NeedsTime
from scheduler.snapshot import object_key
from scheduler.testing.devices import (
    DRIVER,
    allocation,
    claims_of,
    device_class,
    exactly,
    first_available,
    resource_claim,
    resource_slice,
)
from tests.support.builders import node, pod
from tests.unit.plugins.dynamic_resources.kit import Attempt, Kit
from tests.unit.plugins.dynamic_resources.structured.node_search import claim, device, long_search, selecting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WEB, OTHER = pod("web", resourceClaims=claims_of("one")), pod("other", resourceClaims=claims_of("two"))
STRUCTURED = "plugins.dynamic_resources.structured"
NO_ROOM = "cannot allocate all claims"
LONG_DEVICES, LONG_CLAIM = long_search()
FOUND_LATE = [device("gpu-98", row=9, column=9), device("gpu-99", row=9, column=9), *LONG_DEVICES]
"""Among these there is one pair, which the search gives to the first request for thousands of steps."""


def hurried(*objects: Any, **args: Any) -> Kit:
    """Return a cluster where a time slice ends after one step, and searches have no time limit."""
    kit = Kit(*objects, **{"filterTimeout": "0s", **args})
    kit.fakes.time_slice.slice_seconds = 1.0
    kit.fakes.time_slice.each_reading = 1.0
    return kit


class Tries:
    """Attempts at a pod until one has a result.

    Attributes:
        attempts: all of them.
        steps: how many steps ran between them.
    """

    def __init__(self, kit: Kit, pod_: Any = WEB) -> None:
        self.kit = kit
        self.pod = pod_
        self.attempts: list[Attempt] = []
        self.steps = 0

    def until_done(
        self, ask: Callable[[Attempt], Any], *, meanwhile: Callable[[], None] = lambda: None
    ) -> Any:
        """Return the result of an attempt; `meanwhile` runs between two steps."""
        while len(self.attempts) < 50:
            try:
                attempt = self.kit.begin(self.pod)
                self.attempts.append(attempt)
                return ask(attempt)
            except NeedsTime as needs:
                for _ in needs.steps:
                    self.steps += 1
                    assert self.steps < 10_000, "it does not end"
                    meanwhile()
        raise AssertionError("it does not end")

    @property
    def searched(self) -> list[int]:
        """How many steps the searches of each attempt made."""
        return [searched(attempt) for attempt in self.attempts]


def searched(attempt: Attempt) -> int:
    allocator = attempt.state.read("DynamicResources", PodDevices).allocator
    return 0 if allocator is None else allocator.steps


def on_nodes(devices: Any, *names: str) -> list[Any]:
    return [device_class(), *(each for name in names for each in (node(name), resource_slice(name, devices)))]


def take(kit: Kit, *devices: str, name: str, on: str) -> None:
    taken = resource_claim(name, allocated=allocation(*devices, node=on))
    kit.table.watch_kind("resource.k8s.io/v1/resourceclaims")[object_key(taken)] = taken


def test_a_long_search_continues_between_attempts_and_its_result_is_cached():
    tries = Tries(hurried(*on_nodes(LONG_DEVICES, "a"), LONG_CLAIM))

    assert tries.until_done(Attempt.reasons) == {"a": NO_ROOM}
    assert tries.steps > 20
    assert tries.searched[-1] == 0
    at_once = Kit(*on_nodes(LONG_DEVICES, "a"), LONG_CLAIM).begin(WEB)
    assert at_once.reasons() == {"a": NO_ROOM}
    assert sum(tries.searched) == searched(at_once)


def test_the_result_of_a_long_search_is_reserved_without_another_search():
    tries = Tries(hurried(*on_nodes(FOUND_LATE, "a", "b"), LONG_CLAIM))
    at_once = Kit(*on_nodes(FOUND_LATE, "a", "b"), LONG_CLAIM)

    def place(attempt: Attempt) -> Any:
        assert attempt.reasons() == {}
        before = searched(attempt)
        assert attempt.reserve("b") is None
        assert searched(attempt) == before
        return attempt

    tries.until_done(place)
    attempt = at_once.begin(WEB)
    assert attempt.reasons() == {}
    assert attempt.reserve("b") is None
    given = [kit.plugin._devices.in_flight["uid-of-default-one"].allocation for kit in (tries.kit, at_once)]
    assert given[0] == given[1]
    assert {each.pool for each in given[0].devices.results} == {"b"}
    assert {"gpu-98", "gpu-99"} <= {each.device for each in given[0].devices.results}


def test_a_short_search_is_reserved_on_an_identical_node_without_another_search():
    kit = Kit(*on_nodes(1, "a", "b", "c"), resource_claim("one", exactly()))
    attempt = kit.begin(WEB)
    assert attempt.reasons() == {}
    allocator = attempt.state.read("DynamicResources", PodDevices).allocator
    assert allocator is not None
    before = allocator.steps

    assert attempt.reserve("c") is None

    assert allocator.steps == before > 0
    (given,) = kit.plugin._devices.in_flight.values()
    assert [(each.pool, each.device) for each in given.allocation.devices.results] == [("c", "gpu-0")]


def test_a_search_restarts_only_when_its_devices_are_allocated():
    kit = hurried(*on_nodes(FOUND_LATE, "a", "b"), LONG_CLAIM)
    tries, done = Tries(kit), [0]

    def meanwhile() -> None:
        done[0] += 1
        if done[0] == 20:
            take(kit, "gpu-98", name="taken", on="a")
            kit.plugin._devices.allocated  # noqa: B018  # another attempt updates them

    assert tries.until_done(Attempt.reasons, meanwhile=meanwhile) == {"a": NO_ROOM}


def test_a_search_with_unchanged_devices_does_not_restart():
    kit = hurried(*on_nodes(LONG_DEVICES, "a"), *on_nodes(1, "b")[1:], LONG_CLAIM)
    tries, done = Tries(kit), [0]

    def meanwhile() -> None:
        done[0] += 1
        take(kit, "gpu-0", name=f"taken{done[0]}", on="b")
        kit.plugin._devices.allocated  # noqa: B018

    assert tries.until_done(Attempt.reasons, meanwhile=meanwhile)["a"] == NO_ROOM
    at_once = Kit(*on_nodes(LONG_DEVICES, "a"), LONG_CLAIM).begin(WEB)
    at_once.reasons()
    assert sum(tries.searched) < 1.2 * searched(at_once) + 100


@pytest.mark.parametrize("limit", ["50s", "0s"])
def test_a_search_with_constantly_changing_devices_ends(limit: str):
    kit = hurried(*on_nodes(LONG_DEVICES, "a"), LONG_CLAIM, filterTimeout=limit)
    tries, done = Tries(kit), [0]

    def meanwhile() -> None:
        done[0] += 1
        take(kit, f"gpu-{done[0] % 2}", name="taken", on="a")
        kit.plugin._devices.allocated  # noqa: B018

    outcome = tries.until_done(Attempt.filter, meanwhile=meanwhile)["a"]

    assert outcome.code is Code.ERROR
    assert outcome.reasons == ("node a: timed out trying to allocate devices",)
    assert tries.steps < (100 if limit == "50s" else 250)


def test_a_changed_slice_restarts_the_attempt():
    kit = hurried(*on_nodes(LONG_DEVICES, "a"), LONG_CLAIM)
    tries, done = Tries(kit), [0]

    def meanwhile() -> None:
        done[0] += 1
        if done[0] == 20:
            changed = resource_slice("a", FOUND_LATE)
            kit.table.watch_kind("resource.k8s.io/v1/resourceslices")[object_key(changed)] = changed

    assert tries.until_done(Attempt.reasons, meanwhile=meanwhile) == {}


def test_only_the_time_of_the_search_itself_counts():
    kit = hurried(*on_nodes(LONG_DEVICES, "a"), LONG_CLAIM, filterTimeout="1000s")
    limit = kit.fakes.time_slice

    def meanwhile() -> None:
        limit._now += 10_000.0

    assert Tries(kit).until_done(Attempt.reasons, meanwhile=meanwhile) == {"a": NO_ROOM}


def test_the_next_attempt_continues_a_search_that_took_too_long():
    slices = [
        resource_slice(name, [*LONG_DEVICES, device(f"more-{name}", row=-1, column=number)])
        for number, name in enumerate("abc")
    ]
    cluster = [device_class(), *map(node, "abc"), *slices, LONG_CLAIM]
    kit = hurried(*cluster, filterTimeout="30s")
    limit = kit.fakes.time_slice
    limit.slice_seconds = inf

    said = [kit.begin(WEB).filter() for _ in range(100)]

    first = said[0]
    assert {each.reasons for each in first.values()} == {("node a: timed out trying to allocate devices",)}
    assert {each.code for each in first.values()} == {Code.ERROR}
    assert {each.reasons[0] for each in said[-1].values()} == {NO_ROOM}


def test_a_filter_timeout_of_zero_has_no_limit():
    kit = hurried(*on_nodes(LONG_DEVICES, "a"), LONG_CLAIM, filterTimeout="0s")
    kit.fakes.time_slice.each_reading = 1e6

    assert Tries(kit).until_done(Attempt.reasons) == {"a": NO_ROOM}


def test_scores_and_alternatives_need_no_search_of_their_own():
    wanted = claim("one", first_available("r0", "none", "gpu"))
    kit = hurried(*on_nodes(4, "a", "b"), device_class("none", "false"), wanted)

    def score(attempt: Attempt) -> Mapping[str, int]:
        assert attempt.reasons() == {}
        before = searched(attempt)
        scores = attempt.scores()
        assert searched(attempt) == before
        return scores

    assert Tries(kit).until_done(score) == {"a": 100, "b": 100}


def test_slices_are_read_in_steps():
    names = [f"n{number}" for number in range(30)]
    kit = hurried(*on_nodes(40, *names), claim("one"))

    tries = Tries(kit)
    assert tries.until_done(Attempt.reasons) == {}
    assert tries.steps >= len(names) - 2

    before = tries.steps
    assert tries.until_done(Attempt.reasons) == {}
    assert tries.steps == before


def test_pre_enqueue_reads_slices_for_at_most_one_time_slice():
    kit = hurried(*on_nodes(40, *(f"n{number}" for number in range(30))), claim("one"))

    assert kit.plugin.pre_enqueue(WEB) is None
    assert len(kit.plugin._inventory._published) == 1


def test_claims_are_read_in_steps():
    taken = [resource_claim(f"t{n}", allocated=allocation(f"gpu-{n}", node="a")) for n in range(200)]
    kit = hurried(*on_nodes(200, "a"), *taken, claim("one"))
    tries = Tries(kit)

    assert tries.until_done(Attempt.reasons) == {"a": NO_ROOM}
    assert tries.steps > 200 / 20


def test_selectors_are_compiled_and_evaluated_in_steps():
    expressions = [f'device.attributes["{DRIVER}"].n != {-number}' for number in range(1, 33)]
    wanted = exactly(selectors=[each for text in expressions for each in selecting(text)])
    devices = [device(f"gpu-{n}", n=n) for n in range(40)]
    kit = hurried(*on_nodes(devices, "a"), claim("one", wanted))
    tries, most, before = Tries(kit), [0], [evaluations.count]

    def meanwhile() -> None:
        most[0] = max(most[0], evaluations.count - before[0])
        before[0] = evaluations.count

    assert tries.until_done(Attempt.reasons, meanwhile=meanwhile) == {}
    assert tries.steps >= 32
    assert 0 < most[0] <= 2 * 32


def test_the_number_of_slice_checks_does_not_depend_on_the_cache():
    asked = []
    kit = Kit(*on_nodes(4, "a", "b"), claim("one"), claim("two"))
    limit = kit.fakes.time_slice
    limit.slice_seconds = 1.0
    limit.measured = lambda is_so: bool(asked.append(is_so)) or is_so  # type: ignore[method-assign]

    counts = []
    for each in (WEB, WEB, OTHER):
        asked.clear()
        kit.begin(each).filter()
        counts.append(len(asked))

    assert len(set(counts)) == 1
    assert counts[0] > 0


def test_a_recorded_attempt_that_needed_time_needs_it_in_a_replay():
    kit = Kit(*on_nodes(4, "a"), claim("one"))
    limit = kit.fakes.time_slice
    limit.slice_seconds = 1.0
    said = iter([True])
    limit.measured = lambda _: next(said, False)  # type: ignore[method-assign]

    with pytest.raises(NeedsTime) as needs:
        kit.begin(WEB)
    assert list(needs.value.steps) == []
    limit.each_reading = 10.0
    assert kit.begin(WEB).reasons() == {}


def test_a_long_explanation_ends():
    kit = Kit(*on_nodes(LONG_DEVICES, "a"), LONG_CLAIM)
    clock, now = kit.fakes.clock, iter(range(10**6))
    clock.monotonic = lambda: float(next(now))  # type: ignore[method-assign]
    snapshot = kit.table.snapshot()

    said = kit.plugin.why(WEB, snapshot, snapshot.nodes[0])

    assert said == ["the search for devices on this node takes too long"]


def test_cached_candidates_of_old_requests_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(f"{STRUCTURED}.node_results._KEPT_CANDIDATES", 100)
    names = [f"n{number}" for number in range(20)]
    shared = [{"name": f"gpu-{n}", "allowMultipleAllocations": True} for n in range(10)]
    claims = [claim(f"c{number}", exactly(f"r{number}")) for number in range(8)]
    kit = Kit(*on_nodes(shared, *names), *claims)

    for number in range(8):
        kit.begin(pod("p", resourceClaims=claims_of(f"c{number}"))).filter()

    questions = kit.plugin._inventory.questions._keys
    assert sum(each.n_candidates for each in questions) <= 100 + 200
    assert sum(len(each._candidates) for each in questions) <= 2 * len(names)


def test_the_cache_of_removed_pools_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(f"{STRUCTURED}.question._DROPPED_POOLS", 20)
    kit = Kit(*on_nodes(2, "a", "b"), claim("one"))
    store = kit.table.watch_kind("resource.k8s.io/v1/resourceslices")
    for number in range(100):
        changed = resource_slice("a", [device("gpu-0", n=number)])
        store[object_key(changed)] = changed
        kit.begin(WEB).filter()

    (question,) = kit.plugin._inventory.questions._keys
    assert len(question._selections) < 40
    assert len(question._matter) < 40
