"""The parameters of a profile that `tune` searches: weights of Score plugins, and arguments of plugins.

A parameter of an argument is searched if its type lists its values (`Literal`), or if the plugin declares them:
`Annotated[str, msgspec.Meta(extra={"tune": ("A", "B")})]`. Other arguments are searched only by request.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from enum import Enum
from fnmatch import fnmatchcase
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import inspect

from scheduler.configuration.defaults import UPSTREAM_PLUGINS, enabled_names
from scheduler.configuration.load import parse
from scheduler.configuration.profile_plugins import find_args
from scheduler.configuration.types import API_VERSION, KIND
from scheduler.configuration.yaml_text import read, write
from scheduler.engine.runtime.profiles import read_args
from scheduler.errors import ConfigurationError, SchedulerError
from scheduler.objects.wording import Duration, did_you_mean, quoted
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.offline import OfflineScheduler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scheduler.configuration.load import Configuration
    from scheduler.framework.interface import Plugin

    Value = float | str
    """A number, or, for a choice, the value as YAML on one line."""

WEIGHT: Final = "weight"
TODAY: Final = "today"
"""Keeps the value of the profile."""
_HIGH: Final = 10
"""The highest weight that is searched, unless today's weight is more than half of it."""


class ParameterError(SchedulerError):
    """A parameter that the profile does not have, or values that it cannot have."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter.

    Attributes:
        name: `PLUGIN.weight`, or `PLUGIN.` and the path of an argument.
        plugin: name of the plugin in the profile.
        path: path of the argument; empty for the weight.
        today: its value in the profile.
        low: lowest number; None for choices.
        high: highest number.
        choices: values, if they are no range.
        config: name of the plugin in `pluginConfig`.
        fields: fields that a value replaces, if it is a mapping; others stay.
    """

    name: str
    plugin: str
    path: tuple[str, ...]
    today: Value
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    config: str = ""
    fields: frozenset[str] = frozenset()

    @property
    def is_searched(self) -> bool:
        """Whether it may have several values."""
        return len(self.choices) > 1 or (self.low is not None and self.low != self.high)

    @property
    def is_whole(self) -> bool:
        """Whether its numbers are integers."""
        return all(isinstance(each, int) for each in (self.low, self.high))

    @property
    def values(self) -> str:
        """Its values as text, as `--parameter` accepts them."""
        if self.low is not None:
            return f"{self.low}..{self.high}" if self.low != self.high else f"{self.low}"
        return "|".join(self.choices) or TODAY

    def has(self, value: Value) -> bool:
        """Return whether a value is in the range."""
        if self.low is None or self.high is None:
            return value in self.choices
        return not isinstance(value, str) and self.low <= value <= self.high

    def limits(self) -> Sequence[Value]:
        """Return the values that must be valid for all to be: the ends of the range, or the choices."""
        return self.choices if self.low is None or self.high is None else (self.low, self.high)


