"""Finds plugins: in-tree, entry points of installed packages, `module:Class`, a single .py file, or a guest."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import sys
import traceback
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from scheduler.engine.runtime.plugin_classes import check_plugin
from scheduler.errors import PluginLoadError, SchedulerError
from scheduler.files import read_regular
from scheduler.framework.interface import Plugin
from scheduler.loop_work import calls_plugin_code, loop_work
from scheduler.urls import shown_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.metadata import EntryPoints
    from types import ModuleType


class PluginFiles:
    """The loaded plugin files; two plugins of one file share its module.

    A module in use is registered in `sys.modules`, because annotations and pickles need it.
    """

    def __init__(self) -> None:
        self._modules: dict[Path, ModuleType] = {}
        # name of a module -> the previous module with this name
        self._before: dict[str, ModuleType | None] = {}

    def load(self, path: Path, class_name: str, reference: str) -> type[Plugin]:
        """Return a plugin class of a file.

        Args:
            path: the file.
            class_name: the name of a class; "" for the only plugin class.
            reference: the plugin's name in the configuration, for messages.

        Raises:
            PluginLoadError: the file cannot be read, raised an exception, or contains no valid plugin of that name;
                its module is dropped unless another of its plugins is in use.
        """
        try:
            path = path.resolve(strict=True)
        except (
            OSError,
            RuntimeError,
            ValueError,
        ) as error:  # RuntimeError and ValueError: circular links, a NUL
            raise PluginLoadError(reference, f"no such file: {path}") from error
        known = self._modules.get(path)
        if known is not None:
            return _plugin_of(known, class_name, reference)
        # A unique name, so that two files called gpu.py can be loaded together.
        digest = hashlib.sha256(str(path).encode()).hexdigest()[:12]
        name = f"custom_scheduler_plugin_{path.stem}_{digest}"
        before = sys.modules.get(name)  # a module of an earlier registry
        try:
            module = _execute(path, name, reference)
            found = _plugin_of(module, class_name, reference)
        except BaseException:
            sys.modules.pop(name, None)
            if before is not None:
                sys.modules[name] = before
            raise
        self._modules[path] = module
        self._before[name] = before
        return found

    def settle(self) -> None:
        """Drop the previous modules of these names: the current modules are active."""
        self._before = dict.fromkeys(self._before)

    def release(self) -> None:
        """Remove the modules from `sys.modules`, and restore the previous modules of their names."""
        for module in self._modules.values():
            name = module.__name__
            if sys.modules.get(name) is module:
                del sys.modules[name]
                before = self._before.get(name)
                if before is not None:
                    sys.modules[name] = before
        self._modules.clear()
        self._before.clear()


def class_of(module: ModuleType, class_name: str, reference: str) -> object:
    """Return an attribute of a module.

    Raises:
        PluginLoadError: the module has no such attribute.
    """
    try:
        return getattr(module, class_name)
    except AttributeError as error:
        others = ", ".join(plugin.__name__ for plugin in _plugins_in(module)) or "none"
        raise PluginLoadError(
            reference, f"{module.__name__} has no {shown_url(class_name)}; its plugins are: {others}"
        ) from error


def error_text(error: BaseException, path: Path | None = None) -> str:
    """Return a message for a failed import, with the line of the file that failed."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    place = f" (line {lines[-1]})" if lines else ""  # a SyntaxError contains its line
    return f"cannot be imported: {type(error).__name__}: {error}{place}"


def _execute(path: Path, name: str, reference: str) -> ModuleType:
    loader = SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # type annotations are resolved through sys.modules
    try:
        # Compiled here, not by the loader: the loader writes bytecode beside the file, and would use it for a newer
        # version with the same size and second of modification.
        code = loader.source_to_code(read_regular(path), str(path))
        exec(code, module.__dict__)  # noqa: S102 - the operator chooses plugin code
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # Every exception comes from the file, because no other code runs in this call.
        raise PluginLoadError(reference, error_text(error, path)) from error
    return module


def _plugin_of(module: ModuleType, class_name: str, reference: str) -> type[Plugin]:
    if class_name:
        return check_plugin(class_of(module, class_name, reference), reference)
    found = _plugins_in(module)
    if len(found) != 1:
        names = ", ".join(plugin.__name__ for plugin in found) or "none"
        raise PluginLoadError(
            reference, f"expected one plugin class in the file, found {names}; name it as FILE:CLASS"
        )
    return check_plugin(found[0], reference)


def _plugins_in(module: ModuleType) -> list[type[Plugin]]:
    """Return the plugin classes that are defined in a module itself."""
    members = (member for member in vars(module).values() if isinstance(member, type))
    own = (
        member for member in members if issubclass(member, Plugin) and member.__module__ == module.__name__
    )
    return list(dict.fromkeys(own))


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
        module = import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # as in `_from_entry_point`
        raise PluginLoadError(reference, error_text(error)) from error
    return check_plugin(class_of(module, class_name, reference), reference)
