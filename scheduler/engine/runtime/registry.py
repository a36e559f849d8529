"""Finds plugins: in-tree, entry points of installed packages, `module:Class`, a .py file, or a guest."""

from __future__ import annotations

import difflib
import importlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from scheduler.engine.runtime.checking import check_plugin
from scheduler.engine.runtime.plugin_files import PluginFiles, class_of, error_text
from scheduler.errors import PluginLoadError, SchedulerError
from scheduler.loop_work import calls_plugin_code, loop_work

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.metadata import EntryPoints

    from scheduler.framework.interface import Plugin

ENTRY_POINT_GROUP = "custom_scheduler.plugins"


class Guests(Protocol):
    """Source of WebAssembly guests; see `scheduler.extensions.wasm.library`."""

    def means(self, name: str, values: Mapping[str, Any]) -> bool:
        """Return whether an otherwise unknown plugin is a guest, by its name or its arguments."""
        ...

    def load(
        self, name: str, values: Mapping[str, Any], *, folder: Path | None, path: str, args_path: str
    ) -> type[Plugin]:
        """Return the class of a guest, or raise ConfigurationError."""
        ...


class Registry:
    """Plugin classes by the names that profiles use for them.

    Args:
        in_tree: name -> class of each in-tree plugin.
        guests: source of guests; None for no guests.
    """

    def __init__(self, in_tree: Mapping[str, type[Plugin]], guests: Guests | None = None) -> None:
        self._in_tree = dict(in_tree)
        self._guests = guests
        self._loaded: dict[tuple[str, Path | None], type[Plugin]] = {}
        self._loaded_guests: dict[tuple[str, Path | None, str], type[Plugin]] = {}
        self._failed: dict[tuple[object, ...], SchedulerError] = {}
        self._files = PluginFiles()

    def find_for(
        self, reference: str, values: Mapping[str, Any], *, folder: Path, path: str, args_path: str
    ) -> type[Plugin]:
        """Return the class of a profile's plugin, which may depend on the plugin's arguments.

        Args:
            reference: the plugin's name, as in `find`.
            values: the plugin's arguments in the profile.
            folder: the base folder of relative paths.
            path: the configuration path of the reference, for errors.
            args_path: the configuration path of the arguments, for errors.

        Raises:
            PluginLoadError: as `find`.
            ConfigurationError: the plugin is a guest that cannot run.
        """
        guests = self._guests
        if guests is None or not self._is_guest(reference, values):
            return self.find(reference, folder)
        key = (reference, folder, str(values.get("guestURL")))
        if key not in self._loaded_guests:
            with self._failing_once(*key, path):
                found = guests.load(reference, values, folder=folder, path=path, args_path=args_path)
                self._loaded_guests[key] = check_plugin(found, reference)
        return self._loaded_guests[key]

    @contextmanager
    def _failing_once(self, *key: object) -> Iterator[None]:
        """Raise the error of an earlier failure with this key at once, because loading may take long."""
        if key in self._failed:
            raise self._failed[key]
        try:
            yield
        except SchedulerError as error:
            self._failed[key] = error
            raise

    def _is_guest(self, reference: str, values: Mapping[str, Any]) -> bool:
        if self._guests is None or _is_python(reference) or self.knows(reference):
            return False
        return self._guests.means(reference, values)

    def find(self, reference: str, folder: Path | None = None) -> type[Plugin]:
        """Return the class of a profile's plugin.

        Args:
            reference: the name of an in-tree plugin or of an entry point, `module:Class`, `path/to/file.py`
                or `path/to/file.py:Class`.
            folder: the base folder of relative paths, usually the folder of the configuration file.

        Raises:
            PluginLoadError: there is no plugin of that name, or it is not valid.
        """
        if reference in self._in_tree:
            return self._in_tree[reference]
        key = (reference, folder)
        if key not in self._loaded:
            with self._failing_once(*key):
                self._loaded[key] = self._load(reference, folder)
        return self._loaded[key]

    def knows(self, name: str) -> bool:
        """Return whether a name is that of an in-tree plugin or of an installed entry point."""
        return name in self._in_tree or name in _entry_points().names

    def names(self) -> set[str]:
        """Return the names of all in-tree plugins and installed entry points."""
        return {*self._in_tree, *_entry_points().names}

    def may_know(self, reference: str, values: Mapping[str, Any]) -> bool:
        """Return whether a name may be that of a plugin, without reading files, modules and guests."""
        return _is_python(reference) or self.knows(reference) or self._is_guest(reference, values)

    def settle(self) -> None:
        """Mark the loaded plugins as active."""
        self._files.settle()

    def release(self) -> None:
        """Release the modules of plugin files; modules of installed packages stay loaded."""
        self._loaded.clear()
        self._loaded_guests.clear()
        self._failed.clear()
        self._files.release()

    @calls_plugin_code
    @loop_work("reload", lambda reference: f"import of {reference}")
    def _load(self, reference: str, folder: Path | None) -> type[Plugin]:
        path, _, class_name = reference.partition(":")
        if path.endswith(".py"):
            return self._files.load((folder or Path()) / path, class_name, reference)
        if class_name:
            return _from_module(path, class_name, reference)
        return self._from_entry_point(reference)

    def _from_entry_point(self, name: str) -> type[Plugin]:
        installed = _entry_points()
        found = sorted(installed.select(name=name), key=lambda point: point.value)
        if not found:
            close = difflib.get_close_matches(name, self.names(), n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise PluginLoadError(name, f"no plugin of that name, in-tree or installed{hint}")
        if len(found) > 1:
            where = ", ".join(f"{point.value} of {point.dist.name if point.dist else '?'}" for point in found)
            raise PluginLoadError(name, f"several installed packages offer it: {where}")
        try:
            loaded = found[0].load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit and CancelledError are failures of the module
            raise PluginLoadError(f"{name} ({found[0].value})", error_text(error)) from error
        return check_plugin(loaded, f"{name} ({found[0].value})")


def _is_python(reference: str) -> bool:
    """Return whether a reference is a Python file or module."""
    return ":" in reference or reference.endswith(".py")


def _entry_points() -> EntryPoints:
    """Return the plugin entry points of all installed packages."""
    from importlib.metadata import (
        entry_points,
    )  # the import is slow, and most profiles use in-tree plugins only

    return entry_points(group=ENTRY_POINT_GROUP)


def _from_module(module_name: str, class_name: str, reference: str) -> type[Plugin]:
    try:
        module = importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # as in `_from_entry_point`
        raise PluginLoadError(reference, error_text(error)) from error
    return check_plugin(class_of(module, class_name, reference), reference)
