"""A folder that the processes of a test run share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.image import built_once

if TYPE_CHECKING:
    from pathlib import Path


def test_a_shared_folder_is_built_once_and_removed_by_its_last_user(tmp_path: Path) -> None:
    built: list[Path] = []
    with built_once(tmp_path / "state", built.append) as first:
        with built_once(tmp_path / "state", built.append) as second:
            assert second == first
        assert first.is_dir()

    assert built == [first]
    assert not first.exists()


def test_a_shared_folder_that_could_not_be_built_is_removed_and_built_again(tmp_path: Path) -> None:
    tried: list[Path] = []

    def fail(folder: Path) -> None:
        tried.append(folder)
        raise ValueError

    with pytest.raises(ValueError), built_once(tmp_path / "state", fail):  # noqa: PT011 - the one above
        pass

    assert [folder.exists() for folder in tried] == [False]
    with built_once(tmp_path / "state", tried.append) as folder:
        assert tried[1] == folder
