"""Writes a configuration, for `--write-config-to`, /configz and users who look for a default."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from scheduler.configuration.types import API_VERSION, KIND, ConfigurationStruct, Plugin, PluginSet
from scheduler.configuration.yaml_text import write
from scheduler.objects.wording import Duration
from scheduler.urls import shown_in, shown_value

if TYPE_CHECKING:
    from scheduler.configuration.load import Configuration


def to_yaml(configuration: Configuration) -> str:
    """Write a configuration as `to_plain` returns it; `parse` returns an equal one."""
    return write(to_plain(configuration))


def to_plain(configuration: Configuration) -> dict[str, Any]:
    """Return a configuration as JSON values, with every default.

    Empty values are left out: extension points without changes, the weight 0, and a profile's percentage when
    it has the configuration's value. Paths of plugins stay relative to the configuration's source. Keys of
    extenders are unchanged.
    """
    return {"apiVersion": API_VERSION, "kind": KIND, **_plain(configuration.settings)}


def to_shown(configuration: Configuration) -> dict[str, Any]:
    """Return the result of `to_plain` without secrets: those in URLs, and the private keys of extenders."""
    shown: dict[str, Any] = shown_in(to_plain(configuration), shown_value)
    for tls in _extenders_tls(shown):
        if tls.get("keyData"):
            tls["keyData"] = "REDACTED"
    return shown


def to_recorded(configuration: Configuration) -> str:
    """Write the result of `to_yaml` without secrets; `parse` returns a configuration with the same decisions.

    A replay does not call extenders, so that client certificates are not needed.
    """
    shown: dict[str, Any] = shown_in(to_plain(configuration), shown_value)
    for tls in _extenders_tls(shown):
        if tls.get("keyData"):
            del tls["keyData"], tls["certData"]
    return write(shown)


def _extenders_tls(plain: dict[str, Any]) -> list[dict[str, Any]]:
    return [extender["tlsConfig"] for extender in plain["extenders"] if "tlsConfig" in extender]


def converted_yaml(configuration: Configuration) -> str:
    """Write a configuration's source in the current version, without defaults; `parse` returns an equal one."""
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
