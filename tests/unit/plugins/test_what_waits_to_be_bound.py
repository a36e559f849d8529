"""Hundreds of pods may wait to be bound, each with the cycle state of the plugins."""

from __future__ import annotations

import pickle
from random import Random

import pytest

from scheduler.engine.cycle.scheduling import schedule_pod
from tests.bench.across_nodes import KINDS, pending, running_cluster
from tests.support.offline_capabilities import frameworks

NODES = 300


@pytest.mark.parametrize("kind", KINDS)
def test_the_data_between_extension_points_do_not_grow_with_the_cluster(kind: str):
    framework = frameworks()["custom-scheduler"]
    cache = running_cluster(NODES, kind)
    [placed] = pending(kind, 1)
    state = schedule_pod(framework, placed, cache.snapshot(), nominated={}, random=Random(1)).state

    state.forget_rows()

    left = {
        key: len(pickle.dumps(data)) for key, data in state._data.items() if not key.startswith("runtime/")
    }
    assert all(size < NODES for size in left.values()), left
