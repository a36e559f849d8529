"""`custom-scheduler new`: creates a plugin package."""

from __future__ import annotations

import importlib.util
import keyword
import re
import shlex
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from scheduler.cli.options import CommandGroup, command, option
from scheduler.cli.process import program, python
from scheduler.configuration.defaults import UPSTREAM_PLUGINS
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.errors import ConfigurationError, FieldError

if TYPE_CHECKING:
    from collections.abc import Iterator

_TEMPLATES: Final = files("scheduler.cli") / "plugin_package"
_KINDS: Final = {
    "filter": "which nodes fit a pod",
    "score": "which of them are better",
    "prefilter": "which nodes a pod may use at all",
    "reserve": "what the plugin records when a node is chosen",
    "permit": "whether the binding waits",
    "prebind": "what must be done before the binding",
    "postbind": "what follows the binding",
    "queuesort": "which pod is tried first",
}
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*([-_][A-Za-z0-9]+)*")
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Za-z][a-z]*|[0-9]+")


class PluginName(NamedTuple):
    """A plugin's name as it is written in each place: QuietRacks, quiet_racks and quiet-racks."""

    of_class: str
    of_module: str
    of_package: str

    @classmethod
    def parse(cls, text: str) -> PluginName:
        """Read a name in any of these forms.

        Raises:
            ValueError: it is no valid name, or the name is taken.
        """
        if not _NAME.fullmatch(text):
            raise ValueError(
                f"letters and digits are expected, as in QuietRacks or quiet-racks, was {text!r}"
            )
        words = _WORD.findall(text)
        of_class = text if text[0].isupper() and text.isalnum() else "".join(map(str.capitalize, words))
        of_module = "_".join(words).lower()
        if of_class in IN_TREE or of_class in UPSTREAM_PLUGINS:
            raise ValueError(f"{of_class} is a plugin that exists already")
        if keyword.iskeyword(of_module):
            raise ValueError(f"{of_module} is a keyword of Python; choose another name")
        if importlib.util.find_spec(of_module) is not None:
            raise ValueError(
                f"{of_module} is a module of Python or of an installed package; choose another name"
            )
        return cls(of_class, of_module, of_module.replace("_", "-"))

    def put_into(self, template: str) -> str:
        """Return a template with the placeholder replaced by this name."""
        for placeholder, name in zip(("MyPlugin", "my_plugin", "my-plugin"), self, strict=True):
            template = template.replace(placeholder, name)
        return template


def plugin_files(name: PluginName, kind: str) -> Iterator[tuple[str, str]]:
    """Yield the files of a plugin package of a kind: name, text; the kind's own files replace common ones."""
    templates = {
        template.name: template
        for folder in (_TEMPLATES / "common", _TEMPLATES / kind)
        for template in folder.iterdir()
    }
    for _, template in sorted(templates.items()):
        yield name.put_into(template.name.removesuffix(".txt")), name.put_into(template.read_text())


@click.group(cls=CommandGroup)
def new() -> None:
    """Create a plugin of your own: a package with tests that pass."""


def _name(text: str) -> PluginName:
    try:
        return PluginName.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@command("plugin")
@click.argument("name", type=_name, metavar="NAME")
@option(
    "--kind",
    type=click.Choice([*_KINDS]),
    default="filter",
    help=f"{'; '.join(f'{kind}: {text}' for kind, text in _KINDS.items())}.",
)
@option(
    "--folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder to write to; without it, a new folder with the plugin's name.",
)
def plugin(name: PluginName, kind: str, folder: Path | None) -> None:
    """Write a package with a plugin, its tests, and a profile that enables it.

    NAME is written as QuietRacks or quiet-racks.
    """
    folder = folder or Path(name.of_package)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError([FieldError("--folder", f"{folder} exists already and is not empty")])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in plugin_files(name, kind):
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError([FieldError("--folder", f"{folder}: {error.strerror}")]) from error
    click.echo(f"{folder / name.of_module}.py contains the plugin. Next steps:\n")
    for step in _next_steps(folder):
        click.echo(f"    {step}")


def _next_steps(folder: Path) -> Iterator[str]:
    yield f"cd {shlex.quote(str(folder))}"
    if importlib.util.find_spec("pytest") is None:
        yield f"{python()} -m pip install pytest"
    yield f"{python()} -m pytest"
    yield f"{program()} check scheduler.yaml"
    yield f"{program()} demo --config scheduler.yaml"


new.add_command(plugin)
