from __future__ import annotations

import re

import pytest

from scheduler.simulator.kinds.custom_resource_schemas import go_pattern


@pytest.mark.parametrize(
    ("pattern", "matching", "failing"),
    [
        pytest.param("^(?i)(abort|warn)?$", ["Warn", "ABORT", ""], ["warned"], id="flags after the start"),
        pytest.param(
            "^(a(?i)b)c$", ["abc", "aBc"], ["abC", "Abc"], id="flags hold to the end of their group"
        ),
        pytest.param("^(?i)a(?s).$", ["A\n", "ab"], ["b\n"], id="two flags in one group"),
        pytest.param(r"^[(?i)]+\z", ["(i)?", "i"], ["I", "i\n"], id="a class holds no flags"),
        pytest.param(r"^\(?i\)$", ["(i)", "i)"], ["(I)"], id="an escaped bracket opens nothing"),
        pytest.param("^(?:a|b)$", ["a", "b"], ["ab"], id="a group without a number"),
    ],
)
def test_an_expression_has_its_meaning_in_go(pattern: str, matching: list[str], failing: list[str]):
    found = go_pattern(pattern)

    assert [text for text in matching if not found.search(text)] == []
    assert [text for text in failing if found.search(text)] == []


@pytest.mark.parametrize("pattern", ["(", "a)", "[a", "(?U)a*", "*"])
def test_an_invalid_expression_is_refused(pattern: str):
    with pytest.raises(re.error):
        go_pattern(pattern)
