"""From a compiled guest to a plugin class with just the extension points it exports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.framework.interface import Needs
from scheduler.wasm.binding import GuestBind, GuestPermit, GuestPostBind, GuestPreBind, GuestReserve
from scheduler.wasm.deciding import (
    GuestFilter,
    GuestNormalizeScore,
    GuestPostFilter,
    GuestPreFilter,
    GuestPreScore,
    GuestScore,
)

if TYPE_CHECKING:
    from scheduler.wasm.guest import Guest
    from scheduler.wasm.plugin import GuestPlugin

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
"""Export -> what takes part at its point; normalizescore before score, which it includes."""
_ALWAYS: tuple[type[GuestPlugin], ...] = (GuestPreFilter, GuestReserve, GuestPostBind)
"""What every guest takes part in: to have the cluster's nodes at hand, and to learn that an attempt is over."""


def guest_class(name: str, guest: Guest) -> type[GuestPlugin]:
    """Return the plugin class of a guest, by the name that the profile has for it."""
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
            # Guests read pods that come and go as whole objects.
            "needs": Needs(bound_pod_objects=bool(exports & {"addpod", "removepod"})),
        },
    )
