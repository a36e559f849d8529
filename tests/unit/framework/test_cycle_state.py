"""A clone shares data until one of the two changes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.framework import CycleState


class Counter:
    """Data with a copy method."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def clone(self) -> Counter:
        return Counter(self.count)


def test_a_written_value_can_be_read():
    state = CycleState()
    state.write("Plugin", [1])

    assert state.read("Plugin", list) == [1]
    assert "Plugin" in state
    assert "Other" not in state


def test_a_missing_value_is_an_error_that_names_it():
    with pytest.raises(LookupError, match="'Plugin'; did the plugin's earlier extension point run"):
        CycleState().read("Plugin", list)


def test_a_value_that_may_be_missing_is_found_or_none():
    state = CycleState()
    state.write("Plugin", [1])

    assert state.find("Plugin", list) == [1]
    assert state.find("Other", list) is None
    with pytest.raises(TypeError, match="holds a list, not a dict"):
        state.find("Plugin", dict)


def test_data_of_another_type_is_an_error_that_names_both():
    state = CycleState()
    state.write("Plugin", {})

    with pytest.raises(TypeError, match="holds a dict, not a list"):
        state.read("Plugin", list)


def test_a_value_is_deleted_from_one_state_only():
    state = CycleState()
    state.write("Plugin", [1])
    clone = state.clone()

    clone.delete("Plugin")
    clone.delete("never written")

    assert "Plugin" not in clone
    assert state.read("Plugin", list) == [1]


def append(data: list[int]) -> None:
    data.append(1)


def add_key(data: dict[str, int]) -> None:
    data["x"] = 1


def add(data: set[int]) -> None:
    data.add(1)


def fill(data: np.ndarray[Any, Any]) -> None:
    data[:] = 1


def count(data: Counter) -> None:
    data.count += 1


KINDS = [
    pytest.param(list, append, len, id="a list"),
    pytest.param(dict, add_key, len, id="a dict"),
    pytest.param(set, add, len, id="a set"),
    pytest.param(lambda: np.zeros(2), fill, np.sum, id="an array"),
    pytest.param(Counter, count, lambda data: data.count, id="data with a clone method"),
]


@pytest.mark.parametrize(("make", "change", "look"), KINDS)
@pytest.mark.parametrize("changer", ["the clone", "the original"])
def test_a_change_on_one_side_is_not_visible_on_the_other(make: Any, change: Any, look: Any, changer: str):
    original = CycleState()
    original.write("Plugin", make())
    clone = original.clone()
    assert clone.read("Plugin", object) is original.read("Plugin", object)
    mine, other = (clone, original) if changer == "the clone" else (original, clone)

    change(mine.mutable("Plugin", object))

    assert look(mine.read("Plugin", object)) != look(other.read("Plugin", object))
    assert look(other.read("Plugin", object)) == look(make())


def test_data_are_copied_once_and_only_where_they_are_shared():
    state = CycleState()
    data = [1]
    state.write("Plugin", data)
    assert state.mutable("Plugin", list) is data

    clone = state.clone()
    copied = clone.mutable("Plugin", list)

    assert copied is not data
    assert clone.mutable("Plugin", list) is copied


def test_a_clone_of_a_clone_is_independent_too():
    first = CycleState()
    first.write("Plugin", [])
    second = first.clone()
    second.mutable("Plugin", list).append("second")
    third = second.clone()
    third.mutable("Plugin", list).append("third")

    assert first.read("Plugin", list) == []
    assert second.read("Plugin", list) == ["second"]
    assert third.read("Plugin", list) == ["second", "third"]


@pytest.mark.parametrize("kind", [CycleState, AttemptState])
def test_a_clone_has_the_same_value_in_every_field(kind: type[CycleState]):
    state = kind()
    fields = {name for each in kind.__mro__ for name in getattr(each, "__slots__", ()) if name[0] != "_"}
    assert {"attempt", "exhaustive", "group", "nominated"} <= fields
    for name in fields:
        setattr(state, name, object())

    clone = state.clone()

    assert type(clone) is kind
    assert all(getattr(clone, name) is getattr(state, name) for name in fields)


def test_shared_data_without_a_copy_method_is_an_error_at_its_change():
    state = CycleState()
    state.write("Plugin", object())
    clone = state.clone()

    with pytest.raises(TypeError, match="'Plugin': a object needs a clone method"):
        clone.mutable("Plugin", object)


def rows_of(state: CycleState) -> None:
    state.write("Rows", [1], by_row=True)
    state.write("Plugin", [2])


@pytest.mark.parametrize("how", ["written", "cloned", "taken over", "changed"])
def test_data_by_row_are_dropped_with_the_snapshot_and_the_rest_stays(how: str):
    first, state = CycleState(), CycleState()
    rows_of(first if how in {"cloned", "taken over"} else state)
    if how == "cloned":
        state = first.clone()
    elif how == "taken over":
        state.take_over(first)
    elif how == "changed":
        state.clone()
        state.mutable("Rows", list).append(3)

    state.forget_rows()

    assert "Rows" not in state
    assert state.read("Plugin", list) == [2]


def test_another_state_keeps_its_rows():
    state = CycleState()
    rows_of(state)
    clone = state.clone()

    clone.forget_rows()

    assert state.read("Rows", list) == [1]
