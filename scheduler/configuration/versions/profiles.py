"""Changes to profiles that several conversions have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler.configuration.versions.conversion import entries, mapping, name_of
from scheduler.objects.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from scheduler.configuration.versions.conversion import Conversion

ALL = "*"


def profiles_of(fields: dict[str, Any], conversion: Conversion) -> list[Profile]:
    """Return all profiles; a configuration without any gets one."""
    if fields.get("profiles") in (None, []):
        fields["profiles"] = [{}]
    return [Profile(each, conversion) for each in entries(fields["profiles"]) if isinstance(each, dict)]


@dataclass(frozen=True, slots=True)
class Removed:
    """A removed plugin.

    Attributes:
        by: its replacement, which is enabled in its place; "" if enabling the removed one is an error.
        advice: what to do instead, for the error.
        lost: why disabling only the removed one has no effect, for a note; "" if nothing is lost.
    """

    by: str = ""
    advice: str = ""
    lost: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile during a conversion; values of a wrong type stay unchanged.

    Attributes:
        fields: the profile in the document.
        conversion: records errors and losses.
    """

    fields: dict[str, Any]
    conversion: Conversion

    @property
    def plugins(self) -> dict[str, Any]:
        """Its plugin sets; an empty mapping if there are none."""
        return mapping(self.fields.get("plugins"))

    def listed(self, point: str, key: str) -> list[Any]:
        """Return the plugins in `enabled` or `disabled` at one extension point."""
        return entries(mapping(self.plugins.get(point)).get(key))

    def names(self, point: str, key: str) -> list[str]:
        """Return the names of these plugins."""
        return [name_of(plugin) for plugin in self.listed(point, key)]

    def disables(self, point: str, plugin: str) -> bool:
        """Return whether it disables a default plugin at one extension point."""
        return not {plugin, ALL}.isdisjoint(self.names(point, "disabled"))

    def list_at(self, point: str, key: str, plugins: list[Any]) -> None:
        """Set the plugins of a list at one extension point; an empty list is removed, and so is an empty point."""
        if plugins == self.listed(point, key):
            return
        found = _part(_part(self.fields, "plugins"), point)
        if isinstance(found, dict):
            found.pop(key, None)
            if plugins:
                found[key] = plugins
            elif not found:
                del self.plugins[point]

    def drop(self, point: str, key: str, plugins: Container[str]) -> None:
        """Remove plugins from a list."""
        left = [each for each in self.listed(point, key) if name_of(each) not in plugins]
        self.list_at(point, key, left)

    def args(self, plugin: str) -> dict[str, Any]:
        """Return the arguments of a plugin; an empty mapping if there are none."""
        for config in entries(self.fields.get("pluginConfig")):
            if name_of(config) == plugin:
                return mapping(config.get("args"))
        return {}

    def put_args(self, plugin: str, args: dict[str, Any], *, instead_of: str = "") -> None:
        """Set the arguments of a plugin, in place of earlier ones of it or of the other plugin."""
        configs = self.fields["pluginConfig"] = self.fields.get("pluginConfig") or []
        there = [config for config in entries(configs) if name_of(config) in {plugin, instead_of} - {""}]
        for config in there[:1]:
            config |= {"name": plugin, "args": self.conversion.instead(config.get("args"), args)}
        if there:
            configs[:] = [config for config in configs if not any(config is other for other in there[1:])]
        elif isinstance(configs, list):
            configs.append({"name": plugin, "args": args})

    def drop_args(self, plugins: Container[str]) -> None:
        """Remove the arguments of some plugins."""
        configs = entries(self.fields.get("pluginConfig"))
        configs[:] = [config for config in configs if name_of(config) not in plugins]

    def replace(self, removed: Mapping[str, Removed]) -> None:
        """Replace removed plugins by their replacements, and report those without one."""
        for point in list(self.plugins):
            self.list_at(point, "enabled", self._enabled(self.listed(point, "enabled"), removed))
            for plugin in self.listed(point, "disabled"):
                lost = removed.get(name_of(plugin), Removed()).lost
                if lost:
                    self.conversion.note(plugin, "name", f"has no effect: {lost}")
            self.drop(point, "disabled", removed)
        self.drop_args(removed)

    def _enabled(self, listed: list[Any], removed: Mapping[str, Removed]) -> list[Any]:
        names = {name_of(plugin) for plugin in listed}
        kept: list[Any] = []
        for plugin in listed:
            fate = removed.get(name_of(plugin))
            if fate is None:
                kept.append(plugin)
            elif not fate.by:
                message = f"{quoted(name_of(plugin))} was removed, {fate.advice}"
                self.conversion.fault(plugin, "name", message)
            elif fate.by not in names:
                names.add(fate.by)
                plugin["name"] = fate.by
                kept.append(plugin)
        return kept


def _part(whole: Any, key: str) -> Any:
    """Return a field of a mapping; an absent one is set to an empty mapping."""
    if isinstance(whole, dict) and whole.get(key) is None:
        whole[key] = {}
    return mapping(whole).get(key)
