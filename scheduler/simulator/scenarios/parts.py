"""Common parts of scenario files, of the simulated API server and of simulations."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from scheduler.configuration.decode import decode
from scheduler.configuration.load import read_file
from scheduler.configuration.yaml_text import read
from scheduler.errors import ConfigurationError, FieldError
from scheduler.objects.durations import Duration
from scheduler.objects.wording import was

if TYPE_CHECKING:
    from pathlib import Path


T = TypeVar("T", bound=msgspec.Struct)


class TimedPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One action: one field beside `at`, its time since the start."""

    at: Duration

    def __post_init__(self) -> None:
        if len(self.actions) != 1:
            names = ", ".join(name for name in self.__struct_encode_fields__ if name != "at")
            raise ValueError(f"must have exactly one of {names} beside at")

    @property
    def actions(self) -> list[str]:
        """The names of the actions: one, in a valid part."""
        return [name for name in self.__struct_fields__ if name != "at" and getattr(self, name) is not None]


def read_document(path: Path, cls: type[T]) -> T:
    """Read a file of one document.

    Raises:
        ConfigurationError: all errors of the file.
    """
    document = read(read_file(path))
    if document.errors:
        raise ConfigurationError(document.errors, str(path))
    if not isinstance(document.value, dict):
        raise ConfigurationError([FieldError("", f"must be a mapping, {was(document.value)}")], str(path))
    found, errors = decode(document.value, cls)
    if found is None or errors:
        raise ConfigurationError(errors, str(path))
    return found
