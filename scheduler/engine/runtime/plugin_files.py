"""Plugins that are single .py files."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING

from scheduler.engine.runtime.checking import check_plugin
from scheduler.errors import PluginLoadError
from scheduler.files import read_regular
from scheduler.framework.interface import Plugin
from scheduler.urls import shown_url

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


class PluginFiles:
    """The loaded plugin files; two plugins of one file share its module.

    A module in use is registered in `sys.modules`, because annotations and pickles need it.
    """

    def __init__(self) -> None:
        self._modules: dict[Path, ModuleType] = {}
        self._before: dict[
            str, ModuleType | None
        ] = {}  # name of a module -> the previous module with this name

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
