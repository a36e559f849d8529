"""Whatever is delayed, lost or stopped, and whichever clock jumps: no two replicas use one bucket at the same time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.sharding.holding import (
    NOBODY,
    Assignment,
    BucketHolder,
    BucketState,
    Durations,
    without,
)
from tests.unit.engine.sharding.world import BUCKETS, DURATIONS, World, owners

COUNT = 4
which = st.integers(0, COUNT - 1)
events = st.one_of(
    st.tuples(st.just("stop"), which, st.floats(0.5, 30.0)),
    st.tuples(st.just("clock"), which, st.floats(-0.5, 0.5)),
    st.tuples(st.just("cache"), which, st.floats(0.5, 20.0)),
    st.tuples(st.just("blind"), which, st.floats(0.5, 20.0)),
    st.tuples(st.just("cut"), which, st.floats(0.5, 30.0)),
    st.tuples(st.just("delay"), st.sampled_from([1, 4, 12]), st.floats(0.5, 30.0)),
    st.tuples(st.just("lose"), st.sampled_from([10, 50, 100]), st.floats(0.5, 20.0)),
    st.tuples(st.just("lead"), which, st.floats(0.5, 10.0)),
    st.tuples(st.just("slow"), which, st.floats(5.0, 30.0)),
    st.tuples(st.just("erratic"), which, st.floats(5.0, 30.0)),
    st.tuples(st.just("join"), which, st.floats(0.5, 10.0)),
    st.tuples(st.just("wait"), which, st.floats(0.5, 20.0)),
)


def happen(world: World, what: str, number: int, value: float) -> None:
    replica, faults = world.replicas[number % len(world.replicas)], world.faults
    of_a_replica = {
        "stop": faults.stopped,
        "cache": faults.late_cache,
        "blind": faults.blind,
        "cut": faults.cut,
    }
    match what:
        case "clock":  # its durations are wrong by at most the difference of two offsets
            replica.offset = value
        case "delay":
            faults.delay = float(number)
        case "lose":
            faults.loss = number / 100.0
        case "lead":
            faults.leaders ^= {replica.name}
        case "slow" | "erratic":
            faults.is_slow, faults.is_erratic = faults.is_slow or what == "slow", True
        case "join" if len(world.replicas) < BUCKETS:
            world.add()
        case _ if what in of_a_replica:
            of_a_replica[what].add(replica.name)
    world.run(1.0 if what == "clock" else value)


@given(seed=st.integers(0, 2**32), plan=st.lists(events, min_size=6, max_size=20))
def test_no_two_replicas_use_a_bucket_and_no_decision_misses_a_binding(
    seed: int, plan: list[tuple[str, int, float]]
):
    world = World(seed)
    for _ in range(2):
        world.add()
    world.faults.leaders = {"replica-0"}
    world.run(8.0)
    for number, event in enumerate(plan):
        happen(world, *event)
        if number % 3 == 2:  # faults end, and others overlap
            world.faults.end()

    assert world.violations == []


@pytest.mark.parametrize("seed", [6, 8, 22, 27])
def test_nothing_is_missed_while_owners_change_again_and_again_and_bindings_arrive_late(seed: int):
    world = World(seed)
    for _ in range(3):
        world.add()
    world.faults.leaders = {"replica-0"}
    world.run(8.0)
    world.faults.is_slow = world.faults.is_erratic = True
    world.run(100.0)

    assert world.violations == []
    assert len(world.server.bindings) > 100


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), plan=st.lists(events, max_size=6))
def test_after_faults_each_bucket_is_in_use(seed: int, plan: list[tuple[str, int, float]]):
    world = World(seed)
    for _ in range(2):
        world.add()
    for event in plan:
        happen(world, *event)
    world.faults.end()
    leader = world.add()
    world.faults.leaders = {leader.name}
    world.run(2 * DURATIONS.lease + 20.0)

    assert all(len(names) == 1 for names in owners(world)), owners(world)
    assert world.violations == []


# The steps, one by one.

NAMES = ("a", "b")


def holder() -> BucketHolder:
    made = BucketHolder("a", DURATIONS)
    made.renewed(0.0)
    return made


def test_a_free_bucket_is_claimed_and_used_after_the_cache_has_the_bindings_of_the_last_holder():
    it = holder()
    it.saw(Assignment(1, NAMES, (NOBODY, "b")))
    claim = it.change(1.0)
    assert claim == Assignment(1, NAMES, ("a", "b"))
    it.saw(Assignment(2, NAMES, ("a", "b")))
    assert it.state(0, 1.0) is BucketState.CLAIMED
    it.caught_up(1)
    assert it.state(0, 1.0) is BucketState.CLAIMED
    it.caught_up(2)
    assert it.state(0, 1.0) is BucketState.IN_USE
    assert it.state(1, 1.0) is BucketState.OTHERS


def test_a_bucket_is_released_when_its_last_binding_has_ended():
    it = holder()
    it.saw(Assignment(1, NAMES, ("a", "b")))
    it.caught_up(1)
    it.under_way = lambda: {0}
    it.saw(Assignment(2, ("b", "b"), ("a", "b")))
    assert it.state(0, 1.0) is BucketState.RELEASING
    assert it.change(1.0) is None
    it.under_way = set[int]
    it.unanswered(0, 1.0)
    assert it.change(1.0 + DURATIONS.binding) is None  # it may arrive until then, and the clock may be wrong
    quiet = 1.0 + DURATIONS.binding + DURATIONS.clock_error
    assert it.change(quiet) == Assignment(2, ("b", "b"), (NOBODY, "b"))
    assert it.state(0, quiet) is BucketState.RELEASING


def test_a_bucket_whose_release_was_refused_is_used_again_if_it_is_wanted_again():
    it = holder()
    it.saw(Assignment(1, NAMES, ("a", "b")))
    it.caught_up(1)
    it.saw(Assignment(2, ("b", "b"), ("a", "b")))
    assert it.change(1.0) is not None
    it.saw(Assignment(3, NAMES, ("a", "b")))  # another update was faster

    assert it.state(0, 1.0) is BucketState.IN_USE


def test_nothing_is_used_or_written_after_the_renew_deadline_or_after_the_lease_was_taken():
    it = holder()
    it.saw(Assignment(1, NAMES, ("a", NOBODY)))
    it.caught_up(1)
    late = DURATIONS.renew_deadline
    assert it.state(0, late - 0.1) is BucketState.IN_USE
    assert it.state(0, late) is BucketState.EXPIRED
    it.saw(Assignment(2, ("a", "a"), ("a", NOBODY)))
    assert it.change(late) is None
    it.renewed(5.0)
    assert it.state(0, late) is BucketState.IN_USE  # nobody took the Lease meanwhile
    it.lost()
    it.renewed(8.0)
    assert it.state(0, late) is BucketState.EXPIRED


def test_an_older_version_of_the_assignment_is_ignored():
    it = holder()
    it.saw(Assignment(2, NAMES, (NOBODY, "b")))
    it.saw(Assignment(1, NAMES, ("a", "b")))

    assert it.state(0, 0.0) is BucketState.OTHERS


def test_the_buckets_of_replicas_that_ended_become_free():
    assignment = Assignment(1, NAMES, ("a", "b"))

    assert without(assignment, {"b"}) == ("a", NOBODY)
    assert without(assignment, {"c"}) is None


def test_durations_that_let_a_lease_be_taken_while_a_binding_is_under_way_are_refused():
    with pytest.raises(ValueError, match=r"the lease duration must be at least 17 s, was 16\.5 s"):
        Durations(lease=16.5, renew_deadline=10.0, binding=5.0, clock_error=1.0)
