"""The last active configuration, kept in a file of the process: for a start with an invalid configuration.

A scheduler that keeps its configuration after an invalid change must also survive a restart of its container. Only this
process writes to the file; a ConfigMap would need the right to change the code that the scheduler runs.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from scheduler.configuration.load import parse
from scheduler.configuration.write import to_yaml
from scheduler.daemon.app.reloader import named_files
from scheduler.errors import ConfigurationError, FieldError
from scheduler.extensions.wasm.guest_source import MOST_BYTES
from scheduler.files import read_regular

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.configuration.load import Configuration

logger = logging.getLogger(__name__)


class _Kept(msgspec.Struct):
    """The content of the file.

    Attributes:
        source: the source of the configuration.
        digest: digest of the configuration and its files.
        text: the configuration in the current version.
        files: path relative to the configuration -> content, of its plugins and WebAssembly guests.
    """

    source: str
    digest: bytes
    text: str
    files: dict[str, bytes]


class LastGood:
    """One file.

    Args:
        path: path of the file; plugin files are restored beside it.
        source: the source of the configuration; a file of another source is not used.
    """

    def __init__(self, path: Path, source: str) -> None:
        self._path = path
        self._source = source

    def keep(self, configuration: Configuration, digest: bytes) -> None:
        """Keep a configuration as it was read, without flags; a failed write is only logged."""
        folder = configuration.folder
        named = {
            path: path.relative_to(folder)
            for path in named_files(configuration)
            if path.is_relative_to(folder)
        }
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            files = {str(name): read_regular(path, MOST_BYTES) for path, name in named.items()}
            kept = _Kept(self._source, digest, to_yaml(configuration), files)
            new.write_bytes(msgspec.json.encode(kept))
            new.replace(self._path)  # atomic
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            with suppress(OSError):  # an incomplete file would only use space
                new.unlink(missing_ok=True)
            fields = {"file": str(self._path), "error": str(error)}
            logger.warning("Active configuration cannot be kept for a restart", extra=fields)

    def read_if_usable(self) -> tuple[Configuration, bytes] | None:
        """Return the result of `read`; None also if the file cannot be read, which is logged but is no error."""
        try:
            return self.read()
        except ConfigurationError as error:
            logger.warning("The last good configuration cannot be used", extra={"error": str(error)})
            return None

    def read(self) -> tuple[Configuration, bytes] | None:
        """Return the kept configuration and its digest; None if there is none.

        Raises:
            ConfigurationError: the file cannot be read any more.
        """
        try:
            kept = msgspec.json.decode(read_regular(self._path, 2 * MOST_BYTES), type=_Kept)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigurationError([FieldError("", f"cannot be read: {error}")], str(self._path)) from error
        if kept.source != self._source:
            return None
        folder = self._path.with_name(f"{self._path.name}.files")
        try:
            for name, content in kept.files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        except OSError as error:
            problem = f"its files cannot be put there: {error.strerror or error}"
            raise ConfigurationError([FieldError("", problem)], str(folder)) from error
        return parse(kept.text, f"{kept.source} (the last good one)", folder, version=None), kept.digest
