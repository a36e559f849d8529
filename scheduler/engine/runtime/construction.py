"""Builds plugins with the arguments and capabilities that their constructors name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.engine.runtime.checking import constructor_wants, refresh_faults
from scheduler.errors import PluginLoadError
from scheduler.framework.events import ClusterEvent, EventWithHint
from scheduler.loop_work import calls_plugin_code, loop_work

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.framework.interface import Plugin, PluginArgs


@calls_plugin_code
@loop_work("reload", lambda plugin: f"plugin {plugin.name} at its constructor")
def build_plugin(plugin: type[Plugin], args: PluginArgs, capabilities: Mapping[type, object]) -> Plugin:
    """Return an instance of a plugin class.

    Args:
        plugin: a validated class.
        args: an instance of the class's own `Args`.
        capabilities: Protocol -> its implementation.

    Raises:
        PluginLoadError: the constructor or `events` raised, `events` returned an invalid value, or the constructor
            needs a capability that is not available here, for example a binder in an offline simulation.
    """
    given: dict[str, Any] = {}
    for name, capability in constructor_wants(plugin).items():
        if capability is None:
            given[name] = args
        elif capability in capabilities:
            given[name] = capabilities[capability]
        else:
            raise PluginLoadError(plugin.name, f"needs {capability.__name__}, which is not available here")
    try:
        built = plugin(**given)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # SystemExit and CancelledError of a constructor are failures of the plugin.
        message = f"cannot be built: {type(error).__name__}: {error}"
        raise PluginLoadError(plugin.name, message) from error
    for fault in refresh_faults(built):
        raise PluginLoadError(plugin.name, fault)
    _check_events(built)
    return built


def _check_events(plugin: Plugin) -> None:
    try:
        events = list(plugin.events())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # as in `build_plugin`
        raise PluginLoadError(plugin.name, f"events: {type(error).__name__}: {error}") from error
    for event in events:
        if not isinstance(event, EventWithHint) or not isinstance(event.event, ClusterEvent):
            raise PluginLoadError(
                plugin.name, f"events: EventWithHint of a ClusterEvent is expected, was {event!r:.200}"
            )
