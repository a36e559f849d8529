"""`custom-scheduler completion`: prints the script for shell completion."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

from scheduler.cli.options import command

_SHELLS: Final = ("bash", "zsh", "fish")


@command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the shell completion script of a shell.

    For bash and zsh, in this terminal and in future ones:

    \b
      source <(custom-scheduler completion bash)
      echo 'source <(custom-scheduler completion bash)' >> ~/.bashrc

    For fish:

    \b
      custom-scheduler completion fish > ~/.config/fish/completions/custom-scheduler.fish
    """  # noqa: D301 - after a backspace, click keeps the line breaks
    root = context.find_root()
    name = root.info_name or ""
    # The name that click itself uses.
    variable = f"_{name}_COMPLETE".replace("-", "_").replace(".", "_").upper()
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(root.command, {}, name, variable).source())
