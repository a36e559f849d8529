"""A missing program skips or fails its test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.binaries import needed_binary


def test_an_installed_program_is_found() -> None:
    assert Path(needed_binary("sh", "every system")).is_file()


def test_a_missing_program_skips_the_test_and_names_its_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CI", raising=False)

    with pytest.raises(
        pytest.skip.Exception, match="no-such-program is not installed; it comes with a package"
    ):
        needed_binary("no-such-program", "a package")


def test_in_ci_a_missing_program_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")

    with pytest.raises(pytest.fail.Exception, match="no-such-program is not installed"):
        needed_binary("no-such-program", "a package")
