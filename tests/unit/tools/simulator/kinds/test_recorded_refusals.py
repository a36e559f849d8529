"""New objects that a real kube-apiserver 1.36 refused are refused here for the same faults, in the same words.

The requests are those of the transcripts in tests/integration; each is sent to a store of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tests.integration.simulator
from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.unit.tools.simulator.a_store import AStore

Object = dict[str, Any]

GO_DUMPS = {"v144", "v143"}
"""Steps whose words carry Go's own way of writing a struct."""


def refused() -> list[Any]:
    folder = Path(next(iter(tests.integration.simulator.__path__)))
    cases = []
    for end in ("storage", "pods"):
        for line in (folder / f"simulator_transcript_{end}.jsonl").read_text().splitlines():
            step = json.loads(line)
            if step["request"]["method"] == "POST" and step["response"]["status"] == 422:
                resource = step["request"]["path"].rpartition("/")[2]
                name = f"{resource}-{step['why'].replace(' ', '_')}-{step['id']}"
                cases.append(pytest.param(step, id=name))
    return cases


CASES = refused()


def causes(status: Object, step: str) -> list[tuple[str, ...]]:
    found = status["details"]["causes"]
    fields = ("field", "reason") if step in GO_DUMPS else ("field", "reason", "message")
    return sorted(tuple(cause[field] for field in fields) for cause in found)


@pytest.mark.parametrize("step", CASES)
def test_an_invalid_object_is_refused_as_by_a_real_server(step: Object):
    store, request = AStore(), step["request"]
    group = request["path"].split("/")[2] if request["path"].startswith("/apis/") else ""
    resource = request["path"].rpartition("/")[2]
    with pytest.raises(StatusError) as error:
        store.create(f"{resource}.{group}" if group else resource, request["body"])

    assert causes(error.value.body(), step["id"]) == causes(step["response"]["body"], step["id"])


def test_there_are_recorded_cases():
    assert len(CASES) > 70
