"""Describes the cluster events that plugins register for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.framework.events import ActionType, EventResource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.framework.events import EventWithHint


def describe_changes(events: Iterable[EventWithHint]) -> dict[str, list[str]]:
    """Return kind of object -> its possible changes: `Node` -> `added`, `taint changed`."""
    kinds: dict[str, dict[str, None]] = {}
    for each in events:
        resource = each.event.resource
        kind = "anything" if resource is EventResource.WILDCARD else resource.value
        kinds.setdefault(kind, {}).update(dict.fromkeys(_actions(each.event.action)))
    return {kind: list(actions) for kind, actions in kinds.items()}


def _actions(action: ActionType) -> list[str]:
    """Return the descriptions of an action: `UPDATE_NODE_TAINT` is `taint changed`."""
    words = {ActionType.ADD: "added", ActionType.DELETE: "deleted", ActionType.UPDATE: "changed"}
    effects = [word for kind, word in words.items() if kind in action]
    if ActionType.UPDATE not in action:
        names = [each.name for each in action & ActionType.UPDATE if each.name]
        changed = [" ".join(name.lower().split("_")[2:]) for name in names]
        effects += [each if each.endswith("eliminated") else f"{each} changed" for each in changed]
    return effects
