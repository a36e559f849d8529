"""Loads a configuration: parses a file, fills in all defaults, and checks all rules."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from scheduler.configuration import validation
from scheduler.configuration.decode import decode
from scheduler.configuration.defaults import (
    DEFAULT_SCHEDULER_NAME,
    with_a_profile,
    with_profiles,
    with_scalars,
)
from scheduler.configuration.feature_gates import Features, features_of
from scheduler.configuration.notes import ConfigurationNote, notes
from scheduler.configuration.types import API_VERSION, KIND, KubeSchedulerConfiguration
from scheduler.configuration.versions import to_current, type_meta_faults
from scheduler.configuration.versions.algorithm_source import PolicyMissingError
from scheduler.configuration.yaml_text import read
from scheduler.errors import ConfigurationError, FieldError
from scheduler.files import read_any
from scheduler.objects.wording import quoted, was

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.configuration.versions import Converted
    from scheduler.configuration.versions.algorithm_source import PolicyConfigMap
    from scheduler.configuration.versions.conversion import Conversion

_MOST_FAULTS = 100
"""Maximum number of violated rules that are reported."""
NO_POLICIES: Mapping[PolicyConfigMap, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Configuration:
    """A complete configuration. Two configurations are equal if their settings are.

    Attributes:
        settings: the settings, with all defaults.
        source: name of the source, for messages; "" for the defaults.
        folder: folder that relative paths of plugins start from.
        notes: settings without an effect.
        api_version: version of the source.
        files: files that were read with it, except plugins: a policy.
        converted: the source, converted to the current version, without defaults.
    """

    settings: KubeSchedulerConfiguration
    source: str = field(default="", compare=False)
    folder: Path = field(default=Path(), compare=False)
    notes: tuple[ConfigurationNote, ...] = field(default=(), compare=False)
    api_version: str = field(default=API_VERSION, compare=False)
    files: tuple[Path, ...] = field(default=(), compare=False)
    converted: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    _conversion: Conversion | None = field(default=None, compare=False, repr=False)

    @property
    def features(self) -> Features:
        """The enabled feature gates, and the changes of the emulated Kubernetes version."""
        return features_of(self.settings.feature_gates, self.settings.emulated_version)

    def place(self, path: str) -> str:
        """Return the path in the source for a path of the settings: an old version has other paths."""
        return path if self._conversion is None else self._conversion.original(path)


def load(
    path: str | Path,
    *,
    policies: Mapping[PolicyConfigMap, str] = NO_POLICIES,
    version: str | None = "",
) -> Configuration:
    """Load a configuration file of any version; the arguments are those of `parse`.

    Raises:
        ConfigurationError: the file cannot be read or is invalid; contains all errors.
        PolicyMissingError: the same, if one error is a ConfigMap that `policies` does not have.
    """
    return parse(read_file(path), str(path), Path(path).parent, policies=policies, version=version)


def read_file(path: str | Path) -> str:
    """Return the text of a file or a pipe.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        return decoded(read_any(Path(path)), str(path))
    except OSError as error:
        raise unreadable(error, str(path)) from error