class TunedProfile:
    """One profile of a configuration, and its parameters.

    Args:
        configuration: the configuration.
        scheduler_name: schedulerName of the profile; "" for the only one.

    Attributes:
        configuration: the configuration.
        scheduler_name: schedulerName of the profile.
        parameters: name -> parameter; of the profile as it is, only some are searched.

    Raises:
        ParameterError: there is no such profile, or there are several and none is named.
        ConfigurationError: a plugin is unknown, broken, or has bad arguments.
    """

    def __init__(self, configuration: Configuration, scheduler_name: str = "") -> None:
        names = [profile.scheduler_name for profile in configuration.settings.profiles]
        if not scheduler_name and len(names) > 1:
            raise ParameterError(f"--profile: there are several profiles: {', '.join(names)}")
        self.scheduler_name = scheduler_name or names[0]
        if self.scheduler_name not in names:
            raise ParameterError(
                f"--profile: there is no profile {quoted(scheduler_name)}; there are: {', '.join(names)}"
            )
        self.configuration = configuration
        self._place = names.index(self.scheduler_name)
        self._document = _with_names(configuration, names)
        self.parameters: dict[str, Parameter] = {each.name: each for each in self._found()}

    # What can be searched.

    def _found(self) -> Iterator[Parameter]:
        scheduler = OfflineScheduler(ClusterFile(), self.configuration, refresh=False)
        weights = scheduler.frameworks[self.scheduler_name].plugins.weights
        registry, path = scheduler.parts.registry(), f"profiles[{self._place}]"
        profile = self.configuration.settings.profiles[self._place]
        for name in enabled_names(profile.plugins):
            if name in UPSTREAM_PLUGINS and not registry.knows(name):
                continue
            values, args_path = find_args(profile, name, path)
            plugin = registry.find_for(
                name, values, folder=self.configuration.folder, path=f"{path}.plugins", args_path=args_path
            )
            if plugin.name in weights:
                today = weights[plugin.name]
                yield Parameter(f"{name}.{WEIGHT}", name, (), today, 1, max(_HIGH, 2 * today))
            is_by_own_name = not values and find_args(profile, plugin.name, path)[0]
            config = plugin.name if is_by_own_name else name
            plain = _as_written(read_args(plugin, profile, name, path))
            yield from self._arguments(name, config, plugin, plain)

    def _arguments(
        self, name: str, config: str, plugin: type[Plugin], plain: Mapping[str, Any]
    ) -> Iterator[Parameter]:
        declared = dict(_declared(inspect.type_info(plugin.Args), ()))
        for path, choices in declared.items():
            today, fields = _at(plain, path), frozenset[str]()
            if isinstance(today, dict):
                fields = frozenset(key for each in choices for key in each)
                today = {key: value for key, value in today.items() if key in fields and value is not None}
            texts = dict.fromkeys((_text(today), *map(_text, choices)))
            found = Parameter(
                _named(name, path),
                name,
                path,
                _text(today),
                choices=tuple(texts),
                config=config,
                fields=fields,
            )
            valid = tuple(each for each in found.choices if not self._fault(found, each))
            yield replace(found, choices=valid if len(valid) > 1 else ())
        for path, value in _scalars(plain, ()):
            if path not in declared:
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                today = value if is_number else _text(value)
                yield Parameter(_named(name, path), name, path, today, config=config)

    def _fault(self, parameter: Parameter, value: Value) -> str:
        """Return why a value of one parameter is invalid; "" if it is valid."""
        try:
            changed = self._changed([(parameter, value)], "")
            OfflineScheduler(ClusterFile(), changed, refresh=False)
        except ConfigurationError as error:
            return "; ".join(map(str, error.errors))
        return ""

    # What the user requests.

    def searched(self, requests: Iterable[str]) -> dict[str, Parameter]:
        """Return the parameters to search, by name.

        A parameter with one possible value has it in every candidate.

        Args:
            requests: `NAME=VALUE`, `NAME=LOW..HIGH` or `NAME=A|B|C`, or `NAME=today`; later ones replace earlier ones. With
                `*` or `?`, NAME stands for all names that match and that are searched without a request.

        Raises:
            ParameterError: a request is malformed, names no parameter, or gives a value that `check` refuses.
        """
        found = {name: each for name, each in self.parameters.items() if each.is_searched}
        patterns = dict(found)
        for request in requests:
            name, sign, text = request.partition("=")
            if not (name and sign and text):
                raise ParameterError(
                    f"--parameter {request}: NAME=VALUE, NAME=LOW..HIGH or NAME=A|B is expected"
                )
            if "*" in name or "?" in name:
                known = [each for each in patterns.values() if fnmatchcase(each.name, name)]
            else:
                known = [self.parameters[name]] if name in self.parameters else []
            if not known:
                hint = (
                    did_you_mean(name, self.parameters)
                    or f"; there are: {', '.join(sorted(self.parameters))}"
                )
                raise ParameterError(f"--parameter {request}: there is no parameter {quoted(name)}{hint}")
            for each in known:
                found = {other: kept for other, kept in found.items() if not _overlap(other, each.name)}
                found[each.name] = self._requested(each, text, request)
        return {name: each for name, each in found.items() if each.limits()}

    def _requested(self, parameter: Parameter, text: str, request: str) -> Parameter:
        if text == TODAY:
            return replace(parameter, low=None, high=None, choices=())
        low, dots, high = text.partition("..")
        if dots:
            ends = _number(low), _number(high)
            if ends[0] is None or ends[1] is None or ends[0] > ends[1]:
                raise ParameterError(f"--parameter {request}: LOW..HIGH are two numbers, the lower one first")
            wanted = replace(parameter, low=ends[0], high=ends[1], choices=())
        elif parameter.path or "|" in text:
            choices = tuple(dict.fromkeys(_text(_plain(each, request)) for each in text.split("|")))
            today = parameter.today if isinstance(parameter.today, str) else _text(parameter.today)
            wanted = replace(parameter, today=today, low=None, high=None, choices=choices)
        else:
            number = _number(text)
            if number is None:
                raise ParameterError(f"--parameter {request}: a weight is a number")
            wanted = replace(parameter, low=number, high=number, choices=())
        if not wanted.path and not all(_is_weight(each) for each in wanted.limits()):
            raise ParameterError(f"--parameter {request}: a weight is an integer of at least 0")
        for value in wanted.limits():
            fault = self._fault(wanted, value)
            if fault:
                raise ParameterError(f"--parameter {request}: {fault}")
        return wanted

    # Candidates.

    def with_values(
        self, parameters: Mapping[str, Parameter], values: Mapping[str, Value], source: str
    ) -> Configuration:
        """Return the configuration with other values of parameters; `source` is its name in messages.

        Raises:
            ConfigurationError: the values contradict each other.
        """
        return self._changed([(parameters[name], value) for name, value in values.items()], source)

    def _changed(self, values: Iterable[tuple[Parameter, Value]], source: str) -> Configuration:
        document = deepcopy(self._document)
        profile = document["profiles"][self._place]
        for parameter, value in values:
            if value == parameter.today:
                continue
            if parameter.path:
                self._set_argument(profile, parameter, value)
            else:
                set_weight(profile, parameter.plugin, int(value))
        changed = parse(write(document), source, self.configuration.folder, version=None)
        settings = msgspec.structs.replace(
            changed.settings,
            emulated_version=self.configuration.settings.emulated_version,
            feature_gates=self.configuration.settings.feature_gates,
        )
        return replace(changed, settings=settings)

    def _set_argument(self, profile: dict[str, Any], parameter: Parameter, value: Value) -> None:
        configs = profile["pluginConfig"] = list(profile.get("pluginConfig") or ())
        config = next((each for each in configs if each.get("name") == parameter.config), None)
        if config is None:
            config = {"name": parameter.config}
            configs.append(config)
        args = config["args"] = dict(config.get("args") or {})
        *outer, last = parameter.path
        for key in outer:
            args[key] = dict(args.get(key) or {})
            args = args[key]
        plain = read(value).value if isinstance(value, str) else value
        if isinstance(plain, dict):
            old = (args.get(last) or {}).items()
            plain = {**{key: item for key, item in old if key not in parameter.fields}, **plain}
        args[last] = plain


