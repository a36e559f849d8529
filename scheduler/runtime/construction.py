"""Builds plugins: hands each exactly the arguments and capabilities its constructor names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.errors import PluginLoadError
from scheduler.framework.events import ClusterEvent, EventWithHint
from scheduler.runtime.checking import constructor_wants, refresh_faults

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.framework.interface import Plugin, PluginArgs


def build_plugin(plugin: type[Plugin], args: PluginArgs, capabilities: Mapping[type, object]) -> Plugin:
    """Return an instance.

    Args:
        plugin: a checked class.
        args: of the class's own `Args`.
        capabilities: Protocol -> what fulfils it.

    Raises:
        PluginLoadError: the constructor or `events` raised, `events` gave something else, or the constructor wants
            a capability that is not to be had here, as a binder in an offline simulation.
    """
    given: dict[str, Any] = {}
    for name, capability in constructor_wants(plugin).items():
        if capability is None:
            given[name] = args
        elif capability in capabilities:
            given[name] = capabilities[capability]
        else:
            raise PluginLoadError(plugin.name, f"asks for {capability.__name__}, which is not to be had here")
    try:
        built = plugin(**given)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # A constructor that says SystemExit means itself, and one that says CancelledError too.
        told = f"cannot be built: {type(error).__name__}: {error}"
        raise PluginLoadError(plugin.name, told) from error
    for fault in refresh_faults(built):
        raise PluginLoadError(plugin.name, fault)
    _check_events(built)
    return built


def _check_events(plugin: Plugin) -> None:
    try:
        events = list(plugin.events())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # as above
        raise PluginLoadError(plugin.name, f"events: {type(error).__name__}: {error}") from error
    for event in events:
        if not isinstance(event, EventWithHint) or not isinstance(event.event, ClusterEvent):
            raise PluginLoadError(
                plugin.name, f"events: EventWithHint of a ClusterEvent is expected, was {event!r:.200}"
            )
