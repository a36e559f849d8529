"""Finds the guests of profiles; the only module of this package that works without wasmtime."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from scheduler.configuration.defaults import enabled_names
from scheduler.configuration.profile_plugins import decode_args
from scheduler.errors import ConfigurationError, FieldError
from scheduler.extensions.wasm.guest_source import GuestArgs, guest_file, read_guest
from scheduler.urls import shown_text, shown_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.configuration.load import Configuration
    from scheduler.framework.interface import Plugin

_EXTRA = "custom-scheduler[wasm]"
_URL = "guestURL"
_MEANT = frozenset({"guesturl", "guesturi"})


class GuestLibrary:
    """Reads and compiles guests.

    A profile names a guest in one of two ways: by any name, with a `guestURL` in the plugin's arguments, as in
    kube-scheduler-wasm-extension; or by a path that ends in `.wasm`.
    """

    def __init__(self) -> None:
        self._prepared: Mapping[tuple[str, Path], bytes | Exception] = {}

    def prepare(self, configuration: Configuration) -> None:
        """Read and compile all guests of a configuration, so that building its profiles does not wait.

        Must run in another thread than the loop's. `load` raises the errors.
        """
        prepared: dict[tuple[str, Path], bytes | Exception] = {}
        for url in set(guest_urls(configuration)):
            try:
                content = read_guest(url, configuration.folder)
                prepared[url, configuration.folder] = content
                _compiled(content)
            except Exception as error:  # noqa: BLE001 - kept for `load`, which knows the path of the setting
                prepared.setdefault((url, configuration.folder), error)
        self._prepared = prepared

    def means(self, name: str, values: Mapping[str, Any]) -> bool:
        """Return whether an otherwise unknown plugin is a guest, by its name or its arguments.

        A misspelt `guestURL` counts too, so that the error message names it.
        """
        return is_guest_file(name) or any(key.lower().replace("_", "") in _MEANT for key in values)

    def load(
        self, name: str, values: Mapping[str, Any], *, folder: Path | None, path: str, args_path: str
    ) -> type[Plugin]:
        """Return the plugin class of a guest.

        Args:
            name: its name in the profile.
            values: its arguments.
            folder: base of relative paths.
            path: path of the setting that names the guest, for errors.
            args_path: path of its arguments.

        Raises:
            ConfigurationError: wasmtime is not installed, the arguments are invalid, or the guest cannot be found or run.
        """
        args = decode_args(GuestArgs, dict(values), plugin=name, path=args_path)
        named_by_path = is_guest_file(name)
        if named_by_path and args.guest_url:
            raise _fault(
                f"{args_path}.{_URL}",
                f"the plugin's name {shown_url(name)!r} already is the path of the guest",
            )
        where = path if named_by_path else f"{args_path}.{_URL}"
        url = name if named_by_path else args.guest_url
        if not url:
            raise _fault(where, "wasm: guestURL is required")
        try:
            from scheduler.extensions.wasm.guest import GuestError
            from scheduler.extensions.wasm.guest_plugin import guest_class  # needs the optional extra
        except ModuleNotFoundError as error:
            if error.name != "wasmtime":
                raise
            raise _fault(
                where,
                f"the guest {shown_url(name)!r} needs WebAssembly, which is optional: pip install {_EXTRA!r}",
            ) from error
        try:
            guest = _compiled(self._content(url, folder))
        except (OSError, ValueError) as error:
            message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise _fault(
                where, f"wasm: error reading guestURL {shown_url(url)}: {shown_text(message, url)}"
            ) from error
        except GuestError as error:
            raise _fault(where, str(error)) from error
        return guest_class(PurePath(name).stem if named_by_path else name, guest)

    def _content(self, url: str, folder: Path | None) -> bytes:
        prepared = self._prepared.get((url, folder or Path()))
        if isinstance(prepared, bytes):
            return prepared
        if prepared is not None:
            raise prepared
        return read_guest(url, folder)


def _compiled(content: bytes) -> Any:
    from scheduler.extensions.wasm.guest import compile_guest  # needs the optional extra

    return compile_guest(content)


def is_guest_file(name: str) -> bool:
    """Return whether a plugin's name is the path of a guest."""
    return name.endswith(".wasm")


def guest_urls(configuration: Configuration) -> Iterator[str]:
    """Yield the URLs of the guests of a configuration."""
    for profile in configuration.settings.profiles:
        names = enabled_names(profile.plugins)
        yield from (name for name in names if is_guest_file(name))
        for config in profile.plugin_config:
            url = config.args.get(_URL)
            if config.name in names and isinstance(url, str) and url:
                yield url


def guest_files(configuration: Configuration) -> Iterator[Path]:
    """Yield the guests of a configuration that are files."""
    for url in dict.fromkeys(guest_urls(configuration)):
        path = guest_file(url, configuration.folder)
        if path is not None:
            yield path


def _fault(path: str, problem: str) -> ConfigurationError:
    return ConfigurationError([FieldError(path, problem)])
