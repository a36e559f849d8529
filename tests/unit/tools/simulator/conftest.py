"""What tests of the simulated API server share."""

from __future__ import annotations

import pytest

from tests.unit.tools.simulator.a_store import AStore


@pytest.fixture
def store() -> AStore:
    return AStore()
