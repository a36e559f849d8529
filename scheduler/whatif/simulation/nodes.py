"""Other versions of a node, and other nodes like it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.objects.decode import decode_node

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.objects.node import NodeObject


def edited(node: NodeObject, edit: Callable[[dict[str, Any]], None]) -> NodeObject:
    """Return a node as it is after its JSON was changed in place."""
    obj: dict[str, Any] = msgspec.json.decode(node.raw)
    edit(obj)
    return decode_node(msgspec.json.encode(obj))


def cordoned(node: NodeObject, *, wanted: bool = True) -> NodeObject:
    """Return a node that takes no more pods, or does again."""

    def mark(obj: dict[str, Any]) -> None:
        obj.setdefault("spec", {})["unschedulable"] = wanted

    return edited(node, mark)
