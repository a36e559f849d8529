"""Builds the plugin class of a compiled guest, with the extension points that it exports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.extensions.wasm.binding_points import (
    GuestBind,
    GuestPermit,
    GuestPostBind,
    GuestPreBind,
    GuestReserve,
)
from scheduler.extensions.wasm.decision_points import (
    GuestFilter,
    GuestNormalizeScore,
    GuestPostFilter,
    GuestPreFilter,
    GuestPreScore,
    GuestScore,
)
from scheduler.framework.interface import Needs

if TYPE_CHECKING:
    from scheduler.extensions.wasm.guest import Guest
    from scheduler.extensions.wasm.guest_plugin import GuestPlugin

_CLASSES: dict[str, type[GuestPlugin]] = {
    "filter": GuestFilter,
    "postfilter": GuestPostFilter,
    "prescore": GuestPreScore,
    "normalizescore": GuestNormalizeScore,
    "score": GuestScore,
    "permit": GuestPermit,
    "prebind": GuestPreBind,
    "bind": GuestBind,
}
"""Export -> base class of its extension point; normalizescore comes before score, which it includes."""
_ALWAYS: tuple[type[GuestPlugin], ...] = (GuestPreFilter, GuestReserve, GuestPostBind)
"""The extension points of every guest: for the snapshot's nodes, and for notification of the end of an attempt."""


def guest_class(name: str, guest: Guest) -> type[GuestPlugin]:
    """Return the plugin class of a guest, with its name in the profile."""
    exports = guest.exports - ({"normalizescore"} if "score" not in guest.exports else set())
    bases = dict.fromkeys([kind for export, kind in _CLASSES.items() if export in exports])
    if GuestNormalizeScore in bases:
        bases.pop(GuestScore, None)
    return type(
        name,
        (*bases, *_ALWAYS),
        {
            "__module__": __name__,
            "__doc__": f"The guest {name}.",
            "name": name,
            "guest": guest,
            # These functions need added and removed pods as whole objects.
            "needs": Needs(bound_pod_objects=bool(exports & {"addpod", "removepod"})),
        },
    )