def set_weight(profile: dict[str, Any], plugin: str, weight: int) -> None:
    """Set the weight of a Score plugin in a profile of a file; with 0, the plugin is not called at Score.

    In a profile, the weight 0 stands for 1.
    """
    plugins = profile["plugins"] = dict(profile.get("plugins") or {})
    score = plugins["score"] = dict(plugins.get("score") or {})
    listed = [each for each in score.get("enabled") or () if each.get("name") != plugin]
    is_listed = len(listed) < len(score.get("enabled") or ())
    if not weight:
        score["enabled"] = listed
        score["disabled"] = [*(score.get("disabled") or ()), {"name": plugin}]
    elif is_listed:
        score["enabled"] = _weighted(score["enabled"], plugin, weight)
    else:
        multi = plugins["multiPoint"] = dict(plugins.get("multiPoint") or {})
        multi["enabled"] = _weighted(multi.get("enabled") or [], plugin, weight)
    plugins["score"] = {key: value for key, value in score.items() if value}
    if not plugins["score"]:
        del plugins["score"]


def _weighted(enabled: Iterable[dict[str, Any]], plugin: str, weight: int) -> list[dict[str, Any]]:
    """Return a list of plugins in which one has a weight; it is added at the end if it is not there."""
    changed = [{**each, "weight": weight} if each.get("name") == plugin else each for each in enabled]
    if not any(each.get("name") == plugin for each in changed):
        changed.append({"name": plugin, "weight": weight})
    return changed


