"""A profile that is made a later version's, and the changes that several steps make to profiles."""

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
    """Return every profile, the one included that a configuration without any has."""
    if fields.get("profiles") in (None, []):
        fields["profiles"] = [{}]
    return [Profile(each, conversion) for each in entries(fields["profiles"]) if isinstance(each, dict)]


@dataclass(frozen=True, slots=True)
class Removed:
    """A plugin that is no more.

    Attributes:
        by: the plugin that does its work, so that enabling it means this one; "" if enabling it is an error.
        advice: what to do instead, for the error.
        lost: why disabling it alone has no effect, for a note; "" if there is nothing to lose.
    """

    by: str = ""
    advice: str = ""
    lost: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile in a document that changes; what is of a wrong type stays as it is.

    Attributes:
        fields: what the document says of it.
        conversion: is told what is wrong or lost.
    """

    fields: dict[str, Any]
    conversion: Conversion

    @property
    def plugins(self) -> dict[str, Any]:
        """What it says of extension points; nothing is an empty mapping."""
        return mapping(self.fields.get("plugins"))

    def listed(self, point: str, key: str) -> list[Any]:
        """Return the plugins it lists at one extension point, under `enabled` or `disabled`."""
        return entries(mapping(self.plugins.get(point)).get(key))

    def names(self, point: str, key: str) -> list[str]:
        """Return the names of those plugins."""
        return [name_of(plugin) for plugin in self.listed(point, key)]

    def disables(self, point: str, plugin: str) -> bool:
        """Say whether it disables a default plugin at one extension point."""
        return not {plugin, ALL}.isdisjoint(self.names(point, "disabled"))

    def list_at(self, point: str, key: str, plugins: list[Any]) -> None:
        """List other plugins at one extension point; an empty list is left out, and a point without any."""
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
        """Take plugins from a list."""
        left = [each for each in self.listed(point, key) if name_of(each) not in plugins]
        self.list_at(point, key, left)

    def args(self, plugin: str) -> dict[str, Any]:
        """Return the arguments it has for a plugin; none are an empty mapping."""
        for config in entries(self.fields.get("pluginConfig")):
            if name_of(config) == plugin:
                return mapping(config.get("args"))
        return {}

    def put_args(self, plugin: str, args: dict[str, Any], *, instead_of: str = "") -> None:
        """Have other arguments for a plugin, in the place where there were some, of it or of the other plugin."""
        configs = self.fields["pluginConfig"] = self.fields.get("pluginConfig") or []
        there = [config for config in entries(configs) if name_of(config) in {plugin, instead_of} - {""}]
        for config in there[:1]:
            config |= {"name": plugin, "args": self.conversion.instead(config.get("args"), args)}
        if there:
            configs[:] = [config for config in configs if not any(config is other for other in there[1:])]
        elif isinstance(configs, list):
            configs.append({"name": plugin, "args": args})

    def drop_args(self, plugins: Container[str]) -> None:
        """Have no arguments for some plugins."""
        configs = entries(self.fields.get("pluginConfig"))
        configs[:] = [config for config in configs if name_of(config) not in plugins]

    def replace(self, removed: Mapping[str, Removed]) -> None:
        """Replace plugins that are no more by those that do their work, and refuse those nobody replaces."""
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
                told = f"{quoted(name_of(plugin))} was removed, {fate.advice}"
                self.conversion.fault(plugin, "name", told)
            elif fate.by not in names:
                names.add(fate.by)
                plugin["name"] = fate.by
                kept.append(plugin)
        return kept


def _part(whole: Any, key: str) -> Any:
    """Return a field of a mapping, and make it a mapping where there was nothing."""
    if isinstance(whole, dict) and whole.get(key) is None:
        whole[key] = {}
    return mapping(whole).get(key)
