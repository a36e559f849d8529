"""What an assigner does at a moment, from what it has seen."""

from __future__ import annotations

from dataclasses import replace

from scheduler.daemon.sharding.assigner import SeenLease, Steps, assigned, steps
from scheduler.engine.sharding.buckets import BUCKETS
from scheduler.engine.sharding.holding import NOBODY, Assignment

SECONDS = 15.0
NOW = 1000.0


def at(holders: tuple[str, ...] = (), missing: dict[str, float] | None = None, **leases: SeenLease) -> Steps:
    return steps(leases, holders, missing or {}, NOW, SECONDS)


def lease(holder: str, age: float, *, seconds: float = SECONDS, here: bool = False) -> SeenLease:
    return SeenLease(holder, seconds, NOW - age, is_taken_here=here)


def test_replicas_that_renew_are_members_and_nothing_else_is_done() -> None:
    found = at(a=lease("a", 1), b=lease("b", 4))

    assert found.members == ("a", "b")
    assert [found.take, found.ended, found.delete, found.unknown] == [(), frozenset(), (), ()]
    assert found.next_at == NOW - 4 + SECONDS


def test_a_lease_is_taken_after_its_own_duration_and_its_replica_is_a_member_until_then() -> None:
    assert at(a=lease("a", 14.9)).take == ()
    assert at(a=lease("a", 15)).take == ("a",)
    assert at(a=lease("a", 29, seconds=30)).take == ()
    found = at(holders=("a",), a=lease("a", 15))
    assert (found.members, found.ended) == (("a",), frozenset())


def test_a_replica_that_leaves_is_no_member_and_is_taken_after_its_duration_only() -> None:
    found = at(holders=("a",), a=lease("", 1))
    assert (found.members, found.take, found.ended) == ((), (), frozenset())
    assert at(a=lease("", 15)).take == ("a",)


def test_a_replica_whose_lease_was_taken_here_has_ended() -> None:
    assert at(a=lease("me", 0, here=True)).ended == {"a"}


def test_a_holder_that_others_wrote_counts_after_the_duration_only() -> None:
    assert at(a=lease("other", 14.9)).ended == frozenset()
    assert at(a=lease("other", 15)).ended == {"a"}


def test_a_taken_lease_is_deleted_after_ten_durations_once_its_replica_holds_nothing() -> None:
    assert at(a=lease("me", 149, here=True)).delete == ()
    assert at(a=lease("me", 150, here=True)).delete == ("a",)
    assert at(holders=("a",), a=lease("me", 150, here=True)).delete == ()


def test_a_holder_without_a_lease_has_ended_one_duration_after_it_was_missed() -> None:
    assert at(holders=("a",)).unknown == ("a",)
    found = at(holders=("a",), missing={"a": NOW - 14})
    assert (found.unknown, found.ended, found.next_at) == ((), frozenset(), NOW + 1)
    assert at(holders=("a",), missing={"a": NOW - 15}).ended == {"a"}
    assert at(holders=("a",), missing={"a": NOW - 15}, b=lease("b", 1, seconds=60)).ended == frozenset()


def test_the_last_replicas_by_name_get_nothing_if_there_are_more_than_buckets() -> None:
    found = at(**{f"r{number:03}": lease(f"r{number:03}", 1) for number in range(BUCKETS + 2)})

    assert len(found.members) == BUCKETS
    assert found.ignored == ("r256", "r257")


def assignment(wanted: str, held: str) -> Assignment:
    return Assignment(3, (wanted,) * BUCKETS, (held,) * BUCKETS)


def test_an_assignment_that_is_right_is_not_written() -> None:
    assert assigned(assignment("a", "a"), ("a",), ()) is None


def test_a_replica_that_ended_is_removed_in_the_write_that_assigns_its_buckets() -> None:
    new = assigned(assignment("a", "a"), ("b",), ("a",))

    assert new is not None
    assert (new.version, new.wanted, new.held) == (3, ("b",) * BUCKETS, (NOBODY,) * BUCKETS)


def test_without_members_the_wishes_stay() -> None:
    assert assigned(assignment("a", "a"), (), ()) is None


def test_a_taker_should_own_all_buckets_until_the_asks_are_answered() -> None:
    asked = replace(assignment("a", "a"), gangs={"b": "default/g"})
    taken = assigned(asked, ("a", "b"), (), "b")
    assert taken == replace(asked, wanted=("b",) * BUCKETS)
    assert assigned(taken, ("a", "b"), (), "b") is None

    answered = assigned(taken, ("a", "b"), ())
    assert answered is not None
    assert answered.gangs == {}
    assert [answered.wanted.count(name) for name in "ab"] == [BUCKETS // 2] * 2


def test_an_ask_is_answered_although_no_bucket_moves() -> None:
    asked = replace(assignment("a", "a"), gangs={"a": "default/g"})

    assert assigned(asked, ("a",), ()) == assignment("a", "a")
