"""Any text gives a configuration or an error with its place, in bounded time and memory, and never another exception."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.configuration.load import Examined, examine, parse
from scheduler.configuration.types import API_VERSION, KIND
from scheduler.configuration.yaml_text import write
from scheduler.errors import ConfigurationError

HEAD = f"apiVersion: {API_VERSION}\nkind: {KIND}\n"
PATIENCE_SECONDS = 30.0
"""A reload is read in a thread; on a busy machine everything takes a few times longer."""

KEYS = st.sampled_from(
    [
        "profiles",
        "plugins",
        "filter",
        "score",
        "multiPoint",
        "enabled",
        "disabled",
        "name",
        "weight",
        "schedulerName",
        "pluginConfig",
        "args",
        "extenders",
        "urlPrefix",
        "tlsConfig",
        "certData",
        "managedResources",
        "leaderElection",
        "leaseDuration",
        "clientConnection",
        "qps",
        "parallelism",
        "percentageOfNodesToScore",
        "podInitialBackoffSeconds",
        "httpTimeout",
        "apiVersion",
        "kind",
        "x",
    ]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["NodeAffinity", "NodeResourcesFit", "15s", "*", "custom-scheduler", "a.py", "m:C", "g.wasm"])
)  # fmt: skip
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=30,
)


def examined(text: str) -> Examined:
    found = examine(text)
    for error in found.errors:
        assert error.problem
    assert found.errors or found.configuration is not None
    return found


@given(st.text(max_size=400) | st.text(alphabet="-[]{}:,?!&*|>'\"%@`#~<= \n\tab01", max_size=200))
def test_any_text_is_accepted_or_refused(text: str) -> None:
    examined(text)
    examined(HEAD + text)


@given(st.dictionaries(KEYS, VALUES, max_size=6))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_accepted_structure_is_a_configuration(value: dict[str, Any]) -> None:
    text = write({**value, "apiVersion": API_VERSION, "kind": KIND})
    found = examined(text)
    if found.errors:
        with pytest.raises(ConfigurationError):
            parse(text)
    else:
        assert parse(text) == found.configuration


ALIASES = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(9)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i + 1}: &a{i + 1} {{<<: [{', '.join([f'*a{i}'] * 4)}], y{i}: 1}}\n" for i in range(20)
)
HOSTILE = {
    "a list of lists of lists of aliases": (ALIASES, "holds more than 100000 values"),
    "mappings merged into mappings": (MERGES, "holds more than 100000 values"),
    "a long text by ninety thousand aliases": (
        f"{HEAD}a: &a {'x' * 400_000}\nb: [{','.join(['*a'] * 90_000)}]\n",
        "characters",
    ),
    "sixty thousand unknown fields": (HEAD + "".join(f"p{i}: 1\n" for i in range(60_000)), "unknown field"),
    "thirty thousand wrong plugins": (
        f"{HEAD}profiles:\n- plugins: {{filter: {{enabled: [{','.join(['{nam: x}'] * 30_000)}]}}}}\n",
        "unknown field",
    ),
    "a number of a million digits": (f"{HEAD}parallelism: {'9' * 900_000}\n", "must be an integer"),
    "two hundred thousand open brackets": (f"{HEAD}a: {'[' * 200_000}", "nested deeper than 64 levels"),
    "short, and nested deeply": (f"{HEAD}a: {'[' * 20_000}", "nested deeper than 64 levels"),
    "sixty thousand characters of aliases": (
        f"{HEAD}a: &a x\nb: [{','.join(['*a'] * 20_000)}]\n",
        "unknown field",
    ),
    "more than a ConfigMap can hold": (HEAD + "#" * 2**20, "at most 1048576 are read"),
    "a field of a hundred thousand characters": (f"{HEAD}? {'p' * 100_000}\n: 1\n", "unknown field"),
}


@pytest.mark.parametrize(("text", "expected"), HOSTILE.values(), ids=HOSTILE)
def test_input_that_expands_without_end_is_refused_in_time(text: str, expected: str) -> None:
    began = time.monotonic()
    found = examine(text)

    assert time.monotonic() - began < PATIENCE_SECONDS
    assert any(expected in str(error) for error in found.errors)
    assert len(found.errors) <= 202
    assert len("; ".join(map(str, found.errors))) < 200_000


def test_a_long_text_by_many_aliases_takes_no_more_memory_than_one() -> None:
    text, _ = HOSTILE["a long text by ninety thousand aliases"]
    tracemalloc.start()
    try:
        examine(text)
        assert tracemalloc.get_traced_memory()[1] < 200 * 2**20
    finally:
        tracemalloc.stop()
