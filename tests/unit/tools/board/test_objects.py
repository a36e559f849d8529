"""The JSON of objects: only for clients that may read them, and only of kinds that the scheduler reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scheduler.http_server.messages import ReadObject
from scheduler.tools.board.objects import object_json
from tests.support.builders import node_object, pod_object
from tests.unit.tools.board.test_hub import shown

if TYPE_CHECKING:
    from pathlib import Path


class Rights:
    """A client that may read everything, or nothing."""

    def __init__(self, *, has_all: bool) -> None:
        self.has_all = has_all
        self.asked: list[ReadObject] = []

    async def __call__(self, read: ReadObject) -> bool:
        self.asked.append(read)
        return self.has_all


async def test_pods_and_nodes_are_shown_to_a_client_that_may_get_them(tmp_path: Path) -> None:
    async with shown(tmp_path) as (it, subject, _):
        it.add_nodes(node_object("n1", cpu="4"))
        it.add_pods(pod_object("web", cpu="1"), pod_object("big", cpu="99"))
        await it.until(lambda: it.node_of("web"))
        await it.until(lambda: subject.attempts.last("default/big"))
        may = Rights(has_all=True)

        # The pod on a node is read from the API server: the scheduler keeps only a part of it.
        for kind, key in (("v1/pods", "default/web"), ("v1/pods", "default/big"), ("v1/nodes", "n1")):
            found = await object_json(subject, kind, key, may)
            assert (
                json.loads(msgspec.json.encode(found["object"]))["metadata"]["name"] == key.rpartition("/")[2]
            )
        assert found["kind"] == "Node"
        assert may.asked[0] == ReadObject("", "pods", "default", "web")
        assert may.asked[-1] == ReadObject("", "nodes", "", "n1")

        may_not = Rights(has_all=False)
        for kind, key in (("v1/pods", "default/web"), ("v1/pods", "default/big"), ("v1/nodes", "n1")):
            assert [*await object_json(subject, kind, key, may_not)] == ["problem"]
        assert len(may_not.asked) == 3


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("v1/secrets", "default/web"),
        ("pods", "default/web"),
        ("v1/pods", "web"),
        ("v1/pods", "default/../../secrets/a"),
        ("v1/pods", "default/.."),
        ("v1/pods", "default/a%2Fb"),
        ("v1/pods", "default/A?b"),
    ],
)
async def test_other_kinds_and_invalid_names_are_never_read(tmp_path: Path, kind: str, key: str) -> None:
    async with shown(tmp_path) as (_, subject, _):
        may = Rights(has_all=True)
        found: dict[str, Any] = await object_json(subject, kind, key, may)
        assert [*found] == ["problem"]
        assert not may.asked