def _with_names(configuration: Configuration, names: Sequence[str]) -> dict[str, Any]:
    """Return the document of a configuration in the current version, with the names of its profiles."""
    document = {"apiVersion": API_VERSION, "kind": KIND, **deepcopy(dict(configuration.converted))}
    profiles = document.get("profiles") or [{}]
    document["profiles"] = [
        {"schedulerName": name, **{key: value for key, value in profile.items() if key != "schedulerName"}}
        for name, profile in zip(names, profiles, strict=True)
    ]
    return document


def _declared(kind: inspect.Type, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Sequence[Any]]]:
    """Yield the paths of the arguments with listed values, and these values."""
    match kind:
        case inspect.Metadata() if "tune" in (kind.extra or {}):
            yield path, (kind.extra or {})["tune"]
        case inspect.Metadata():
            yield from _declared(kind.type, path)
        case inspect.LiteralType() if len(kind.values) > 1:
            yield path, kind.values
        case inspect.StructType():
            for field in kind.fields:
                yield from _declared(field.type, (*path, field.encode_name))


def _scalars(plain: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the paths of all numbers, booleans and strings, and their values."""
    if isinstance(plain, dict):
        for key, value in plain.items():
            yield from _scalars(value, (*path, key))
    elif isinstance(plain, bool | int | float | str):
        yield path, plain


def _as_written(value: Any) -> Any:
    """Return an argument as plain values, as in a file."""
    match value:
        case msgspec.Struct():
            fields = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
            return {key: _as_written(getattr(value, name)) for name, key in fields}
        case Duration():
            return str(value)
        case Enum():
            return value.value
        case list() | tuple():
            return [_as_written(each) for each in value]
        case dict():
            return {key: _as_written(item) for key, item in value.items()}
    return value


def _at(plain: Any, path: Iterable[str]) -> Any:
    for key in path:
        plain = plain.get(key) if isinstance(plain, dict) else None
    return plain


def _named(plugin: str, path: Sequence[str]) -> str:
    return ".".join((plugin, *path))


def _overlap(name: str, other: str) -> bool:
    """Return whether one of two names is that of a part of the other argument."""
    return name.startswith(f"{other}.") or other.startswith(f"{name}.")


def _text(value: Any) -> str:
    """Return a plain value as YAML on one line."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_text(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    text = write(value).removesuffix("...\n").strip()
    is_ambiguous = isinstance(value, str) and any(character in text for character in ",[]{}|")
    return msgspec.json.encode(value).decode() if is_ambiguous else text


def _plain(text: str, request: str) -> Any:
    document = read(text)
    if document.errors:
        raise ParameterError(f"--parameter {request}: {text!r} is not YAML: {document.errors[0].problem}")
    return document.value


def _number(text: str) -> float | None:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None


def _is_weight(value: Value) -> bool:
    return str(value).isdecimal()
