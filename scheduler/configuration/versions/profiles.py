"""Changes to profiles that several conversions have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler.configuration.versions.conversion import entries, mapping, name_of
from scheduler.objects.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

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


_LABEL, _AFFINITY = "NodeLabel", "NodeAffinity"

NO_PREFERENCE = "was removed, use addedAffinity.preferredDuringSchedulingIgnoredDuringExecution of NodeAffinity's arguments"


def required_labels(present: Iterable[str], absent: Iterable[str]) -> dict[str, Any]:
    """Return the affinity for nodes with all of some labels, and none of others."""
    expressions = [{"key": label, "operator": "Exists"} for label in present]
    expressions += [{"key": label, "operator": "DoesNotExist"} for label in absent]
    terms = [{"matchExpressions": expressions}]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def move_node_labels(profile: Profile) -> None:
    """Move the checks of NodeLabel to the affinity that NodeAffinity adds to every pod; its preferences have no equivalent.

    Source:
        kube-scheduler v1.22, pkg/scheduler/framework/plugins/nodelabel/node_label.go; the advice to use NodeAffinity:
        staging/src/k8s.io/kube-scheduler/config/v1beta1/types_pluginargs.go, NodeLabelArgs.
    """
    filters = _LABEL in profile.names("filter", "enabled")
    for plugin in profile.listed("score", "enabled"):
        if name_of(plugin) == _LABEL:
            profile.conversion.fault(plugin, "name", f'"NodeLabel" {NO_PREFERENCE}')
    for point in ("filter", "score"):
        for key in ("enabled", "disabled"):
            profile.drop(point, key, {_LABEL})
    given, args = profile.args(_LABEL), profile.args(_AFFINITY)
    present, absent = (_texts(given.get(key)) for key in ("presentLabels", "absentLabels"))
    if filters and (present or absent):
        if args.get("addedAffinity"):
            message = "add the checks of NodeLabel here: the plugin was removed"
            profile.conversion.fault(args, "addedAffinity", message)
        else:
            args = {**args, "addedAffinity": required_labels(present, absent)}
            profile.put_args(_AFFINITY, args, instead_of=_LABEL)
    profile.drop_args({_LABEL})


def _texts(value: Any) -> list[str]:
    return [text for text in entries(value) if isinstance(text, str)]
