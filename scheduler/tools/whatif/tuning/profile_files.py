"""Files of candidates: the configuration as the user wrote it, with the values of the candidate."""

from __future__ import annotations

import os
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from scheduler.configuration.write import converted_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scheduler.configuration.load import Configuration

_WIDTH: Final = 110
_FILES: Final = (".py", ".wasm")


def file_of(configuration: Configuration, folder: Path, comment: Iterable[str]) -> str:
    """Return a configuration as YAML for another folder.

    Args:
        configuration: the configuration.
        folder: the folder of the file; relative paths of plugins start from it.
        comment: the paragraphs of the comment at the beginning.
    """
    converted = deepcopy(dict(configuration.converted))
    for entry in _plugins_in(converted):
        path, colon, name = str(entry.get("name", "")).partition(":")
        if path.endswith(_FILES) and not Path(path).is_absolute():
            entry["name"] = f"{os.path.relpath(configuration.folder / path, folder)}{colon}{name}"
    lines = [
        line
        for each in comment
        for line in wrap(each, _WIDTH, break_on_hyphens=False, break_long_words=False)
    ]
    head = "".join(f"# {line}\n" for line in lines)
    return head + converted_yaml(replace(configuration, converted=converted))


def _plugins_in(converted: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every entry of a configuration that names a plugin."""
    for profile in converted.get("profiles") or ():
        for plugin_set in (profile.get("plugins") or {}).values():
            for entries in (plugin_set or {}).values():
                yield from entries or ()
        yield from profile.get("pluginConfig") or ()
