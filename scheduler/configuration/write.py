"""A configuration in effect written down, for `--write-config-to`, /configz and whoever wonders about a default."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from scheduler.configuration.types import API_VERSION, KIND, ConfigurationStruct, Plugin, PluginSet
from scheduler.configuration.yaml_syntax import write
from scheduler.objects.durations import Duration
from scheduler.urls import shown_in, shown_value

if TYPE_CHECKING:
    from scheduler.configuration.load import Configuration


def to_yaml(configuration: Configuration) -> str:
    """Write a configuration as `to_plain` gives it; `parse` reads an equal one back."""
    return write(to_plain(configuration))


def to_plain(configuration: Configuration) -> dict[str, Any]:
    """Return what JSON can say of a configuration, with every default filled in.

    Left out is what nothing stands for: extension points at which the profile says nothing, the weight 0,
    a profile's percentage when it takes the configuration's. Paths of plugins stay relative to where the
    configuration came from. Keys of extenders are written as they are.
    """
    return {"apiVersion": API_VERSION, "kind": KIND, **_plain(configuration.settings)}


def to_shown(configuration: Configuration) -> dict[str, Any]:
    """Return what `to_plain` does, without what is secret: in URLs, and the private keys of extenders."""
    shown: dict[str, Any] = shown_in(to_plain(configuration), shown_value)
    for tls in _extenders_tls(shown):
        if tls.get("keyData"):
            tls["keyData"] = "REDACTED"
    return shown


def to_recorded(configuration: Configuration) -> str:
    """Write what `to_yaml` does, without what is secret; `parse` reads a configuration back that decides the same.

    Extenders are not asked again, so that nothing has to be proved to them.
    """
    shown: dict[str, Any] = shown_in(to_plain(configuration), shown_value)
    for tls in _extenders_tls(shown):
        if tls.get("keyData"):
            del tls["keyData"], tls["certData"]
    return write(shown)


def _extenders_tls(plain: dict[str, Any]) -> list[dict[str, Any]]:
    return [extender["tlsConfig"] for extender in plain["extenders"] if "tlsConfig" in extender]


def converted_yaml(configuration: Configuration) -> str:
    """Write what the source of a configuration says in today's form, without defaults; `parse` reads an equal one."""
    return write({"apiVersion": API_VERSION, "kind": KIND, **configuration.converted})


def _plain(value: Any) -> Any:
    match value:
        case ConfigurationStruct():
            fields = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
            named = ((key, getattr(value, name)) for name, key in fields)
            return {key: _plain(item) for key, item in named if not _says_nothing(value, key, item)}
        case tuple():
            return [_plain(item) for item in value]
        case Duration():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode("ascii")
    return value


def _says_nothing(parent: ConfigurationStruct, key: str, value: Any) -> bool:
    if isinstance(parent, Plugin):
        return key == "weight" and value == 0
    if isinstance(parent, PluginSet):
        return not value
    return value is None or value == PluginSet()
