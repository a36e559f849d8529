"""The last configuration that was in force, kept in a file of our own: for a start that finds a wrong one.

A scheduler that was told to stay with what it has must not be gone for good when its container is restarted. The file is
where only this process writes; to write into a ConfigMap would take the right to say what code the scheduler runs.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from scheduler.app.reloader import named_files
from scheduler.configuration.load import parse
from scheduler.configuration.write import to_yaml
from scheduler.errors import ConfigurationError, FieldError
from scheduler.files import read_regular
from scheduler.wasm.source import MOST_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.configuration.load import Configuration

logger = logging.getLogger(__name__)


class _Kept(msgspec.Struct):
    """What is in the file.

    Attributes:
        source: where the configuration came from.
        digest: of it, with its files.
        text: the configuration in today's form.
        files: path, from where the configuration was -> content, of plugins and guests that it names.
    """

    source: str
    digest: bytes
    text: str
    files: dict[str, bytes]


class LastGood:
    """One file.

    Args:
        path: of the file; beside it the plugin files are put when they are needed again.
        source: where the configuration comes from; what was kept of another is not used.
    """

    def __init__(self, path: Path, source: str) -> None:
        self._path = path
        self._source = source

    def keep(self, configuration: Configuration, digest: bytes) -> None:
        """Keep a configuration as it was read, flags left aside; that it cannot be written is no more than a pity."""
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
            new.replace(self._path)  # all of it or nothing
        except (OSError, ValueError) as error:  # the second of a name that no file can have
            with suppress(OSError):  # what is there of it would only take the room
                new.unlink(missing_ok=True)
            fields = {"file": str(self._path), "error": str(error)}
            logger.warning("Configuration in force cannot be kept for a restart", extra=fields)

    def read_if_usable(self) -> tuple[Configuration, bytes] | None:
        """Return what `read` does; None also where it cannot be read, which is logged: it is not what has to be mended."""
        try:
            return self.read()
        except ConfigurationError as error:
            logger.warning("The last good configuration cannot be used", extra={"error": str(error)})
            return None

    def read(self) -> tuple[Configuration, bytes] | None:
        """Return what was kept, and its digest; None if nothing was.

        Raises:
            ConfigurationError: it cannot be read any more.
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
        return parse(kept.text, f"{kept.source} (the last good one)", folder), kept.digest
