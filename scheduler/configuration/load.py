"""From a file to a configuration in effect: every default filled in, every rule checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scheduler.configuration import validation
from scheduler.configuration.decode import decode
from scheduler.configuration.defaults import (
    DEFAULT_SCHEDULER_NAME,
    with_a_profile,
    with_profiles,
    with_scalars,
)
from scheduler.configuration.notes import Note, notes
from scheduler.configuration.types import API_VERSION, KIND, KubeSchedulerConfiguration
from scheduler.configuration.wording import quoted, was
from scheduler.configuration.yaml_text import read
from scheduler.errors import ConfigurationError, FieldError

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration in effect. Equal to another when the settings are.

    Attributes:
        settings: every default filled in.
        source: where it came from, for messages; "" for the defaults.
        folder: what relative paths of plugins start from.
        notes: what was set in vain.
    """

    settings: KubeSchedulerConfiguration
    source: str = field(default="", compare=False)
    folder: Path = field(default=Path(), compare=False)
    notes: tuple[Note, ...] = field(default=(), compare=False)


def load(path: str | Path) -> Configuration:
    """Read a configuration file.

    Raises:
        ConfigurationError: the file cannot be read, or everything that is wrong with what it says.
    """
    source = str(path)
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(
            [FieldError("", f"cannot be read: {error.strerror or error}")], source
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError([FieldError("", f"not UTF-8: byte {error.start}")], source) from error
    return parse(text, source, Path(path).parent)


def parse(
    text: str,
    source: str = "",
    folder: Path | None = None,
    *,
    scheduler_name: str = DEFAULT_SCHEDULER_NAME,
) -> Configuration:
    """Read a configuration from YAML or JSON.

    Args:
        text: one document.
        source: what to call it in messages.
        folder: what relative paths of plugins start from; the working directory by default.
        scheduler_name: of the only profile, when it has no name of its own.

    Raises:
        ConfigurationError: everything that is wrong with it.
    """
    document = read(text)
    errors = list(document.errors)
    if document.value is None and not errors:
        errors.append(FieldError("", "is empty"))
    elif not errors or isinstance(document.value, dict):
        errors.extend(_type_meta_faults(document.value, errors))
    if not isinstance(document.value, dict) or any(error.path in {"apiVersion", "kind"} for error in errors):
        raise ConfigurationError(errors, source)

    fields = {key: value for key, value in document.value.items() if key not in {"apiVersion", "kind"}}
    settings, decode_errors = decode(with_a_profile(fields, scheduler_name), KubeSchedulerConfiguration)
    errors.extend(decode_errors)
    if settings is None:
        raise ConfigurationError(errors, source)
    settings = with_scalars(settings)
    errors.extend(_not_below(errors, validation.faults(settings)))
    if errors:
        raise ConfigurationError(errors, source)
    return Configuration(with_profiles(settings), source, folder or Path(), tuple(notes(settings)))


def default(scheduler_name: str = DEFAULT_SCHEDULER_NAME) -> Configuration:
    """The configuration without a file: one profile with the default plugins."""
    return parse(f"apiVersion: {API_VERSION}\nkind: {KIND}\n", scheduler_name=scheduler_name)


def _type_meta_faults(document: Any, known: list[FieldError]) -> list[FieldError]:
    """Check what kind of document it is; without that, nothing else about it can be judged."""
    if not isinstance(document, dict):
        return [FieldError("", f"must be a mapping with apiVersion and kind, {was(document)}")]
    known_paths = {error.path for error in known}
    faults = []
    for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        found = document.get(key)
        if found == expected or key in known_paths:
            continue
        problem = f"is missing, must be {expected}" if found is None else f"must be {expected}, {was(found)}"
        faults.append(FieldError(key, problem))
        faults.extend(
            FieldError(other, f"unknown field, did you mean {quoted(key)}?")
            for other in document
            if other != key and other.lower() == key.lower()
        )
    return faults


def _not_below(errors: list[FieldError], more: Iterable[FieldError]) -> list[FieldError]:
    """Leave out faults of what has a fault already: there a default stands in for the value."""
    faulty = [error.path for error in errors]
    return [
        fault
        for fault in more
        if not any(fault.path == path or fault.path.startswith((f"{path}.", f"{path}[")) for path in faulty)
    ]
