"""Every test of the queue ends with a check of the invariants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.engine.queue.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.queue.check()
    cluster.nominator.check()
