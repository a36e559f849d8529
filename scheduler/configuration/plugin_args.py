"""A plugin's arguments: their place in a profile, and their conversion into the plugin's type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from scheduler.configuration.decode import decode
from scheduler.configuration.validation import type_meta_faults
from scheduler.errors import ConfigurationError, FieldError
from scheduler.objects.wording import entry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.configuration.types import Profile

T = TypeVar("T", bound=msgspec.Struct)


def find_args(profile: Profile, plugin: str, path: str) -> tuple[dict[str, Any], str]:
    """Return the arguments of a plugin in a profile, and their path.

    Args:
        profile: the profile.
        plugin: the plugin's name in the configuration.
        path: path of the profile, as in `profiles[0]`.

    Returns:
        The arguments, empty if there are none, and a path as in `profiles[0].pluginConfig[2].args`.
    """
    for i, config in enumerate(profile.plugin_config):
        if config.name == plugin:
            return config.args, f"{entry(f'{path}.pluginConfig', i)}.args"
    return {}, f"{path}.pluginConfig"


def decode_args(cls: type[T], args: dict[str, Any], *, plugin: str, path: str) -> T:
    """Convert a plugin's arguments into its type, strictly.

    The arguments may contain `apiVersion` and `kind`, as in kube-scheduler; they are checked and removed,
    unless the type has fields of these names. The errors of the type's `faults()` are added, with the path
    before their own.

    Args:
        cls: the plugin's type of arguments.
        args: plain values, as `find_args` returns them.
        plugin: the plugin's own name; its arguments have the kind `<plugin>Args`.
        path: path of the arguments.

    Raises:
        ConfigurationError: all errors, each with its full path.
        TypeError: the type has fields that cannot be read from a configuration.
    """
    type_meta = {"apiVersion", "kind"}.difference(cls.__struct_encode_fields__)
    kept = {key: value for key, value in args.items() if key not in type_meta}
    errors = list(type_meta_faults(plugin, {key: args.get(key) for key in type_meta}, path))
    result, decode_errors = decode(kept, cls, path)
    errors.extend(decode_errors)
    if result is not None and not decode_errors and hasattr(result, "faults"):
        own: Iterable[FieldError] = result.faults()
        errors.extend(FieldError(_below(path, fault.path), fault.problem) for fault in own)
    if errors or result is None:
        raise ConfigurationError(errors)
    return result


def _below(path: str, relative: str) -> str:
    """Join two paths: `args` and `shape[1].score` make `args.shape[1].score`."""
    if not relative or relative.startswith("["):
        return path + relative
    return f"{path}.{relative}"
