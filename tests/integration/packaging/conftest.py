"""What the tests of the packages share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.image import Installation, base_temp, built_once, install
from tests.support.releases import Releases, build_releases

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with built_once(base_temp(tmp_path_factory) / "image", install) as folder:
        yield Installation.at(folder)


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Releases]:
    with built_once(base_temp(tmp_path_factory) / "releases", build_releases) as folder:
        yield Releases.at(folder)
