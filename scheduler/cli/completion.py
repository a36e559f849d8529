"""`custom-scheduler completion`: what makes a shell complete its commands and flags."""

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
    """Print what makes a shell complete commands and flags.

    For bash and zsh, in this terminal and in those to come:

    \b
      source <(custom-scheduler completion bash)
      echo 'source <(custom-scheduler completion bash)' >> ~/.bashrc

    For fish:

    \b
      custom-scheduler completion fish > ~/.config/fish/completions/custom-scheduler.fish
    """  # noqa: D301 - click leaves lines as they are after a backspace
    root = context.find_root()
    name = root.info_name or ""
    # As click itself looks for it.
    variable = f"_{name}_COMPLETE".replace("-", "_").replace(".", "_").upper()
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(root.command, {}, name, variable).source())
