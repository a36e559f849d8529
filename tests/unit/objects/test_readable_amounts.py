from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.objects.quantity import readable_amounts

GI = 1 << 30


@pytest.mark.parametrize(
    ("resource", "amounts", "written"),
    [
        pytest.param("cpu", [2000, 1500, 250, 1, 0, -500], ["2", "1.5", "0.25", "0.001", "0", "-0.5"], id="cpu"),
        pytest.param("cpu", [100_000, 1_234_567], ["100", "1234.567"], id="many cpus"),
        pytest.param("memory", [GI, GI + GI // 2, 300], ["1Gi", "1.5Gi", "300"], id="bytes"),
        pytest.param("memory", [100 * GI, 1023, 1024, -GI], ["100Gi", "1023", "1Ki", "-1Gi"], id="borders"),
        pytest.param("hugepages-2Mi", [2 << 20], ["2Mi"], id="huge pages"),
        pytest.param("nvidia.com/gpu", [3, 0], ["3", "0"], id="a count"),
        pytest.param("memory", [GI, GI], ["1Gi", "1Gi"], id="the same amount twice"),
        pytest.param(
            "memory", [GI, GI + 1], ["1073741824", "1073741825"], id="in full where two digits hide the difference"
        ),
    ],
)  # fmt: skip
def test_amounts_are_written_in_readable_units(resource: str, amounts: list[int], written: list[str]):
    assert readable_amounts(resource, *amounts) == written


@given(st.sampled_from(["cpu", "memory", "pods"]), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_different_amounts_are_written_differently(resource: str, amounts: list[int]):
    assert len(set(readable_amounts(resource, *amounts))) == len(set(amounts))
