from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from scheduler.configuration.yaml_text import read, write


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("# a comment", None),
        ("a: 1\n---\n# nothing follows\n", {"a": 1}),
        ('{"a": [1, 2.5, "x", true, null]}', {"a": [1, 2.5, "x", True, None]}),
        ("a: 2024-01-01", {"a": "2024-01-01"}),
        ("a: 1:30", {"a": "1:30"}),
        ("a: 1e3", {"a": 1000.0}),
        ("a: 010", {"a": 8}),
        ("a: 0x1F", {"a": 31}),
        ("a: 1_000", {"a": 1000}),
        ("a: on", {"a": True}),
        ("a: '1'", {"a": "1"}),
        ("a: !!str 1", {"a": "1"}),
        ('a: "\\ud83d\\ude00"', {"a": "\N{GRINNING FACE}"}),
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}", {"a": {"b": 1, "c": 2}, "d": {"c": 3, "b": 1}}),
        (
            "a: &x {b: 1}\ne: &y {b: 2, c: 2}\nd: {<<: [*x, *y]}",
            {"a": {"b": 1}, "e": {"b": 2, "c": 2}, "d": {"b": 1, "c": 2}},
        ),
    ],
)
@pytest.mark.parametrize("is_in_c", [True, False], ids=["parsed in C", "parsed in Python"])
def test_yaml_becomes_json_values(
    text: str, value: Any, is_in_c: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", is_in_c)
    document = read(text)
    assert document.errors == []
    assert document.value == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1, 2", "line 1, column 9: not YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: 1\n b: 2", "line 2, column 3: not YAML: mapping values are not allowed here"),
        ("a: *b", "line 1, column 4: not YAML: found undefined alias 'b'"),
        ("a: 1\nb: \x07", "line 2, column 4: not YAML: a control character"),
        ('a: "\\Uffffffff"', "not YAML: an escape sequence has no character"),
        ('a: "\\U00110000"', "not YAML: an escape sequence has no character"),
        ("a: 1\n---\nb: 2", "line 3: a second document begins, one configuration is one document"),
        ("a: 1\na: 2", "a: given twice, on lines 1 and 2"),
        ("a: {b: 1, b: 2}", "a.b: given twice, on line 1"),
        ("a:\n- x: 1\n- x: 1\n  x: 2", "a[1].x: given twice, on lines 3 and 4"),
        ("a: {1: x}", 'a: the key "1" must be text: put it in quotes'),
        ("a: {yes: x}", 'a: the key "yes" must be text: put it in quotes'),
        ("a: {[]: x}", "a: the key that is no text must be text: put it in quotes"),
        ("a: !!binary aGk=", 'a: the tag "tag:yaml.org,2002:binary" is not supported'),
        ("a: !secret x", 'a: the tag "!secret" is not supported'),
        ("a: !!set {x, y}", 'a: the tag "tag:yaml.org,2002:set" is not supported'),
        ("!secret x", 'line 1: the tag "!secret" is not supported'),
        ("a: !!int x", 'a: must be an integer, was "x"'),
        ("a: !!bool x", 'a: must be true or false, was "x"'),
        ("a: .nan", 'a: must be a finite number, was ".nan"'),
        ("a: -.inf", 'a: must be a finite number, was "-.inf"'),
        ("a: 1e999", 'a: must be a finite number, was "1e999"'),
        ("a: 18446744073709551616", 'a: must fit in 64 bits, was "18446744073709551616"'),
        ("a: " + "9" * 5000, f'a: must be an integer, was "{"9" * 80}..."'),
        ('a: "\\ud83d"', "a: contains half a character (a lone surrogate)"),
        ("a: {<<: 1}", "a: << must name a mapping or a list of mappings"),
        ("a: &x [*x]", "nested deeper than 64 levels"),
        ("[" * 100 + "]" * 100, "nested deeper than 64 levels"),
        ("[" * 100_000, "nested deeper than 64 levels"),
    ],
)
def test_an_invalid_text_is_named_with_its_place(text: str, message: str) -> None:
    errors = read(text).errors
    assert len(errors) == 1
    assert str(errors[0]).startswith(message)


def test_exponential_aliases_are_refused() -> None:
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
    )
    assert [str(error) for error in read(text).errors] == ["holds more than 100000 values"]


def test_errors_do_not_hide_each_other() -> None:
    document = read("a: {b: 1, b: 2}\nc: !x 1\nd: [1, !y 2, 3]\ne: 5")
    assert [error.path for error in document.errors] == ["a.b", "c", "d[1]"]
    assert document.value == {"a": {"b": 1}, "d": [1, None, 3], "e": 5}


# Everything with a special treatment in YAML.
_TEXT = st.text(
    "aZ09_ \t\n\r\0\a\x1b\x7f\x85\xa0\xb5\u2028\u2029\ufeff\uffff\U0001f600'\"\\:#-[]{},&*!|>%@`~=<.+?/"
)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    _TEXT,
    st.sampled_from(["1e3", "yes", "0x1f", "~", "", "<<", "=", "1:30", "2024-01-01", "a: b", "- a", "010"]),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(_TEXT, _VALUES, min_size=1, max_size=4))
def test_written_values_are_read_unchanged(value: dict[str, Any]) -> None:
    document = read(write(value))
    assert document.errors == []
    assert document.value == value
