"""The syntax of labels."""

from __future__ import annotations

import pytest

from scheduler.objects.selectors import is_label_key, is_label_value


@pytest.mark.parametrize(
    ("key", "valid"),
    [
        ("app", True),
        ("App_1.x-y", True),
        ("example.com/app", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("a." * 126 + "a/b", True),
        ("a." * 127 + "a/b", False),
        ("", False),
        ("-app", False),
        ("app-", False),
        ("an app", False),
        ("größe", False),
        ("/app", False),
        ("example.com/", False),
        ("Example.com/app", False),
        ("a/b/c", False),
        ("app\n", False),
    ],
)
def test_label_keys(key: str, valid: bool):
    assert is_label_key(key) is valid


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        ("", True),
        ("v1.2_x-y", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("-", False),
        ("ü", False),
        ("a\n", False),
    ],
)
def test_label_values(value: str, valid: bool):
    assert is_label_value(value) is valid
