from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.configuration.defaults import merge_plugin_set
from scheduler.configuration.types import Plugin, PluginSet


def plugins(text: str) -> tuple[Plugin, ...]:
    """`A B=5` is A without a weight, then B with 5."""
    parts = (word.partition("=") for word in text.split())
    return tuple(Plugin(name=name, weight=int(weight or 0)) for name, _, weight in parts)


@pytest.mark.parametrize(
    ("enabled", "disabled", "merged"),
    [
        pytest.param("", "", "A B=2 C=3", id="empty lists keep the defaults"),
        pytest.param("D=4 E", "", "A B=2 C=3 D=4 E", id="new ones follow in their order"),
        pytest.param("B=7", "", "A B=7 C=3", id="a default enabled again keeps its place"),
        pytest.param("B", "", "A B C=3", id="a default enabled again without a weight loses it"),
        pytest.param("D C=9 A=1", "", "A=1 B=2 C=9 D", id="replaced in place and added at once"),
        pytest.param("", "B", "A C=3", id="one disabled"),
        pytest.param("B=5", "B", "A C=3 B=5", id="disabled and enabled goes to the end"),
        pytest.param("", "*", "", id="all disabled"),
        pytest.param("C A=4", "*", "C A=4", id="all disabled and some enabled in a new order"),
        pytest.param("C A=4", "* A", "C A=4", id="a name beside the star changes nothing"),
        pytest.param("", "X", "A B=2 C=3", id="an unknown one disabled"),
    ],
)
def test_a_profile_changes_the_default_plugins(enabled: str, disabled: str, merged: str) -> None:
    default = PluginSet(enabled=plugins("A B=2 C=3"))
    result = merge_plugin_set(default, PluginSet(enabled=plugins(enabled), disabled=plugins(disabled)))
    assert result == PluginSet(enabled=plugins(merged), disabled=plugins(disabled))


_NAMES = st.sampled_from("ABCDEF")
_LISTS = st.lists(st.builds(Plugin, name=_NAMES, weight=st.integers(0, 3)), unique_by=lambda p: p.name)


@given(_LISTS, _LISTS, st.lists(_NAMES | st.just("*"), unique=True))
def test_a_second_merge_changes_nothing(
    default: list[Plugin], enabled: list[Plugin], disabled: list[str]
) -> None:
    defaults = PluginSet(enabled=tuple(default))
    custom = PluginSet(enabled=tuple(enabled), disabled=tuple(Plugin(name=name) for name in disabled))
    once = merge_plugin_set(defaults, custom)
    assert merge_plugin_set(defaults, once) == once


@given(_LISTS, _LISTS, st.lists(_NAMES | st.just("*"), unique=True))
def test_every_plugin_that_is_enabled_by_name_occurs_once_with_its_weight(
    default: list[Plugin], enabled: list[Plugin], disabled: list[str]
) -> None:
    custom = PluginSet(enabled=tuple(enabled), disabled=tuple(Plugin(name=name) for name in disabled))
    merged = merge_plugin_set(PluginSet(enabled=tuple(default)), custom).enabled
    assert len({plugin.name for plugin in merged}) == len(merged)
    assert set(enabled) <= set(merged)
    left = {p.name for p in default} - set(disabled) if "*" not in disabled else set()
    assert {p.name for p in merged} == left | {p.name for p in enabled}