def decoded(content: bytes, source: str) -> str:
    """Return the text of a configuration.

    Raises:
        ConfigurationError: the content is not UTF-8.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError([FieldError("", f"not UTF-8: byte {error.start}")], source) from error


def unreadable(error: OSError, source: str) -> ConfigurationError:
    """Return the error of an unreadable configuration."""
    return ConfigurationError([FieldError("", f"cannot be read: {error.strerror or error}")], source)


def parse(
    text: str,
    source: str = "",
    folder: Path | None = None,
    *,
    scheduler_name: str = DEFAULT_SCHEDULER_NAME,
    policies: Mapping[PolicyConfigMap, str] = NO_POLICIES,
    version: str | None = "",
) -> Configuration:
    """Parse a configuration of any version, or a Policy, from YAML or JSON.

    Args:
        text: one document.
        source: name of the source, for messages.
        folder: folder that relative paths of plugins and policies start from; the working directory by
            default.
        scheduler_name: name of the only profile, if it has none.
        policies: texts of policies from ConfigMaps.
        version: the emulated version of a text that names none, "" for the default version; None if it will be the
            API server's: then a gate is valid if any known version accepts it, see `overrides.with_features`.

    Raises:
        ConfigurationError: the text is invalid; contains all errors.
        PolicyMissingError: the same, if one error is a ConfigMap that `policies` does not have.
    """
    found = examine(text, source, folder, scheduler_name=scheduler_name, policies=policies, version=version)
    if found.missing is not None:
        client = found.configuration.settings.client_connection if found.configuration else None
        raise PolicyMissingError(found.errors, source, found.missing, client.kubeconfig if client else "")
    if found.errors or found.configuration is None:
        raise ConfigurationError(found.errors, source)
    return found.configuration


@dataclass(frozen=True, slots=True)
class Examined:
    """The result of examining a text.

    Attributes:
        configuration: the configuration, with defaults for invalid values; None if it cannot be determined.
        errors: all errors.
        missing: the ConfigMap whose policy must be read.
    """

    configuration: Configuration | None
    errors: list[FieldError]
    missing: PolicyConfigMap | None = None


def examine(
    text: str,
    source: str = "",
    folder: Path | None = None,
    *,
    scheduler_name: str = DEFAULT_SCHEDULER_NAME,
    policies: Mapping[PolicyConfigMap, str] = NO_POLICIES,
    version: str | None = "",
) -> Examined:
    """Parse as `parse` does, and return as much as possible of an invalid configuration."""
    document = read(text)
    errors = list(document.errors)
    if document.value is None and not errors:
        errors.append(FieldError("", "is empty"))
    elif not errors or isinstance(document.value, dict):
        errors.extend(_type_meta_faults(document.value, errors))
    if not isinstance(document.value, dict) or any(error.path in {"apiVersion", "kind"} for error in errors):
        return Examined(None, errors)

    folder = folder or Path()
    converted = to_current(document.value, folder, policies)
    conversion, named = converted.conversion, converted.source
    settings, faults = _settings_of(converted, scheduler_name, version, [*errors, *conversion.errors])
    errors.extend(faults)
    missing = None if named is None else named.missing
    if named is not None and missing is not None:
        message = f"the policy in {missing} was not read: that needs the cluster, at startup"
        errors.append(FieldError(named.path, message))
    if settings is None:
        return Examined(None, errors, missing)
    in_vain = (note._replace(path=conversion.original(note.path)) for note in notes(settings))
    configuration = Configuration(
        with_profiles(settings),
        source,
        folder,
        (*conversion.notes, *in_vain),
        api_version=document.value["apiVersion"],
        files=() if named is None else tuple(named.files),
        converted=conversion.result,
        _conversion=conversion,
    )
    return Examined(configuration, errors, missing)


def _settings_of(
    converted: Converted, scheduler_name: str, version: str | None, known: list[FieldError]
) -> tuple[KubeSchedulerConfiguration | None, list[FieldError]]:
    """Decode and check a document of the current version.

    Returns:
        The settings, None if they cannot be decoded, and the errors of the conversion, the types and the
        rules.
    """
    original = converted.conversion.original
    settings, faults = decode(
        with_a_profile(converted.conversion.result, scheduler_name), KubeSchedulerConfiguration
    )
    errors = [*converted.conversion.errors, *(replace(fault, path=original(fault.path)) for fault in faults)]
    if settings is None:
        return None, errors
    settings = with_scalars(settings)
    found = islice(validation.faults(settings, version), _MOST_FAULTS)
    rules = (replace(fault, path=original(fault.path)) for fault in found)
    return settings, [*errors, *not_below([*known, *errors], rules)]


def default(scheduler_name: str = DEFAULT_SCHEDULER_NAME) -> Configuration:
    """Return the configuration without a file: one profile with the default plugins."""
    return parse(f"apiVersion: {API_VERSION}\nkind: {KIND}\n", scheduler_name=scheduler_name)


def _type_meta_faults(document: Any, known: list[FieldError]) -> list[FieldError]:
    """Check the document's apiVersion and kind; without them, nothing else can be checked."""
    if not isinstance(document, dict):
        return [FieldError("", f"must be a mapping with apiVersion and kind, {was(document)}")]
    known_paths = {error.path for error in known}
    faults = []
    for fault in type_meta_faults(document):
        if fault.path in known_paths:
            continue
        faults.append(fault)
        faults.extend(
            FieldError(other, f"unknown field, did you mean {quoted(fault.path)}?")
            for other in document
            if other != fault.path and other.lower() == fault.path.lower()
        )
    return faults


def not_below(errors: Iterable[FieldError], more: Iterable[FieldError]) -> list[FieldError]:
    """Return the errors outside of values with an earlier error: those values are replaced by defaults."""
    faulty = [error.path for error in errors]
    return [
        fault
        for fault in more
        if not any(fault.path == path or fault.path.startswith((f"{path}.", f"{path}[")) for path in faulty)
    ]
