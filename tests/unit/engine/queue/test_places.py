from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from scheduler.engine.queue.pod_places import MOVES, Move, Place, Places

if TYPE_CHECKING:
    from collections.abc import Iterator

ILLEGAL = [
    (start, end)
    for start, end in itertools.product(Place, Place)
    if end not in MOVES[start] and start is not end
]

WAY_TO = {
    Place.OUTSIDE: [],
    Place.ACTIVE: [Place.ACTIVE],
    Place.GATED: [Place.GATED],
    Place.IN_FLIGHT: [Place.ACTIVE, Place.IN_FLIGHT],
    Place.BACKOFF: [Place.ACTIVE, Place.IN_FLIGHT, Place.BACKOFF],
    Place.UNSCHEDULABLE: [Place.ACTIVE, Place.IN_FLIGHT, Place.UNSCHEDULABLE],
}


@pytest.fixture
def places() -> Iterator[Places]:
    places = Places()
    yield places
    places.check()


def go(places: Places, uid: str, *ends: Place) -> None:
    for at, end in enumerate(ends):
        places.move(uid, end, at=float(at), why=f"step {at}")


def test_every_place_has_moves():
    assert set(MOVES) == set(Place)


def test_every_place_can_be_left_for_outside():
    assert all(Place.OUTSIDE in ends for start, ends in MOVES.items() if start is not Place.OUTSIDE)


@pytest.mark.parametrize(("start", "end"), ILLEGAL, ids=lambda place: place.value)
def test_an_invalid_move_raises_with_the_history(places: Places, start: Place, end: Place):
    go(places, "u", *WAY_TO[start])

    with pytest.raises(AssertionError) as raised:
        places.move("u", end, at=9.0, why="by mistake")

    text = str(raised.value)
    assert f"{start.value} -> {end.value} (by mistake)" in text
    assert all(f"step {step}" in text for step in range(len(WAY_TO[start])))
    assert places.of("u") is start


def test_the_history_shows_time_places_and_reason_of_each_move(places: Places):
    go(places, "u", Place.ACTIVE, Place.IN_FLIGHT)

    assert places.history("u") == (
        Move(0.0, Place.OUTSIDE, Place.ACTIVE, "step 0"),
        Move(1.0, Place.ACTIVE, Place.IN_FLIGHT, "step 1"),
    )
    assert str(places.history("u")[1]) == "1.000 active -> in flight: step 1"


def test_an_unknown_pod_is_outside_and_has_no_history(places: Places):
    assert places.of("u") is Place.OUTSIDE
    assert places.history("u") == ()


def test_pods_are_counted_by_place(places: Places):
    go(places, "a", Place.ACTIVE)
    go(places, "b", Place.ACTIVE, Place.IN_FLIGHT)
    go(places, "c", Place.ACTIVE, Place.OUTSIDE)

    counted = {place: places.count(place) for place in Place}

    assert counted == dict.fromkeys(Place, 0) | {Place.ACTIVE: 1, Place.IN_FLIGHT: 1}


def test_the_history_continues_when_a_pod_returns(places: Places):
    go(places, "u", Place.ACTIVE, Place.OUTSIDE)
    places.move("u", Place.ACTIVE, at=5.0, why="again")

    assert [move.why for move in places.history("u")] == ["step 0", "step 1", "again"]


def test_a_long_history_drops_its_beginning(places: Places):
    go(places, "u", *[Place.ACTIVE, Place.IN_FLIGHT, Place.BACKOFF] * 20)

    history = places.history("u")

    assert len(history) == 32
    assert history[-1].why == "step 59"


def test_the_last_thousand_histories_of_pods_outside_are_kept(places: Places):
    for number in range(1001):
        go(places, f"u{number}", Place.ACTIVE, Place.OUTSIDE)

    assert places.history("u0") == ()
    assert len(places.history("u1")) == 2


def test_a_note_gives_the_reason_to_stay_and_is_not_repeated(places: Places):
    go(places, "u", Place.GATED)
    for at in (1.0, 2.0):
        places.note("u", at=at, why="still gated")

    assert [str(move) for move in places.history("u")] == [
        "0.000 outside -> gated: step 0",
        "1.000 gated -> gated: still gated",
    ]


def test_many_notes_do_not_lengthen_the_history(places: Places):
    go(places, "u", Place.GATED)
    for number in range(100):
        places.note("u", at=float(number), why=f"reason {number}")

    assert len(places.history("u")) == 32
