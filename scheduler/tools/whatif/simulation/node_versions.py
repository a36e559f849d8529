"""Changed versions of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.objects.decode import decode_node

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.objects.node import NodeObject


def edited(node: NodeObject, edit: Callable[[dict[str, Any]], None]) -> NodeObject:
    """Return a node after a change to its JSON in place."""
    obj: dict[str, Any] = msgspec.json.decode(node.raw)
    edit(obj)
    return decode_node(msgspec.json.encode(obj))


def cordoned(node: NodeObject, *, wanted: bool = True) -> NodeObject:
    """Return a node that is cordoned, or uncordoned."""

    def mark(obj: dict[str, Any]) -> None:
        obj.setdefault("spec", {})["unschedulable"] = wanted

    return edited(node, mark)
